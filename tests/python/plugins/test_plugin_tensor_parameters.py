"""Plugins with optional tensors, a variable number of tensors, and shape inputs."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import onnx.parser
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, op_of

RNG = np.random.default_rng(5)


def floats(*shape) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


# Optional tensors --------------------------------------------------------------------------------


def affine_plugin() -> str:
    """x * scale + bias with both optional, as impl and as C++."""
    plugin_id = new_id("affine")

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc,
        scale: trtp.TensorDesc | None = None,
        bias: trtp.TensorDesc | None = None,
        k: int = 1,
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, scale, bias, k, outputs, stream):
        y = np.asarray(x) * np.float32(k)
        if scale is not None:
            y = y * np.asarray(scale)
        if bias is not None:
            y = y + np.asarray(bias)
        np.asarray(outputs[0])[...] = y

    @trtp.aot_impl(plugin_id)
    def compiled(x, scale, bias, k, outputs, tactic):
        source = """
        template <class S, class B>
        void affine(const float* x, const S& scale, const B& bias, int64_t n, int32_t k, float* y,
                    int64_t, int64_t, int64_t) {
          for (int64_t i = 0; i < n; ++i) {
            y[i] = x[i] * k;
            if constexpr (!std::is_same_v<S, std::nullptr_t>) y[i] *= scale[i];
            if constexpr (!std::is_same_v<B, std::nullptr_t>) y[i] += bias[i];
          }
        }"""
        extra = trtp.SymIntExprs.from_tuple([trtp.SymInt64(x.shape_expr.numel()), trtp.SymInt32(k)])
        code = aot.cpp(
            "#include <type_traits>\n" + source,
            "affine",
            inputs=[x, scale, bias],
            extra=extra,
            outputs=outputs,
        )
        return code.name, code, trtp.KernelLaunchParams(), extra

    return plugin_id


@pytest.mark.parametrize("is_aot", [False, True])
@pytest.mark.parametrize("has_scale", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_optional_tensors_may_be_absent(is_aot, has_scale, has_bias, tmp_path):
    op = op_of(affine_plugin())
    arrays = [floats(3, 4)] + [floats(3, 4) for _ in range(has_scale + has_bias)]
    net = network()
    x, *rest = [net.add_input(f"x{i}", trt.float32, (-1, 4)) for i in range(len(arrays))]
    scale = rest[0] if has_scale else None
    bias = rest[-1] if has_bias else None
    layer = net.add_plugin(op(x, scale, bias, k=3), aot=is_aot)
    shapes = {f"x{i}": ((1, 4), (3, 4), (8, 4)) for i in range(len(arrays))}
    engine = build(net, layer.get_output(0), shapes=shapes)

    def expected(arrays):
        y = arrays[0] * 3
        if has_scale:
            y = y * arrays[1]
        return y + arrays[-1] if has_bias else y

    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    np.testing.assert_allclose(engine(**inputs), expected(arrays), rtol=1e-6)
    # Of another shape, from a file.
    engine.save(tmp_path / "affine.engine")
    arrays = [floats(7, 4) for _ in arrays]
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    loaded = trt.load(tmp_path / "affine.engine", allow_host_code=True)
    np.testing.assert_allclose(loaded(**inputs), expected(arrays), rtol=1e-6)


def test_absent_in_every_way_of_a_call():
    op = op_of(affine_plugin())
    x, b = floats(2, 3), floats(2, 3)
    for call, expected in [
        (lambda x, b: op(x), x),
        (lambda x, b: op(x, None), x),
        (lambda x, b: op(x, None, b), x + b),
        (lambda x, b: op(x, bias=b), x + b),
        (lambda x, b: op(x, b), x * b),
        (lambda x, b: op(x, b, None, 2), 2 * x * b),
        (lambda x, b: op(x, bias=None, k=2), 2 * x),
        (lambda x, b: op(x=x, bias=b), x + b),
    ]:
        net = network()
        tx, tb = (net.add_input(n, trt.float32, (2, 3)) for n in "xb")
        engine = build(net, net.add_plugin(call(tx, tb), aot=False).get_output(0))
        np.testing.assert_allclose(engine(x=x, b=b), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "inputs, expected",
    [
        ("x", lambda x, s, b: x),
        ("x, s", lambda x, s, b: x * s),
        ('x, ""', lambda x, s, b: x),
        ('x, "", b', lambda x, s, b: x + b),
        ("x, s, b", lambda x, s, b: x * s + b),
    ],
)
def test_absent_in_onnx(inputs, expected):
    plugin_id = affine_plugin()
    namespace, name = plugin_id.split("::")
    node = onnx.helper.make_node(
        name, [i.strip().strip('"') for i in inputs.split(",")], ["y"], domain=namespace, k=1, aot=0
    )
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in "xsby"]
    graph = onnx.helper.make_graph([node], "net", values[:3], values[3:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(namespace, 1)])
    arrays = {n: floats(2, 3) for n in "xsb"}
    y = trt.build(model)(**arrays)
    np.testing.assert_allclose(y, expected(*arrays.values()), rtol=1e-6)


def test_onnx_nodes_with_wrong_inputs():
    namespace, name = affine_plugin().split("::")
    for inputs, message in [
        ([""], r"takes the tensors \(x, scale=None, bias=None\), but input 0 \('x'\) is absent"),
        (["x"] * 4, r"takes the tensors \(x, scale=None, bias=None\), but 4 came"),
    ]:
        node = onnx.helper.make_node(name, inputs, ["y"], domain=namespace, k=1, aot=0)
        x, y = (onnx.helper.make_tensor_value_info(n, 1, [2, 3]) for n in "xy")
        graph = onnx.helper.make_graph([node], "net", [x], [y])
        opsets = [onnx.helper.make_opsetid(namespace, 1)]
        with pytest.raises(trt.Error, match=message):
            trt.build(onnx.helper.make_model(graph, opset_imports=opsets))


def test_aliasing_an_optional_tensor():
    plugin_id = new_id("accumulate")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, total: trtp.TensorDesc | None = None) -> trtp.TensorDesc:
        return x.like() if total is None else total.aliased()

    @trtp.impl(plugin_id)
    def run(x, total, outputs, stream):
        y = np.asarray(outputs[0])
        if total is None:
            y[...] = x
        else:
            assert outputs[0].get_aliased() is total
            y += np.asarray(x)

    op = op_of(plugin_id)
    x = floats(2, 3)
    net = network()
    tensor = net.add_input("x", trt.float32, (2, 3))
    first = net.add_plugin(op(tensor)).get_output(0)
    second = net.add_plugin(op(tensor, first)).get_output(0)
    np.testing.assert_allclose(build(net, second)(x), 2 * x)


def test_autotune_ignores_what_it_says_of_absent_tensors():
    plugin_id, seen = new_id("tuned"), []

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, b: trtp.TensorDesc | None = None) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin_id)
    def tune(x, b, outputs):
        seen.append(b)
        return [trtp.AutoTuneCombination("FP32|FP16, INT8|FP8, FP32|FP16", "LINEAR", [1, 2])]

    @trtp.impl(plugin_id)
    def run(x, b, outputs, stream, tactic):
        np.asarray(outputs[0])[...] = np.asarray(x) * tactic

    x = np.ones((2, 3), np.float32)
    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (2, 3))))
    engine = build(net, layer.get_output(0), fp16=True)
    assert seen == [None]
    assert set(np.unique(engine(x))) <= {1, 2}


# A variable number of tensors --------------------------------------------------------------------


def sum_plugin() -> str:
    """k times the sum of x and all others, with types to choose from, in Python and C++."""
    plugin_id = new_id("sum_of")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, *xs: trtp.TensorDesc, k: int = 1) -> trtp.TensorDesc:
        assert all(isinstance(each, trtp.TensorDesc) for each in xs)
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, *xs, k, outputs, stream, tactic):
        assert tactic == len(xs) + 1
        total = np.asarray(x).astype(np.float32)
        for each in xs:
            total = total + np.asarray(each)
        np.asarray(outputs[0])[...] = k * total

    @trtp.autotune(plugin_id)
    def tune(x, *xs, outputs):
        combination = trtp.AutoTuneCombination()
        combination.pos(range(len(xs) + 2), "FP32|FP16", "LINEAR")
        combination.tactics([len(xs) + 1])
        return [combination]

    @trtp.aot_impl(plugin_id)
    def compiled(x, *xs, k, outputs, tactic):
        assert tactic == len(xs) + 1
        inputs = [x, *xs]
        parameters = ", ".join(f"const T* x{i}" for i in range(len(inputs)))
        terms = " + ".join(f"x{i}[i]" for i in range(len(inputs)))
        source = f"""
        template <class T>
        void sum_of({parameters}, int64_t n, double k, T* y, int64_t, int64_t, int64_t) {{
          for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(k * ({terms}));
        }}"""
        count = trtp.SymInt64(x.shape_expr.numel())
        extra = trtp.SymExprs.from_tuple([count, trtp.SymFloat64(k)])
        code = aot.cpp(source, "sum_of", inputs=inputs, extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    return plugin_id


@pytest.mark.parametrize("is_aot", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_variable_number_of_tensors(is_aot, count, tmp_path):
    op = op_of(sum_plugin())
    arrays = {f"x{i}": floats(4, 5) for i in range(count + 1)}
    net = network()
    inputs = [net.add_input(n, trt.float32, (-1, 5)) for n in arrays]
    layer = net.add_plugin(op(*inputs, k=2), aot=is_aot)
    shapes = {n: ((1, 5), (4, 5), (9, 5)) for n in arrays}
    engine = build(net, layer.get_output(0), shapes=shapes, fp16=True)
    expected = 2 * sum(arrays.values())
    np.testing.assert_allclose(engine(**arrays), expected, rtol=2e-2, atol=2e-2)
    engine.save(tmp_path / "sum.engine")
    loaded = trt.load(tmp_path / "sum.engine", allow_host_code=True)
    np.testing.assert_array_equal(loaded(**arrays), engine(**arrays))


def test_a_variable_number_in_onnx():
    namespace, name = sum_plugin().split("::")
    for count in (1, 4):
        names = [f"x{i}" for i in range(count)]
        node = onnx.helper.make_node(name, names, ["y"], domain=namespace, k=1, aot=0)
        values = [onnx.helper.make_tensor_value_info(n, 1, [2, 3]) for n in [*names, "y"]]
        graph = onnx.helper.make_graph([node], "net", values[:-1], values[-1:])
        opsets = [onnx.helper.make_opsetid(namespace, 1)]
        engine = trt.build(onnx.helper.make_model(graph, opset_imports=opsets))
        arrays = {n: floats(2, 3) for n in names}
        np.testing.assert_allclose(engine(**arrays), sum(arrays.values()), rtol=1e-5)

    node = onnx.helper.make_node(name, ["x", "", "x"], ["y"], domain=namespace, k=1, aot=0)
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [2, 3]) for n in "xy")
    graph = onnx.helper.make_graph([node], "net", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(namespace, 1)])
    with pytest.raises(trt.Error, match=r"takes the tensors \(x, \*xs\), but input 1 \('xs'\)"):
        trt.build(model)


def test_all_kinds_at_once():
    plugin_id = new_id("all_kinds")

    @trtp.register(plugin_id)
    def desc(
        n: trtp.ShapeInput,
        x: trtp.TensorDesc,
        b: trtp.TensorDesc | None = None,
        *xs: trtp.TensorDesc,
        k: float = 1.0,
    ) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        return trtp.from_shape_expr((n.expr(), *x.shape_expr), x.dtype), x.like()

    @trtp.impl(plugin_id)
    def run(n, x, b, *xs, k, outputs, stream):
        total = sum(map(np.asarray, xs), np.asarray(x) + (0 if b is None else np.asarray(b)))
        np.asarray(outputs[0])[...] = k * total
        np.asarray(outputs[1])[...] = np.asarray(n)

    x = [floats(2, 3) for _ in range(3)]
    net = network()
    n = net.add_input("n", trt.int32, ())
    a, b, c = (net.add_input(name, trt.float32, (2, 3)) for name in "abc")
    layer = net.add_plugin(op_of(plugin_id)(n, a, None, b, c, k=0.5))
    engine = build(net, layer.get_output(0), layer.get_output(1), values={"n": (1, 2, 9)})
    for count in (2, 5, 1):
        y = engine(n=np.array(count, np.int32), a=x[0], b=x[1], c=x[2])
        np.testing.assert_allclose(y["y0"], np.broadcast_to(0.5 * sum(x), (count, 2, 3)), rtol=1e-5)
        np.testing.assert_array_equal(y["y1"], np.full((2, 3), count))
