"""Operators whose kernels take another path for some shapes and values, against NumPy."""

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

import opwright


def run(op, inputs, constants=(), outputs=1, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    held = [numpy_helper.from_array(c, f"c{i}") for i, c in enumerate(constants)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, [*names, *(c.name for c in held)], results, **attributes)
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    types |= {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.float16): TensorProto.FLOAT16}
    graph = helper.make_graph(
        [node],
        op,
        [helper.make_tensor_value_info(n, types[x.dtype], x.shape) for n, x in zip(names, inputs)],
        [ValueInfoProto(name=name) for name in results],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    result = opwright.build(model.SerializeToString(), timing=False)(*inputs)
    return result if outputs == 1 else list(result.values())


def numbers(shape, dtype):
    return np.random.default_rng(3).integers(-4, 5, shape).astype(dtype)  # with ties


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("shape", [(3, 7, 5), (2, 9, 64), (2, 5, 150), (2, 1, 3), (70, 33, 1)])
def test_first_of_several(op, dtype, shape):
    x = numbers(shape, dtype)
    for axis in (1, 2):
        expected = (np.argmax if op == "ArgMax" else np.argmin)(x, axis)
        np.testing.assert_array_equal(run(op, [x], axis=axis, keepdims=0), expected)


@pytest.mark.parametrize("shape", [(4, 5), (4, 100)])
def test_nan_is_the_greatest(shape):
    x = numbers(shape, np.float32)
    x[2, 1] = x[3, 1] = np.nan
    for axis in (0, 1):
        np.testing.assert_array_equal(run("ArgMax", [x], axis=axis, keepdims=0), np.argmax(x, axis))


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_few_columns(columns, dtype):
    for shape, perm in (((1100, columns), (1, 0)), ((3, 5, 70, columns), (1, 3, 0, 2))):
        x = numbers(shape, dtype)
        np.testing.assert_array_equal(run("Transpose", [x], perm=perm), x.transpose(perm))


@pytest.mark.parametrize("width", [1, 2, 3, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_rows_that_repeat_themselves(width, dtype):
    x = numbers((3, width), dtype)
    for times in ((1, 7), (2, 3)):
        result = run("Tile", [x], [np.array(times, np.int64)])
        np.testing.assert_array_equal(result, np.tile(x, times))


def test_shifts():
    x, shift = np.arange(1, 41, dtype=np.uint8), np.arange(40, dtype=np.uint8) % 8
    np.testing.assert_array_equal(run("BitShift", [x, shift], direction="LEFT"), x << shift)
    np.testing.assert_array_equal(run("BitShift", [x, shift], direction="RIGHT"), x >> shift)


def test_regions_of_many_samples_and_channels():
    reference = pytest.importorskip("onnx.reference")
    x = np.random.default_rng(1).standard_normal((2, 19, 40, 40)).astype(np.float32)
    rois = np.array([[0, 0, 39, 39], [-30, 3, 20, 60], [5, 5, 6, 6]], np.float32)
    images = np.array([1, 0, 1], np.int64)
    for mode in ("avg", "max"):
        attributes = dict(output_height=2, output_width=2, mode=mode)
        node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], **attributes)
        feeds = {"x": x, "r": rois, "i": images}
        expected = reference.ReferenceEvaluator(node).run(None, feeds)[0]
        result = run("RoiAlign", [x, rois, images], **attributes)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
