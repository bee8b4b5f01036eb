"""Engines on a GPU take other weights, in contexts that exist, too."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import opwright as trt
from cuda_driver import DeviceArray

LOGGER = trt.Logger(trt.Logger.ERROR)

MODEL = """
    <ir_version: 9, opset_import: ["" : 19]>
    net (float[2, 8] x) => (float[2, 8] y) <float[8] scale, float[8] shift, float[2, 8] mask>
    {
        a = Mul (x, scale)
        b = Exp (shift)
        c = Add (a, b)
        d = Relu (c)
        s = ReduceSum <keepdims = 1> (d)
        t = Transpose <perm = [1, 0]> (mask)
        u = Transpose <perm = [1, 0]> (t)
        e = Mul (d, u)
        y = Add (e, s)
    }"""


def weights(seed):
    rng = np.random.default_rng(seed)
    shapes = {"scale": 8, "shift": 8, "mask": (2, 8)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def model(seed):
    made = onnx.parser.parse_model(MODEL)
    for name, values in weights(seed).items():
        made.graph.initializer.append(numpy_helper.from_array(values, name))
    return made.SerializeToString()


def expected(x, w):
    d = np.maximum(x * w["scale"] + np.exp(w["shift"]), 0)
    return d * w["mask"] + d.sum()


def build(*flags):
    builder = trt.Builder(LOGGER)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    for flag in flags:
        config.set_flag(flag)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, LOGGER).parse(model(0))
    data = builder.build_serialized_network(network, config)
    return trt.Runtime(LOGGER).deserialize_cuda_engine(data)


@pytest.mark.parametrize("flag", [trt.BuilderFlag.REFIT, trt.BuilderFlag.STRIP_PLAN])
def test_weights_are_exchanged(flag):
    engine = build(trt.BuilderFlag.REFIT, flag)
    x = np.random.default_rng(5).standard_normal((2, 8)).astype(np.float32)
    source, target = DeviceArray(x), DeviceArray(np.zeros_like(x))
    context = None
    for seed in (0, 1, 2):
        if seed > 0 or flag == trt.BuilderFlag.STRIP_PLAN:
            refitter = trt.Refitter(engine, LOGGER)
            assert trt.OnnxParserRefitter(refitter, LOGGER).refit_from_bytes(model(seed))
            assert refitter.refit_cuda_engine_async(0)
        context = context or engine.create_execution_context()
        context.set_tensor_address("x", source.ptr)
        context.set_tensor_address("y", target.ptr)
        for _ in range(3):  # a graph of the context's own replays the later ones
            assert context.execute_async_v3(0)
        np.testing.assert_allclose(target.numpy(), expected(x, weights(seed)), rtol=1e-5, atol=1e-5)


def test_weights_come_from_the_device():
    engine = build(trt.BuilderFlag.REFIT)
    x = np.random.default_rng(5).standard_normal((2, 8)).astype(np.float32)
    source, target = DeviceArray(x), DeviceArray(np.zeros_like(x))
    w = weights(0)
    w["mask"] = np.ones((2, 8), np.float32)
    mask = DeviceArray(w["mask"])
    refitter = trt.Refitter(engine, LOGGER)
    refitter.set_named_weights("mask", mask, trt.TensorLocation.DEVICE)
    assert refitter.get_weights_location("mask") == trt.TensorLocation.DEVICE
    assert refitter.refit_cuda_engine()
    context = engine.create_execution_context()
    context.set_tensor_address("x", source.ptr)
    context.set_tensor_address("y", target.ptr)
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(target.numpy(), expected(x, w), rtol=1e-5, atol=1e-5)
