"""Fill layers whose numbers are inputs, on the CPU and on the emulated GPU, against NumPy."""

import numpy as np
import pytest

import emulated_gpu
import opwright as trt

DEVICES = [
    trt.DeviceType.CPU,
    pytest.param(trt.DeviceType.GPU, marks=emulated_gpu.required),
]
TYPES = {
    np.float32: trt.float32,
    np.float16: trt.float16,
    np.int8: trt.int8,
    np.uint8: trt.uint8,
    np.int32: trt.int32,
    np.int64: trt.int64,
    np.bool_: trt.bool,
}


def fill(device, operation, dtype, shape, alpha, beta, given=None):
    """The result of a fill of that type whose alpha and beta are inputs of the engine, of the type `given`."""
    given = given or dtype
    feeds = {"alpha": np.asarray(alpha, given), "beta": np.asarray(beta, given)}
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    layer = network.add_fill(shape, operation, TYPES[dtype])
    for i, (name, value) in enumerate(feeds.items()):
        layer.set_input(i + 1, network.add_input(name, TYPES[given], value.shape))
    network.mark_output(layer.get_output(0))
    y = trt.build(network, device=device, timing=False)(**feeds)
    assert y.dtype == dtype and y.shape == shape
    return y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
def test_linear_spaces(device, dtype):
    start, step = {np.bool_: (True, False), np.uint8: (200, 3)}.get(dtype, (-7, 3))
    y = fill(device, trt.FillOperation.LINSPACE, dtype, (11,), start, step)
    expected = (start + step * np.arange(11, dtype=np.int64)).astype(dtype)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_step_for_every_axis(device, dtype):
    start, steps = (False, (True, False)) if dtype is np.bool_ else (5, (11, 2))
    y = fill(device, trt.FillOperation.LINSPACE, dtype, (4, 5), start, steps)
    rows, columns = np.indices((4, 5))
    np.testing.assert_array_equal(y, (start + rows * steps[0] + columns * steps[1]).astype(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_narrower_integers_for_int64(device):
    """As Torch-TensorRT counts for `arange`."""
    y = fill(device, trt.FillOperation.LINSPACE, np.int64, (5,), -7, 3, given=np.int32)
    np.testing.assert_array_equal(y, -7 + 3 * np.arange(5))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_short_integers_wrap_around(device, dtype):
    y = fill(device, trt.FillOperation.LINSPACE, dtype, (300,), 1, 7)
    np.testing.assert_array_equal(y, (1 + 7 * np.arange(300)).astype(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_integers_that_no_double_holds(device):
    start, step = 2**53 + 1, 2**60 + 1
    y = fill(device, trt.FillOperation.LINSPACE, np.int64, (4,), start, step)
    assert y.tolist() == [start + i * step for i in range(4)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_bounds_of_random_numbers(device, dtype):
    y = fill(device, trt.FillOperation.RANDOM_UNIFORM, dtype, (64, 64), 2, 6).astype(np.float64)
    assert y.min() >= 2 and y.max() <= 6
    assert abs(y.mean() - 4) < 0.1
