"""Plugins whose shapes depend on the values of inputs, and the arguments of compiled kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import build, network, new_id, op_of

SOURCE = """
#include <cstdint>
template <class N>
void grow(const float* x, const N*, int64_t rows, int64_t columns, int64_t width, float* y,
          int64_t i, int64_t, int64_t) {
  for (int64_t j = 0; j < width; ++j) y[i * width + j] = x[(i % rows) * columns + j % columns];
}
"""


def grow_plugin() -> str:
    """x of [r, c] repeated to [n[0], n[1]], in Python and, a row per cell of the grid, in C++."""
    plugin_id = new_id("grow")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, n: trtp.ShapeInput) -> trtp.TensorDesc:
        assert len(n) == 2 and len(list(n)) == 2 and n.ndim == 1
        assert n.dtype in (trt.int32, trt.int64) and n.shape_expr[0].constant_value() == 2
        return trtp.from_shape_expr((n[0], n[-1]), x.dtype)

    @trtp.impl(plugin_id)
    def run(x, n, outputs, stream):
        rows, columns = np.asarray(n)
        x = np.asarray(x)
        np.asarray(outputs[0])[...] = np.resize(
            np.resize(x.T, (columns, x.shape[0])).T, (rows, columns)
        )

    @trtp.autotune(plugin_id)
    def tune(x, n, outputs):
        assert len(n) == 2
        return [trtp.AutoTuneCombination(f"FP32, {n.dtype.name}, FP32", "LINEAR", [1, 2])]

    @trtp.aot_impl(plugin_id)
    def compiled(x, n, outputs, tactic):
        r, c = x.shape_expr
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(v) for v in (r, c, n[1])])
        code = aot.cpp(SOURCE, "grow", inputs=[x, n], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(grid_x=n[0]), extra

    return plugin_id


def grown(x, rows, columns):
    return x[np.arange(rows) % x.shape[0]][:, np.arange(columns) % x.shape[1]]


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("is_aot", [False, True])
@pytest.mark.parametrize("dtype", [trt.int32, trt.int64], ids=str)
def test_values_of_a_network_input(is_aot, dtype, tmp_path):
    net = network()
    x, n = net.add_input("x", trt.float32, (2, 3)), net.add_input("n", dtype, (2,))
    layer = net.add_plugin(op_of(grow_plugin())(x, n), aot=is_aot)
    assert n.is_shape_tensor
    engine = build(net, layer.get_output(0), values={"n": ((1, 1), (4, 4), (9, 9))})
    engine.save(tmp_path / "grow.engine")
    for each in (engine, trt.load(tmp_path / "grow.engine", allow_host_code=True)):
        # Also values that change while no shape does.
        for size in [(4, 5), (9, 9), (1, 1), (9, 2), (2, 9), (3, 6), (6, 3)]:
            y = each(x=X, n=np.array(size, trt.nptype(dtype)))
            np.testing.assert_array_equal(y, grown(X, *size))
    with pytest.raises(trt.Error, match=r"'n'"):
        engine(x=X, n=np.array([10, 1], trt.nptype(dtype)))


@pytest.mark.parametrize("is_aot", [False, True])
def test_values_of_a_constant(is_aot):
    net = network()
    x = net.add_input("x", trt.float32, (2, 3))
    n = net.add_constant((2,), np.array([5, 4], np.int32)).get_output(0)
    layer = net.add_plugin(op_of(grow_plugin())(x, n), aot=is_aot)
    assert tuple(layer.get_output(0).shape) == (5, 4)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(X), grown(X, 5, 4))


@pytest.mark.parametrize("is_aot", [False, True])
def test_values_that_are_computed_from_shapes(is_aot):
    net = network()
    x, like = (net.add_input(name, trt.float32, (-1, -1)) for name in ("x", "like"))
    shape = net.add_shape(like).get_output(0)
    order = net.add_constant((2,), np.array([1, 0], np.int32)).get_output(0)
    turned = net.add_gather(shape, order, 0).get_output(0)
    layer = net.add_plugin(op_of(grow_plugin())(x, turned), aot=is_aot)
    shapes = {"x": ((1, 1), (2, 3), (8, 8)), "like": ((1, 1), (2, 3), (8, 8))}
    engine = build(net, layer.get_output(0), shapes=shapes)
    for size in [(2, 3), (7, 5), (1, 8)]:
        y = engine(x=X, like=np.zeros(size, np.float32))
        np.testing.assert_array_equal(y, grown(X, size[1], size[0]))


@pytest.mark.parametrize("is_aot", [False, True])
def test_the_value_of_a_size_tensor(is_aot):
    """A plugin that counts, and one whose shape is that count."""
    count_id, range_id = new_id("count"), new_id("range")

    @trtp.register(count_id)
    def count_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        bound = x.shape_expr.numel()
        return trtp.size_tensor(bound // 2, bound)

    @trtp.impl(count_id)
    def count(x, outputs, stream):
        np.asarray(outputs[0])[...] = np.count_nonzero(np.asarray(x) > 0)

    @trtp.register(range_id)
    def range_desc(n: trtp.ShapeInput) -> trtp.TensorDesc:
        assert n.ndim == 0
        return trtp.from_shape_expr((n.expr() + 1,), trt.int32)

    @trtp.impl(range_id)
    def range_run(n, outputs, stream):
        np.asarray(outputs[0])[...] = np.arange(int(np.asarray(n)) + 1)

    @trtp.aot_impl(range_id)
    def range_aot(n, outputs, tactic):
        source = """void range(const int32_t*, int32_t n, const int64_t* m, double d, int32_t* y,
                               int64_t i, int64_t, int64_t) {
            y[i] = n == *m && n == d ? i : -1;
        }"""
        value = n.expr()
        extra = trtp.SymExprs.from_tuple(
            [trtp.SymInt32(value), trtp.SymPointer(value), trtp.SymFloat64(value)]
        )
        code = aot.cpp(source, "range", inputs=[n], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(grid_x=value + 1), extra

    net = network()
    x = net.add_input("x", trt.float32, (2, 5))
    number = net.add_plugin(op_of(count_id)(x), aot=False).get_output(0)
    layer = net.add_plugin(op_of(range_id)(number), aot=is_aot)
    engine = build(net, layer.get_output(0))
    for values in ([0] * 10, [1, -1] * 5, [1] * 10):
        values = np.array(values, np.float32).reshape(2, 5)
        np.testing.assert_array_equal(engine(values), np.arange((values > 0).sum() + 1))


@pytest.mark.parametrize(
    "shape, dtype, message",
    [
        ((2, 1), trt.int32, r"input 'n' is a shape input of rank 2; it must be a scalar or a vec"),
        ((2,), trt.float32, r"input 'n' is a shape input of type FP32; it must be INT32 or INT64"),
        (
            (-1,),
            trt.int32,
            r"input 'n' is a shape input of shape .*; it must have a constant extent of at most 64",
        ),
        (
            (65,),
            trt.int32,
            r"input 'n' is a shape input of shape .*; it must have a constant extent of at most 64",
        ),
    ],
)
def test_what_a_shape_input_cannot_be(shape, dtype, message):
    plugin_id = grow_plugin()
    net = network()
    x, n = net.add_input("x", trt.float32, (2, 3)), net.add_input("n", dtype, shape)
    with pytest.raises(trt.Error, match=rf"plugin '{plugin_id}': {message}"):
        net.add_plugin(op_of(plugin_id)(x, n), aot=False)


def test_values_that_depend_on_data():
    copy_id, plugin_id = new_id("copy"), grow_plugin()

    @trtp.register(copy_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(copy_id)
    def run(x, outputs, stream):
        np.copyto(np.asarray(outputs[0]), x)

    net = network()
    x, n = net.add_input("x", trt.float32, (2, 3)), net.add_input("n", trt.int32, (2,))
    copy = net.add_plugin(op_of(copy_id)(n)).get_output(0)
    with pytest.raises(trt.Error, match="'n' is a shape input whose values depend on data"):
        net.add_plugin(op_of(plugin_id)(x, copy), aot=False)


def test_the_descriptor_of_a_shape_input():
    plugin_id = new_id("descriptor")

    @trtp.register(plugin_id)
    def desc(n: trtp.ShapeInput, m: trtp.ShapeInput) -> trtp.TensorDesc:
        assert isinstance(n, trtp.TensorDesc) and isinstance(n[0], trtp.ShapeExpr)
        assert [int(v) for v in n[1:]] == [4] and m.expr().constant_value() == 7
        with pytest.raises(trt.Error, match=r"expr\(\) is the value of a scalar.*2 elements"):
            n.expr()
        for use in (len, list, lambda m: m[0]):
            with pytest.raises(TypeError, match=r"a scalar: its value is n.expr\(\)"):
                use(m)
        with pytest.raises(IndexError):
            n[2]
        with pytest.raises(trt.Error, match=r"aliased\(\): a shape input"):
            n.aliased()
        return trtp.from_shape_expr((n[0], m.expr()), trt.float32)

    net = network()
    n = net.add_constant((2,), np.array([3, 4], np.int32)).get_output(0)
    m = net.add_constant((), np.array(7, np.int64)).get_output(0)

    @trtp.impl(plugin_id)
    def run(n, m, outputs, stream):
        pass

    layer = net.add_plugin(op_of(plugin_id)(n, m))
    assert tuple(layer.get_output(0).shape) == (3, 7)


# Arithmetic: random expressions over the elements, in Python's integers and the engine's.
LEAVES = st.one_of(st.integers(-7, 7), st.sampled_from(["a", "b", "c"]))
OPERATIONS = ["+", "-", "*", "//", "max", "min", "cdiv"]
EXPRESSIONS = st.recursive(
    LEAVES, lambda e: st.tuples(st.sampled_from(OPERATIONS), e, e), max_leaves=8
)


def evaluate(expression, symbols, functions):
    """The expression over these values; None where something is divided by zero."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return symbols[expression]
    name, *operands = expression
    a, b = (evaluate(operand, symbols, functions) for operand in operands)
    return functions[name](a, b)


