"""Plugins on tensors without elements, scalars, eight dimensions, many tensors and every type; register functions
that do not say the same twice."""

from __future__ import annotations

import itertools
import random
from typing import Tuple

import ml_dtypes
import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, op_of

SUM = trt.ElementWiseOperation.SUM


def double() -> str:
    """2 x, as a Python function and as a compiled kernel."""
    plugin_id = new_id("double")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        y = outputs[0]
        assert x.data_ptr and y.data_ptr and y.numel() == x.numel() and y.ndim == x.ndim
        a, b = np.asarray(x), np.asarray(y)
        assert a.shape == x.shape and b.shape == y.shape and np.from_dlpack(x).shape == x.shape
        np.add(a, a, out=b)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        source = (
            "void twice(const float* x, int64_t n, float* y, int64_t, int64_t, int64_t) {"
            "  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i]; }"
        )
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(x.shape_expr.numel())])
        code = aot.cpp(source, "twice", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    return plugin_id


def both(engine, tmp_path):
    """The engine, and itself saved and loaded."""
    engine.save(tmp_path / "engine")
    return engine, trt.load(tmp_path / "engine")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "shape", [(), (0,), (1,), (3, 0, 2), (0, 0), (1, 2, 1, 3, 1, 2, 1, 2)], ids=str
)
def test_shapes_of_every_kind(shape, compiled, tmp_path):
    plugin_id = double()
    net = network()
    tensor = net.add_input("x", trt.float32, shape)
    before = net.add_elementwise(tensor, tensor, SUM).get_output(0)
    tensor = net.add_plugin(op_of(plugin_id)(before), aot=compiled).get_output(0)
    assert tuple(tensor.shape) == shape
    after = net.add_elementwise(tensor, tensor, SUM).get_output(0)
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    for engine in both(build(net, after, tensor), tmp_path):
        result = engine(x)
        np.testing.assert_array_equal(result["y0"], 8 * x)
        np.testing.assert_array_equal(result["y1"], 4 * x)
        assert result["y1"].shape == shape


@pytest.mark.parametrize("compiled", [False, True])
def test_extents_that_become_zero(compiled):
    plugin_id = double()
    net = network()
    x = net.add_input("x", trt.float32, (-1, 3))
    y = net.add_plugin(op_of(plugin_id)(x), aot=compiled).get_output(0)
    both_of = net.add_concatenation([x, y]).get_output(0)
    engine = build(net, both_of, y, shapes={"x": ((0, 3), (2, 3), (4, 3))})
    for rows in (2, 0, 4, 0):
        value = np.full((rows, 3), 1.5, np.float32)
        result = engine(value)
        np.testing.assert_array_equal(result["y0"], np.concatenate([value, 2 * value]))
        assert result["y1"].shape == (rows, 3)


def test_a_scalar_from_a_tensor_and_a_tensor_from_a_scalar(tmp_path):
    total, spread = new_id("total"), new_id("spread")

    @trtp.register(total)
    def total_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return trtp.from_shape_expr((), x.dtype)

    @trtp.impl(total)
    def total_run(x, outputs, stream):
        assert outputs[0].shape == () and outputs[0].strides == () and outputs[0].numel() == 1
        np.asarray(outputs[0])[...] = np.asarray(x).sum()

    @trtp.register(spread)
    def spread_desc(s: trtp.TensorDesc, n: int) -> trtp.TensorDesc:
        assert s.ndim == 0 and len(s.shape_expr) == 0
        return trtp.from_shape_expr((n, 0 if n == 0 else 2), s.dtype)

    @trtp.impl(spread)
    def spread_run(s, outputs, stream):
        np.asarray(outputs[0])[...] = np.asarray(s)

    net = network()
    s = net.add_plugin(op_of(total)(net.add_input("x", trt.float32, (2, 3)))).get_output(0)
    outputs = [net.add_plugin(op_of(spread)(s, n=n)).get_output(0) for n in (3, 0)]
    for engine in both(build(net, *outputs, s), tmp_path):
        result = engine(np.ones((2, 3), np.float32))
        np.testing.assert_array_equal(result["y0"], np.full((3, 2), 6))
        assert result["y1"].shape == (0, 0)
        assert result["y2"].shape == () and result["y2"] == 6


def test_sixteen_tensors_in_and_out(tmp_path):
    plugin_id, count = new_id("many"), 16
    tensors = ", ".join(f"x{i}: trtp.TensorDesc" for i in range(count))
    names = ", ".join(f"x{i}" for i in range(count))
    scope = {"trtp": trtp, "np": np, "Tuple": Tuple}
    exec(  # a signature with this many parameters
        f"def desc({tensors}) -> Tuple[{', '.join(['trtp.TensorDesc'] * count)}]:\n"
        f"    return tuple(x.aliased() if i % 4 == 0 else x.like() for i, x in enumerate([{names}]))\n"
        f"def run({names}, outputs, stream):\n"
        f"    values = [np.array(x) for x in [{names}]]\n"
        f"    for i, out in enumerate(outputs):\n"
        f"        np.asarray(out)[...] = values[i] - i\n",
        scope,
    )
    trtp.register(plugin_id)(scope["desc"])
    trtp.impl(plugin_id)(scope["run"])
    net = network()
    inputs = [net.add_input(f"x{i}", trt.float32, (i,)) for i in range(count)]
    first = net.add_plugin(op_of(plugin_id)(*inputs))
    second = net.add_plugin(op_of(plugin_id)(*(first.get_output(i) for i in range(count))))
    outputs = [second.get_output(i) for i in range(count)]
    values = [np.arange(i, dtype=np.float32) for i in range(count)]
    for engine in both(build(net, *outputs), tmp_path):
        results = engine(*values)
        for i, value in enumerate(values):
            np.testing.assert_array_equal(results[f"y{i}"], value - 2 * i)
            np.testing.assert_array_equal(value, np.arange(i))


