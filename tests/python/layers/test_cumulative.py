"""add_cumulative on the CPU and the emulated GPU, against NumPy."""

import numpy as np
import pytest

import emulated_gpu
import opwright as trt

DTYPES = {
    np.float32: trt.float32,
    np.float16: trt.float16,
    np.int32: trt.int32,
    np.int64: trt.int64,
}


def expected(x, axis, exclusive, reverse):
    wide = np.flip(x, axis) if reverse else x
    total = np.cumsum(wide, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
    if exclusive:
        total = total - wide
    return (np.flip(total, axis) if reverse else total).astype(x.dtype)


def build(shapes, dtype, axis, exclusive, reverse, **options):
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    is_open = shapes[0] != shapes[2]
    x = network.add_input("x", DTYPES[dtype], tuple(-1 if is_open else n for n in shapes[1]))
    where = network.add_constant((), np.array(axis, np.int32)).get_output(0)
    layer = network.add_cumulative(x, where, trt.CumulativeOperation.SUM, exclusive, reverse)
    assert (layer.op, layer.exclusive, layer.reverse) == (
        trt.CumulativeOperation.SUM,
        exclusive,
        reverse,
    )
    assert layer.type == trt.LayerType.CUMULATIVE
    network.mark_output(layer.get_output(0))
    return trt.build(network, shapes={"x": shapes}, timing=False, **options)


def numbers(shape, dtype):
    return np.random.default_rng(5).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_the_cpu(dtype, exclusive, reverse):
    for axis in (0, 1, -1):
        x = numbers((3, 4, 21), dtype)
        engine = build(
            ((1, 1, 1), x.shape, (4, 5, 30)),
            dtype,
            axis,
            exclusive,
            reverse,
            device=trt.DeviceType.CPU,
        )
        np.testing.assert_array_equal(engine(x), expected(x, axis, exclusive, reverse))


@emulated_gpu.required
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_the_gpu(dtype, exclusive, reverse):
    for shape, axis in (((3, 5, 7), 1), ((3, 700), 1), ((2, 300), 0)):
        x = numbers(shape, dtype)
        engine = build((x.shape,) * 3, dtype, axis, exclusive, reverse, device=trt.DeviceType.GPU)
        np.testing.assert_array_equal(engine(x), expected(x, axis, exclusive, reverse))


def test_setters_change_the_result():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (4,))
    axis = network.add_constant((1,), np.array([0], np.int64)).get_output(0)
    layer = network.add_cumulative(x, axis, trt.CumulativeOperation.SUM, False, False)
    layer.exclusive = layer.reverse = True
    network.mark_output(layer.get_output(0))
    engine = trt.build(network, timing=False)
    np.testing.assert_array_equal(engine(np.float32([1, 2, 3, 4])), [9, 7, 4, 0])


def test_the_axis_is_a_constant_of_the_network():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (4, 3))
    for axis, message in (
        (
            network.add_input("axis", trt.int32, ()),
            "input 1 .axis. decides shapes.*give a constant",
        ),
        (
            network.add_constant((), np.array(2, np.int32)).get_output(0),
            r"the axis must be in \[-2, 2\), but is 2",
        ),
    ):
        layer = network.add_cumulative(x, axis, trt.CumulativeOperation.SUM, False, False)
        with pytest.raises(trt.Error, match=message):
            str(layer.get_output(0).shape)


def test_shapes_are_followed_through_it():
    """Offsets of pieces are cumulative sums of their extents."""
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (-1, 3))
    axis = network.add_constant((), np.array(0, np.int32)).get_output(0)
    extents = network.add_shape(x).get_output(0)
    sums = network.add_cumulative(
        extents, axis, trt.CumulativeOperation.SUM, False, False
    ).get_output(0)
    wider = network.add_slice(x, (0, 0), (1, 1), (1, 1))
    wider.mode = trt.SampleMode.WRAP
    wider.set_input(2, sums)
    network.mark_output(wider.get_output(0))
    engine = trt.build(network, shapes={"x": ((1, 3), (2, 3), (4, 3))}, timing=False)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(engine(x), np.pad(x, ((0, 0), (0, 2)), mode="wrap"))
