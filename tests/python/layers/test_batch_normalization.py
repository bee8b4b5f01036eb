"""Batch normalization in narrow types: its coefficients are computed in FP32, and are rounded where they must be."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import emulated_gpu
import opwright
from onnx_graphs import model

DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]
TYPES = {
    "fp16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}
CHANNELS = 24


def parameters(dtype) -> dict[str, np.ndarray]:
    """Scales, shifts, means and variances, as the type rounds them."""
    draw = np.random.default_rng(0)
    made = {
        "scale": draw.uniform(0.5, 2, CHANNELS),
        "shift": draw.normal(size=CHANNELS),
        "mean": draw.normal(size=CHANNELS),
        "variance": draw.uniform(0.01, 3, CHANNELS),
    }
    return {name: value.astype(dtype) for name, value in made.items()}


def normalized(x, p, epsilon=1e-5) -> np.ndarray:
    exact = {name: value.astype(np.float64)[:, None, None] for name, value in p.items()}
    factor = exact["scale"] / np.sqrt(exact["variance"] + epsilon)
    return (x.astype(np.float64) - exact["mean"]) * factor + exact["shift"]


def assert_rounded_once(got, exact, dtype) -> None:
    """Within half of the last place of a result, and what FP32 adds near a sum of 0."""
    unit = float(ml_dtypes.finfo(dtype).eps)
    error = np.abs(np.asarray(got).astype(np.float64) - exact)
    assert np.all(error <= 0.5001 * unit * np.abs(exact) + 2e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_batch_normalization_of_onnx_is_rounded_once(kind, device):
    onnx_type, dtype = TYPES[kind]
    p = parameters(dtype)
    x = np.random.default_rng(1).normal(size=(2, CHANNELS, 5, 7)).astype(dtype)
    node = helper.make_node("BatchNormalization", ["x", *p], ["y"])
    made = model([node], {"x": (onnx_type, list(x.shape))}, ["y"], p)
    got = opwright.build(made, device=device, timing=False)(x)
    assert_rounded_once(got, normalized(x, p), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_batch_normalization_of_pytorch_is_rounded_once(kind, device):
    torch = pytest.importorskip("torch")
    dtype = TYPES[kind][1]
    p = parameters(dtype)
    module = torch.nn.BatchNorm2d(CHANNELS).eval()
    given = dict(weight="scale", bias="shift", running_mean="mean", running_var="variance")
    module.load_state_dict(
        {to: torch.from_numpy(p[of].astype(np.float32)) for to, of in given.items()}, False
    )
    x = np.random.default_rng(1).normal(size=(2, CHANNELS, 5, 7)).astype(dtype)
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
    tensor = torch.from_numpy(x.astype(np.float32)).to(kinds[kind])
    engine = opwright.build(module.to(kinds[kind]), (tensor,), device=device, timing=False)
    assert_rounded_once(engine(tensor).float().numpy(), normalized(x, p), dtype)


def folded_network(kind: str, onnx_type, dtype):
    """A product of positive elements, then its normalization. Returns the model, x, the exact weights [C, K] that
    the product has with the normalization, the exact shifts, and the network in FP64, all channels first."""
    draw = np.random.default_rng(2)
    p = parameters(dtype)
    p["variance"] = (p["variance"].astype(np.float64) + 0.2).astype(dtype)
    inputs = 32
    w = draw.normal(size=(CHANNELS, inputs)).astype(dtype)
    exact = {name: value.astype(np.float64) for name, value in p.items()}
    if kind == "MatMul":
        factor, shift = exact["scale"], exact["shift"]
        x = draw.uniform(0.5, 1, (2000, inputs)).astype(dtype)
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Mul", ["product", "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "shift"], ["y"]),
        ]
        constants = {"w": np.ascontiguousarray(w.T), "scale": p["scale"], "shift": p["shift"]}
        rows = x.astype(np.float64).T
    else:
        factor = exact["scale"] / np.sqrt(exact["variance"] + 1e-5)
        shift = exact["shift"] - exact["mean"] * factor
        x = draw.uniform(0.5, 1, (1, inputs, 40, 50)).astype(dtype)
        nodes = [
            helper.make_node(kind, ["x", "w"], ["product"]),
            helper.make_node("BatchNormalization", ["product", *p], ["y"]),
        ]
        kernel = w if kind == "Conv" else np.ascontiguousarray(w.T)
        constants = {"w": kernel[:, :, None, None], **p}
        rows = x.astype(np.float64).reshape(inputs, -1)
    weights = w.astype(np.float64) * factor[:, None]
    made = model(nodes, {"x": (onnx_type, list(x.shape))}, ["y"], constants)
    return made, x, weights, shift, rows


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose", "MatMul"])
@pytest.mark.parametrize("kind", TYPES)
def test_the_mean_of_a_channel_survives_folding(kind, operator, device):
    """Weights and biases that are each rounded to the nearest move the means, which networks pool at their ends."""
    onnx_type, dtype = TYPES[kind]
    made, x, weights, shift, rows = folded_network(operator, onnx_type, dtype)
    y = np.asarray(opwright.build(made, device=device, timing=False)(x)).astype(np.float64)
    y = y.T if operator == "MatMul" else y.reshape(CHANNELS, -1)
    expected = weights @ rows + shift[:, None]
    narrow = {"weights": weights.astype(dtype), "shift": shift.astype(dtype)}
    narrow = {name: value.astype(np.float64) for name, value in narrow.items()}
    nearest = narrow["weights"] @ rows + narrow["shift"][:, None]

    def error(of) -> float:
        return float(np.linalg.norm((of - expected).mean(axis=1)))

    assert error(y) < 0.4 * error(nearest)
