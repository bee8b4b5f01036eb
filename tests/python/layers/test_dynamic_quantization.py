"""Dynamic quantization in blocks, against NumPy with the types of ml_dtypes, on the CPU and on a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import emulated_gpu
import opwright as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
FP4, FP8, E8M0 = ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
LARGEST = {trt.fp4: 6.0, trt.fp8: 448.0, trt.int8: 127.0}
DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]


def in_blocks(x, blocks):
    """x as [.., count, size, ..] for each axis, and the axes of what is in a block."""
    split = [part for extent, size in zip(x.shape, blocks) for part in (extent // size, size)]
    return x.reshape(split), tuple(range(1, 2 * x.ndim, 2))


def rounded_up(scale):
    """The powers of two that are not smaller, as E8M0 has them."""
    exponent = np.ceil(np.log2(np.maximum(scale.astype(np.float64), 2.0**-127)))
    return np.exp2(np.clip(exponent, -127, 127)).astype(E8M0)


def as_type(ratio, dtype):
    if dtype == trt.int8:
        return np.clip(np.rint(ratio), -128, 127).astype(np.int8)
    limit = np.float32(LARGEST[dtype])
    return np.clip(ratio, -limit, limit).astype(FP4 if dtype == trt.fp4 else FP8)


def reference(x, blocks, dtype, scale_type, divisor=1.0):
    """The elements as FP32, the scales as they are stored, and x again."""
    divisor = np.float32(divisor)
    x = x.astype(np.float32)
    cut, inner = in_blocks(x, blocks)
    exact = np.abs(cut).max(axis=inner, keepdims=True) / np.float32(LARGEST[dtype])
    if scale_type == trt.fp8:
        stored = np.minimum(exact / divisor, np.float32(448)).astype(FP8)
        scale = stored.astype(np.float32) * divisor
    elif scale_type == trt.e8m0:
        stored = rounded_up(exact)
        scale = stored.astype(np.float32)
    else:
        stored = exact.astype({trt.float32: np.float32, trt.float16: np.float16}[scale_type])
        scale = stored.astype(np.float32)
    elements = as_type(cut / np.where(scale == 0, np.float32(1), scale), dtype).astype(np.float32)
    shape = [extent // size for extent, size in zip(x.shape, blocks)]
    return elements.reshape(x.shape), stored.reshape(shape), (elements * scale).reshape(x.shape)


def build(x, device, add, divisor=None):
    """An engine that gives the elements as FP32, the bits of the scales, and x again."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    types = {np.float32: trt.float32, np.float16: trt.float16, ml_dtypes.bfloat16: trt.bfloat16}
    given = network.add_input("x", types[x.dtype.type], x.shape)
    layer = add(network, given)
    if divisor is not None:
        layer.set_input(1, network.add_constant((), np.float32([divisor])).get_output(0))
    assert layer.type == trt.LayerType.DYNAMIC_QUANTIZE and layer.num_outputs == 2
    elements, scales = layer.get_output(0), layer.get_output(1)
    one = network.add_constant((), np.float32([1])).get_output(0)
    scale = scales
    if scales.dtype == trt.fp8:
        by = one if divisor is None else layer.get_input(1)
        scale = network.add_dequantize(scales, by, trt.float32).get_output(0)
    elif scales.dtype == trt.float16:
        scale = network.add_cast(scales, trt.float32).get_output(0)
    outputs = {
        "elements": network.add_dequantize(elements, one, trt.float32),
        "again": network.add_dequantize(elements, scale, trt.float32),
    }
    for name, each in outputs.items():
        each.get_output(0).name = name
        network.mark_output(each.get_output(0))
    scales.name = "scales"
    network.mark_output(scales)
    return trt.build(network, timing=False, device=device)


