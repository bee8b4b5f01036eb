"""Function plugins: definition, use, tuning, errors."""

from __future__ import annotations

import enum
from typing import List, Tuple

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, one_plugin, op_of, wrap

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def scale(plugin_id: str = "") -> str:
    """Registers y = factor * x."""
    plugin_id = plugin_id or new_id("scale")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, factor: float) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, factor: float, outputs: Tuple[trtp.Tensor], stream: int) -> None:
        np.multiply(np.asarray(x), np.float32(factor), out=np.asarray(outputs[0]))

    return plugin_id


def circ_pad() -> str:
    """Registers circular padding with a Python implementation."""
    plugin_id = new_id("circ_pad")

    @trtp.register(plugin_id)
    def desc(inp0: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
        out = inp0.like()
        for i in range(np.size(pads) // 2):
            out.shape_expr[inp0.ndim - i - 1] += int(pads[2 * i] + pads[2 * i + 1])
        return out

    @trtp.impl(plugin_id)
    def run(inp0, pads, outputs, stream):
        np.copyto(np.asarray(outputs[0]), wrap(np.asarray(inp0), pads))

    return plugin_id


def test_add_to_a_network_and_run():
    net, layer = one_plugin(scale(), X, factor=2.5)
    assert layer.get_output(0).shape == X.shape
    np.testing.assert_array_equal(build(net, layer.get_output(0))(X), X * np.float32(2.5))


def test_every_attribute_type_arrives():
    plugin_id = new_id("attributes")
    elements = [np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_]
    seen: dict[str, object] = {}

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc,
        i: int,
        f: float,
        s: str,
        t: bool,
        b: bytes,
        a0: npt.NDArray[np.int8],
        a1: npt.NDArray[np.int16],
        a2: npt.NDArray[np.int32],
        a3: npt.NDArray[np.int64],
        a4: npt.NDArray[np.float16],
        a5: npt.NDArray[np.float32],
        a6: npt.NDArray[np.float64],
        a7: npt.NDArray[np.bool_],
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, b, a7, a6, a5, a4, a3, a2, a1, a0, t, s, f, i, outputs, stream):
        seen.update(i=i, f=f, s=s, t=t, b=b, arrays=[a0, a1, a2, a3, a4, a5, a6, a7])
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    arrays = [np.array([1, 0, 1], e) for e in elements]
    given = {f"a{k}": a for k, a in enumerate(arrays)}
    net, layer = one_plugin(
        plugin_id, X, i=-(2**62), f=0.1, s="héllo", t=True, b=b"\0\xff", **given
    )
    engine = build(net, layer.get_output(0))
    engine(X)
    assert (seen["i"], seen["f"], seen["s"], seen["b"]) == (-(2**62), 0.1, "héllo", b"\0\xff")
    assert seen["t"] is True
    for got, expected in zip(seen["arrays"], arrays):  # type: ignore[call-overload]
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_attributes_with_default_values_may_be_left_out():
    plugin_id = new_id("scale")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, factor: float, power: int = 2) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, factor, power, outputs, stream):
        np.copyto(np.asarray(outputs[0]), factor * np.asarray(x) ** power)

    for given, power in [({}, 2), ({"power": 3}, 3)]:
        net, layer = one_plugin(plugin_id, X, factor=2.0, **given)
        np.testing.assert_array_equal(build(net, layer.get_output(0))(X), 2 * X**power)
    with pytest.raises(TypeError, match="attribute 'factor' is missing"):
        one_plugin(plugin_id, X, power=3)


# Signatures ------------------------------------------------------------------------------------


def no_hint(x, factor: float) -> trtp.TensorDesc: ...
def no_return(x: trtp.TensorDesc): ...
def wrong_return(x: trtp.TensorDesc) -> int: ...
def list_return(x: trtp.TensorDesc) -> List[trtp.TensorDesc]: ...
def tensor_last(factor: float, x: trtp.TensorDesc) -> trtp.TensorDesc: ...
def no_tensor(factor: float) -> trtp.TensorDesc: ...
def bad_attribute(x: trtp.TensorDesc, axes: dict) -> trtp.TensorDesc: ...
def bad_array(x: trtp.TensorDesc, axes: npt.NDArray[np.uint32]) -> trtp.TensorDesc: ...
def default(x: trtp.TensorDesc = None) -> trtp.TensorDesc: ...
def variable(x: trtp.TensorDesc, *axes: int) -> trtp.TensorDesc: ...
def unknown(x: trtp.TensorDesc, y: Nowhere) -> trtp.TensorDesc: ...  # noqa: F821


