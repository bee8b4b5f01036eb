"""A model of one node for every operator that the parser supports, at a typical size; hot operators
at three sizes or more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
RANDOM = {
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip


@dataclass
class Case:
    op: str
    title: str
    inputs: list[Any]  # arrays, Fixed ones that the model holds, None for omitted ones
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = OPSET
    body: Sequence[
        onnx.NodeProto
    ] = ()  # instead of the one node, if its inputs or outputs are not tensors


@dataclass
class Fixed:
    value: np.ndarray


_rng = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape, np.float32)


def unit(*shape: int) -> np.ndarray:
    """Numbers from 0.05 to 0.95, which every function of a real number accepts."""
    return _rng.random(shape, np.float32) * np.float32(0.9) + np.float32(0.05)


def integers(low: int, high: int, *shape: int, dtype: type = np.int64) -> np.ndarray:
    return _rng.integers(low, high, shape).astype(dtype)


def flags(*shape: int) -> np.ndarray:
    return _rng.random(shape) < 0.5


def fixed(*values: int) -> Fixed:
    return Fixed(np.array(values, np.int64))


def scalar(value: Any, dtype: type = np.int64) -> Fixed:
    return Fixed(np.array(value, dtype))


def weights(*shape: int) -> Fixed:
    return Fixed(real(*shape) * np.float32(0.1))


MAP = (1, 64, 56, 56)
TOKENS = (1, 128, 768)
SMALL = (16, 64)
LARGE = (1024, 1024)


def elementwise() -> Iterator[Case]:
    for op in (
        "Abs", "Ceil", "Cos", "Elu", "Celu", "Floor", "HardSigmoid", "HardSwish", "Identity", "IsNaN", "LeakyRelu",
        "Mish", "Neg", "Round", "Selu", "Shrink", "Sign", "Sin", "Softplus", "Softsign", "Swish", "ThresholdedRelu",
        "Exp", "Asinh", "Sinh", "Cosh", "Atan", "Tan",
    ):  # fmt: skip
        yield Case(op, "", [real(*MAP)], opset=24 if op == "Swish" else OPSET)
    for op in ("Acos", "Asin", "Atanh", "Log", "Reciprocal", "Sqrt"):
        yield Case(op, "", [unit(*MAP)])
    yield Case("Acosh", "", [unit(*MAP) + 1])
    yield Case("IsInf", "", [real(*MAP)])
    for op in ("Relu", "Sigmoid", "Tanh", "Erf", "Gelu"):
        for shape in (SMALL, MAP, LARGE):
            yield Case(op, "", [real(*shape)])
    yield Case("Gelu", "tanh", [real(*TOKENS)], {"approximate": "tanh"})
    yield Case("Clip", "", [real(*MAP), scalar(0, np.float32), scalar(6, np.float32)])
    yield Case("PRelu", "", [real(*MAP), weights(64, 1, 1)])
    for shape in (SMALL, MAP, LARGE):
        yield Case("Add", "", [real(*shape), real(*shape)])
    yield Case("Add", "a row", [real(*LARGE), real(1024)])
    yield Case("Add", "a column", [real(*LARGE), real(1024, 1)])
    yield Case("Add", "of channels", [real(*MAP), real(1, 64, 1, 1)])
    for op in ("Sub", "Mul", "Div", "PRelu", "Max", "Min", "Mean", "Sum"):
        yield Case(op, "", [real(*MAP), real(*MAP)])
    yield Case("Pow", "square", [real(*MAP), scalar(2, np.float32)])
    yield Case("Pow", "", [unit(*MAP), unit(*MAP)])
    yield Case("Mod", "int64", [integers(-99, 99, 64, 1024), integers(1, 9, 64, 1024)])
    yield Case("Mod", "fmod", [real(*MAP), unit(*MAP)], {"fmod": 1})
    for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        yield Case(op, "", [real(*MAP), real(*MAP)])
    for op in ("And", "Or", "Xor"):
        yield Case(op, "", [flags(*MAP), flags(*MAP)])
    yield Case("Not", "", [flags(*MAP)])
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(op, "int32", [integers(0, 99, 64, 1024, dtype=np.int32) for _ in range(2)])
    yield Case("BitwiseNot", "int32", [integers(0, 99, 64, 1024, dtype=np.int32)])
    shifts = [integers(0, 9, 64, 1024, dtype=np.uint8) for _ in range(2)]
    yield Case("BitShift", "uint8", shifts, {"direction": "LEFT"})
    yield Case("BitCast", "", [real(*MAP)], {"to": TensorProto.INT32}, opset=26)
    yield Case("Cast", "to FP16", [real(*MAP)], {"to": TensorProto.FLOAT16})
    yield Case("Cast", "to int64", [real(*MAP)], {"to": TensorProto.INT64})
    yield Case("Cast", "of int64", [integers(0, 99, 64, 1024)], {"to": TensorProto.FLOAT})
    yield Case("CastLike", "", [real(*MAP), Fixed(np.zeros(1, np.float16))])
    yield Case("Where", "", [flags(*MAP), real(*MAP), real(*MAP)])
    yield Case("Dropout", "inference", [real(*MAP)])
    yield Case("SwiGLU", "", [real(1, 128, 1024), real(1, 128, 1024)], opset=27)


def reductions() -> Iterator[Case]:
    for op in ("ReduceMean", "ReduceMax", "ReduceSum"):
        for shape, axis in (
            (SMALL, -1), (TOKENS, -1), (LARGE, -1), (LARGE, 0), ((1, 4096, 3), -1), ((64, 64, 64), 1),
        ):  # fmt: skip
            yield Case(op, f"axis {axis}", [real(*shape), fixed(axis)])
        yield Case(op, "axes 2, 3", [real(*MAP), fixed(2, 3)])
    for op in ("L1", "L2", "LogSum", "LogSumExp", "Min", "Prod", "SumSquare"):
        yield Case(f"Reduce{op}", "axis -1", [unit(*TOKENS), fixed(-1)])
    for op in ("ArgMax", "ArgMin"):
        yield Case(op, "axis -1", [real(64, 1000)], {"axis": -1})
        yield Case(op, "axis 1", [real(1, 21, 64, 64)], {"axis": 1})
    for op in ("Softmax", "LogSoftmax"):
        for shape in ((1, 1000), (12, 128, 128), LARGE):
            yield Case(op, "axis -1", [real(*shape)], {"axis": -1})
        yield Case(op, "axis 1", [real(1, 21, 64, 64)], {"axis": 1})
    yield Case("Hardmax", "", [real(64, 1000)])
    yield Case("CumSum", "", [real(64, 1024), scalar(1)])
    yield Case("CumProd", "", [unit(64, 1024), scalar(1)], opset=26)
    yield Case("TopK", "8 of 1000", [real(64, 1000), fixed(8)], outputs=2)
    yield Case("Unique", "", [integers(0, 500, 4096)], outputs=4)
    yield Case("Det", "", [real(64, 8, 8)])
    single, pairs = range(100), [n for i in range(100) for n in (i, 99 - i)]
    ngrams = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    ngrams |= {"ngram_counts": [0, 100], "ngram_indexes": [*range(200)]}
    ngrams |= {"pool_int64s": [*single, *pairs]}
    yield Case("TfIdfVectorizer", "1 and 2 of 256", [integers(0, 100, 64, 256)], ngrams)


def normalizations() -> Iterator[Case]:
    for shape in ((1, 16, 768), TOKENS, (8, 256, 768)):
        yield Case("LayerNormalization", "", [real(*shape), weights(768), weights(768)])
    yield Case("RMSNormalization", "", [real(*TOKENS), weights(768)], opset=23)
    parameters = [Fixed(unit(64)) for _ in range(4)]
    yield Case("BatchNormalization", "", [real(*MAP), *parameters])
    yield Case("InstanceNormalization", "", [real(*MAP), *parameters[:2]])
    yield Case("GroupNormalization", "", [real(*MAP), *parameters[:2]], {"num_groups": 8})
    yield Case("LRN", "", [real(*MAP)], {"size": 5})
    yield Case("LpNormalization", "", [real(*TOKENS)])
    yield Case("MeanVarianceNormalization", "", [real(*MAP)])


def products() -> Iterator[Case]:
    for n in (64, 256, 768):
        yield Case("MatMul", "", [real(n, n), real(n, n)])
        yield Case("MatMul", "weights", [real(128, n), weights(n, n)])
        yield Case("Gemm", "weights", [real(16, n), weights(n, n), weights(n)], {"transB": 1})
    yield Case("MatMul", "batched", [real(12, 128, 64), real(12, 64, 128)])
    yield Case("MatMul", "a vector", [real(1, 768), weights(768, 3072)])
    yield Case("Einsum", "", [real(12, 128, 64), real(12, 128, 64)], {"equation": "hid,hjd->hij"})
    byte = {"dtype": np.uint8}
    matrix = [integers(0, 255, 128, 256, **byte), Fixed(integers(-9, 9, 256, 256, dtype=np.int8))]
    yield Case("MatMulInteger", "", matrix)
    scale, zero = scalar(0.02, np.float32), scalar(128, np.uint8)
    small = [scale, scalar(0, np.int8)]
    yield Case("QLinearMatMul", "", [matrix[0], scale, zero, matrix[1], *small, scale, zero])
    image = integers(0, 255, 1, 64, 56, 56, **byte)
    kernel = Fixed(integers(-9, 9, 64, 64, 3, 3, dtype=np.int8))
    pads = {"pads": [1, 1, 1, 1]}
    yield Case("ConvInteger", "", [image, kernel], pads)
    yield Case("QLinearConv", "", [image, scale, zero, kernel, *small, scale, zero], pads)
    yield Case("Conv", "3x3", [real(*MAP), weights(64, 64, 3, 3), weights(64)], pads)
    yield Case("Conv", "1x1", [real(*MAP), weights(256, 64, 1, 1), weights(256)])
    yield Case("Conv", "7x7, stride 2", [real(1, 3, 224, 224), weights(64, 3, 7, 7)],
               {"pads": [3] * 4, "strides": [2, 2]})  # fmt: skip
    yield Case("Conv", "3x3", [real(1, 8, 14, 14), weights(8, 8, 3, 3)], pads)
    yield Case("Conv", "depthwise", [real(*MAP), weights(64, 1, 3, 3)], {**pads, "group": 64})
    yield Case("Conv", "1-D, 5", [real(1, 256, 128), weights(512, 256, 5)], {"pads": [2, 2]})
    yield Case(
        "Conv", "3-D", [real(1, 16, 16, 28, 28), weights(16, 16, 3, 3, 3)], {"pads": [1] * 6}
    )
    yield Case("ConvTranspose", "", [real(1, 64, 28, 28), weights(64, 32, 4, 4)],
               {"pads": [1] * 4, "strides": [2, 2]})  # fmt: skip
    yield Case("DeformConv", "", [real(1, 16, 28, 28), weights(16, 16, 3, 3), real(1, 18, 28, 28)],
               pads, opset=22)  # fmt: skip
    yield Case("CausalConvWithState", "", [real(1, 256, 128), weights(256, 1, 4)],
               outputs=2, opset=27)  # fmt: skip
    yield Case("Col2Im", "", [real(1, 64 * 9, 784), fixed(28, 28), fixed(3, 3)], {"pads": [1] * 4})
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for steps, batch, width in ((16, 1, 64), (32, 1, 256), (64, 8, 256)):
            yield Case(op, "", [real(steps, batch, width), weights(1, gates * width, width),
                       weights(1, gates * width, width)], {"hidden_size": width})  # fmt: skip
    for tokens in (16, 128, 512):
        yield Case("Attention", "", [real(1, 12, tokens, 64) for _ in range(3)], opset=23)
    heads = {"q_num_heads": 4, "kv_num_heads": 4, "update_rule": "linear"}
    yield Case(
        "LinearAttention", "", [real(1, 64, 256) for _ in range(3)], heads, outputs=2, opset=27
    )
    angles = [unit(128, 32), unit(128, 32), integers(0, 128, 1, 128)]
    yield Case("RotaryEmbedding", "", [real(1, 12, 128, 64), *angles], opset=23)


def images() -> Iterator[Case]:
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    for shape in ((1, 8, 14, 14), MAP, (1, 64, 112, 112)):
        yield Case("MaxPool", "3x3, stride 2", [real(*shape)], window)
    yield Case("MaxPool", "1-D, 4", [real(1, 64, 4096)], {"kernel_shape": [4], "strides": [4]})
    yield Case("MaxPool", "indices", [real(*MAP)], window, outputs=2)
    yield Case("AveragePool", "3x3, stride 2", [real(*MAP)], window)
    yield Case("LpPool", "", [real(*MAP)], window)
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Case(op, "", [real(1, 512, 14, 14)])
    places = (np.arange(64 * 28 * 28) * 4).reshape(1, 64, 28, 28)
    yield Case(
        "MaxUnpool", "", [real(1, 64, 28, 28), places], {"kernel_shape": [2, 2], "strides": [2, 2]}
    )
    scales = Fixed(np.array([1, 1, 2, 2], np.float32))
    for shape in ((1, 8, 14, 14), (1, 64, 28, 28), (1, 32, 112, 112)):
        for mode in ("nearest", "linear"):
            yield Case("Resize", f"{mode} x2", [real(*shape), None, scales], {
                "mode": mode, "coordinate_transformation_mode": "asymmetric" if mode == "nearest" else "half_pixel",
                "nearest_mode": "floor",
            })  # fmt: skip
    yield Case("Resize", "cubic x2", [real(1, 3, 112, 112), None, scales], {"mode": "cubic"})
    yield Case(
        "Upsample", "nearest x2", [real(1, 64, 28, 28), scales], {"mode": "nearest"}, opset=9
    )
    grid = _rng.uniform(-1, 1, (1, 56, 56, 2)).astype(np.float32)
    yield Case("GridSample", "", [real(*MAP), grid], opset=20)
    yield Case("AffineGrid", "", [real(1, 2, 3), fixed(1, 3, 224, 224)], opset=20)
    corners = _rng.uniform(0, 100, (64, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 50], 1)
    yield Case("RoiAlign", "", [real(1, 16, 64, 64), boxes, np.zeros(64, np.int64)],
               {"output_height": 7, "output_width": 7, "spatial_scale": 0.4})  # fmt: skip
    numbered = np.concatenate([np.zeros((64, 1), np.float32), boxes], 1)
    yield Case("MaxRoiPool", "", [real(1, 16, 64, 64), numbered],
               {"pooled_shape": [7, 7], "spatial_scale": 0.4})  # fmt: skip
    for count, classes in ((1000, 1), (500, 20)):
        corners = _rng.uniform(0, 600, (1, count, 2)).astype(np.float32)
        boxes = np.concatenate(
            [corners, corners + _rng.uniform(5, 60, (1, count, 2)).astype(np.float32)], 2
        )
        yield Case("NonMaxSuppression", f"{classes} classes", [boxes, unit(1, classes, count), scalar(100),
                   scalar(0.5, np.float32), scalar(0.3, np.float32)])  # fmt: skip
    yield Case("SpaceToDepth", "", [real(*MAP)], {"blocksize": 2})
    yield Case("DepthToSpace", "", [real(*MAP)], {"blocksize": 2})
    yield Case("CenterCropPad", "", [real(*MAP), fixed(48, 64)], {"axes": [2, 3]})


def movements() -> Iterator[Case]:
    for shape in ((32, 32), (256, 256), LARGE):
        yield Case("Transpose", "2-D", [real(*shape)], {"perm": [1, 0]})
        yield Case("Concat", "axis 1", [real(*shape), real(*shape)], {"axis": 1})
        yield Case("Gather", "rows", [real(*shape), integers(0, shape[0], shape[0])], {"axis": 0})
        yield Case("Slice", "", [real(*shape), fixed(1), fixed(-1), fixed(1)])
    yield Case("Transpose", "heads", [real(1, 128, 12, 64)], {"perm": [0, 2, 1, 3]})
    yield Case("Transpose", "to channels last", [real(*MAP)], {"perm": [0, 2, 3, 1]})
    yield Case("Concat", "of channels", [real(*MAP), real(*MAP)], {"axis": 1})
    yield Case("Gather", "words", [Fixed(real(10000, 128)), integers(0, 10000, 1, 128)])
    yield Case("Gather", "columns", [real(*LARGE), integers(0, 1024, 512)], {"axis": 1})
    yield Case("GatherElements", "", [real(256, 256), integers(0, 256, 256, 256)], {"axis": 1})
    yield Case("GatherND", "", [real(64, 64, 64), integers(0, 64, 1024, 2)])
    rows, elements = integers(0, 1000, 256, 1), integers(0, 256, 64, 256)
    yield Case("ScatterND", "rows", [real(1000, 64), rows, real(256, 64)])
    yield Case("ScatterND", "elements", [real(64, 64), integers(0, 64, 2048, 2), real(2048)],
               {"reduction": "add"})  # fmt: skip
    yield Case("ScatterElements", "", [real(256, 256), elements, real(64, 256)])
    yield Case("Scatter", "", [real(256, 256), elements, real(64, 256)], opset=9)
    yield Case(
        "TensorScatter",
        "",
        [real(1, 8, 256, 64), real(1, 8, 4, 64), np.array([7], np.int64)],
        opset=24,
    )
    for shape in ((1, 8, 14, 14), MAP, (1, 64, 112, 112)):
        yield Case("Pad", "", [real(*shape), fixed(0, 0, 1, 1, 0, 0, 1, 1)])
    for mode in ("reflect", "edge", "wrap"):
        yield Case("Pad", mode, [real(*MAP), fixed(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": mode})
    yield Case("Split", "in 3", [real(1, 128, 2304)], {"axis": -1, "num_outputs": 3}, outputs=3)
    yield Case("Expand", "", [real(64, 1), fixed(64, 1024)])
    yield Case("Tile", "", [real(64, 64), fixed(4, 4)])
    yield Case("Reshape", "", [real(*MAP), fixed(64, -1)])
    yield Case("Flatten", "", [real(*MAP)])
    yield Case("Squeeze", "", [real(*MAP), fixed(0)])
    yield Case("Unsqueeze", "", [real(*MAP), fixed(0)])
    yield Case("Shape", "", [real(*MAP)])
    yield Case("Size", "", [real(*MAP)])
    yield Case("Compress", "", [real(1024, 64), flags(1024)], {"axis": 0})
    for share in (0.01, 0.5):
        yield Case("NonZero", f"{share:.0%} of them", [_rng.random((256, 256)) < share])
    yield Case(
        "OneHot", "", [integers(0, 128, 256), scalar(128), Fixed(np.array([0, 1], np.float32))]
    )
    yield Case(
        "ReverseSequence",
        "",
        [real(64, 16, 128), integers(1, 64, 16)],
        {"batch_axis": 1, "time_axis": 0},
    )
    yield Case("Trilu", "", [real(12, 128, 128)])
    yield Case("EyeLike", "", [real(256, 256)])


def sources() -> Iterator[Case]:
    constant = numpy_helper.from_array(real(64, 1024))
    yield Case("Constant", "", [], {"value": constant})
    shape = np.array([64, 1024], np.int64)
    yield Case(
        "ConstantOfShape",
        "",
        [Fixed(shape)],
        {"value": numpy_helper.from_array(np.ones(1, np.float32))},
    )
    yield Case("Range", "", [scalar(0), scalar(65536), scalar(1)])
    for op in ("RandomNormal", "RandomUniform"):
        yield Case(op, "", [], {"shape": shape})
        yield Case(f"{op}Like", "", [real(64, 1024)])
    yield Case("Bernoulli", "", [unit(64, 1024)])
    yield Case("Multinomial", "", [real(8, 100)], {"sample_size": 64})
    for op in ("BlackmanWindow", "HammingWindow", "HannWindow"):
        yield Case(op, "", [scalar(1024)])
    yield Case("MelWeightMatrix", "", [scalar(80), scalar(400), scalar(16000), scalar(0, np.float32),
               scalar(8000, np.float32)])  # fmt: skip
    yield Case("DFT", "", [real(16, 512, 1)], {"axis": 1}, opset=17)
    yield Case("STFT", "", [real(1, 16000, 1), scalar(160), Fixed(unit(400)), scalar(400)])
    scores = [real(64, 1000), integers(0, 1000, 64)]
    yield Case("NegativeLogLikelihoodLoss", "", scores)
    yield Case("SoftmaxCrossEntropyLoss", "", scores)


def quantizations() -> Iterator[Case]:
    scale, zero = scalar(0.02, np.float32), scalar(128, np.uint8)
    for shape in (SMALL, MAP, LARGE):
        yield Case("QuantizeLinear", "", [real(*shape), scale, zero])
        yield Case("DequantizeLinear", "", [integers(0, 255, *shape, dtype=np.uint8), scale, zero])
    scales = [Fixed(unit(64)), Fixed(np.zeros(64, np.int8))]
    yield Case("QuantizeLinear", "of channels", [real(*MAP), *scales], {"axis": 1})
    yield Case("DynamicQuantizeLinear", "", [real(128, 768)], outputs=3)


def graphs() -> Iterator[Case]:
    """Operators of graphs and sequences, with the nodes that make and take their values."""
    node, info = helper.make_node, helper.make_tensor_value_info

    def row(name: str) -> onnx.ValueInfoProto:
        return info(name, TensorProto.FLOAT, [64])

    branches = {
        f"{name}_branch": helper.make_graph([node(op, ["x0"], ["z"])], name, [], [row("z")])
        for name, op in (("then", "Neg"), ("else", "Abs"))
    }
    yield Case("If", "", [real(64), np.array(True)], body=[node("If", ["x1"], ["y0"], **branches)])
    step = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Add", ["s", "x0"], ["t"])],
        "step",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), row("s")],
        [info("d", TensorProto.BOOL, []), row("t")],
    )
    loop = node("Loop", ["x1", "", "x0"], ["y0"], body=step)
    yield Case("Loop", "32 turns", [real(64), scalar(32)], body=[loop])
    step = helper.make_graph(
        [node("Add", ["s", "r"], ["t"])], "step", [row("s"), row("r")], [row("t")]
    )
    scan = node("Scan", ["x0", "x1"], ["y0"], body=step, num_scan_inputs=1)
    yield Case("Scan", "32 turns", [real(64), real(32, 64)], body=[scan])
    parts, place = [real(64, 64) for _ in range(3)], scalar(1)
    make = node("SequenceConstruct", ["x0", "x1", "x2"], ["s"])
    at = node("SequenceAt", ["s", "x3"], ["y0"])
    join = node("ConcatFromSequence", ["s"], ["y0"], axis=0)
    split = node("SplitToSequence", ["x0"], ["s"], axis=0)
    tensors = helper.make_tensor_type_proto(TensorProto.FLOAT, [64, 64])
    sequences: dict[str, list[onnx.NodeProto]] = {
        "SequenceConstruct": [make, at],
        "SequenceAt": [make, at],
        "ConcatFromSequence": [make, join],
        "SequenceLength": [make, node("SequenceLength", ["s"], ["y0"])],
        "SequenceErase": [make, node("SequenceErase", ["s", "x3"], ["r"]),
                          node("ConcatFromSequence", ["r"], ["y0"], axis=0)],
        "SequenceEmpty": [node("SequenceEmpty", [], ["e"]), node("SequenceInsert", ["e", "x0"], ["s"]), join],
        "SequenceInsert": [make, node("SequenceInsert", ["s", "x0"], ["r"]),
                           node("ConcatFromSequence", ["r"], ["y0"], axis=0)],
        "SplitToSequence": [split, at],
        "Optional": [node("Optional", ["x0"], ["o"]), node("OptionalGetElement", ["o"], ["y0"])],
        "OptionalGetElement": [node("OptionalGetElement", ["x0"], ["y0"])],
        "OptionalHasElement": [node("Optional", ["x0"], ["o"]), node("OptionalHasElement", ["o"], ["y0"])],
        "SequenceMap": [make, node("SequenceMap", ["s"], ["r"], body=helper.make_graph(
            [node("Neg", ["a"], ["b"])], "each", [helper.make_value_info("a", tensors)],
            [helper.make_value_info("b", tensors)])), node("ConcatFromSequence", ["r"], ["y0"], axis=0)],
    }  # fmt: skip
    for op, body in sequences.items():
        used = [name for n in body for name in n.input]
        inputs = [x for i, x in enumerate([*parts, place]) if f"x{i}" in used or i < 3]
        yield Case(op, "", inputs, body=body)


def cases() -> list[Case]:
    groups = (
        elementwise, reductions, normalizations, products, images, movements, sources, quantizations, graphs,
    )  # fmt: skip
    return [case for group in groups for case in group()]


def size(case: Case) -> str:
    """The shape of the first input as text."""
    shapes = [x.value.shape if isinstance(x, Fixed) else x.shape for x in case.inputs[:1]]
    return "x".join(map(str, shapes[0])) if shapes else ""


def model(case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model, and the inputs of its runs."""
    inputs = {f"x{i}": x for i, x in enumerate(case.inputs) if isinstance(x, np.ndarray)}
    held = {f"x{i}": x.value for i, x in enumerate(case.inputs) if isinstance(x, Fixed)}
    outputs = [f"y{i}" for i in range(case.outputs)]
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(case.inputs)]
    graph = helper.make_graph(
        case.body or [helper.make_node(case.op, names, outputs, **case.attributes)],
        "operator",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(x, name) for name, x in held.items()],
    )
    imports = [helper.make_opsetid("", case.opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return onnx.shape_inference.infer_shapes(model).SerializeToString(), inputs