def check(x, device, blocks, dtype, scale_type, add, divisor=None):
    engine = build(x, device, add, divisor)
    results = engine(x)
    elements, stored, again = reference(
        x, blocks, dtype, scale_type, 1.0 if divisor is None else divisor
    )
    assert tuple(engine.engine.get_tensor_shape("scales")) == stored.shape
    np.testing.assert_array_equal(results["elements"], elements)
    assert np.asarray(results["scales"]).tobytes() == stored.tobytes()
    np.testing.assert_array_equal(results["again"], again)


RANDOM = np.random.default_rng(11)
X = (RANDOM.normal(size=(6, 64)) * np.exp(RANDOM.normal(size=(6, 64)))).astype(np.float32)
X[2, 16:48] = 0  # blocks of zeros
X[3, :32] *= 1e-30
X[4, 3] = 448 * 2.0**5  # a scale that is a power of two as it is

CASES = {
    "nvfp4": (trt.fp4, trt.fp8, -1, 16, 0.004),
    "mxfp8": (trt.fp8, trt.e8m0, 1, 32, None),
    "mxfp4": (trt.fp4, trt.e8m0, 1, 32, None),
    "fp8": (trt.fp8, trt.float32, 1, 8, None),
    "int8": (trt.int8, trt.float32, 0, 3, None),
    "int8_fp16": (trt.int8, trt.float16, 1, 64, None),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_blocks_along_an_axis(case, device):
    dtype, scale_type, axis, size, divisor = case
    blocks = [1, 1]
    blocks[axis] = size
    x = X if scale_type != trt.float16 else np.clip(X, -100, 100)
    check(
        x,
        device,
        blocks,
        dtype,
        scale_type,
        lambda network, x: network.add_dynamic_quantize(x, axis, size, dtype, scale_type),
        divisor,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_blocks_of_a_shape(dtype, device):
    x = np.clip(X, -200, 200).reshape(2, 3, 64).astype(dtype)
    check(
        x,
        device,
        (1, 3, 16),
        trt.fp8,
        trt.float32,
        lambda network, x: network.add_dynamic_quantize_v2(x, (1, -1, 16), trt.fp8, trt.float32),
    )


def test_fp4_is_stored_in_half_bytes():
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2, 32))
    layer = network.add_dynamic_quantize(x, 1, 16, trt.fp4, trt.float32)
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.timing = False
    config.default_device_type = trt.DeviceType.CPU
    engine = builder.build_engine_with_config(network, config)
    name = engine.get_tensor_name(1)
    assert engine.get_tensor_dtype(name) == trt.fp4
    given = np.ascontiguousarray(X[:2, :32])
    stored = np.full(33, 0xAB, np.uint8)
    context = engine.create_execution_context()
    context.set_tensor_address("x", given.ctypes.data)
    context.set_tensor_address(name, stored.ctypes.data)
    assert context.execute_async_v3(0)
    elements = reference(given, (1, 16), trt.fp4, trt.float32)[0].astype(FP4)
    codes = elements.view(np.uint8).reshape(-1, 2)
    np.testing.assert_array_equal(stored[:32], codes[:, 0] | codes[:, 1] << 4)
    assert stored[32] == 0xAB


@pytest.mark.parametrize("size", [-1, 4])
def test_an_open_extent_can_be_whole_or_apart(size):
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 8))
    layer = network.add_dynamic_quantize_v2(
        x, (-1, 8) if size < 0 else (1, size), trt.int8, trt.float32
    )
    layer.get_output(0).name, layer.get_output(1).name = "q", "s"
    network.mark_output(layer.get_output(0))
    network.mark_output(layer.get_output(1))
    shapes = {"x": ((1, 8), (3, 8), (6, 8))}
    engine = trt.build(network, shapes=shapes, timing=False, device="cpu")
    for rows in (1, 5):
        given = np.ascontiguousarray(X[:rows, :8])
        blocks = (rows, 8) if size < 0 else (1, size)
        elements, scales, _ = reference(given, blocks, trt.int8, trt.float32)
        results = engine(given)
        np.testing.assert_array_equal(results["q"], elements)
        np.testing.assert_array_equal(results["s"], scales)