PYTHON = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "max": max,
    "min": min,
    "cdiv": lambda a, b: -(-a // b),
}
SYMBOLIC = PYTHON | {"max": trtp.max, "min": trtp.min, "cdiv": trtp.cdiv}
CURRENT: dict = {}


def arithmetic_plugin() -> str:
    plugin_id = new_id("arithmetic")

    @trtp.register(plugin_id)
    def desc(n: trtp.ShapeInput) -> trtp.TensorDesc:
        value = evaluate(CURRENT["expression"], dict(zip("abc", n)), SYMBOLIC)
        return trtp.from_shape_expr((trtp.max(0, trtp.min(value, 50)),), trt.int8)

    @trtp.impl(plugin_id)
    def run(n, outputs, stream):
        np.asarray(outputs[0])[...] = 1

    return plugin_id


ARITHMETIC = arithmetic_plugin()


@example(("//", ("max", "a", "b"), "b"), [(9, 2, 0), (1, 2, 3)])
@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.lists(st.tuples(*[st.integers(-9, 9)] * 3), min_size=1, max_size=4))
def test_shape_arithmetic_is_pythons(expression, values):
    CURRENT["expression"] = expression
    net = network()
    n = net.add_input("n", trt.int64, (3,))
    try:
        layer = net.add_plugin(op_of(ARITHMETIC)(n))
        engine = build(
            net,
            layer.get_output(0),
            values={"n": ((-9,) * 3, (1, 2, 3), (9,) * 3)},
            timing=False,
        )
    except (trt.Error, ZeroDivisionError) as error:
        assert "zero" in str(error)  # for constants, or for the profile's own values
        return
    for each in values:
        try:
            expected = max(0, min(evaluate(expression, dict(zip("abc", each)), PYTHON), 50))
        except ZeroDivisionError:
            expected = None
        try:
            shape = engine(np.array(each, np.int64)).shape
        except trt.Error as error:
            assert expected is None, error
            continue
        if expected is not None:  # what is multiplied by zero may never be divided
            assert shape == (expected,)


