"""Matrix products by NVIDIA's cuBLASLt, against NumPy in FP64: on the device, with the library that is there."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from gpu_engines import TYPES, Log
from library_engines import CUBLAS_LT, favour

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]

NONE, TRANSPOSE = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
TOLERANCE = {np.float32: 2e-5, np.float16: 2e-2}


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def built(a, b, ops=(NONE, NONE), bias=None, after=None, open_rows=False, residual=None):
    """An engine that takes the library wherever it can."""
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    a_shape = (*a.shape[:-2], -1, a.shape[-1]) if open_rows else a.shape
    x = network.add_input("a", TYPES[a.dtype], a_shape)
    y = network.add_input("b", TYPES[b.dtype], b.shape)
    z = network.add_matrix_multiply(x, ops[0], y, ops[1]).get_output(0)
    if bias is not None:
        shape = (1,) * (max(a.ndim, b.ndim) - 1) + bias.shape
        constant = network.add_constant(shape, trt.Weights(bias.reshape(shape))).get_output(0)
        z = network.add_elementwise(z, constant, trt.ElementWiseOperation.SUM).get_output(0)
    if after is not None:
        z = network.add_activation(z, trt.ActivationType[after]).get_output(0)
    if residual is not None:
        constant = network.add_constant(residual.shape, trt.Weights(residual)).get_output(0)
        z = network.add_elementwise(z, constant, trt.ElementWiseOperation.SUM).get_output(0)
        z = network.add_unary(z, trt.UnaryOperation.ABS).get_output(0)
    network.mark_output(z)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.set_tactic_sources(1 << int(trt.TacticSource.CUBLAS_LT))
    if open_rows:
        profile = builder.create_optimization_profile()
        shapes = [(*a.shape[:-2], rows, a.shape[-1]) for rows in (1, a.shape[-2], 2 * a.shape[-2])]
        profile.set_shape("a", *shapes)
        config.add_optimization_profile(profile)
    assert favour(builder, network, config, CUBLAS_LT), log.text
    if "cuBLASLt cannot be loaded" in log.text:
        pytest.skip("cuBLASLt is not installed")
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, log.text
    return trt.Engine(engine)


def reference(a, b, ops):
    turned = [
        x.astype(np.float64).swapaxes(-1, -2) if op == TRANSPOSE else x.astype(np.float64)
        for x, op in zip((a, b), ops)
    ]
    return turned[0] @ turned[1]


def check(engine, a, b, expected, runs=6):
    limit = TOLERANCE[a.dtype.type] * np.sqrt(a.shape[-1])
    first = engine(a=a, b=b)
    np.testing.assert_allclose(first, expected, rtol=limit, atol=limit)
    for _ in range(runs):  # from a graph in the end, the same bits each time
        np.testing.assert_array_equal(engine(a=a, b=b), first)
    tactics = [x["TacticName"] for x in engine.layers if x["LayerType"] != "Reformat"]
    assert any(tactic.startswith("cuBLASLt") for tactic in tactics), tactics
    assert engine.engine.tactic_sources == 1 << int(trt.TacticSource.CUBLAS_LT)


SHAPES = {
    "small": ((37, 72), (72, 40), (NONE, NONE)),
    "transposed": ((96, 64), (128, 96), (TRANSPOSE, TRANSPOSE)),
    "few tiles, long": ((32, 4096), (4096, 64), (NONE, NONE)),
    "stacked": ((12, 128, 64), (12, 64, 128), (NONE, NONE)),
    "one matrix for all": ((4, 128, 96), (1, 96, 80), (NONE, NONE)),
    "broadcast both ways": ((3, 1, 32, 24), (1, 2, 24, 16), (NONE, NONE)),
    "odd": ((5, 7), (7, 3), (NONE, NONE)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", SHAPES)
def test_products(rng, name, dtype):
    a_shape, b_shape, ops = SHAPES[name]
    a, b = (rng.uniform(-1, 1, shape).astype(dtype) for shape in (a_shape, b_shape))
    check(built(a, b, ops), a, b, reference(a, b, ops))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("after", ["RELU", "GELU_TANH", None])
def test_epilogues(rng, after, with_bias):
    a, b = (rng.uniform(-1, 1, s).astype(np.float16) for s in ((64, 128), (128, 96)))
    bias = rng.uniform(-1, 1, 96).astype(np.float16) if with_bias else None
    y = reference(a, b, (NONE, NONE)) + (0 if bias is None else bias.astype(np.float64))
    expected = {"RELU": lambda y: np.maximum(y, 0), "GELU_TANH": gelu, None: lambda y: y}[after](y)
    check(built(a, b, bias=bias, after=after), a, b, expected)


def test_what_is_fused_follows_by_a_kernel_of_its_own(rng):
    a, b = (rng.uniform(-1, 1, s).astype(np.float16) for s in ((64, 128), (128, 96)))
    bias, residual = (rng.uniform(-1, 1, s).astype(np.float16) for s in (96, (64, 96)))
    engine = built(a, b, bias=bias, after="RELU", residual=residual)
    y = np.maximum(reference(a, b, (NONE, NONE)) + bias.astype(np.float64), 0)
    check(engine, a, b, np.abs(y + residual.astype(np.float64)))


def test_open_shapes(rng):
    a, b = (rng.uniform(-1, 1, s).astype(np.float16) for s in ((48, 128), (128, 96)))
    engine = built(a, b, open_rows=True)
    for rows in (48, 1, 96, 13):
        part = rng.uniform(-1, 1, (rows, 128)).astype(np.float16)
        check(engine, part, b, reference(part, b, (NONE, NONE)))


def test_stored_and_loaded(rng, tmp_path):
    a, b = (rng.uniform(-1, 1, s).astype(np.float16) for s in ((64, 128), (128, 96)))
    engine = built(a, b)
    engine.save(tmp_path / "product.engine")
    loaded = trt.load(tmp_path / "product.engine", allow_device_code=True)
    np.testing.assert_array_equal(loaded(a=a, b=b), engine(a=a, b=b))
