"""Quantized products and convolutions on the device, against PyTorch in FP64: FP8, INT8 and UINT8 by tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from gpu_engines import Log

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]

torch = pytest.importorskip("torch")

FP8 = torch.float8_e4m3fn
KINDS = {
    "fp8": (trt.fp8, trt.fp8, 448.0),
    "int8": (trt.int8, trt.int8, 127.0),
    "uint8": (trt.uint8, trt.int8, 127.0),
}


def rounded(x: torch.Tensor, kind: str, is_weight: bool) -> torch.Tensor:
    """What x / scale becomes, in FP64."""
    if kind == "fp8":
        return x.clamp(-448, 448).to(torch.float32).to(FP8).to(torch.float64)
    low, high = (0, 255) if kind == "uint8" and not is_weight else (-128, 127)
    return x.round().clamp(low, high)


class Layers:
    """A strongly typed network of one layer between quantizations, whose scales are powers of two: exact in FP32."""

    def __init__(self, kind: str):
        self.kind, self.log = kind, Log()
        self.builder = trt.Builder(self.log)
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.network = self.builder.create_network(flags)

    def constant(self, array) -> trt.ITensor:
        array = np.ascontiguousarray(array)
        return self.network.add_constant(array.shape, trt.Weights(array)).get_output(0)

    def through(self, x: trt.ITensor, scale, axis: int | None, is_weight: bool) -> trt.ITensor:
        dtype = KINDS[self.kind][1 if is_weight else 0]
        scale = self.constant(np.asarray(scale, np.float32))
        quantize = self.network.add_quantize(x, scale, dtype)
        dequantize = self.network.add_dequantize(quantize.get_output(0), scale, trt.float32)
        if axis is not None:
            quantize.axis = dequantize.axis = axis
        return dequantize.get_output(0)

    def build(self, y: trt.ITensor) -> trt.Engine:
        self.network.mark_output(y)
        config = self.builder.create_builder_config()
        config.default_device_type = trt.DeviceType.GPU
        engine = self.builder.build_engine_with_config(self.network, config)
        assert engine is not None, self.log.text
        return trt.Engine(engine)


def tactic(engine) -> str:
    names = [layer["TacticName"] for layer in engine.layers if layer["LayerType"] != "Reformat"]
    found = [name for name in names if name.startswith(("tensor", "warpgroup"))]
    assert found, names
    return found[-1]


def weights(rng, shape) -> tuple[np.ndarray, np.ndarray]:
    """Weights of a product along the last axes, with a scale for each index of the first."""
    scale = 2.0 ** rng.integers(-9, -6, shape[0])
    limits = scale.reshape(-1, *[1] * (len(shape) - 1)) * 100
    return (rng.uniform(-1, 1, shape) * limits).astype(np.float32), scale


@pytest.mark.parametrize("shape", [(5, 37, 72), (256, 384, 1024), (300, 130, 200), (64, 96, 4096)])
@pytest.mark.parametrize("kind", KINDS)
def test_products(rng, kind, shape):
    m, n, k = shape
    layers = Layers(kind)
    x = rng.uniform(-1, 1, (m, k)).astype(np.float32)
    w, scale = weights(rng, (n, k))
    bias = rng.uniform(-1, 1, (1, n)).astype(np.float32)
    a = layers.through(layers.network.add_input("x", trt.float32, (m, k)), 2.0**-6, None, False)
    b = layers.through(layers.constant(w), scale, 0, True)
    none, turned = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
    y = layers.network.add_matrix_multiply(a, none, b, turned).get_output(0)
    y = layers.network.add_elementwise(y, layers.constant(bias), trt.ElementWiseOperation.SUM)
    engine = layers.build(y.get_output(0))
    wide = [torch.from_numpy(array.astype(np.float64)) for array in (x, w, scale)]
    of_x = rounded(wide[0] * 64, kind, False) / 64
    of_w = rounded(wide[1] / wide[2][:, None], kind, True) * wide[2][:, None]
    expected = (of_x @ of_w.T + torch.from_numpy(bias)).numpy()
    first = engine(x)
    # Of FP8 the sums within tensor cores have some 14 bits.
    limit = (3e-3 if kind == "fp8" else 1e-5) * max(1.0, np.abs(expected).max())
    assert np.abs(first - expected).max() < limit, tactic(engine)
    np.testing.assert_array_equal(engine(x), first)
    tactic(engine)


CASES = {
    "3x3": ((2, 128, 28, 28), (64, 128, 3, 3), {"padding": 1}),
    "3x3 of 64": ((2, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    "pointwise": ((4, 256, 14, 14), (512, 256, 1, 1), {}),
    "stem": ((2, 3, 64, 64), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_convolutions(rng, kind, name):
    x_shape, w_shape, how = CASES[name]
    layers = Layers(kind)
    x = rng.uniform(-1, 1, x_shape).astype(np.float32)
    w, scale = weights(rng, w_shape)
    a = layers.through(layers.network.add_input("x", trt.float32, x_shape), 2.0**-6, None, False)
    b = layers.through(layers.constant(w), scale, 0, True)
    layer = layers.network.add_convolution_nd(
        a, w_shape[0], w_shape[2:], trt.Weights(trt.float32), trt.Weights(trt.float32)
    )
    layer.set_input(1, b)
    layer.stride_nd = (how.get("stride", 1),) * 2
    layer.padding_nd = (how.get("padding", 0),) * 2
    relu = layers.network.add_activation(layer.get_output(0), trt.ActivationType.RELU)
    engine = layers.build(relu.get_output(0))
    wide = [torch.from_numpy(array.astype(np.float64)) for array in (x, w, scale)]
    steps = wide[2].reshape(-1, 1, 1, 1)
    of_x, of_w = rounded(wide[0] * 64, kind, False) / 64, rounded(wide[1] / steps, kind, True)
    expected = torch.relu(torch.conv2d(of_x, of_w * steps, **how)).numpy()
    first = engine(x)
    limit = (3e-3 if kind == "fp8" else 1e-5) * max(1.0, np.abs(expected).max())
    assert np.abs(first - expected).max() < limit, tactic(engine)
    np.testing.assert_array_equal(engine(x), first)
    tactic(engine)