# Extra arguments ---------------------------------------------------------------------------------

KINDS = {
    "int8": (trtp.SymInt8, "int8_t"),
    "int16": (trtp.SymInt16, "int16_t"),
    "int32": (trtp.SymInt32, "int32_t"),
    "int64": (trtp.SymInt64, "int64_t"),
    "float32": (trtp.SymFloat32, "float"),
    "float64": (trtp.SymFloat64, "double"),
    "pointer": (trtp.SymPointer, "const int64_t*"),
}


def argument_plugin(kind, make, grid=None) -> str:
    """A kernel with one extra argument, make(extent of x), which it writes to all of y."""
    plugin_id = new_id("argument")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        out = x.like()
        out.dtype = trt.float32
        return out

    @trtp.aot_impl(plugin_id)
    def compiled(x, outputs, tactic):
        n = x.shape_expr[0]
        extra = trtp.SymExprs.from_tuple([make(n)])
        value = "*v" if kind == "pointer" else "v"
        source = f"""void f(const float*, {KINDS[kind][1]} v, float* y, int64_t i, int64_t, int64_t) {{
            y[i] = static_cast<float>({value});
        }}"""
        code = aot.cpp(source, "f", inputs=[x], extra=extra, outputs=outputs)
        return (
            code.name,
            code,
            trtp.KernelLaunchParams(grid_x=n if grid is None else grid(n)),
            extra,
        )

    return plugin_id


def dynamic(plugin_id):
    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (-1,))))
    return build(net, layer.get_output(0), shapes={"x": ((0,), (3,), (200,))}, timing=False)


