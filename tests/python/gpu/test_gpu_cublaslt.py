"""Products by cuBLASLt on an emulated GPU: the library of tests/emulation in place of NVIDIA's."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import cuda_driver
import emulated_gpu
import opwright as trt
from library_engines import CUBLAS_LT, Listener, favour, tactics

pytestmark = emulated_gpu.emulated_only

LIBRARY = emulated_gpu._find("libcublasLt.so.*")
NONE, TRANSPOSE = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
TYPES = {"float32": (trt.float32, 1e-4), "float16": (trt.float16, 2e-2)}
RANDOM = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def library(monkeypatch):
    if LIBRARY is None:
        pytest.skip("tests/emulation has no cuBLASLt")
    monkeypatch.setenv("OPWRIGHT_CUBLASLT", str(LIBRARY))


def built(
    a_shape,
    b_shape,
    dtype="float32",
    ops=(NONE, NONE),
    after=None,
    ranges=None,
    bias=None,
    only=True,
    residual=None,
):
    """An engine of a product, by the library where it can be; and the network's own answer."""
    listener = Listener()
    builder = trt.Builder(listener)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    a = network.add_input("a", TYPES[dtype][0], a_shape)
    b = network.add_input("b", TYPES[dtype][0], b_shape)
    y = network.add_matrix_multiply(a, ops[0], b, ops[1]).get_output(0)
    if bias is not None:
        shape = (1,) * (max(len(a_shape), len(b_shape)) - 1) + bias.shape
        constant = network.add_constant(shape, trt.Weights(bias.reshape(shape))).get_output(0)
        y = network.add_elementwise(y, constant, trt.ElementWiseOperation.SUM).get_output(0)
    if after is not None:
        y = network.add_activation(y, after).get_output(0)
    if residual:
        r = network.add_input("r", TYPES[dtype][0], residual)
        y = network.add_elementwise(y, r, trt.ElementWiseOperation.SUM).get_output(0)
        y = network.add_unary(y, trt.UnaryOperation.ABS).get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    assert config.set_tactic_sources(1 << int(trt.TacticSource.CUBLAS_LT))
    if ranges is not None:
        profile = builder.create_optimization_profile()
        for name, shapes in ranges.items():
            profile.set_shape(name, *shapes)
        config.add_optimization_profile(profile)
    if only:  # times that make the library's the fastest
        favour(builder, network, config, CUBLAS_LT)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, listener.messages
    return trt.Engine(engine), listener


def values(*shape: int, dtype="float32") -> np.ndarray:
    return RANDOM.uniform(-1, 1, shape).astype(dtype)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


