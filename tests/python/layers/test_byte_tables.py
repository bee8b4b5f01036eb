"""On a CPU, what is computed between two quantizations is looked up in a table of 256 bytes; against ONNX's
reference."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import opwright
from quantized_model import QuantizedModel

SHAPE = [2, 24, 9, 7]
ZERO_POINTS = [np.int8(0), np.int8(-3), np.int8(-128), np.uint8(0), np.uint8(117), np.uint8(128)]


def gate(w: QuantizedModel, y: str, op: str = "Sigmoid") -> str:
    """x * sigmoid(x), where the sigmoid is quantized, too."""
    return w.node("Mul", y, w.quantized(w.node(op, y), 1 / 255, np.uint8(0)))


def gelu(w: QuantizedModel, y: str) -> str:
    """As exporters write it before opset 20, with a quantization behind each operator."""
    inner = w.quantized(
        w.node("Div", y, w.constant(np.float32(math.sqrt(2)))), 0.02, np.uint8(130)
    )
    inner = w.quantized(w.node("Erf", inner), 0.008, np.uint8(127))
    inner = w.quantized(w.node("Add", inner, w.constant(np.float32(1))), 0.008, np.uint8(0))
    inner = w.quantized(w.node("Mul", y, inner), 0.03, np.uint8(20))
    return w.node("Mul", inner, w.constant(np.float32(0.5)))


FUNCTIONS = {
    "sigmoid": lambda w, y: w.node("Sigmoid", y),
    "tanh": lambda w, y: w.node("Tanh", y),
    "SiLU": gate,
    "hard swish": lambda w, y: gate(w, y, "HardSigmoid"),
    "GELU": gelu,
    "a chain": lambda w, y: w.node("Exp", w.quantized(w.node("Tanh", y), 0.01, np.int8(7))),
    "a power": lambda w, y: w.node(
        "Pow", w.node("Abs", y), w.constant(np.array([[[[1.7]]]], np.float32))
    ),
}


def run(w: QuantizedModel, outputs: list[str], tables: int, shape=SHAPE, step=0.0301, share=0.01):
    """Compares results. `share` of them may be a step apart, as where a rounding meets a tie."""
    model = w.finish(shape, *outputs)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    assert [layer["LayerType"] for layer in engine.layers].count("ByteLookup") == tables
    x = w.random.normal(0, 1.3, shape).astype(np.float32)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    results = engine(x)
    results = [results] if len(outputs) == 1 else [results[name] for name in outputs]
    for result, reference in zip(results, wanted):
        apart = np.abs(result - reference)
        assert apart.max() <= step + 1e-5
        assert (apart > 1e-5).mean() <= share
        assert np.abs(reference).max() > 0.3


@pytest.mark.parametrize("to", ZERO_POINTS, ids=str)
@pytest.mark.parametrize("given", ZERO_POINTS, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_bytes(function, given, to):
    w = QuantizedModel()
    y = FUNCTIONS[function](w, w.quantized("x", 0.02, given))
    run(w, [w.quantized(y, 0.011, to)], 1)


@pytest.mark.parametrize("function", ["SiLU", "GELU", "hard swish"])
def test_behind_a_convolution_and_a_product(function):
    w = QuantizedModel()
    y = w.node(
        "Conv", w.quantized("x", 0.02, np.uint8(90)), w.weights(24, 24, 3, 3), w.bias(24), pads=[1] * 4
    )  # fmt: skip
    y = w.quantized(FUNCTIONS[function](w, w.quantized(y, 0.02, np.uint8(120))), 0.02, np.uint8(30))
    y = w.node("Reshape", y, w.constant(np.array([2, -1, 24])))
    y = w.node("Add", w.node("MatMul", y, w.weights(24, 24, axis=1)), w.bias(24))
    y = w.quantized(FUNCTIONS[function](w, w.quantized(y, 0.02, np.int8(1))), 0.02, np.int8(-40))
    run(w, [y], 2, step=0.0601)


def test_what_others_read_stays():
    """A value inside of the function is an output, and another one is read by a second function."""
    w = QuantizedModel()
    x = w.quantized("x", 0.02, np.uint8(120))
    inner = w.quantized(w.node("Sigmoid", x), 0.01, np.uint8(3))
    y = w.quantized(w.node("Mul", x, inner), 0.02, np.uint8(20))
    z = w.quantized(w.node("Tanh", inner), 0.01, np.int8(3))
    run(w, [inner, y, z], 3)


def other(w: QuantizedModel, x: str) -> str:
    return w.quantized(w.node("Neg", "x"), 0.03, np.uint8(99))


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: w.node("PRelu", x, w.constant(np.linspace(0, 1, 24, dtype="f").reshape(-1, 1, 1))),
        lambda w, x: w.node("Mul", w.node("Tanh", x), w.node("Tanh", other(w, x))),
        lambda w, x: w.node("Mul", x, w.node("Sigmoid", w.node("ReduceMean", x, keepdims=1))),
        lambda w, x: w.node("Relu", x),
    ],
    ids=["a slope of each channel", "two bytes", "a mean", "cheap"],
)  # fmt: skip
def test_functions_without_a_table(function):
    w = QuantizedModel()
    y = function(w, w.quantized("x", 0.02, np.uint8(120)))
    run(w, [w.quantized(y, 0.02, np.uint8(100))], 0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 37), min_size=1, max_size=4),
    st.sampled_from(ZERO_POINTS),
    st.sampled_from(ZERO_POINTS),
    st.sampled_from(sorted(FUNCTIONS)),
)
def test_any_shape(shape, given, to, function):
    w = QuantizedModel()
    y = FUNCTIONS[function](w, w.quantized("x", 0.02, given))
    model = w.finish(shape, w.quantized(y, 0.011, to))
    if function == "a power" and len(shape) < 4:
        return
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    x = w.random.normal(0, 2, shape).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=0.0301)


def test_dynamic_extents_and_stored_engines(tmp_path):
    w = QuantizedModel()
    y = w.quantized(gelu(w, w.quantized("x", 0.02, np.uint8(120))), 0.02, np.uint8(9))
    model = w.finish(["n", 5], y)
    ranges = {"x": ((0, 5), (7, 5), (4000, 5))}
    engine = opwright.build(model.SerializeToString(), shapes=ranges, device="cpu", timing=False)
    engine.save(tmp_path / "table.engine")
    loaded = opwright.load(tmp_path / "table.engine")
    for rows in (0, 1, 13, 4000):
        x = w.random.normal(0, 1, (rows, 5)).astype(np.float32)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=0.0301)
        np.testing.assert_array_equal(loaded(x), engine(x))


def test_half_precision():
    """Values between the two quantizations are rounded to FP16, as the model says."""
    w = QuantizedModel()
    both = w.constant(np.float16(0.02)), w.constant(np.uint8(120))
    half = w.node("Cast", "x", to=onnx.TensorProto.FLOAT16)
    y = w.node("DequantizeLinear", w.node("QuantizeLinear", half, *both), *both)
    y = w.node("Mul", y, w.node("Sigmoid", y))
    y = w.node("DequantizeLinear", w.node("QuantizeLinear", y, *both), *both)
    # The reference divides by the first scale in FP16, and the function doubles what that changes.
    run(w, [w.node("Cast", y, to=onnx.TensorProto.FLOAT)], 1, step=0.0401, share=0.05)
