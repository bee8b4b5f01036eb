"""BuilderFlag.DIRECT_IO: inputs and outputs whose formats were set are read and written by layers as they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

import opwright as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
RANDOM = np.random.default_rng(2)
KERNEL = RANDOM.normal(size=(16, 8, 3, 3)).astype(np.float32)
X = RANDOM.normal(size=(1, 8, 6, 6)).astype(np.float32)
HWC, LINEAR = trt.TensorFormat.HWC, trt.TensorFormat.LINEAR


def convolution(network, x):
    layer = network.add_convolution_nd(x, 16, (3, 3), KERNEL)
    layer.padding_nd = (1, 1)
    layer.name = "conv"
    return layer.get_output(0)


def indexing(network, x):
    indices = network.add_constant((3,), np.int32([5, 0, 2])).get_output(0)
    layer = network.add_gather(x, indices, 1)
    layer.name = "pick"
    return layer.get_output(0)


def build(add, direct, of_input=None, of_output=None):
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, X.shape)
    y = add(network, x)
    y.name = "y"
    network.mark_output(y)
    for tensor, formats in ((x, of_input), (y, of_output)):
        if formats is not None:
            tensor.allowed_formats = formats
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    if direct:
        config.set_flag(trt.BuilderFlag.DIRECT_IO)
    return builder.build_engine_with_config(network, config)


def conversions(engine) -> list[str]:
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return sorted(set(re.findall(r'"Name": *"(Reformat of [^"]*)"', text)))


def run(engine, x):
    """The bytes of the output, for an input that lies as the engine has it."""
    context = engine.create_execution_context()
    shape = tuple(engine.get_tensor_shape("y"))
    y = np.zeros(shape, np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    return y.ravel()


def test_a_convolution_takes_and_gives_images_as_they_are():
    engine = build(convolution, True, 1 << int(HWC), 1 << int(HWC))
    assert engine.get_tensor_format("x") == engine.get_tensor_format("y") == HWC
    assert conversions(engine) == []
    padded = np.pad(X[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    expected = np.einsum("chwij,ocij->hwo", windows, KERNEL)
    y = run(engine, np.ascontiguousarray(X.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(y, expected.ravel(), rtol=1e-4, atol=1e-4)


def test_a_layer_that_does_not_take_the_format_is_an_error():
    with pytest.raises(
        trt.Error, match="input 'x' is FP32:HWC, but layer 'pick' takes it as FP32:"
    ):
        build(indexing, True, 1 << int(HWC))
    assert conversions(build(indexing, False, 1 << int(HWC))) == ["Reformat of x"]


def test_a_layer_that_does_not_give_the_format_is_an_error():
    with pytest.raises(
        trt.Error, match="output 'y' is FP32:HWC, but layer 'pick' gives it as FP32;?"
    ):
        build(indexing, True, 1 << int(LINEAR), 1 << int(HWC))


def test_formats_that_were_not_set_may_be_converted():
    engine = build(convolution, True, None, 1 << int(HWC))
    assert engine.get_tensor_format("x") == LINEAR and engine.get_tensor_format("y") == HWC
    np.testing.assert_allclose(
        run(engine, X), run(build(convolution, False, None, 1 << int(HWC)), X), rtol=1e-4, atol=1e-4
    )
