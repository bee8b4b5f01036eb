"""Engines with the operator of samples/aot from each language: built, run and saved here, and run by the
native program without Python.

A language that is not installed is taken from $OPWRIGHT_KERNELS, where another machine saved its kernels:
python samples/aot/run.py --arch sm_90 --kernels DIR.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import in_place_kernels
import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from gpu_engines import build, network, new_id, op_of
from opwright import aot
from paths import ROOT

pytestmark = pytest.mark.usefixtures("on_gpu")

KERNELS = os.environ.get("OPWRIGHT_KERNELS")
LANGUAGES = [
    "cuda",
    "triton",
    "cutile",
    "cute",
    "warp",
    "tilelang",
    "pallas",
    "numba_cuda",
]


@pytest.fixture
def sample(monkeypatch, program):
    """The sample's runner."""
    monkeypatch.syspath_prepend(ROOT / "samples" / "aot")
    monkeypatch.setenv("OPWRIGHT_PROGRAM", str(program))
    import run

    yield run
    run.rms_norm.kernels = None
    sys.modules.pop("run")


def prepare(sample, language, precision, monkeypatch):
    """Has the sample take the kernel from where it is."""
    tactic = sample.Tactic[language.upper()]
    if language == "numba_cuda" and not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # numba-cuda asks for what NumPy 2.5 has dropped
    lacking = sample.lacks(tactic, precision)
    if lacking and KERNELS:
        monkeypatch.setattr(sample.rms_norm, "kernels", Path(KERNELS))
        lacking = sample.lacks(tactic, precision)
    if lacking:
        pytest.skip(f"there is no {lacking}")
    if "OPWRIGHT_CUDA_DRIVER" in os.environ and language != "cuda":
        pytest.skip("the emulated driver takes no code but that of its own compiler")
    return tactic


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_engine_with_a_kernel_of(sample, language, precision, tmp_path, monkeypatch, rng):
    tactic = prepare(sample, language, precision, monkeypatch)
    engine = sample.build(tactic, precision)
    file = tmp_path / "rms_norm.engine"
    engine.save(file)
    stored = trt.load(file, allow_device_code=True)
    # Open extents: one kernel serves them all. Rows of odd lengths are not aligned.
    shapes = [(64, 768), (3, 77), (1, 1), (1024, 4096), (130, 1025)]
    if language == "pallas":
        shapes = [sample.FIXED]
    for shape in shapes:
        x, scale = (
            rng.uniform(-1, 1, s).astype(np.dtype(precision.replace("fp", "float")))
            for s in (shape, shape[-1:])
        )
        scale *= x.dtype.type(0.25)
        wide = x.astype(np.float64)
        right = wide / np.sqrt(np.mean(wide * wide, -1, keepdims=True) + sample.EPSILON) * scale
        results = [engine(x=x, scale=scale), stored(x=x, scale=scale)]
        if shape in ((3, 77), sample.FIXED):
            results.append(sample.run_program(file, x, scale))
        for y in results:
            assert y.shape == right.shape and y.dtype == x.dtype
            np.testing.assert_allclose(y, right, rtol=0, atol=sample.TOLERANCE[precision])


@pytest.mark.nvidia
@pytest.mark.parametrize("language", in_place_kernels.PACKAGES)
def test_an_engine_with_a_kernel_that_changes_its_argument(language, tmp_path, rng):
    """x += 2 y; the engine copies what the caller gives as x, which stays as it is."""
    file = Path(KERNELS or "") / in_place_kernels.file_of(language)
    if not KERNELS:
        pytest.importorskip(in_place_kernels.PACKAGES[language])
    plugin_id = new_id("in_place")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, y: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.aot_impl(plugin_id, device="cuda")
    def kernel(x, y, outputs, tactic):
        same = (y.dtype, list(x.shape_expr))  # which the network does not know
        tensors = {"inputs": [x, same], "outputs": list(outputs)}
        code = (
            aot.load(file, **tensors) if KERNELS else in_place_kernels.compile(language, **tensors)
        )
        return (
            code.name,
            code,
            code.launch(**in_place_kernels.grid(language, x)),
            trtp.SymExprs.from_tuple([]),
        )

    net = network()
    x, y = (net.add_input(name, trt.float32, (-1, -1)) for name in "xy")
    layer = net.add_plugin(op_of(plugin_id)(x, y))
    shapes = {name: ((1, 1), (64, 768), (256, 2048)) for name in "xy"}
    engine = build(net, layer.get_output(0), shapes=shapes)
    engine.save(tmp_path / "in_place.engine")
    stored = trt.load(tmp_path / "in_place.engine", allow_device_code=True)
    for shape in [(64, 768), (3, 77), (1, 1), (200, 1025)]:
        x, y = (rng.standard_normal(shape, np.float32) for _ in range(2))
        given = x.copy()
        for each in (engine, stored):
            np.testing.assert_allclose(each(x=x, y=y), given + 2 * y, rtol=1e-6, atol=1e-6)
            np.testing.assert_array_equal(x, given)


def test_a_kernel_that_was_saved(sample, tmp_path, monkeypatch, rng):
    """The kernel of CUDA C++, for open extents; also on the emulated driver."""
    tactic = sample.Tactic.CUDA
    target = device_architecture()
    code = sample.compile_for_gpu(tactic, "fp32", target)
    code.save(tmp_path / sample.rms_norm.file_of(tactic, trt.float32))
    monkeypatch.setattr(sample.rms_norm, "kernels", tmp_path)
    monkeypatch.setattr(sample.rms_norm.aot, "cuda", None)  # no compiler is asked
    engine = sample.build(tactic, "fp32")
    engine.save(tmp_path / "rms_norm.engine")
    for shape in [(64, 768), (3, 77), (17, 1000)]:
        x, scale = rng.random(shape, np.float32), rng.random(shape[-1:], np.float32)
        right = sample.expected(x, scale)
        np.testing.assert_allclose(engine(x=x, scale=scale), right, rtol=1e-5, atol=1e-6)
    y = sample.run_program(tmp_path / "rms_norm.engine", x, scale)
    np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-6)


def device_architecture() -> str:
    """What kernels are compiled for while an engine is built here."""
    seen = []
    name = new_id("architecture")

    @trtp.register(name)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(name, device="cuda")
    def kernel(x, outputs, tactic):
        seen.append(aot.architecture())
        raise NotImplementedError

    net = network()
    layer = net.add_plugin(op_of(name)(net.add_input("x", trt.float32, (4,))))
    with pytest.raises(NotImplementedError):
        build(net, layer.get_output(0))
    return seen[0]
