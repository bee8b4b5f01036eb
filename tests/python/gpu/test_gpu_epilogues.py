"""What follows a convolution or matrix product on a GPU and is computed by it: steps counted, against NumPy."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import opwright as trt

TYPES = {"float32": (trt.float32, 2e-5), "float16": (trt.float16, 6e-3)}
erf = np.vectorize(math.erf)


class Model:
    """A strongly typed network and what its tensors are in FP64."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.random = np.random.default_rng(5)
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.network = trt.Builder(trt.Logger()).create_network(flags)
        self.feeds: dict[str, np.ndarray] = {}

    def input(self, *shape: int):
        name = f"x{len(self.feeds)}"
        self.feeds[name] = self.random.uniform(-1, 1, shape).astype(self.dtype)
        tensor = self.network.add_input(name, TYPES[self.dtype][0], shape)
        return tensor, self.feeds[name].astype(np.float64)

    def constant(self, *shape: int):
        array = self.random.uniform(-1, 1, shape).astype(self.dtype)
        tensor = self.network.add_constant(shape, trt.Weights(array)).get_output(0)
        return tensor, array.astype(np.float64)

    def binary(self, op: str, a, b):
        return self.network.add_elementwise(a, b, trt.ElementWiseOperation[op]).get_output(0)

    def activation(self, kind: str, x):
        return self.network.add_activation(x, trt.ActivationType[kind]).get_output(0)

    def product(self, a, b, op=trt.MatrixOperation.NONE):
        none = trt.MatrixOperation.NONE
        return self.network.add_matrix_multiply(a, none, b, op).get_output(0)

    def check(self, y, expected: np.ndarray, steps: int) -> None:
        self.network.mark_output(y)
        engine = trt.build(self.network, device="cuda", timing=False)
        assert len(engine.layers) == steps, engine.layers
        for _ in range(2):
            result = np.asarray(engine(**self.feeds)).astype(np.float64)
            limit = TYPES[self.dtype][1]
            np.testing.assert_allclose(result, expected, rtol=limit, atol=limit * 4)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_projection_takes_its_bias_and_residual(dtype):
    m = Model(dtype)
    (x, x_), (r, r_) = m.input(2, 19, 40), m.input(2, 19, 48)
    (w, w_), (b, b_) = m.constant(1, 40, 48), m.constant(1, 1, 48)
    y = m.binary("SUM", r, m.binary("SUM", m.product(x, w), b))
    m.check(y, x_ @ w_ + b_ + r_, 1)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_chain_behind_a_product(dtype):
    """A gate, a factor per column and an embedding that the batch shares."""
    m = Model(dtype)
    (x, x_), (gate, gate_) = m.input(3, 10, 24), m.input(3, 10, 32)
    (w, w_), (s, s_), (e, e_) = m.constant(1, 24, 32), m.constant(1, 1, 32), m.constant(1, 10, 32)
    y = m.binary("PROD", m.activation("SIGMOID", gate), m.product(x, w))
    y = m.binary("SUM", m.binary("PROD", m.activation("TANH", y), s), e)
    m.check(y, np.tanh(x_ @ w_ / (1 + np.exp(-gate_))) * s_ + e_, 1)


