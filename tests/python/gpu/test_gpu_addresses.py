"""Addresses that execution contexts on a GPU take: of the GPU's memory, of the host's for inputs that decide shapes,
and the event after which inputs may be written again."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import opwright as trt
from cuda_driver import DeviceArray, Stream, driver
from plugin_testing import build, network

X = np.arange(24, dtype=np.float32)


def reshaping() -> trt.Engine:
    """y = x in the shape that the input `shape` has as its elements."""
    net = network()
    x = net.add_input("x", trt.float32, (24,))
    shape = net.add_input("shape", trt.int64, (2,))
    layer = net.add_shuffle(x)
    layer.set_input(1, shape)
    relu = net.add_activation(layer.get_output(0), trt.ActivationType.RELU)
    values = {"shape": ((1, 1), (4, 6), (24, 24))}
    return build(net, relu.get_output(0), device="cuda", timing=False, values=values)


def test_shapes_on_the_gpu_are_refused():
    engine = reshaping()
    x, y, shape = DeviceArray(X), DeviceArray(0 * X), DeviceArray(np.array([3, 8]))
    context = engine.engine.create_execution_context()
    context.set_tensor_address("x", x.ptr)
    context.set_tensor_address(engine.outputs[0], y.ptr)
    with pytest.raises(trt.Error, match="'shape'.*read by the host.*x.cpu"):
        context.set_tensor_address("shape", shape.ptr)
    host = np.array([3, 8])
    context.set_tensor_address("shape", host.ctypes.data)
    assert context.execute_async_v3(0)
    assert tuple(context.get_tensor_shape(engine.outputs[0])) == (3, 8)
    np.testing.assert_array_equal(y.numpy(), X)
    with pytest.raises(trt.Error, match="memory of GPU 0"):
        context.execute_v2([x.ptr, shape.ptr, y.ptr])
    assert context.execute_v2([x.ptr, host.ctypes.data, y.ptr])


def test_shapes_of_calls_are_host_arrays():
    engine = reshaping()
    x = DeviceArray(X)
    assert engine(x, np.array([2, 12])).shape == (2, 12)
    with pytest.raises(trt.Error, match="'shape' decides shapes.*as a NumPy array"):
        engine(x, DeviceArray(np.array([2, 12])))


def test_an_address_may_come_before_the_shape_that_fits_it():
    net = network()
    x = net.add_input("x", trt.float32, (-1, 4))
    relu = net.add_activation(x, trt.ActivationType.RELU)
    shapes = {"x": ((1, 4), (6, 4), (6, 4))}
    engine = build(net, relu.get_output(0), device="cuda", timing=False, shapes=shapes)
    large, small = (DeviceArray(np.arange(4 * n, dtype=np.float32).reshape(n, 4)) for n in (6, 2))
    np.testing.assert_array_equal(engine(large).numpy(), large.numpy())
    np.testing.assert_array_equal(engine(small).numpy(), small.numpy())

    context = engine.engine.create_execution_context()
    for x in (large, small):
        y = DeviceArray(0 * x.numpy())
        context.set_tensor_address("x", x.ptr)
        context.set_tensor_address(engine.outputs[0], y.ptr)
        context.set_input_shape("x", x.numpy().shape)
        assert context.execute_async_v3(0)
        np.testing.assert_array_equal(y.numpy(), x.numpy())
    context.set_input_shape("x", (6, 4))
    with pytest.raises(trt.Error, match="'x' is given 96 bytes.*ends after 32"):
        context.execute_async_v3(0)


def negation() -> trt.Engine:
    net = network()
    x = net.add_input("x", trt.float32, (24,))
    layer = net.add_unary(x, trt.UnaryOperation.NEG)
    return build(net, layer.get_output(0), device="cuda", timing=False)


def test_inputs_are_written_again_after_their_event():
    engine = negation()
    x, y = DeviceArray(X), DeviceArray(0 * X)
    event, stream = ctypes.c_void_p(), Stream().handle
    driver().call("cuEventCreate", ctypes.byref(event), 2)
    context = engine.engine.create_execution_context()
    context.set_tensor_address("x", x.ptr)
    context.set_tensor_address(engine.outputs[0], y.ptr)
    assert context.get_input_consumed_event() == 0
    assert context.set_input_consumed_event(event.value)
    assert context.get_input_consumed_event() == event.value
    for run in range(6):
        driver().write(x.ptr, X + run)
        assert context.execute_async_v3(stream)
        driver().call("cuEventSynchronize", event)
        driver().write(x.ptr, 0 * X)
        np.testing.assert_array_equal(y.numpy(), -X - run)
    assert context.set_input_consumed_event(0)
    assert context.get_input_consumed_event() == 0


def test_the_cpu_has_no_events():
    net = network()
    layer = net.add_unary(net.add_input("x", trt.float32, (24,)), trt.UnaryOperation.NEG)
    engine = build(net, layer.get_output(0), device="cpu", timing=False)
    context = engine.engine.create_execution_context()
    with pytest.raises(trt.Error, match="runs on the CPU"):
        context.set_input_consumed_event(1)
    assert context.set_input_consumed_event(0)
