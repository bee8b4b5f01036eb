"""Built-in layers on the GPU against NumPy: random values, each type, fixed and open shapes."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from gpu_engines import TYPES, build, network, strongly_typed

pytestmark = pytest.mark.usefixtures("on_gpu")

FLOATS = [np.float32, np.float16]
INTEGERS = [np.int32, np.int64]
TOLERANCE = {np.float32: 2e-6, np.float16: 2e-3}
Element, Unary, Activation = trt.ElementWiseOperation, trt.UnaryOperation, trt.ActivationType


def values(rng, shape, dtype, low=-4.0, high=4.0):
    x = rng.uniform(low, high, shape)
    return (np.rint(x * 5) if np.issubdtype(dtype, np.integer) else x).astype(dtype)


def run(make, *arrays, open_shapes=False, net=None):
    """What the layers that `make(network, *inputs)` adds compute; one tensor or several."""
    net = net or strongly_typed()
    shapes = [tuple(-1 for _ in a.shape) if open_shapes else a.shape for a in arrays]
    inputs = [
        net.add_input(f"x{i}", TYPES[a.dtype], s) for i, (a, s) in enumerate(zip(arrays, shapes))
    ]
    outputs = make(net, *inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    profile = {}
    if open_shapes:
        for i, a in enumerate(arrays):
            profile[f"x{i}"] = (
                tuple(min(n, 1) for n in a.shape),
                a.shape,
                tuple(2 * n for n in a.shape),
            )
    engine = build(net, *outputs, shapes=profile)
    made = engine(*arrays)
    return made if len(outputs) == 1 else tuple(made.values())


def close(y, expected, tolerance=None):
    assert y.shape == expected.shape and y.dtype == expected.dtype
    if np.issubdtype(y.dtype, np.floating):
        limit = tolerance or TOLERANCE[y.dtype.type]
        np.testing.assert_allclose(y.astype(float), expected.astype(float), rtol=limit, atol=limit)
    else:
        np.testing.assert_array_equal(y, expected)


BINARY = {
    "SUM": np.add,
    "SUB": np.subtract,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
}


@pytest.mark.parametrize("open_shapes", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_element_wise(rng, dtype, open_shapes):
    a, b = values(rng, (3, 5, 7), dtype), values(rng, (3, 1, 7), dtype)

    def make(net, x, y):
        return tuple(net.add_elementwise(x, y, getattr(Element, n)).get_output(0) for n in BINARY)

    for y, function in zip(run(make, a, b, open_shapes=open_shapes), BINARY.values()):
        close(y, function(a, b))


@pytest.mark.parametrize("dtype", FLOATS)
def test_division_and_powers(rng, dtype):
    a, b = values(rng, (40, 33), dtype, 0.5, 3), values(rng, (40, 33), dtype, 0.5, 3)

    def make(net, x, y):
        return tuple(
            net.add_elementwise(x, y, op).get_output(0) for op in (Element.DIV, Element.POW)
        )

    quotient, power = run(make, a, b)
    wide = a.astype(float), b.astype(float)
    close(quotient, (wide[0] / wide[1]).astype(dtype), 4e-6 if dtype == np.float32 else 2e-3)
    close(power, (wide[0] ** wide[1]).astype(dtype), 4e-6 if dtype == np.float32 else 2e-3)


COMPARE = {"EQUAL": np.equal, "LESS": np.less, "GREATER": np.greater}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_comparisons_select_and_logic(rng, dtype):
    a, b = np.rint(values(rng, (65, 9), dtype)), np.rint(values(rng, (65, 9), dtype))
    a, b = a.astype(dtype), b.astype(dtype)

    def make(net, x, y):
        conditions = [net.add_elementwise(x, y, getattr(Element, n)).get_output(0) for n in COMPARE]
        some = net.add_elementwise(conditions[0], conditions[1], Element.OR).get_output(0)
        return (*conditions, net.add_select(some, x, y).get_output(0))

    *conditions, chosen = run(make, a, b)
    for y, function in zip(conditions, COMPARE.values()):
        close(y, function(a, b))
    close(chosen, np.where(a <= b, a, b))


UNARY = {
    "EXP": np.exp, "ABS": np.abs, "NEG": np.negative, "SIN": np.sin, "COS": np.cos, "TANH": np.tanh,
    "CEIL": np.ceil, "FLOOR": np.floor, "ROUND": np.rint, "SIGN": np.sign,
}  # fmt: skip
POSITIVE = {"SQRT": np.sqrt, "LOG": np.log, "RECIP": np.reciprocal}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("table, low", [(UNARY, -4), (POSITIVE, 0.25)], ids=["any", "positive"])
def test_unary(rng, dtype, table, low):
    a = values(rng, (4, 129), dtype, low, 4)
    names = [name for name in table if hasattr(Unary, name)]

    def make(net, x):
        return tuple(net.add_unary(x, getattr(Unary, name)).get_output(0) for name in names)

    for y, name in zip(run(make, a), names):
        close(y, table[name](a.astype(float)).astype(dtype), 1e-5 if dtype == np.float32 else 2e-3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations(rng, dtype):
    a = values(rng, (7, 11, 13), dtype)
    wide = a.astype(float)
    expected = {
        Activation.RELU: np.maximum(wide, 0),
        Activation.SIGMOID: 1 / (1 + np.exp(-wide)),
        Activation.TANH: np.tanh(wide),
    }

    def make(net, x):
        return tuple(net.add_activation(x, kind).get_output(0) for kind in expected)

    for y, wanted in zip(run(make, a), expected.values()):
        close(y, wanted.astype(dtype), 1e-5 if dtype == np.float32 else 2e-3)


@pytest.mark.parametrize("open_shapes", [False, True], ids=["fixed", "open"])
def test_a_chain_becomes_one_kernel(rng, open_shapes):
    a, b = values(rng, (33, 65), np.float32), values(rng, (65,), np.float32)

    def make(net, x, y):
        row = net.add_shuffle(y)
        row.reshape_dims = (1, -1) if open_shapes else (1, 65)
        s = net.add_elementwise(x, row.get_output(0), Element.SUM).get_output(0)
        t = net.add_unary(s, Unary.ABS).get_output(0)
        u = net.add_activation(t, Activation.TANH).get_output(0)
        return net.add_elementwise(u, x, Element.PROD).get_output(0)

    close(run(make, a, b, open_shapes=open_shapes), np.tanh(np.abs(a + b)) * a, 4e-6)


REDUCE = {"SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean}


@pytest.mark.parametrize("axes", [(2,), (0,), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_reduce(rng, dtype, axes):
    low, high = (0.8, 1.2) if dtype != np.int32 else (-0.5, 0.5)
    a = values(rng, (3, 18, 40), dtype, low, high)
    names = [n for n in REDUCE if not (dtype == np.int32 and n == "AVG")]
    names = [n for n in names if not (n == "PROD" and len(axes) > 1)]
    bits = sum(1 << axis for axis in axes)

    def make(net, x):
        ops = [getattr(trt.ReduceOperation, n) for n in names]
        return tuple(net.add_reduce(x, op, bits, axes != (2,)).get_output(0) for op in ops)

    made = run(make, a)
    for y, name in zip(made if isinstance(made, tuple) else (made,), names):
        wide = a.astype(float if dtype != np.int32 else np.int64)
        expected = REDUCE[name](wide, axis=axes, keepdims=axes != (2,)).astype(dtype)
        close(y, expected, 1e-4 if dtype == np.float32 else 5e-3)


CASTS = [np.float32, np.float16, np.int32, np.int64, np.int8, np.uint8, np.bool_]


@pytest.mark.parametrize("shape, axis", [((1 << 18,), 0), ((7, 40000), 1), ((1 << 13, 48), 0)])
def test_blocks_that_share_a_sum(rng, shape, axis):
    # The counter of the blocks that are done must be as it was, and the order of additions the same.
    net = strongly_typed()
    x = net.add_input("x", trt.float32, shape)
    y = net.add_reduce(x, trt.ReduceOperation.SUM, 1 << axis, False).get_output(0)
    engine = build(net, y, net.add_unary(y, trt.UnaryOperation.NEG).get_output(0))
    options = engine.layers[0]["Candidates"]
    assert any("per part" in option["TacticName"] for option in options)
    for values in (rng.random(shape, np.float32), rng.standard_normal(shape, np.float32)):
        results = [engine(values)["y0"] for _ in range(20)]
        expected = values.astype(np.float64).sum(axis=axis)
        np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-2)
        assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize("to", CASTS)
@pytest.mark.parametrize("source", [np.float32, np.float16, np.int32, np.int64])
def test_cast(rng, source, to):
    low = 0 if to == np.uint8 else -100
    a = np.rint(rng.uniform(low, 100, (5, 77))).astype(source)
    a.flat[:3] = 0
    y = run(lambda net, x: net.add_cast(x, TYPES[np.dtype(to)]).get_output(0), a)
    close(y, a.astype(to))


def rounded_to_bf16(x):
    bits = x.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def test_bf16(rng):
    a, b = values(rng, (9, 130), np.float32), values(rng, (9, 130), np.float32)

    def make(net, x, y):
        x, y = (net.add_cast(t, trt.bfloat16).get_output(0) for t in (x, y))
        s = net.add_elementwise(x, y, Element.PROD).get_output(0)
        t = net.add_shuffle(s)
        t.first_transpose = (1, 0)
        return net.add_cast(t.get_output(0), trt.float32).get_output(0)

    y = run(make, a, b)
    np.testing.assert_array_equal(y, rounded_to_bf16(y))
    # A chain of layers may round its inputs or its result alone: 8 bits of mantissa, three times.
    np.testing.assert_allclose(y, (a * b).T, rtol=3 * 2.0**-8)


MOVED = [np.float32, np.float16, np.int32, np.int64, np.int8]


@pytest.mark.parametrize("open_shapes", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (0, 1, 3, 2)], ids=str)
def test_transpose(rng, order, dtype, open_shapes):
    a = values(rng, (2, 5, 33, 34), dtype)

    def make(net, x):
        layer = net.add_shuffle(x)
        layer.first_transpose = order
        return layer.get_output(0)

    close(run(make, a, open_shapes=open_shapes), a.transpose(order))


@pytest.mark.parametrize("dtype", MOVED)
def test_slices(rng, dtype):
    a = values(rng, (6, 20, 31), dtype)
    cases = [
        ((1, 2, 3), (4, 10, 20), (1, 1, 1)),
        ((0, 0, 30), (3, 20, 16), (2, 1, -2)),
        ((5, 19, 0), (2, 10, 31), (-3, -2, 1)),
    ]

    def make(net, x):
        return tuple(net.add_slice(x, *case).get_output(0) for case in cases)

    for y, (start, shape, stride) in zip(run(make, a), cases):
        indices = [s + d * np.arange(n) for s, n, d in zip(start, shape, stride)]
        close(y, a[np.ix_(*indices)])


def test_padding(rng):
    a = values(rng, (2, 3, 14, 15), np.float32)

    def make(net, x):
        return net.add_padding_nd(x, (1, 2), (3, 4)).get_output(0)

    close(run(make, a), np.pad(a, [(0, 0), (0, 0), (1, 3), (2, 4)]))


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenation(rng, axis, dtype):
    extents = (1, 5, 3) if axis == 0 else (4, 4, 4)
    arrays = [values(rng, (extent, 6, 10), dtype) for extent in extents]

    def make(net, *tensors):
        layer = net.add_concatenation(list(tensors))
        layer.axis = axis
        return layer.get_output(0)

    close(run(make, *arrays), np.concatenate(arrays, axis))


@pytest.mark.parametrize("index_type", INTEGERS)
@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("axis", [0, 1])
def test_gather(rng, axis, dtype, index_type):
    a = values(rng, (12, 9, 7), dtype)
    indices = rng.integers(0, 9, (5, 3)).astype(index_type)

    def make(net, x, i):
        return net.add_gather(x, i, axis).get_output(0)

    close(run(make, a, indices), np.take(a, indices, axis))


def test_constants_shapes_and_reshapes(rng):
    a = values(rng, (4, 6, 5), np.float32)
    weights = values(rng, (1, 6, 1), np.float32)

    def make(net, x):
        constant = net.add_constant(weights.shape, weights).get_output(0)
        scaled = net.add_elementwise(x, constant, Element.PROD).get_output(0)
        flat = net.add_shuffle(scaled)
        flat.reshape_dims = (0, -1)
        return flat.get_output(0), net.add_shape(x).get_output(0)

    y, shape = run(make, a, open_shapes=True)
    close(y, (a * weights).reshape(4, 30))
    assert shape.tolist() == [4, 6, 5]


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 0, 2)], ids=str)
def test_empty_and_tiny(rng, shape):
    a = values(rng, shape, np.float32)

    def make(net, x):
        y = net.add_unary(x, Unary.NEG).get_output(0)
        return net.add_elementwise(x, y, Element.PROD).get_output(0)

    close(run(make, a), -a * a)


def test_a_large_tensor(rng):
    a = rng.random(
        (3, 1 << 22), np.float32
    )  # more elements than a grid of one thread each has in y and z

    def make(net, x):
        return net.add_activation(x, Activation.RELU).get_output(0)

    close(run(make, a - 0.5), np.maximum(a - 0.5, 0))


def test_shapes_change_between_runs(rng):
    net = network()
    x = net.add_input("x", trt.float32, (-1, -1))
    y = net.add_shuffle(net.add_unary(x, Unary.ABS).get_output(0))
    y.first_transpose = (1, 0)
    engine = build(net, y.get_output(0), shapes={"x": ((1, 1), (8, 16), (64, 128))})
    for shape in [(8, 16), (1, 1), (64, 128), (3, 128), (8, 16)]:
        a = values(rng, shape, np.float32)
        np.testing.assert_array_equal(engine(a), np.abs(a).T)