TYPES = {
    trt.bool: np.bool_,
    trt.int8: np.int8,
    trt.uint8: np.uint8,
    trt.int32: np.int32,
    trt.int64: np.int64,
    trt.float16: np.float16,
    trt.bfloat16: ml_dtypes.bfloat16,
    trt.fp8: ml_dtypes.float8_e4m3fn,
}


@pytest.mark.parametrize("shape", [(2, 5), (), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_tensors_of_every_type(dtype, shape, tmp_path):
    """Reversed in place and beside, bit for bit."""
    element = np.dtype(TYPES[dtype])
    plugin_id = new_id("reverse")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
        assert x.dtype == dtype
        return x.aliased(), x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        values = np.asarray(x)
        assert values.dtype == element and values.flags.writeable
        np.asarray(outputs[1])[...] = values
        np.asarray(outputs[0]).reshape(-1)[...] = np.array(values).reshape(-1)[::-1]

    net = network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", dtype, shape)))
    bits = np.random.default_rng(3).integers(0, 2, (*shape, element.itemsize), np.uint8)
    x = np.ascontiguousarray(bits).view(element).reshape(shape)
    engine = build(net, layer.get_output(0), layer.get_output(1))
    for each in both(engine, tmp_path):
        result = each(x)
        assert result["y0"].dtype == element
        assert result["y0"].tobytes() == x.reshape(-1)[::-1].tobytes()
        assert result["y1"].tobytes() == x.tobytes()


# What register must not do ---------------------------------------------------------------------


def defined(register, *tensors) -> str:
    plugin_id = new_id("fickle")
    trtp.register(plugin_id)(register)
    trtp.impl(plugin_id)(lambda x, outputs, stream: None)
    trtp.autotune(plugin_id)(lambda x, outputs: [trtp.AutoTuneCombination("FP32, FP32")])
    return plugin_id


def one_layer(plugin_id, shape=(4, 6)):
    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, shape)))
    layer.name = "fickle layer"
    return net, layer.get_output(0)


@pytest.mark.parametrize("what", ["rank", "extent", "count", "type of result"])
def test_a_register_function_that_says_something_else_later(what):
    calls = itertools.count()

    def register(x: trtp.TensorDesc) -> trtp.TensorDesc:
        out = x.like()
        if next(calls) == 0:
            return out
        if what == "rank":
            out.shape_expr = (x.shape_expr[0],)
        elif what == "extent":
            out.shape_expr[0] += 1
        elif what == "count":
            return out, out  # type: ignore[return-value]
        else:
            return 3  # type: ignore[return-value]
        return out

    plugin_id = defined(register)
    net, y = one_layer(plugin_id)
    message = {
        "rank": r"described output 0 as .*4.* this time, but the network was made with .*4x6",
        "extent": r"described output 0 as .*5.*6.* this time, but the network was made with .*4x6",
        "count": "returned 2 outputs",
        "type of result": "returned int for output 0",
    }[what]
    with pytest.raises(trt.Error, match=message) as caught:
        build(net, y)
    assert "layer 'fickle layer'" in str(caught.value) and plugin_id in str(caught.value)


def test_a_register_function_that_raises_later():
    calls = itertools.count()

    def register(x: trtp.TensorDesc) -> trtp.TensorDesc:
        if next(calls) > 0:
            raise KeyError("only once")
        return x.like()

    net, y = one_layer(defined(register))
    with pytest.raises(KeyError, match="only once"):
        build(net, y)


def test_a_register_function_that_looks_at_extents_that_are_not_known():
    def register(x: trtp.TensorDesc) -> trtp.TensorDesc:
        out = x.like()
        if x.shape_expr[0] < 3:
            out.shape_expr[0] += 1
        return out

    assert tuple(one_layer(defined(register), (2, 6))[1].shape) == (3, 6)
    with pytest.raises(trt.Error, match="not constant|not known|no truth value"):
        one_layer(defined(register), (-1, 6))


def test_a_register_function_that_rolls_dice():
    """Whatever it says in the end is refused or is right."""
    dice = random.Random(0)

    def register(x: trtp.TensorDesc) -> trtp.TensorDesc:
        out = x.like()
        out.shape_expr[0] += dice.randrange(3)
        return out

    for _ in range(10):
        net, y = one_layer(defined(register))
        shape = tuple(y.shape)
        try:
            engine = build(net, y, timing=False)
        except trt.Error as error:
            assert "must depend on nothing but the descriptors" in str(error)
        else:
            assert engine(np.zeros((4, 6), np.float32)).shape == shape


def test_an_extent_that_is_negative_for_some_shapes():
    """An error at the run that has such a shape; the others run."""
    plugin_id = new_id("shorten")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        out = x.like()
        out.shape_expr[0] -= 3
        return out

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        np.asarray(outputs[0])[...] = np.asarray(x)[3:]

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (-1,))))
    engine = build(net, layer.get_output(0), shapes={"x": ((1,), (5,), (9,))})
    for count in (5, 2, 3, 1, 9):
        value = np.arange(count, dtype=np.float32)
        if count < 3:
            with pytest.raises(trt.Error, match=f"comes out as {count - 3}"):
                engine(value)
        else:
            np.testing.assert_array_equal(engine(value), value[3:])
