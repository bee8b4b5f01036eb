"""A TensorRT plugin in C++ with its kernels in a .cu file, compiled unchanged against our headers by nvcc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import opwright as trt
from gpu_engines import Runner, build, network, strongly_typed
from paths import ROOT

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        pytest.skip("nvcc is not installed")
    package = Path(trt.__file__).resolve().parent
    include = package / "include" if (package / "include").is_dir() else ROOT / "include"
    made = tmp_path_factory.mktemp("plugin") / "libscaled_sum.so"
    source = Path(__file__).resolve().parent / "cuda_plugin" / "scaled_sum.cu"
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", "-std=c++17", "-arch=native"]
    command += ["-cudart", "static", f"-I{include}/opwright", f"-I{include}", source, "-o", made]
    # The functions that register plugins lie in the library of the package.
    libraries = [*(package / "lib").glob("libopwright.so*"), ROOT / "build/dev/src/libopwright.so"]
    command += [library for library in libraries if library.exists()][:1]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def creator(library):
    registry = trt.get_plugin_registry()
    assert registry.load_library(str(library)) is not None
    return registry.get_creator("ScaledSum", "1", "")


def fields(a: float):
    values = np.array([a], np.float32)
    return trt.PluginFieldCollection([trt.PluginField("a", values, trt.PluginFieldType.FLOAT32)])


def engine_of(creator, fp16=False, a=2.0):
    net = network() if fp16 else strongly_typed()
    x = net.add_input("x0", trt.float32, (-1, 33))
    plugin = creator.create_plugin("sum", fields(a), trt.TensorRTPhase.BUILD)
    layer = net.add_plugin_v3([x], [], plugin)
    shapes = {"x0": ((1, 33), (64, 33), (512, 33))}
    return build(net, layer.get_output(0), shapes=shapes, fp16=fp16)


@pytest.mark.parametrize("fp16", [False, True], ids=["fp32", "fp16 allowed"])
def test_it_runs_and_its_tactics_are_timed(creator, gpu, stream, rng, fp16):
    engine = engine_of(creator, fp16)
    (layer,) = [layer for layer in engine.layers if layer["Candidates"]]
    assert {int(option["TacticValue"]) for option in layer["Candidates"]} == {1, 2}
    for rows in (64, 512, 1):
        x = rng.uniform(-0.1, 0.1, (rows, 33)).astype(np.float32)
        runner = Runner(engine, x)
        for _ in range(6):  # a graph is captured after some
            (y,) = runner.run(stream)
            limit = 2e-2 if fp16 else 1e-4
            np.testing.assert_allclose(y, 2 * x + x.sum(dtype=float), atol=limit)


def test_it_is_found_when_the_engine_is_loaded(creator, tmp_path, rng):
    engine_of(creator, a=3.0).save(tmp_path / "sum.engine")
    x = rng.random((5, 33), np.float32)
    y = trt.load(tmp_path / "sum.engine")(x)
    np.testing.assert_allclose(y, 3 * x + x.sum(dtype=float), rtol=1e-4)


def test_the_program_loads_it(creator, library, program, tmp_path, rng):
    engine_of(creator).save(tmp_path / "sum.engine")
    x = rng.random((5, 33), np.float32)
    np.save(tmp_path / "x.npy", x)
    command = [program, "run", tmp_path / "sum.engine", "--plugins", library, "--allow-device-code"]
    command += ["--input", f"x0={tmp_path / 'x.npy'}", "--output", f"y0={tmp_path / 'y.npy'}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), 2 * x + x.sum(dtype=float), rtol=1e-4)