@pytest.mark.parametrize("kind", KINDS)
def test_extra_arguments_are_expressions(kind):
    symbol = KINDS[kind][0]
    engine = dynamic(argument_plugin(kind, lambda n: symbol((n + 1) * 2 // 3)))
    for n in (3, 100, 1, 0):
        expected = np.full(n, (n + 1) * 2 // 3, np.float32)
        np.testing.assert_array_equal(engine(np.zeros(n, np.float32)), expected)


@pytest.mark.parametrize(
    "kind, value", [(k, -5) for k in list(KINDS)[:4]] + [("float32", 0.1), ("float64", math.pi)]
)
def test_extra_arguments_are_constants(kind, value):
    engine = dynamic(argument_plugin(kind, lambda n: KINDS[kind][0](value)))
    np.testing.assert_array_equal(engine(np.zeros(2, np.float32)), np.full(2, value, np.float32))


@pytest.mark.parametrize(
    "kind, factor, bits", [("int8", 1, 8), ("int16", 400, 16), ("int32", 1 << 24, 32)]
)
def test_an_argument_that_overflows_names_itself(kind, factor, bits):
    plugin_id = argument_plugin(kind, lambda n: KINDS[kind][0](n * factor))
    engine = dynamic(plugin_id)
    np.testing.assert_array_equal(
        engine(np.zeros(3, np.float32)), np.full(3, 3 * factor, np.float32)
    )
    message = (
        rf"compiled kernel '{plugin_id} .*extra argument 0 is {150 * factor} \(inputs\[0\].shape\[0\]"
        rf".*does not fit {bits} bits"
    )
    with pytest.raises(trt.Error, match=message):
        engine(np.zeros(150, np.float32))
    np.testing.assert_array_equal(
        engine(np.zeros(2, np.float32)), np.full(2, 2 * factor, np.float32)
    )


@pytest.mark.parametrize(
    "grid, message",
    [
        (lambda n: n - 5, r"grid_x is -1 \(inputs\[0\].shape\[0\] - 5\); it must be at least 1"),
        (lambda n: n - 4, r"grid_x is 0 .*nothing would write output 0"),
        (lambda n: 8 // (n - 4), r"grid_x \(8 // \(inputs\[0\].shape\[0\] - 4\)\): division"),
        (lambda n: n * (1 << 62), r"grid_x \(inputs\[0\].shape\[0\] \* 4611686018427387904\): "),
    ],
)
def test_a_launch_that_cannot_be_names_plugin_and_expression(grid, message):
    plugin_id = argument_plugin("int32", trtp.SymInt32, grid)
    engine = dynamic(plugin_id)
    with pytest.raises(trt.Error, match=f"compiled kernel '{plugin_id} .*{message}"):
        engine(np.zeros(4, np.float32))


def test_a_kernel_that_was_compiled_for_other_arguments():
    plugin_id = new_id("other")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def compiled(x, outputs, tactic):
        source = "void f(const float*, int64_t n, float* y, int64_t, int64_t, int64_t) { *y = n; }"
        code = aot.cpp(source, "f", inputs=[x], extra=[trtp.SymInt64(1)], outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), [trtp.SymInt32(1), 2]

    net = network()
    layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, (1,))))
    message = (
        r"compiled for 1 inputs, the extra arguments \(SymInt64\) and 1 outputs, but the kernel gets "
        r"1 inputs, the extra arguments \(SymInt32, SymInt32\)"
    )
    with pytest.raises(trt.Error, match=message):
        build(net, layer.get_output(0))


def test_numba_kernels_with_an_absent_input_and_a_pointer():

    plugin_id = new_id("numba")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, b: trtp.TensorDesc | None = None) -> trtp.TensorDesc:
        return x.like()

    def add(x, b, n, y, i, _j, _k):
        for j in range(n[0]):
            if b is None:
                y[j] = x[j] + 1
            else:
                y[j] = x[j] + b[j]

    @trtp.aot_impl(plugin_id)
    def compiled(x, b, outputs, tactic):
        extra = trtp.SymExprs.from_tuple([trtp.SymPointer(x.shape_expr.numel())])
        code = aot.numba(add, "add", inputs=[x, b], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

    for others in (0, 1):
        net = network()
        inputs = [net.add_input(n, trt.float32, (5,)) for n in "xb"]
        layer = net.add_plugin(op_of(plugin_id)(*inputs[: 1 + others]))
        engine = build(net, layer.get_output(0))
        x, b = np.arange(5, dtype=np.float32), np.full(5, 7, np.float32)
        np.testing.assert_array_equal(engine(x=x, b=b), x + (b if others else 1))