CASES = {
    "plain": ((9, 24), (24, 10), (NONE, NONE)),
    "transposed": ((24, 9), (10, 24), (TRANSPOSE, TRANSPOSE)),
    "stacked": ((3, 9, 24), (3, 24, 10), (NONE, NONE)),
    "one matrix for all": ((3, 2, 9, 24), (1, 1, 24, 10), (NONE, NONE)),
    "one matrix for all, transposed": ((3, 24, 9), (1, 24, 10), (TRANSPOSE, NONE)),
    "one row of matrices for all": ((1, 9, 24), (3, 24, 10), (NONE, NONE)),
    "broadcast both ways": ((3, 1, 9, 24), (1, 2, 10, 24), (NONE, TRANSPOSE)),
    "one row": ((1, 7), (7, 5), (NONE, NONE)),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_products(case, dtype):
    a_shape, b_shape, ops = CASES[case]
    engine, _ = built(a_shape, b_shape, dtype, ops)
    assert tactics(engine)[0].startswith("cuBLASLt 13.2.0"), engine.layers
    assert engine.engine.tactic_sources == 1 << int(trt.TacticSource.CUBLAS_LT)
    for _ in range(4):  # the last ones from a graph
        a, b = values(*a_shape, dtype=dtype), values(*b_shape, dtype=dtype)
        turned = [
            x.astype(np.float64).swapaxes(-1, -2) if op == TRANSPOSE else x.astype(np.float64)
            for x, op in zip((a, b), ops)
        ]
        limit = TYPES[dtype][1]
        np.testing.assert_allclose(engine(a=a, b=b), turned[0] @ turned[1], rtol=limit, atol=limit)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("after", ["RELU", "GELU_TANH", None])
def test_epilogues(after, with_bias):
    bias = values(10) if with_bias else None
    kind = None if after is None else trt.ActivationType[after]
    engine, _ = built((9, 24), (24, 10), after=kind, bias=bias)
    assert len(engine.layers) == 1 and tactics(engine)[0].startswith("cuBLASLt"), engine.layers
    a, b = values(9, 24), values(24, 10)
    y = a.astype(np.float64) @ b + (0 if bias is None else bias)
    expected = {"RELU": lambda y: np.maximum(y, 0), "GELU_TANH": gelu, None: lambda y: y}[after](y)
    np.testing.assert_allclose(engine(a=a, b=b), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("residual", [(9, 10), (1, 10)], ids=["of its shape", "of its columns"])
def test_what_is_fused_follows_by_a_kernel_of_its_own(dtype, residual, tmp_path):
    bias = values(10, dtype=dtype)
    kind = trt.ActivationType.GELU_ERF
    engine, _ = built((9, 24), (24, 10), dtype, after=kind, bias=bias, residual=residual)
    assert len(engine.layers) == 1 and tactics(engine)[0].startswith("cuBLASLt"), engine.layers
    engine.save(tmp_path / "fused.engine")
    loaded = trt.load(tmp_path / "fused.engine", allow_device_code=True)
    erf = np.vectorize(math.erf)
    for _ in range(4):
        a, b = values(9, 24, dtype=dtype), values(24, 10, dtype=dtype)
        r = values(*residual, dtype=dtype)
        y = a.astype(np.float64) @ b + bias
        expected = np.abs(0.5 * y * (1 + erf(y / math.sqrt(2))) + r)
        got = engine(a=a, b=b, r=r)
        limit = TYPES[dtype][1]
        np.testing.assert_allclose(got, expected, rtol=limit, atol=limit)
        np.testing.assert_array_equal(loaded(a=a, b=b, r=r), got)


def test_what_is_fused_with_shapes_that_are_open():
    ranges = {"a": ((1, 24), (8, 24), (32, 24))}
    engine, _ = built((-1, 24), (24, 10), ranges=ranges, residual=(1, 10))
    assert len(engine.layers) == 1 and tactics(engine)[0].startswith("cuBLASLt"), engine.layers
    b = values(24, 10)
    for rows in (8, 1, 32, 5):
        a, r = values(rows, 24), values(1, 10)
        np.testing.assert_allclose(engine(a=a, b=b, r=r), np.abs(a @ b + r), rtol=1e-4, atol=1e-4)


def test_shapes_that_are_open():
    ranges = {"a": ((1, 24), (8, 24), (32, 24))}
    engine, _ = built((-1, 24), (24, 10), ranges=ranges)
    assert tactics(engine)[0].startswith("cuBLASLt")
    b = values(24, 10)
    for rows in (8, 1, 32, 5):
        a = values(rows, 24)
        np.testing.assert_allclose(engine(a=a, b=b), a @ b, rtol=1e-4, atol=1e-4)


def test_addresses_that_are_not_aligned():
    engine, _ = built((9, 24), (24, 10))
    context = engine.engine.create_execution_context()
    storage = {name: cuda_driver.DeviceArray(np.zeros(400, np.float32)) for name in "aby"}
    a, b = values(9, 24), values(24, 10)
    for name, array in (("a", a), ("b", b)):
        cuda_driver.driver().write(storage[name].ptr + 4, array)
    for name in "aby":
        assert context.set_tensor_address(name, storage[name].ptr + 4)
    assert context.execute_async_v3(0)
    y = cuda_driver.driver().read(storage["y"].ptr + 4, (9, 10), np.float32)
    np.testing.assert_allclose(y, a @ b, rtol=1e-4, atol=1e-4)


def test_off_by_default_and_for_other_layers():
    network = trt.Builder(trt.Logger()).create_network()
    a = network.add_input("a", trt.float32, (9, 24))
    b = network.add_input("b", trt.float32, (24, 10))
    network.mark_output(network.add_matrix_multiply(a, NONE, b, NONE).get_output(0))
    engine = trt.build(network, device="cuda")
    assert engine.engine.tactic_sources == 0
    considered = str(engine.layers)
    assert "cuBLASLt" not in considered


def test_a_shape_where_it_fails_leaves_it_out_with_the_reason():
    engine, listener = built((9, 24), (24, 13), only=False)
    assert not tactics(engine)[0].startswith("cuBLASLt")
    text = "\n".join(listener.messages)
    assert "is left out" in text and "failed with status 15 (not supported)" in text


ENGINE = """
import sys
from pathlib import Path
import numpy as np
import opwright as trt
try:
    engine = trt.load(Path(sys.argv[1] if len(sys.argv) > 1 else {path!r}), allow_device_code=True)
    print("loaded", engine.engine.tactic_sources)
except trt.Error as error:
    print(error)
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    import os

    path = tmp_path_factory.mktemp("cublaslt") / "product.engine"
    before = os.environ.get("OPWRIGHT_CUBLASLT")
    os.environ["OPWRIGHT_CUBLASLT"] = str(LIBRARY)
    try:
        built((9, 24), (24, 10))[0].save(path)
    finally:
        if before is None:
            del os.environ["OPWRIGHT_CUBLASLT"]
    return path


def load(path: Path, **environment: str) -> str:
    return emulated_gpu.run_program(ENGINE.format(path=str(path)), **environment).stdout


def test_engines_say_what_they_need(stored):
    assert load(stored) == "loaded 2\n"
    other = load(stored, OPWRIGHT_EMULATED_CUBLASLT_VERSION="120900")
    assert "needs cuBLASLt 13.2.0" in other and "the one here is 12.9.0" in other, other
    assert "OPWRIGHT_CUBLASLT" in other and "without TacticSource.CUBLAS_LT" in other
    missing = load(stored, OPWRIGHT_CUBLASLT="/nowhere/libcublasLt.so.13")
    assert "needs cuBLASLt 13.2.0" in missing and "cannot be loaded" in missing, missing
    assert "pip install nvidia-cublas" in missing


def test_where_it_is_missing_a_build_goes_on_without_it():
    script = """
import test_gpu_cublaslt as tests
engine, listener = tests.built((9, 24), (24, 10), only=False)
print(tests.tactics(engine)[0].startswith("cuBLASLt"))
print(engine.engine.create_engine_inspector().get_layer_information(
    0, tests.trt.LayerInformationFormat.JSON))
"""
    done = emulated_gpu.run_program(script, OPWRIGHT_CUBLASLT="/nowhere/libcublasLt.so.13")
    assert done.stdout.startswith("False\n"), done.stderr
    assert "cuBLASLt cannot be loaded" in done.stdout, done.stdout
