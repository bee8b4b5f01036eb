"""Normalizations of groups of channels over many pixels, in two steps."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import opwright

pytestmark = pytest.mark.usefixtures("on_gpu")

TYPES = {np.float16: "float16", np.float32: "float"}


def swish(y: np.ndarray) -> np.ndarray:
    return y / (1 + np.exp(-y))


def normalized(x, groups, scale, bias, epsilon) -> np.ndarray:
    n, c = x.shape[:2]
    rows = x.astype(np.float64).reshape(n, groups, -1)
    rows = rows - rows.mean(-1, keepdims=True)
    rows /= np.sqrt((rows**2).mean(-1, keepdims=True) + epsilon)
    per_channel = (1, c) + (1,) * (x.ndim - 2)
    scale, bias = (each.astype(np.float64).reshape(per_channel) for each in (scale, bias))
    return rows.reshape(x.shape) * scale + bias


def build(shape: str, dtype, groups: int, scale, bias, shapes=None):
    kind, operator = TYPES[dtype], f"GroupNormalization<epsilon=1e-3, num_groups={groups}>"
    if groups == len(scale):
        operator = "InstanceNormalization<epsilon=1e-3>"
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({kind}[{shape}] x) => ({kind}[{shape}] y) {{
            a = {operator}(x, scale, bias)
            b = Sigmoid(a)
            y = Mul(a, b)
        }}"""
    model = onnx.parser.parse_model(text)
    for name, array in (("scale", scale), ("bias", bias)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return opwright.build(model, device="cuda", timing=False, shapes=shapes)


def kinds(engine) -> list[str]:
    return [layer["LayerType"] for layer in engine.layers]


@pytest.mark.parametrize("dtype, limit", [(np.float32, 2e-6), (np.float16, 2e-3)])
@pytest.mark.parametrize(
    "shape, groups",
    [
        ((2, 24, 120, 121), 8),
        ((1, 16, 180, 190), 16),
        ((3, 10, 12, 41, 43), 2),
        ((1, 512, 1033), 1),
    ],
)
def test_statistics_and_a_program_with_what_follows(shape, groups, dtype, limit):
    rng = np.random.default_rng(0)
    scale, bias = (rng.standard_normal(shape[1]).astype(dtype) for _ in range(2))
    engine = build(",".join(map(str, shape)), dtype, groups, scale, bias)
    assert kinds(engine) == ["GroupStatistics", "Pointwise"]
    x = (rng.standard_normal(shape) + 3).astype(dtype)
    # The model rounds the normalized tensor to its type.
    expected = swish(normalized(x, groups, scale, bias, 1e-3).astype(dtype).astype(np.float64))
    np.testing.assert_allclose(engine(x), expected, atol=limit, rtol=limit)


def test_open_pixels():
    rng = np.random.default_rng(1)
    scale, bias = (rng.standard_normal(16).astype(np.float32) for _ in range(2))
    shapes = {"x": ((2, 16, 1, 1), (2, 16, 160, 160), (2, 16, 200, 200))}
    engine = build("2,16,h,w", np.float32, 4, scale, bias, shapes)
    assert kinds(engine) == ["GroupStatistics", "Pointwise"]
    for height, width in ((160, 160), (200, 199), (1, 1), (3, 5)):
        x = rng.standard_normal((2, 16, height, width)).astype(np.float32)
        expected = swish(normalized(x, 4, scale, bias, 1e-3))
        np.testing.assert_allclose(engine(x), expected, atol=1e-5, rtol=1e-5)


def test_few_pixels_stay_one_step():
    scale, bias = np.ones(16, np.float32), np.zeros(16, np.float32)
    assert "GroupStatistics" not in kinds(build("1,16,40,40", np.float32, 4, scale, bias))


@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("pixels", [12, 180])
def test_instances_of_a_reshaped_tensor_are_groups(groups, pixels):
    """torch.onnx.export wrote a GroupNorm so before opset 18."""
    rng = np.random.default_rng(2)
    scale, bias = (rng.standard_normal((16, 1, 1)).astype(np.float32) for _ in range(2))
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
        g (float[2,16,{pixels},{pixels}] x) => (float[2,16,{pixels},{pixels}] y) {{
            a = Reshape(x, rows)
            b = InstanceNormalization<epsilon=1e-3>(a, ones, zeros)
            c = Reshape(b, shape)
            d = Mul(c, scale)
            y = Add(d, bias)
        }}""")
    constants = {
        "rows": np.array([0, groups, -1], np.int64),
        "shape": np.array([2, 16, pixels, pixels], np.int64),
        "ones": np.ones(groups, np.float32),
        "zeros": np.zeros(groups, np.float32),
        "scale": scale,
        "bias": bias,
    }
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    engine = opwright.build(model, device="cuda", timing=False)
    assert kinds(engine) == (
        ["GroupStatistics", "Pointwise"] if pixels > 100 else ["Normalization"]
    )
    x = (rng.standard_normal((2, 16, pixels, pixels)) + 3).astype(np.float32)
    expected = normalized(x, groups, scale, bias, 1e-3)
    np.testing.assert_allclose(engine(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(7,), (5, 7)])
def test_rows_of_tensors_without_channels_and_pixels(shape):
    dims = ", ".join(map(str, shape))
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[{dims}] x, float[7] scale) => (float[{dims}] y) {{
            y = LayerNormalization<axis = -1, epsilon = 0.25>(x, scale)
        }}""")
    engine = opwright.build(model, device="cuda", timing=False)
    random = np.random.default_rng(0)
    x, scale = (random.normal(size=of).astype(np.float32) for of in (shape, 7))
    mean = x.mean(-1, keepdims=True)
    expected = (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 0.25) * scale
    np.testing.assert_allclose(engine(x=x, scale=scale), expected, rtol=1e-5, atol=1e-6)
