"""tools/rounding_bounds.py: what it takes for right is what roundings allow, and nothing else."""

import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from rounding_bounds import Bounds

TYPES = {
    np.float32: TensorProto.FLOAT,
    np.float16: TensorProto.FLOAT16,
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
}


def bounds(inputs, *nodes):
    values = [
        helper.make_tensor_value_info(name, TYPES[array.dtype.type], array.shape)
        for name, array in inputs.items()
    ]
    graph = helper.make_graph(nodes, "bounds", values, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return Bounds(model, inputs)


def numbers(shape, kind, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(kind)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Max", "Min"])
def test_one_operation_is_right_to_the_last_bit(kind, operator):
    a, b = numbers(50, kind), numbers(50, kind, 1)
    made = bounds({"a": a, "b": b}, helper.make_node(operator, ["a", "b"], ["y"]))
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}.get(operator)
    function = function or {"Max": np.maximum, "Min": np.minimum}[operator]
    right = function(a.astype(np.float64), b.astype(np.float64)).astype(kind)
    assert made.difference("y", right) is None
    wrong = right.copy()
    wrong[7] = np.nextafter(wrong[7], kind(9))
    assert "1 of 50" in made.difference("y", wrong)


@pytest.mark.parametrize("kind", TYPES)
def test_moves_change_nothing(kind):
    x = numbers((3, 5), kind)
    made = bounds({"x": x}, helper.make_node("Transpose", ["x"], ["y"]))
    assert made.difference("y", x.T) is None
    assert "15 of 15" in made.difference("y", x.T + kind(0.125))


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_a_sum_in_the_narrow_type_is_beyond_what_fp32_gives(kind):
    a, b = numbers((4, 400), kind), numbers((400, 3), kind, 1)
    made = bounds({"a": a, "b": b}, helper.make_node("MatMul", ["a", "b"], ["y"]))
    wide = a.astype(np.float32) @ b.astype(np.float32)
    assert made.difference("y", wide.astype(kind)) is None
    backwards = a[:, ::-1].astype(np.float32) @ b[::-1].astype(np.float32)
    assert made.difference("y", backwards.astype(kind)) is None
    narrow = np.zeros((4, 3), kind)
    for k in range(400):
        narrow = (narrow + a[:, k, None] * b[None, k]).astype(kind)
    assert made.difference("y", narrow) is not None


def test_between_nodes_a_result_may_be_rounded_or_not():
    a = numbers(200, np.float16)
    sums = [helper.make_node("Mul", ["a", "a"], ["x"]), helper.make_node("Add", ["x", "a"], ["y"])]
    made = bounds({"a": a}, *sums)
    assert made.difference("y", a * a + a) is None
    wide = a.astype(np.float32)
    assert made.difference("y", (wide * wide + wide).astype(np.float16)) is None
    assert made.difference("y", a * a + a + np.float16(0.02)) is not None


def test_a_cast_rounds():
    x = numbers(100, np.float32)
    there = helper.make_node("Cast", ["x"], ["z"], to=TensorProto.FLOAT16)
    made = bounds({"x": x}, there, helper.make_node("Cast", ["z"], ["y"], to=TensorProto.FLOAT))
    assert made.difference("y", x.astype(np.float16).astype(np.float32)) is None
    assert made.difference("y", x) is not None


def test_the_bias_of_a_group_is_its_own():
    x, w = numbers((1, 4, 3), np.float32), numbers((4, 1, 2), np.float32, 1)
    b = np.arange(4, dtype=np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=4)
    right = np.zeros((1, 4, 4), np.float32)
    for tap in range(2):
        right[:, :, tap : tap + 3] += x * w[None, :, 0, tap, None]
    assert bounds({"x": x, "w": w, "b": b}, node).difference("y", right + b[:, None]) is None


@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolutions_are_those_of_pytorch(group):
    import torch

    x, w = numbers((2, 4, 5, 6), np.float32), numbers((4, 3, 2, 3), np.float32, 1)
    b = numbers(3 * group, np.float32, 2)
    node = helper.make_node(
        "ConvTranspose", ["x", "w", "b"], ["y"], group=group, strides=[2, 3], dilations=[2, 1], pads=[1, 0, 1, 0],
        output_padding=[1, 2],
    )  # fmt: skip
    right = torch.nn.functional.conv_transpose2d(
        torch.tensor(x), torch.tensor(w), torch.tensor(b), (2, 3), (1, 0), (1, 2), group, (2, 1)
    ).numpy()
    assert bounds({"x": x, "w": w, "b": b}, node).difference("y", right) is None
    assert bounds({"x": x, "w": w, "b": b}, node).difference("y", right * 1.001) is not None


@pytest.mark.parametrize("padding", ["VALID", "SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolutions_that_pad_by_themselves(padding):
    """Against ONNX Runtime: the standard's reference takes seconds."""
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 3], auto_pad=padding)
    inputs = {"x": numbers((2, 3, 4, 5), np.float32), "w": numbers((3, 2, 3, 4), np.float32, 1)}
    made = bounds(inputs, node)
    values = [
        helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in inputs.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "padded", values, [output]),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=8,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (right,) = session.run(None, inputs)
    assert made.difference("y", right) is None
    assert made.difference("y", right + np.float32(1e-3)) is not None


@pytest.mark.parametrize("kind", TYPES)
def test_a_batch_normalization_has_factors_of_fp32(kind):
    x = numbers((2, 3, 40), kind)
    given = {f"p{i}": np.abs(numbers(3, kind, i)) + kind(0.25) for i in range(1, 5)}
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),  # what is stored, or not
        helper.make_node("BatchNormalization", ["a", *given], ["y"]),
    ]
    made = bounds({"x": x, **given}, *nodes)
    scale, bias, mean, variance = (v.astype(np.float32).reshape(1, 3, 1) for v in given.values())
    right = (x.astype(np.float32) * 2 - mean) * (
        scale / np.sqrt(variance + np.float32(1e-5))
    ) + bias
    assert made.difference("y", right.astype(kind)) is None
    factor = np.float64(scale) / np.sqrt(np.float64(variance))
    step = (
        8 * np.finfo(np.float32).eps if kind == np.float32 else 4 * float(ml_dtypes.finfo(kind).eps)
    )
    wrong = right + step * (np.abs(right) + factor)
    assert made.difference("y", wrong.astype(kind)) is not None


def test_powers_are_as_exact_as_their_bases():
    x, e = np.abs(numbers(50, np.float32)), np.linspace(0.5, 3, 50).astype(np.float32)
    made = bounds(
        {"x": x, "e": e},
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Pow", ["a", "e"], ["y"]),
    )
    right = np.power(2 * x.astype(np.float64), e)
    assert made.difference("y", right.astype(np.float32)) is None
    assert made.difference("y", (right * (1 + 2e-5)).astype(np.float32)) is not None
