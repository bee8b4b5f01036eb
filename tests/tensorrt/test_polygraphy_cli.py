"""The program polygraphy, unmodified, in processes of its own, on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.helper
import pytest

import opwright
import small_models

PROGRAM = Path(sys.executable).with_name("polygraphy")
SHAPES = [
    "--trt-min-shapes=x:[1,3,8,8]",
    "--trt-opt-shapes=x:[2,3,8,8]",
    "--trt-max-shapes=x:[4,3,8,8]",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("polygraphy")
    onnx.save(small_models.convolution(batch="n"), folder / "model.onnx")
    return folder


def polygraphy(folder, *arguments, fails=False):
    """What the program prints."""
    run = subprocess.run(
        [sys.executable, "-m", "opwright.trt", str(PROGRAM), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OPWRIGHT_DEVICE": "cpu", "OPWRIGHT_ALLOW_DEVICE_CODE": "1"},
    )
    output = run.stdout + run.stderr
    assert (run.returncode != 0) == fails, output
    return output


@pytest.fixture(scope="module")
def engine(folder):
    """The path of an engine that polygraphy has converted the model to."""
    polygraphy(folder, "convert", "model.onnx", "-o", "model.engine", *SHAPES)
    return folder / "model.engine"


def test_convert(engine):
    x = np.random.default_rng(3).normal(size=(4, 3, 8, 8)).astype(np.float32)
    y = opwright.load(engine, device="cpu")(x)
    built = opwright.build(
        small_models.convolution(batch="n"),
        device="cpu",
        timing=False,
        shapes={"x": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))},
    )
    np.testing.assert_allclose(y, built(x), rtol=0, atol=1e-4)


def test_inspect_a_model(folder):
    told = polygraphy(
        folder, "inspect", "model", "model.onnx", "--convert-to=trt", "--show", "layers", "attrs"
    )
    assert "conv [Op: LayerType.CONVOLUTION]" in told and "conv.padding_nd = (1, 1)" in told
    assert "Error" not in told


def test_inspect_an_engine(folder, engine):
    told = polygraphy(folder, "inspect", "model", "model.engine", "--show", "layers")
    assert "TensorRT Engine" in told and "conv + relu [Op: Convolution]" in told
    assert "min=(1, 3, 8, 8), opt=(2, 3, 8, 8), max=(4, 3, 8, 8)" in told


def test_inspect_capability(folder):
    pytest.importorskip("onnx_graphsurgeon")
    assert "fully supported" in polygraphy(folder, "inspect", "capability", "model.onnx")


def test_inspect_sparsity(folder):
    assert "model.onnx" in polygraphy(folder, "inspect", "sparsity", "model.onnx")


def test_options_of_convert(folder):
    polygraphy(
        folder,
        "convert",
        "model.onnx",
        "-o",
        "all.engine",
        *SHAPES,
        "--bf16",
        "--tf32",
        "--sparse-weights",
        "--builder-optimization-level=2",
        "--max-aux-streams=1",
        "--pool-limit",
        "workspace:1M",
        "--profiling-verbosity=detailed",
        "--precision-constraints=obey",
        "--layer-precisions",
        "conv:float32",
        "--tensor-dtypes",
        "y:float16",
        "--save-timing-cache=timing.cache",
        "--trt-outputs",
        "y",
        "c",
    )
    engine = opwright.load(folder / "all.engine", device="cpu")
    results = engine(np.ones((1, 3, 8, 8), np.float32))
    y, c = results["y"], results["c"]
    assert y.dtype == np.float16 and c.dtype == np.float32
    np.testing.assert_allclose(y, np.maximum(c, 0), atol=0.05)
    assert (folder / "timing.cache").stat().st_size > 0


def test_what_is_not_here_says_so(folder):
    told = polygraphy(
        folder,
        "convert",
        "model.onnx",
        "-o",
        "x.engine",
        *SHAPES,
        "--trt-safety-restricted",
        fails=True,
    )
    assert "SAFETY_SCOPE is set, but this is not here" in told


def test_a_script_is_made(folder):
    made = polygraphy(
        folder,
        "run",
        "model.onnx",
        "--trt",
        *SHAPES,
        "--input-shapes=x:[2,3,8,8]",
        "--gen-script=script.py",
    )
    assert (folder / "script.py").is_file(), made
    text = (folder / "script.py").read_text()
    assert "EngineBytesFromNetwork" in text and "TrtRunner" in text


def test_run_needs_the_cuda_runtime(folder):
    """Inference through polygraphy copies with the CUDA runtime; the engine is built before that."""
    told = polygraphy(
        folder, "run", "model.onnx", "--trt", "--input-shapes=x:[2,3,8,8]", fails=True
    )
    assert "Finished engine building" in told


def test_template_of_a_network(folder):
    polygraphy(folder, "template", "trt-network", "model.onnx", "-o", "network.py")
    told = polygraphy(folder, "inspect", "model", "network.py", "--model-type=trt-network-script")
    assert "TensorRT Network" in told and "4 Layer(s)" in told


def test_template_of_a_config(folder):
    polygraphy(folder, "template", "trt-config", "--bf16", *SHAPES, "-o", "config.py")
    polygraphy(
        folder, "convert", "model.onnx", "-o", "scripted.engine", "--trt-config-script=config.py"
    )
    assert (folder / "scripted.engine").is_file()
