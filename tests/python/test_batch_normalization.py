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