@pytest.mark.parametrize(
    "function, message",
    [
        (no_hint, "parameter 'x' has no type hint"),
        (no_return, "return type is not annotated"),
        (wrong_return, "the return type decides the number of outputs"),
        (list_return, "the return type decides the number of outputs"),
        (tensor_last, "tensor 'x' follows attribute 'factor'; tensors come first"),
        (no_tensor, "needs at least one input"),
        (bad_attribute, "attribute 'axes' has the type dict; expected int, float, str"),
        (bad_array, "attribute 'axes'"),
        (default, "tensor 'x' has a default value"),
        (variable, "takes a variable number"),
        (unknown, "cannot be resolved.*Nowhere"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_register_says_what_is_wrong_with_a_signature(function, message):
    with pytest.raises(TypeError, match=message) as caught:
        trtp.register(new_id("bad"))(function)
    assert f"`{function.__name__}(" in str(caught.value), "the user's signature is quoted"


def swapped(factor, x, outputs, stream): ...
def too_few(outputs, stream): ...
def no_outputs(x, factor, stream): ...
def unknown_attribute(x, facto, outputs, stream): ...
def wrong_hint(x: trtp.TensorDesc, outputs, stream): ...
def wrong_attribute_hint(x, factor: int, outputs, stream): ...
def returns(x, outputs, stream) -> int: ...
def default_factor(x, factor=2.0, outputs=(), stream=0): ...


@pytest.mark.parametrize(
    "function, message",
    [
        (swapped, "must begin with 1 tensors"),
        (too_few, "must begin with 1 tensors"),
        (no_outputs, "must end with outputs, stream"),
        (unknown_attribute, r"'facto' is not an attribute .*factor: float"),
        (wrong_hint, "annotate it as Tensor"),
        (wrong_attribute_hint, "annotated as int, but registered as `factor: float`"),
        (returns, "must return None"),
        (default_factor, "'factor' has a default value"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_impl_says_what_is_wrong_with_a_signature(function, message):
    plugin_id = scale()
    with pytest.raises(TypeError, match=message) as caught:
        trtp.impl(plugin_id)(function)
    assert f"`{function.__name__}(" in str(caught.value)


@pytest.mark.parametrize("bad", ["noseparator", "a::b::c", "a.b::c", "::b", "a::", 7])
def test_plugin_ids_are_checked(bad):
    with pytest.raises(ValueError, match="is not a plugin id"):
        trtp.register(bad)


@pytest.mark.parametrize("decorator", [trtp.impl, trtp.autotune, trtp.aot_impl])
def test_other_functions_need_a_registration(decorator):
    with pytest.raises(ValueError, match="'never::seen' is not registered"):
        decorator("never::seen")


def test_an_id_is_registered_once_per_place_in_the_source():
    plugin_id = scale()
    scale(plugin_id)  # the same source location again

    def other(x: trtp.TensorDesc) -> trtp.TensorDesc: ...

    with pytest.raises(ValueError, match="is registered already, by scale.<locals>.desc"):
        trtp.register(plugin_id)(other)
    net, layer = one_plugin(plugin_id, X, factor=2.0)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(X), X * 2)


def test_register_alone_again_keeps_the_implementation():
    plugin_id = new_id("cell")

    def cell(shift):
        @trtp.register(plugin_id)
        def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
            out = x.like()
            out.shape_expr[0] += shift
            return out

    cell(0)

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = 7

    cell(1)
    net, layer = one_plugin(plugin_id, X)
    result = build(net, layer.get_output(0))(X)
    np.testing.assert_array_equal(result, np.full((3, 3, 4), 7, np.float32))


# Use -------------------------------------------------------------------------------------------


def test_use_says_what_is_wrong_with_the_arguments():
    plugin_id = scale()
    op = op_of(plugin_id)
    net = network()
    x = net.add_input("x", trt.float32, (2,))
    with pytest.raises(TypeError, match=r"takes 1 network tensors \(x\) first; nothing came"):
        op(factor=1.0)
    with pytest.raises(TypeError, match="ndarray came"):
        op(X, factor=1.0)
    with pytest.raises(TypeError, match="attribute 'factor' is missing.*factor: float"):
        op(x)
    with pytest.raises(TypeError, match="has no attribute 'facto'.*factor: float"):
        op(x, facto=1.0)
    for bad in ("2", None, True, [1.0]):
        with pytest.raises(TypeError, match="`factor: float` cannot be"):
            op(x, factor=bad)
    with pytest.raises(TypeError, match="was given twice"):
        op(x, 1.0, factor=1.0)
    assert "factor" not in repr(op(x, 2))  # an int serves as float, by position too


def test_array_attributes_are_checked():
    op = op_of(circ_pad())
    x = network().add_input("x", trt.float32, (2, 2))
    with pytest.raises(TypeError, match="cannot be an array of float64"):
        op(x, pads=np.array([0.5, 1]))
    with pytest.raises(TypeError, match="must be INT32 .*, but is 1099511627776"):
        op(x, pads=np.array([2**40, 1]))
    op(x, pads=[1, 2])


def test_unknown_plugins_are_named():
    plugin_id = scale()
    with pytest.raises(AttributeError, match="no plugin is registered in the namespace 'nowhere'"):
        _ = trt.plugin.op.nowhere
    with pytest.raises(AttributeError, match=f"registered are: .*{plugin_id}"):
        getattr(getattr(trt.plugin.op, plugin_id.split("::")[0]), "nothing")  # noqa: B009
    assert plugin_id.split("::")[0] in dir(trt.plugin.op)


def test_register_function_is_checked_when_types_are_inferred():
    def expect(function, message):
        plugin_id = trtp_id = new_id("infer")
        trtp.register(plugin_id)(function)

        @trtp.impl(trtp_id)
        def run(x, outputs, stream): ...

        with pytest.raises(trt.Error, match=message) as caught:
            one_plugin(plugin_id, X)
        assert plugin_id in str(caught.value)

    def one_of_two(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        return x.like()  # type: ignore[return-value]

    def nothing(x: trtp.TensorDesc) -> trtp.TensorDesc: ...

    def the_input(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x

    def negative(x: trtp.TensorDesc) -> trtp.TensorDesc:
        out = x.like()
        out.shape_expr[0] -= 5
        return out

    def writes_input(x: trtp.TensorDesc) -> trtp.TensorDesc:
        x.shape_expr[0] = 1
        return x.like()

    def size_not_returned(x: trtp.TensorDesc) -> trtp.TensorDesc:
        size = trtp.size_tensor(x.shape_expr[0], x.shape_expr[0])
        return trtp.from_shape_expr((size.expr(),), trt.float32)

    expect(one_of_two, r"returned 1 outputs; its signature `one_of_two\(.*says 2")
    expect(nothing, "returned NoneType for output 0; expected a TensorDesc")
    expect(the_input, "returned the input 0 itself")
    expect(negative, "extent 0 of output 0 is -3")
    expect(size_not_returned, "not among the outputs")
    with pytest.raises(trt.Error, match="read-only"):
        plugin_id = new_id("infer")
        trtp.register(plugin_id)(writes_input)
        trtp.impl(plugin_id)(lambda x, outputs, stream: None)
        one_plugin(plugin_id, X)


# Running ---------------------------------------------------------------------------------------


def test_a_returned_value_is_an_error():
    plugin_id = new_id("returning")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        return np.asarray(x)

    net, layer = one_plugin(plugin_id, X)
    with pytest.raises(trt.Error, match="returned a value; it must write its results into"):
        build(net, layer.get_output(0))(X)


def test_outputs_of_the_wrong_shape_cannot_be_written():
    plugin_id = new_id("wrong_shape")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.copyto(np.asarray(outputs[0]), np.zeros((2, 3, 5), np.float32))

    net, layer = one_plugin(plugin_id, X)
    with pytest.raises(ValueError, match="broadcast"):
        build(net, layer.get_output(0))(X)


def test_in_place_plugin():
    """The chain of two in-place additions of TensorRT's sample."""
    plugin_id = new_id("add_")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, delta: int) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x, delta, outputs, stream):
        assert outputs[0].is_aliased and outputs[0].get_aliased() is x
        assert outputs[0].data_ptr == x.data_ptr
        np.asarray(x)[...] += delta

    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    first = net.add_plugin(op_of(plugin_id)(x, delta=1))
    second = net.add_plugin(op_of(plugin_id)(first.get_output(0), delta=10))
    engine = build(net, second.get_output(0))
    context = engine.engine.create_execution_context()
    memory = X.copy()
    for name in ("x", "y0"):
        context.set_tensor_address(name, memory.ctypes.data)
    context.execute_async_v3(0)
    np.testing.assert_array_equal(memory, X + 11)


# Tuning ----------------------------------------------------------------------------------------


class Tactic(enum.IntEnum):
    SLOW = 1
    FAST = 2


def test_the_fastest_tactic_is_chosen():
    plugin_id = new_id("tactics")
    seen = []

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]) -> List[trtp.AutoTuneCombination]:
        assert tuple(x.shape) == X.shape and x.shape.numel() == X.size
        assert outputs[0].dtype == trt.float32
        c = trtp.AutoTuneCombination()
        c.pos([0, 1], "FP32|FP16")
        c.tactics([Tactic.SLOW, Tactic.FAST])
        return [c]

    @trtp.impl(plugin_id)
    def run(x, outputs, stream, tactic):
        seen.append(Tactic(tactic))
        if tactic == Tactic.SLOW:
            sum(range(200_000))
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    net, layer = one_plugin(plugin_id, X)
    engine = build(net, layer.get_output(0))
    assert set(seen) == {Tactic.SLOW, Tactic.FAST}
    seen.clear()
    np.testing.assert_array_equal(engine(X), X)
    assert seen == [Tactic.FAST]
    assert "FAST" in engine.inspect()


@pytest.mark.parametrize(
    "combination, message",
    [
        (lambda: trtp.AutoTuneCombination("FP32|FP16, FP32"), None),
        (lambda: trtp.AutoTuneCombination("FP32|FP16, FP32|FP16|BF16"), "FP32|FP16|BF16"),
        (lambda: trtp.AutoTuneCombination("FP32"), "FP32"),
        (lambda: trtp.AutoTuneCombination("FP32, FP99"), "FP99"),
        (lambda: "FP32, FP32", "returned str"),
        (lambda: [1], "a list with int"),
    ],
)
def test_autotune_errors(combination, message):
    plugin_id = new_id("autotune")
    trtp.register(plugin_id)(plain_desc)

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = 0

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        made = combination()
        return [made] if isinstance(made, trtp.AutoTuneCombination) else made

    net, layer = one_plugin(plugin_id, X)
    if message is None:
        build(net, layer.get_output(0))
        return
    with pytest.raises(trt.Error) as caught:
        build(net, layer.get_output(0))
    assert message in str(caught.value)


def plain_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


# Compiled implementations ----------------------------------------------------------------------

SHIFT = """
template <class T> void shift(const T* x, int32_t n, float by, T* y, int64_t i, int64_t, int64_t) {
  for (int32_t j = 0; j < n; ++j) y[i * n + j] = x[i * n + j] + by;
}
"""


def shift(with_impl: bool = False) -> str:
    """`impl`, where it is there, shows by its results that it was called."""
    plugin_id = new_id("shift")

    @trtp.register(plugin_id, repeatable=not with_impl)
    def desc(x: trtp.TensorDesc, by: float, unused: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def compile(x, by, outputs, tactic):
        rows, columns = x.shape_expr[0], x.shape_expr[1]
        extra = trtp.SymIntExprs(2)
        extra[0] = trtp.SymInt32(columns)
        extra[1] = trtp.SymFloat32(by)
        code = aot.cpp(SHIFT, "shift", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(grid_x=rows), extra

    if with_impl:

        @trtp.impl(plugin_id)
        def run(x, by, outputs, stream):
            np.asarray(outputs[0])[...] = -1

    return plugin_id


def test_compiled_kernel_for_dynamic_shapes(tmp_path):
    plugin_id = shift()
    net = network()
    x = net.add_input("x", trt.float32, (-1, -1))
    layer = net.add_plugin(op_of(plugin_id)(x, by=0.5, unused=1))
    engine = build(net, layer.get_output(0), shapes={"x": ((1, 1), (8, 8), (64, 64))})
    engine.save(tmp_path / "engine")
    with pytest.raises(trt.Error, match="host code|allow"):
        # Another process: this one trusts what it compiled itself.
        run_elsewhere(tmp_path, False)
    assert run_elsewhere(tmp_path, True) == [[1.5, 2.5]]
    for shape in [(1, 1), (3, 7), (64, 64)]:
        value = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(engine(value), value + np.float32(0.5))


def run_elsewhere(folder, allow):
    """The saved engine on [[1, 2]] in a process that knows no plugin."""
    import json
    import subprocess
    import sys

    program = (
        "import sys, json, numpy as np, opwright\n"
        f"e = opwright.load({str(folder / 'engine')!r}, allow_host_code={allow})\n"
        "print(json.dumps(e(np.array([[1, 2]], np.float32)).tolist()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode != 0:
        raise trt.Error(done.stderr)
    return json.loads(done.stdout)


def test_which_implementation_a_network_gets():
    both = shift(with_impl=True)
    flag = trt.NetworkDefinitionCreationFlag
    jit, compiled = np.full((2, 2), -1), np.ones((2, 2)) + 1
    x = np.ones((2, 2), np.float32)
    attributes = {"by": 1.0, "unused": 0}

    def result(**options):
        net, layer = one_plugin(both, x, **attributes, **options)
        return build(net, layer.get_output(0))(x)

    np.testing.assert_array_equal(result(aot=False), jit)
    np.testing.assert_array_equal(result(aot=True), compiled)
    np.testing.assert_array_equal(result(flags=1 << int(flag.PREFER_JIT_PYTHON_PLUGINS)), jit)
    np.testing.assert_array_equal(result(flags=1 << int(flag.PREFER_AOT_PYTHON_PLUGINS)), compiled)
    with pytest.raises(trt.Error, match="aot=True or aot=False.*PREFER_AOT_PYTHON_PLUGINS"):
        result()
    with pytest.raises(trt.Error, match="has no aot_impl"):
        one_plugin(scale(), x, factor=1.0, aot=True)
    with pytest.raises(trt.Error, match="has no impl"):
        one_plugin(shift(), x, aot=False, **attributes)


@pytest.mark.parametrize(
    "returned, message",
    [
        (lambda code, p, e: (code, p, e), "must return .*it returned tuple of 3"),
        (lambda code, p, e: (1, code, p, e), "name and code as str or bytes"),
        (lambda code, p, e: (code.name, code, (1, 1, 1), e), "third value is tuple"),
        (lambda code, p, e: (code.name, code, p, 3), "fourth value is int"),
        (
            lambda code, p, e: (code.name, b"PTX", p, e),
            "no shared object for this host: .*, but the engine is",
        ),
        (lambda code, p, e: ("nowhere", code, p, e), "nowhere"),
        (lambda code, p, e: (code.name, code, p, trtp.SymIntExprs(1)), "never set"),
    ],
)
def test_aot_impl_mistakes(returned, message):
    plugin_id = new_id("aot")
    trtp.register(plugin_id)(plain_desc)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        source = "void f(const float*, float*, int64_t, int64_t, int64_t) {}"
        code = aot.cpp(source, "f", inputs=[x], outputs=outputs)
        return returned(code, trtp.KernelLaunchParams(), trtp.SymIntExprs(0))

    with pytest.raises(trt.Error, match=message):
        net, layer = one_plugin(plugin_id, X)
        build(net, layer.get_output(0))(X)


def test_compile_errors_arrive():
    plugin_id = new_id("aot")
    trtp.register(plugin_id)(plain_desc)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        return aot.cpp("syntax error", "f", inputs=[x], outputs=outputs)

    net, layer = one_plugin(plugin_id, X)
    with pytest.raises(aot.CompileError, match=r"f\.cpp:1"):
        build(net, layer.get_output(0))


# ONNX and saved engines ------------------------------------------------------------------------


def onnx_model(plugin_id: str, shape, **attributes) -> onnx.ModelProto:
    namespace, name = plugin_id.split("::")
    node = helper.make_node(
        name, ["x"], ["y"], "node", domain=namespace, plugin_namespace=namespace, **attributes
    )
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(namespace, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize(
    "attributes, message",
    [
        ({}, "pads"),
        ({"pads": [1.5, 2.0]}, "pads"),
        ({"pads": [2**40, 0]}, "pads"),
    ],
)
def test_onnx_node_that_does_not_fit(attributes, message):
    with pytest.raises(trt.Error, match=message) as caught:
        trt.build(onnx_model(circ_pad(), X.shape, **attributes))
    assert "circ_pad" in str(caught.value)


def test_onnx_aot_attribute():
    both = shift(with_impl=True)
    x = np.ones((2, 2), np.float32)
    for chosen, expected in ((1, 2.0), (0, -1.0)):
        model = onnx_model(both, (2, 2), by=1.0, unused=0, aot=chosen)
        np.testing.assert_array_equal(trt.build(model)(x), np.full((2, 2), expected))


def test_only_attributes_of_impl_are_stored(tmp_path):
    plugin_id = new_id("lean")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, stored: int, dropped: str) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, stored, outputs, stream):
        np.add(x, np.float32(stored), out=np.asarray(outputs[0]))

    net, layer = one_plugin(plugin_id, X, stored=4, dropped="a secret of some length")
    build(net, layer.get_output(0)).save(tmp_path / "engine")
    assert b"a secret of some length" not in (tmp_path / "engine").read_bytes()
    np.testing.assert_array_equal(trt.load(tmp_path / "engine")(X), X + 4)