REFUSED = {
    "size": ((1, 5), trt.fp8, trt.float32, "5 elements along axis 1 of extent 64"),
    "rank": ((1, 1, 16), trt.fp8, trt.float32, "3 extents; expected the rank of x, 2"),
    "type": ((1, 16), trt.int32, trt.float32, "quantizes to INT32; expected FP4, FP8 or INT8"),
    "scale": ((1, 16), trt.fp8, trt.int8, "expected FP8, E8M0, FP32, FP16 or BF16"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_refused(case):
    blocks, dtype, scale_type, reason = case
    network = trt.Builder(LOGGER).create_network()
    x = network.add_input("x", trt.float32, (6, 64))
    layer = network.add_dynamic_quantize_v2(x, blocks, dtype, scale_type)
    with pytest.raises(trt.Error, match=reason):
        print(layer.get_output(0).shape)


def test_more_is_refused():
    network = trt.Builder(LOGGER).create_network()
    odd = network.add_input("odd", trt.float32, (4, 3))
    x = network.add_input("x", trt.float32, (6, 64))
    with pytest.raises(trt.Error, match="even constant"):
        print(network.add_dynamic_quantize(odd, 0, 2, trt.fp4, trt.fp8).get_output(0).shape)
    with pytest.raises(trt.Error, match="the axis is 2, and x has rank 2"):
        print(network.add_dynamic_quantize(x, 2, 2, trt.fp8, trt.fp8).get_output(0).shape)
    layer = network.add_dynamic_quantize(x, 1, 2, trt.fp8, trt.float32)
    layer.set_input(1, network.add_constant((), np.float32([1])).get_output(0))
    with pytest.raises(trt.Error, match="expected scales of FP8"):
        print(layer.get_output(0).shape)


def test_parameters_are_the_layers_properties():
    network = trt.Builder(LOGGER).create_network()
    x = network.add_input("x", trt.float32, (6, 64))
    layer = network.add_dynamic_quantize(x, 1, 16, trt.fp4, trt.fp8)
    assert (layer.axis, layer.block_size, tuple(layer.block_shape)) == (1, 16, ())
    assert (layer.to_type, layer.scale_type) == (trt.fp4, trt.fp8)
    layer.to_type, layer.scale_type, layer.block_shape = trt.fp8, trt.e8m0, (2, 32)
    assert layer.get_output(0).dtype == trt.fp8 and layer.get_output(1).dtype == trt.e8m0
    assert tuple(layer.get_output(1).shape) == (3, 2)


def onnx_model(nodes, x, constants=()):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        list(constants),
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("trt", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def test_nodes_of_nvidias_model_optimizer():
    node = helper.make_node
    fp4 = [
        node(
            "TRT_FP4DynamicQuantize", ["x", "g"], ["q", "s8"], domain="trt", axis=-1, block_size=16
        ),
        node("DequantizeLinear", ["s8", "g"], ["s"]),
        node("DequantizeLinear", ["q", "s"], ["y"], axis=-1, block_size=16),
    ]
    divisor = np.float32(0.004)
    made = onnx_model(fp4, X, [onnx.numpy_helper.from_array(divisor, "g")])
    engine = trt.build(made, timing=False, device="cpu")
    np.testing.assert_array_equal(engine(X), reference(X, (1, 16), trt.fp4, trt.fp8, divisor)[2])
    mxfp8 = [
        node("TRT_MXFP8DynamicQuantize", ["x"], ["q", "s"], domain="trt", axis=-1, block_size=32),
        node("TRT_MXFP8DequantizeLinear", ["q", "s"], ["y"], domain="trt", axis=-1, block_size=32),
    ]
    engine = trt.build(onnx_model(mxfp8, X), timing=False, device="cpu")
    np.testing.assert_array_equal(engine(X), reference(X, (1, 32), trt.fp8, trt.e8m0)[2])
