"""What follows a convolution or product of bytes on a CPU is computed by its kernel: scales, bias, activations,
residuals and the next quantization; against ONNX's reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opwright
from processor import MULTIPLIES_BYTES

CHANNELS = 24


class Writer:
    """Collects the nodes and constants of a QDQ model with the input x."""

    def __init__(self):
        self.random = np.random.default_rng(11)
        self.nodes, self.constants = [], []

    def constant(self, array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op: str, *inputs: str, **attributes) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def quantized(self, x: str, scale: float, zero_point: np.generic) -> str:
        both = self.constant(np.float32(scale)), self.constant(zero_point)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *both), *both)

    def weights(self, *shape: int, axis: int = 0) -> str:
        """With a scale for each channel."""
        codes = self.random.integers(-127, 128, shape).astype(np.int8)
        scale = self.random.uniform(0.0005, 0.002, shape[axis]).astype(np.float32)
        zero = np.zeros(shape[axis], np.int8)
        inputs = [self.constant(a) for a in (codes, scale, zero)]
        return self.node("DequantizeLinear", *inputs, axis=axis)

    def bias(self) -> str:
        return self.constant(self.random.normal(0, 0.5, CHANNELS).astype(np.float32))

    def finish(self, y: str, shape) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
        graph = helper.make_graph(
            self.nodes, "bytes", [given], [onnx.ValueInfoProto(name=y)], self.constants
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def swish(w: Writer, y: str) -> str:
    return w.node("Mul", y, w.node("Sigmoid", y))


ACTIVATIONS = {
    "none": lambda w, y: y,
    "Relu": lambda w, y: w.node("Relu", y),
    "Clip": lambda w, y: w.node("Clip", y, w.constant(np.float32(0)), w.constant(np.float32(1.5))),
    "LeakyRelu": lambda w, y: w.node("LeakyRelu", y, alpha=0.125),
    "Swish": swish,
    "HardSwish": lambda w, y: w.node("HardSwish", y),
    "Gelu": lambda w, y: w.node("Gelu", y),
    "a factor": lambda w, y: w.node("Mul", y, w.constant(np.float32(0.75))),
    "twice quantized": lambda w, y: w.node("Relu", w.quantized(y, 0.0313, np.int8(5))),
}
ENDS = {
    "UINT8": lambda w, y: w.quantized(y, 0.02, np.uint8(0)),
    "UINT8 about 117": lambda w, y: w.quantized(y, 0.02, np.uint8(117)),
    "INT8": lambda w, y: w.quantized(y, 0.02, np.int8(0)),
    "INT8 about -3": lambda w, y: w.quantized(y, 0.02, np.int8(-3)),
    "FP32": lambda w, y: y,
}


def check(w: Writer, y: str, shape, kind: str, step: float, count: int = 1) -> list:
    """Results are at most one quantization step apart, and that only a few of a thousand times."""
    model = w.finish(y, shape)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    x = w.random.normal(0, 1, shape).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    apart = np.abs(engine(x) - wanted)
    assert apart.max() <= 1.01 * step + 1e-5
    assert (apart > 1e-5).mean() <= 0.004
    assert np.abs(wanted).max() > 0.3  # the model computes something
    layers = engine.layers
    if MULTIPLIES_BYTES:
        # One program quantizes the input; another one may dequantize the output.
        kinds = [layer["LayerType"] for layer in layers if layer["LayerType"] != "Reformat"]
        kinds = [k for k in kinds if k != "Reshape"]
        assert kinds[:1] == ["Pointwise"] and kinds[1 : 1 + count] == [kind] * count, kinds
        assert kinds[1 + count :] in ([], ["Pointwise"])
        assert "INT32" not in str([layer["Outputs"] for layer in layers])
    return layers


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_convolution(activation, end):
    w = Writer()
    x = w.quantized("x", 0.02, np.int8(0))
    y = w.node("Conv", x, w.weights(CHANNELS, 8, 3, 3), w.bias(), pads=[1] * 4)
    check(w, ENDS[end](w, ACTIVATIONS[activation](w, y)), [2, 8, 9, 7], "Convolution", 0.03)


@pytest.mark.parametrize("end", ["UINT8 about 117", "FP32"])
@pytest.mark.parametrize("activation", ["none", "Relu", "Gelu", "Swish"])
@pytest.mark.parametrize("zero_point", [np.uint8(0), np.uint8(100), np.int8(7)])
def test_a_product(activation, end, zero_point):
    w = Writer()
    y = w.node("MatMul", w.quantized("x", 0.02, zero_point), w.weights(40, CHANNELS, axis=1))
    y = ACTIVATIONS[activation](w, w.node("Add", y, w.bias()))
    check(w, ENDS[end](w, y), [3, 5, 40], "MatrixMultiply", 0.02)


@pytest.mark.parametrize("zero_point", [np.uint8(0), np.uint8(90), np.int8(-20)])
@pytest.mark.parametrize("activation", ["none", "Relu"])
def test_a_residual(activation, zero_point):
    w = Writer()
    x = w.quantized("x", 0.02, zero_point)
    y = w.node("Conv", x, w.weights(CHANNELS, CHANNELS, 3, 3), w.bias(), pads=[1] * 4)
    y = ACTIVATIONS[activation](w, w.node("Add", y, x))
    check(w, w.quantized(y, 0.03, np.uint8(60)), [1, CHANNELS, 9, 7], "Convolution", 0.03)


def test_a_residual_that_is_quantized_before_the_sum():
    w = Writer()
    x = w.quantized("x", 0.0207, np.uint8(90))
    y = w.node("Conv", x, w.weights(CHANNELS, CHANNELS, 1, 1), w.bias())
    y = w.node("Relu", w.node("Add", w.quantized(y, 0.0253, np.uint8(131)), x))
    check(w, w.quantized(y, 0.0311, np.uint8(0)), [1, CHANNELS, 9, 7], "Convolution", 0.06)


def test_groups_and_depthwise():
    w = Writer()
    y = w.quantized("x", 0.02, np.uint8(128))
    for groups in (2, CHANNELS):
        y = w.node(
            "Conv", y, w.weights(CHANNELS, CHANNELS // groups, 3, 3), w.bias(), group=groups, pads=[1] * 4
        )  # fmt: skip
        y = w.quantized(w.node("Relu", y), 0.02, np.uint8(0))
    check(w, y, [1, CHANNELS, 9, 7], "Convolution", 0.04, count=2)


def test_a_rounding_that_nothing_clips_stays_exact():
    """Large sums are rounded, too: the trick that rounds numbers of bytes would not do."""
    w = Writer()
    y = w.node("Conv", w.quantized("x", 0.02, np.int8(0)), w.weights(CHANNELS, 8, 1, 1), w.bias())
    y = w.node("Round", w.node("Mul", y, w.constant(np.float32(3e7))))
    model = w.finish(y, [1, 8, 4, 4])
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    x = w.random.normal(0, 1, (1, 8, 4, 4)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())
    assert np.array_equal(engine(x), np.rint(engine(x)))


def test_a_stored_engine(tmp_path):
    w = Writer()
    x = w.quantized("x", 0.02, np.uint8(90))
    y = w.node("Conv", x, w.weights(CHANNELS, CHANNELS, 3, 3), w.bias(), pads=[1] * 4)
    y = w.quantized(w.node("Relu", w.node("Add", y, x)), 0.03, np.uint8(0))
    y = w.node("Reshape", y, w.constant(np.array([1, -1, CHANNELS])))
    y = w.node("Add", w.node("MatMul", y, w.weights(CHANNELS, CHANNELS, axis=1)), w.bias())
    engine = opwright.build(
        w.finish(y, [1, CHANNELS, 6, 6]).SerializeToString(), device="cpu", timing=False
    )
    engine.save(tmp_path / "bytes.engine")
    x = w.random.normal(0, 1, (1, CHANNELS, 6, 6)).astype(np.float32)
    np.testing.assert_array_equal(opwright.load(tmp_path / "bytes.engine")(x), engine(x))
