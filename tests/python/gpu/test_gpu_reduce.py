"""Reductions of many elements to few on the emulated GPU, and normalizations of few long rows, where blocks share an
output or a row, against NumPy."""

import ctypes

import numpy as np
import pytest

import cuda_driver
import opwright as trt
from cuda_driver import DeviceArray

TYPES = {
    np.float32: trt.float32,
    np.float16: trt.float16,
    np.int8: trt.int8,
    np.int32: trt.int32,
    np.int64: trt.int64,
}
FUNCTIONS = {
    "SUM": np.sum,
    "PROD": np.prod,
    "MAX": np.max,
    "MIN": np.min,
    "AVG": np.mean,
}


def build(shapes, dtype, name, axes, negate=False):
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    is_open = shapes[0] != shapes[2]
    x = network.add_input("x", TYPES[dtype], tuple(-1 if is_open else n for n in shapes[1]))
    mask = sum(1 << axis for axis in axes)
    y = network.add_reduce(x, trt.ReduceOperation[name], mask, False).get_output(0)
    if negate:
        y = network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
    network.mark_output(y)
    return trt.build(network, shapes={"x": shapes}, device=trt.DeviceType.GPU, timing=False)


def is_split(engine):
    return "per part" in engine.layers[0]["TacticName"]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", TYPES)
def test_of_all_elements(dtype, name):
    random = np.random.default_rng(3)
    x = random.integers(-9, 10, (3, 41, 331)).astype(dtype)
    if name == "PROD":
        x = np.where(random.random(x.shape) < 2e-4, -2, 1).astype(dtype)
    engine = build((x.shape,) * 3, dtype, name, (0, 1, 2))
    assert is_split(engine)
    wide = x.astype(np.float64 if np.issubdtype(dtype, np.floating) else np.int64)
    if name == "AVG" and not np.issubdtype(dtype, np.floating):
        expected = np.trunc(wide.sum() / wide.size)
    else:
        expected = FUNCTIONS[name](wide)
    with np.errstate(over="ignore"):
        expected = np.asarray(expected).astype(dtype)
    np.testing.assert_allclose(engine(x), expected, rtol=1e-3 if dtype is np.float16 else 1e-6)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (0, 2), (1, 2)])
def test_open_extents(axes):
    engine = build(
        ((1, 1, 1), (1 << 10, 1 << 7, 33), (1 << 11, 1 << 8, 99)), np.float32, "SUM", axes
    )
    random = np.random.default_rng(4)
    for shape in ((2000, 4, 3), (1, 200, 99), (5, 1, 1), (700, 90, 2)):
        x = random.standard_normal(shape, np.float32)
        expected = x.astype(np.float64).sum(axis=axes)
        np.testing.assert_allclose(engine(x), expected, rtol=1e-5, atol=1e-4)


def test_replayed_by_a_graph():
    shape = (70001,)
    engine = build((shape,) * 3, np.float32, "SUM", (0,), negate=True)
    random = np.random.default_rng(5)
    results = set()
    x = random.standard_normal(shape, np.float32)
    for _ in range(10):
        # Each time at another address, with other values in between.
        engine(DeviceArray(random.standard_normal(shape, np.float32)))
        results.add(float(cuda_driver.read_interface(engine(DeviceArray(x)))))
    assert len(results) == 1
    np.testing.assert_allclose(results.pop(), -x.astype(np.float64).sum(), rtol=1e-6)


@pytest.mark.parametrize("is_blocking", [False, True], ids=["", "waits for the default stream"])
def test_captured_by_the_caller_in_the_first_run(is_blocking):
    x = np.random.default_rng(6).standard_normal(50000, np.float32)
    engine = build((x.shape,) * 3, np.float32, "SUM", (0,))
    assert is_split(engine)
    driver = cuda_driver.driver()
    stream, graph, launched = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), 0 if is_blocking else 1)
    context = engine.engine.create_execution_context()
    values, result = DeviceArray(x), DeviceArray(np.zeros((), np.float32))
    context.set_tensor_address("x", values.ptr)
    context.set_tensor_address(engine.outputs[0], result.ptr)
    driver.call("cuStreamBeginCapture_v2", stream, 1)
    try:
        context.execute_async_v3(stream.value)
    finally:
        driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    driver.call("cuGraphInstantiateWithFlags", ctypes.byref(launched), graph, ctypes.c_uint64(0))
    for _ in range(3):
        driver.write(result.ptr, np.full((), np.nan, np.float32))
        driver.call("cuGraphLaunch", launched, stream)
        np.testing.assert_allclose(result.numpy(), x.astype(np.float64).sum(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_open", [False, True])
def test_clusters_normalize_few_long_groups(is_open, dtype):
    """With open extents a row may be too long for the registers."""
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    most = (4, 6, 512, 512) if is_open else (2, 6, 105, 110)
    x = network.add_input("x", TYPES[dtype], (-1, 6, -1, -1) if is_open else most)
    random = np.random.default_rng(6)
    scale, bias = (random.standard_normal((1, 6, 1, 1)).astype(dtype) for _ in range(2))
    constants = [network.add_constant((1, 6, 1, 1), trt.Weights(each)) for each in (scale, bias)]
    layer = network.add_normalization(x, *(each.get_output(0) for each in constants), 0b1100)
    layer.num_groups = 2
    network.mark_output(layer.get_output(0))
    shapes = {"x": ((1, 6, 1, 1) if is_open else most, (2, 6, 105, 110), most)}
    engine = trt.build(network, shapes=shapes, device=trt.DeviceType.GPU, timing=False)
    assert engine.layers[0]["TacticName"] == "8 blocks of 1024 threads per row"
    for shape in [(2, 6, 105, 110), (1, 6, 3, 1), (3, 6, 128, 97)][: 3 if is_open else 1]:
        x = (3 + random.standard_normal(shape)).astype(dtype)
        groups = x.astype(np.float64).reshape(shape[0], 2, -1)
        mean, variance = groups.mean(-1, keepdims=True), groups.var(-1, keepdims=True)
        expected = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(shape) * scale + bias
        tolerance = 1e-5 if dtype is np.float32 else 4e-3
        np.testing.assert_allclose(engine(x), expected, rtol=tolerance, atol=4 * tolerance)
