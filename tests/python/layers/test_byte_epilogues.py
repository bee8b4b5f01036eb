"""What follows a convolution or product of bytes on a CPU is computed by its kernel: scales, bias, activations,
residuals and the next quantization; against ONNX's reference."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import opwright
from quantized_model import QuantizedModel

CHANNELS = 24


def swish(w: QuantizedModel, y: str) -> str:
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


def check(w: QuantizedModel, y: str, shape, kind: str, step: float, count: int = 1) -> list:
    """Results are at most one quantization step apart, and that only a few of a thousand times."""
    model = w.finish(shape, y)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    x = w.random.normal(0, 1, shape).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    apart = np.abs(engine(x) - wanted)
    assert apart.max() <= 1.01 * step + 1e-5
    assert (apart > 1e-5).mean() <= 0.004
    assert np.abs(wanted).max() > 0.3  # the model computes something
    layers = engine.layers
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
    w = QuantizedModel()
    x = w.quantized("x", 0.02, np.int8(0))
    y = w.node("Conv", x, w.weights(CHANNELS, 8, 3, 3), w.bias(CHANNELS), pads=[1] * 4)
    check(w, ENDS[end](w, ACTIVATIONS[activation](w, y)), [2, 8, 9, 7], "Convolution", 0.03)


@pytest.mark.parametrize("end", ["UINT8 about 117", "FP32"])
@pytest.mark.parametrize("activation", ["none", "Relu", "Gelu", "Swish"])
@pytest.mark.parametrize("zero_point", [np.uint8(0), np.uint8(100), np.int8(7)])
def test_a_product(activation, end, zero_point):
    w = QuantizedModel()
    y = w.node("MatMul", w.quantized("x", 0.02, zero_point), w.weights(40, CHANNELS, axis=1))
    y = ACTIVATIONS[activation](w, w.node("Add", y, w.bias(CHANNELS)))
    check(w, ENDS[end](w, y), [3, 5, 40], "MatrixMultiply", 0.02)


@pytest.mark.parametrize("zero_point", [np.uint8(0), np.uint8(90), np.int8(-20)])
@pytest.mark.parametrize("activation", ["none", "Relu"])
def test_a_residual(activation, zero_point):
    w = QuantizedModel()
    x = w.quantized("x", 0.02, zero_point)
    y = w.node("Conv", x, w.weights(CHANNELS, CHANNELS, 3, 3), w.bias(CHANNELS), pads=[1] * 4)
    y = ACTIVATIONS[activation](w, w.node("Add", y, x))
    check(w, w.quantized(y, 0.03, np.uint8(60)), [1, CHANNELS, 9, 7], "Convolution", 0.03)


def test_a_residual_that_is_quantized_before_the_sum():
    w = QuantizedModel()
    x = w.quantized("x", 0.0207, np.uint8(90))
    y = w.node("Conv", x, w.weights(CHANNELS, CHANNELS, 1, 1), w.bias(CHANNELS))
    y = w.node("Relu", w.node("Add", w.quantized(y, 0.0253, np.uint8(131)), x))
    check(w, w.quantized(y, 0.0311, np.uint8(0)), [1, CHANNELS, 9, 7], "Convolution", 0.06)


def test_groups_and_depthwise():
    w = QuantizedModel()
    y = w.quantized("x", 0.02, np.uint8(128))
    for groups in (2, CHANNELS):
        y = w.node(
            "Conv", y, w.weights(CHANNELS, CHANNELS // groups, 3, 3), w.bias(CHANNELS), group=groups, pads=[1] * 4
        )  # fmt: skip
        y = w.quantized(w.node("Relu", y), 0.02, np.uint8(0))
    check(w, y, [1, CHANNELS, 9, 7], "Convolution", 0.04, count=2)


def test_a_rounding_that_nothing_clips_stays_exact():
    """Large sums are rounded, too: the trick that rounds numbers of bytes would not do."""
    w = QuantizedModel()
    y = w.node("Conv", w.quantized("x", 0.02, np.int8(0)), w.weights(CHANNELS, 8, 1, 1), w.bias(CHANNELS))
    y = w.node("Round", w.node("Mul", y, w.constant(np.float32(3e7))))
    model = w.finish([1, 8, 4, 4], y)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    x = w.random.normal(0, 1, (1, 8, 4, 4)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())
    assert np.array_equal(engine(x), np.rint(engine(x)))


def test_a_stored_engine(tmp_path):
    w = QuantizedModel()
    x = w.quantized("x", 0.02, np.uint8(90))
    y = w.node("Conv", x, w.weights(CHANNELS, CHANNELS, 3, 3), w.bias(CHANNELS), pads=[1] * 4)
    y = w.quantized(w.node("Relu", w.node("Add", y, x)), 0.03, np.uint8(0))
    y = w.node("Reshape", y, w.constant(np.array([1, -1, CHANNELS])))
    y = w.node("Add", w.node("MatMul", y, w.weights(CHANNELS, CHANNELS, axis=1)), w.bias(CHANNELS))
    engine = opwright.build(
        w.finish([1, CHANNELS, 6, 6], y).SerializeToString(), device="cpu", timing=False
    )
    engine.save(tmp_path / "bytes.engine")
    x = w.random.normal(0, 1, (1, CHANNELS, 6, 6)).astype(np.float32)
    np.testing.assert_array_equal(opwright.load(tmp_path / "bytes.engine")(x), engine(x))


@pytest.mark.parametrize("count", [1, CHANNELS])
def test_zero_points_of_weights_that_are_zero(count):
    """Models of QOperator have one for each channel. They need no sums of the other operand."""
    w = QuantizedModel()
    scale, zero = w.constant(np.float32(0.02)), w.constant(np.uint8(90))
    bytes_of = lambda *shape: w.constant(w.random.integers(-60, 61, shape).astype(np.int8))  # noqa: E731
    weights = [w.constant(np.full(count, 0.01, "f")), w.constant(np.zeros(count, np.int8))]
    end = w.constant(np.float32(0.1)), w.constant(np.uint8(120))
    y = w.node("QuantizeLinear", "x", scale, zero)
    y = w.node("QLinearConv", y, scale, zero, bytes_of(CHANNELS, 8, 3, 3), *weights, *end)
    y = w.node("Reshape", y, w.constant(np.array([-1, CHANNELS])))
    y = w.node("QLinearMatMul", y, *end, bytes_of(CHANNELS, CHANNELS), *weights, *end)
    model = w.finish([2, 8, 9, 7], w.node("DequantizeLinear", y, *end))
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    kinds = [layer["LayerType"] for layer in engine.layers]
    assert kinds.count("Convolution") == 1 and kinds.count("MatrixMultiply") == 1, kinds
    x = w.random.normal(0, 1, (2, 8, 9, 7)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert np.abs(engine(x) - wanted).max() <= 0.1001
    assert (engine(x) == wanted).mean() > 0.99


@pytest.mark.parametrize("instructions", ["AVX2", "SSE41"])
def test_an_engine_runs_on_processors_without_instructions_for_bytes(tmp_path, instructions):
    """The engine is built with the instructions that this processor has."""
    w = QuantizedModel()
    y = w.quantized("x", 0.02, np.uint8(90))
    y = w.node("Conv", y, w.weights(CHANNELS, 3, 3, 3), w.bias(CHANNELS), pads=[1] * 4)
    y = w.quantized(swish(w, w.quantized(y, 0.02, np.uint8(120))), 0.02, np.uint8(20))
    y = w.node("Conv", y, w.weights(CHANNELS, CHANNELS, 1, 1), w.bias(CHANNELS))
    y = w.node("Reshape", w.quantized(y, 0.03, np.int8(0)), w.constant(np.array([36, CHANNELS])))
    y = w.node("Add", w.node("MatMul", y, w.weights(CHANNELS, 40, axis=1)), w.bias(40))
    engine = opwright.build(w.finish([1, 3, 6, 6], y).SerializeToString(), device="cpu")
    x = w.random.normal(0, 1, (1, 3, 6, 6)).astype(np.float32)
    engine.save(tmp_path / "bytes.engine")
    np.save(tmp_path / "x.npy", x)
    code = "import numpy, opwright; numpy.save('y.npy', opwright.load('bytes.engine')(numpy.load('x.npy')))"
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    # Where other instructions round a sum to the next byte, a few results move by a fraction of a step.
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), engine(x), rtol=0, atol=0.05)
    assert np.abs(engine(x)).max() > 1
