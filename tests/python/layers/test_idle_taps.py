"""Convolutions whose kernels are dilated beyond their input: taps that meet padding alone are not computed."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

import emulated_gpu
import opwright as trt
from onnx_graphs import assert_close, reference_session

DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]

# Extents of x, the kernel's, attributes, and the kernel that is left.
CASES = {
    "beyond both ends": ((20, 20), (3, 3), {"dilations": [24, 24], "pads": [24] * 4}, (1, 1)),
    "within": ((20, 20), (3, 3), {"dilations": [12, 12], "pads": [12] * 4}, (3, 3)),
    "of one axis": ((9, 20), (3, 3), {"dilations": [9, 2], "pads": [9, 2, 9, 2]}, (1, 3)),
    "at one end": ((6, 7), (2, 3), {"dilations": [6, 1], "pads": [6, 1, 0, 1]}, (1, 3)),
    "with strides": (
        (8, 8),
        (5, 3),
        {"dilations": [4, 9], "pads": [8, 9, 8, 9], "strides": [2, 3]},
        (3, 1),
    ),
    # What is left would begin within the input.
    "less padding": ((8, 8), (3, 2), {"dilations": [9, 12], "pads": [9, 9, 9, 4]}, (1, 2)),
}


def model(extents, kernel, attributes, groups=1, seed=1) -> bytes:
    height, width = extents
    how = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    made = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 4, {height}, {width}] x) => (float[n, m, h, w] y)
        <float[6, {4 // groups}, {kernel[0]}, {kernel[1]}] k, float[6] b>
        {{ y = Conv <{how}, group = {groups}> (x, k, b) }}""")
    rng = np.random.default_rng(seed)
    for name, shape in (("k", (6, 4 // groups, *kernel)), ("b", (6,))):
        array = rng.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made.SerializeToString()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_taps_that_meet_padding_alone(name, groups, device):
    extents, kernel, attributes, left = CASES[name]
    data = model(extents, kernel, attributes, groups)
    engine = trt.build(data, device=device, timing=False)
    (layer,) = [each for each in engine.layers if each["LayerType"] == "Convolution"]
    assert tuple(layer["Inputs"][1]["Dimensions"][2:]) == left
    x = np.random.default_rng(2).standard_normal((2, 4, *extents)).astype(np.float32)
    (expected,) = reference_session(onnx.load_from_string(data)).run(None, {"x": x})
    assert_close(engine(x), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_other_weights_leave_out_the_same_taps(device):
    extents, kernel, attributes, _ = CASES["beyond both ends"]
    data = [model(extents, kernel, attributes, seed=seed) for seed in (1, 2)]
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network()
    assert trt.OnnxParser(network, logger).parse(data[0])
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    config.default_device_type = trt.DeviceType.GPU if device == "cuda" else trt.DeviceType.CPU
    engine = builder.build_engine_with_config(network, config)
    refitter = trt.Refitter(engine, logger)
    assert trt.OnnxParserRefitter(refitter, logger).refit_from_bytes(data[1])
    assert refitter.refit_cuda_engine()
    x = np.random.default_rng(2).standard_normal((2, 4, *extents)).astype(np.float32)
    (expected,) = reference_session(onnx.load_from_string(data[1])).run(None, {"x": x})
    assert_close(trt.Engine(engine)(x), expected)
