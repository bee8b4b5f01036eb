"""Matrix products of integers, which wrap around, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import opwright as trt
from onnx_graphs import model

TYPES = [np.int32, np.int64]


def product(a: np.ndarray, b: np.ndarray, shapes=None, constant=False, dims=None):
    kind = helper.np_dtype_to_tensor_dtype(a.dtype)
    inputs = {"a": (kind, dims or list(a.shape)), "b": (kind, list(b.shape))}
    constants = {"b": b} if constant else None
    if constant:
        del inputs["b"]
    made = model([helper.make_node("MatMul", ["a", "b"], ["y"])], inputs, ["y"], constants, 13)
    return trt.build(made.SerializeToString(), timing=False, device="cpu", shapes=shapes)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (7, 3)),
        ((2, 3, 4, 5), (5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)),
        ((4, 5), (2, 5, 6)),
        ((5,), (5, 6)),
        ((3, 4, 5), (5,)),
        ((5,), (5,)),
        ((4, 0), (0, 3)),
        ((0, 4), (4, 3)),
        ((1, 1), (1, 1)),
        ((33, 129), (129, 65)),
    ],
)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_products_of_integers(dtype, a, b, constant):
    rng = np.random.default_rng(7)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, a, dtype, endpoint=True)
    w = rng.integers(info.min, info.max, b, dtype, endpoint=True)
    with np.errstate(over="ignore"):
        want = np.matmul(x, w)
    inputs = {"a": x} if constant else {"a": x, "b": w}
    got = np.asarray(product(x, w, constant=constant)(**inputs))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_an_extent_that_is_open(dtype):
    w = np.arange(12, dtype=dtype).reshape(4, 3)
    engine = product(np.zeros((1, 4), dtype), w, {"a": ((1, 4), (2, 4), (9, 4))}, True, ["n", 4])
    for n in (1, 5, 9):
        x = np.arange(n * 4, dtype=dtype).reshape(n, 4) - 7
        np.testing.assert_array_equal(engine(x), x @ w)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (3, -2), (0.5, 1), (2, 0), (1, 1.5)])
@pytest.mark.parametrize(("turn_a", "turn_b"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_gemm_of_integers(dtype, turn_a, turn_b, alpha, beta):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    rng = np.random.default_rng(3)
    a = rng.integers(-50, 50, (6, 5) if turn_a else (5, 6)).astype(dtype)
    b = rng.integers(-50, 50, (4, 6) if turn_b else (6, 4)).astype(dtype)
    c = rng.integers(-50, 50, (4,)).astype(dtype)
    node = helper.make_node(
        "Gemm", ["a", "b", "c"], ["y"],
        alpha=float(alpha), beta=float(beta), transA=turn_a, transB=turn_b,
    )  # fmt: skip
    made = model(
        [node], {n: (kind, list(v.shape)) for n, v in (("a", a), ("b", b), ("c", c))}, ["y"]
    )
    got = trt.build(made.SerializeToString(), timing=False, device="cpu")(a=a, b=b, c=c)
    want = alpha * ((a.T if turn_a else a) @ (b.T if turn_b else b)) + beta * c
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.trunc(want))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_a_layer_and_what_follows_it(dtype):
    """Element-wise layers behind a product of integers stay layers of their own."""
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    kind = trt.int32 if dtype == np.int32 else trt.int64
    x = network.add_input("x", kind, (2, 3, 4))
    w = np.arange(20, dtype=dtype).reshape(1, 5, 4) - 9
    weights = network.add_constant(w.shape, w).get_output(0)
    made = network.add_matrix_multiply(
        x, trt.MatrixOperation.NONE, weights, trt.MatrixOperation.TRANSPOSE
    )
    shift = np.arange(5, dtype=dtype).reshape(1, 1, 5)
    sums = network.add_elementwise(
        made.get_output(0),
        network.add_constant(shift.shape, shift).get_output(0),
        trt.ElementWiseOperation.SUM,
    )
    network.mark_output(sums.get_output(0))
    given = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    got = trt.build(network, timing=False, device="cpu")(given)
    np.testing.assert_array_equal(got, given @ w.transpose(0, 2, 1) + shift)


def test_what_is_refused():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    a, b = network.add_input("a", trt.int32, (2, 3)), network.add_input("b", trt.int64, (3, 2))
    none = trt.MatrixOperation.NONE
    with pytest.raises(trt.Error, match=r"input 1 \(b\) must have the type of input 0 \(a\)"):
        network.mark_output(network.add_matrix_multiply(a, none, b, none).get_output(0))
        trt.build(network, timing=False, device="cpu")