@pytest.mark.parametrize("dtype", TYPES)
def test_an_activation_and_then_a_residual(dtype):
    """The activation, which is fused first, becomes a part of the program."""
    m = Model(dtype)
    (x, x_), (r, r_) = m.input(7, 24), m.input(7, 16)
    w, w_ = m.constant(24, 16)
    y = m.binary("SUM", m.activation("GELU_ERF", m.product(x, w)), r)
    h = x_ @ w_
    m.check(y, h * (1 + erf(h / math.sqrt(2))) / 2 + r_, 1)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_residual_behind_rows_that_are_reshaped(dtype):
    """The rows become those of the residual in front of the product: a view, and one step."""
    m = Model(dtype)
    (x, x_), (r, r_) = m.input(21, 24), m.input(3, 7, 16)
    (w, w_), (b, b_) = m.constant(24, 16), m.constant(1, 16)
    shuffle = m.network.add_shuffle(m.binary("SUM", m.product(x, w), b))
    shuffle.reshape_dims = (3, 7, 16)
    y = m.binary("SUM", r, shuffle.get_output(0))
    m.check(y, (x_ @ w_ + b_).reshape(3, 7, 16) + r_, 2)


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_chain_behind_a_convolution(dtype, groups):
    """Per channel, of the same shape, and an activation between: conv, relu, residual, scale, swish."""
    m = Model(dtype)
    (x, x_), (r, r_) = m.input(2, 16, 9, 7), m.input(2, 16, 9, 7)
    kernel = m.random.uniform(-1, 1, (16, 16 // groups, 1, 1)).astype(dtype)
    layer = m.network.add_convolution_nd(x, 16, (1, 1), trt.Weights(kernel), trt.Weights())
    layer.num_groups = groups
    s, s_ = m.constant(1, 16, 1, 1)
    y = m.binary("SUM", m.activation("RELU", layer.get_output(0)), r)
    y = m.binary("PROD", y, s)
    y = m.binary("PROD", y, m.activation("SIGMOID", y))
    k = kernel.astype(np.float64)[:, :, 0, 0]
    h = k[None, :, 0, None, None] * x_ if groups == 16 else np.einsum("mc,nchw->nmhw", k, x_)
    h = (np.maximum(h, 0) + r_) * s_
    m.check(y, h / (1 + np.exp(-h)), 1)


@pytest.mark.parametrize("groups", [1, 48])
@pytest.mark.parametrize("dtype", TYPES)
def test_operands_that_are_repeated_behind_a_convolution(dtype, groups):
    """Over the width, over rows, over images, and of one element."""
    m = Model(dtype)
    x, x_ = m.input(2, 48, 5, 7)
    kernel = m.random.uniform(-1, 1, (48, 48 // groups, 1, 1)).astype(dtype)
    layer = m.network.add_convolution_nd(x, 48, (1, 1), trt.Weights(kernel), trt.Weights())
    layer.num_groups = groups
    y, k = layer.get_output(0), kernel.astype(np.float64)[:, :, 0, 0]
    h = k[None, :, 0, None, None] * x_ if groups == 48 else np.einsum("mc,nchw->nmhw", k, x_)
    for shape in ((1, 1, 1, 7), (1, 1, 5, 7), (1, 48, 5, 7), (1, 1, 1, 1)):
        other, other_ = m.input(*shape)
        y, h = m.binary("SUM", m.binary("PROD", y, other), other), h * other_ + other_
    m.check(y, h, 1)


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_chain_behind_a_transposed_convolution(dtype, groups):
    """Each pixel becomes four: bias, relu, the skip of a decoder, a factor per channel, swish."""
    m = Model(dtype)
    (x, x_), (skip, skip_) = m.input(2, 16, 5, 4), m.input(2, 16, 10, 8)
    kernel = m.random.uniform(-1, 1, (16, 16 // groups, 2, 2)).astype(dtype)
    bias = m.random.uniform(-1, 1, 16).astype(dtype)
    layer = m.network.add_deconvolution_nd(x, 16, (2, 2), trt.Weights(kernel), trt.Weights(bias))
    layer.stride_nd, layer.num_groups = (2, 2), groups
    s, s_ = m.constant(1, 16, 1, 1)
    y = m.binary("SUM", m.activation("RELU", layer.get_output(0)), skip)
    y = m.binary("PROD", y, s)
    y = m.binary("PROD", y, m.activation("SIGMOID", y))
    k = kernel.astype(np.float64)
    if groups == 1:
        h = np.einsum("nchw,cmij->nmhiwj", x_, k)
    else:
        h = np.einsum("nchw,cij->nchiwj", x_, k[:, 0])
    h = h.reshape(2, 16, 10, 8) + bias.astype(np.float64)[:, None, None]
    h = (np.maximum(h, 0) + skip_) * s_
    m.check(y, h / (1 + np.exp(-h)), 1)


def test_what_is_read_elsewhere_stays():
    m = Model("float32")
    (x, x_), (r, r_) = m.input(4, 8), m.input(4, 8)
    w, w_ = m.constant(8, 8)
    product = m.product(x, w)
    m.network.mark_output(product)
    y = m.binary("PROD", product, r)
    m.network.mark_output(y)
    engine = trt.build(m.network, device="cuda", timing=False)
    assert len(engine.layers) == 2
    np.testing.assert_allclose(engine(**m.feeds)[y.name], x_ @ w_ * r_, rtol=1e-5, atol=1e-5)


def test_a_factor_per_row_stays():
    """No place of an input that products read is by rows."""
    m = Model("float32")
    (x, x_), (r, r_) = m.input(4, 8), m.input(4, 1)
    w, w_ = m.constant(8, 8)
    m.check(m.binary("PROD", m.product(x, w), r), x_ @ w_ * r_, 2)


def test_bytes_are_scaled_by_their_convolution():
    """A quantized convolution with bias and ReLU: two steps, the input in bytes and the rest."""
    m = Model("float32")
    x, x_ = m.input(2, 16, 8, 8)
    scale = m.network.add_constant((), trt.Weights(np.float32(1 / 64))).get_output(0)
    quantized = m.network.add_quantize(x, scale, trt.int8).get_output(0)
    y = m.network.add_dequantize(quantized, scale, trt.float32).get_output(0)
    w = m.random.integers(-90, 91, (24, 16, 3, 3)).astype(np.int8)
    scales = m.random.uniform(0.01, 0.02, 24).astype(np.float32)
    weights = m.network.add_constant(w.shape, trt.Weights(w)).get_output(0)
    factors = m.network.add_constant((24,), trt.Weights(scales)).get_output(0)
    dequantized = m.network.add_dequantize(weights, factors, trt.float32)
    dequantized.axis = 0
    bias = m.random.uniform(-1, 1, 24).astype(np.float32)
    layer = m.network.add_convolution_nd(y, 24, (3, 3), trt.Weights(), trt.Weights(bias))
    layer.set_input(1, dequantized.get_output(0))
    q = np.clip(np.rint(x_ * 64), -128, 127) / 64
    k = w * scales[:, None, None, None].astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(q, (3, 3), (2, 3))
    h = np.einsum("nchwij,mcij->nmhw", windows, k) + bias[None, :, None, None]
    m.check(m.activation("RELU", layer.get_output(0)), np.maximum(h, 0), 2)


def set_times(cache, fused: float, product: float, program: float) -> None:
    """Sets the times of products and convolutions with a program, of those without, and of programs."""
    for key in cache.queryKeys():
        text, value = str(key), cache.query(key)
        if text.startswith(("MatrixMultiply|", "Convolution|")):
            has_program = re.search(r"activation=(?!-1|0)|fused_code=\[[^\]]", text) is not None
            value.timingMSec = fused if has_program else product
        elif text.startswith("Pointwise|"):
            value.timingMSec = program
        assert cache.update(key, value)


def gated_product(m: Model):
    """A program that reads x, as the product before it does, and a factor per column."""
    (x, x_), (w, w_), (s, s_) = m.input(12, 16), m.constant(16, 16), m.constant(1, 16)
    y = m.binary("PROD", m.activation("TANH", m.product(x, w)), x)
    return m.binary("PROD", y, s), np.tanh(x_ @ w_) * x_ * s_


def gated_convolution(m: Model):
    """A residual and an activation that the convolution keeps in either case, and then a program."""
    (x, x_), (r, r_) = m.input(1, 16, 5, 5), m.input(1, 16, 5, 5)
    kernel = m.random.uniform(-1, 1, (16, 16, 1, 1)).astype(m.dtype)
    layer = m.network.add_convolution_nd(x, 16, (1, 1), trt.Weights(kernel), trt.Weights())
    y = m.activation("RELU", m.binary("SUM", layer.get_output(0), r))
    y = m.binary("PROD", y, m.activation("SIGMOID", r))
    h = np.einsum("mc,nchw->nmhw", kernel.astype(np.float64)[:, :, 0, 0], x_)
    return y, np.maximum(h + r_, 0) / (1 + np.exp(-r_))


@pytest.mark.parametrize("make", [gated_product, gated_convolution])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_times_decide_whether_a_program_is_fused(make, dtype):
    m = Model(dtype)
    y, expected = make(m)
    m.network.mark_output(y)
    builder = trt.Builder(trt.Logger())
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.max_num_tactics = 1
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)

    def build() -> trt.Engine:
        engine = trt.Engine(builder.build_engine_with_config(m.network, config))
        result = np.asarray(engine(**m.feeds)).astype(np.float64)
        limit = TYPES[dtype][1]
        np.testing.assert_allclose(result, expected, rtol=limit, atol=limit * 4)
        return engine

    def names(layer: dict) -> list[str]:
        return [candidate["TacticName"] for candidate in layer["Candidates"]]

    build()
    known = len(cache.queryKeys())
    set_times(cache, 1, 2, 3)
    (fused,) = (layer for layer in build().layers if layer["Candidates"])
    assert any(name.startswith("unfused: ") for name in names(fused))
    set_times(cache, 6, 2, 3)
    product, program = (layer for layer in build().layers if layer["Candidates"])
    assert (product["TimeMs"], program["TimeMs"]) == (2, 3)
    assert product["Name"] + " + " + program["Name"] == fused["Name"]
    for layer in (product, program):
        (step,) = (c for c in layer["Candidates"] if c["TacticName"].startswith("fused: "))
        assert step["TimeMs"] == 6 and not step["Chosen"]
    assert len(cache.queryKeys()) == known
    # A step of its own takes 2 us, whatever it computes.
    set_times(cache, 0.004, 0.001, 0.002)
    (fused,) = (layer for layer in build().layers if layer["Candidates"])
    assert not any(name.startswith("unfused: ") for name in names(fused))
