"""The samples of circular padding run, with both precisions, and find their results right."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

from paths import SAMPLES

FOLDER = SAMPLES / "python_plugin"


def run(script: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, FOLDER / f"circ_pad_plugin_{script}.py", *map(str, arguments)]
    environment = {**os.environ, "OPWRIGHT_DEVICE": "cpu", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def passes(script: str, precision: str, *arguments: object) -> str:
    """What the sample logs."""
    done = run(script, "--precision", precision, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = f"passed: circ_pad_plugin_{script}, {precision}, largest error 0\n"
    assert done.stdout == verdict
    return done.stderr


def need(*packages: str) -> None:
    """Skips where the extra "samples" of pyproject.toml leaves a package out for this Python."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing and sys.version_info[:2] != (3, 11):
        pytest.skip(f"{missing} not installed for this version of Python")


both_precisions = pytest.mark.parametrize("precision", ["fp32", "fp16"])


@both_precisions
@pytest.mark.parametrize("framework", ["numpy", "numba", "torch", "triton"])
def test_one_framework(framework, precision):
    need(*(["torch", "triton"] if framework == "triton" else [framework]))
    assert passes(framework, precision) == ""


@both_precisions
def test_cpp(plugin_dir, precision):
    assert passes("cpp", precision, "--plugin-lib", plugin_dir / "circ_pad_sample.so") == ""


@pytest.mark.parametrize(
    "precision, flags, tactics",
    [("fp32", [], 2), ("fp16", [], 2), ("fp16", ["--per-format-tactics"], 1)],
)
def test_multi_tactic(precision, flags, tactics):
    need("torch", "triton")
    log = passes("multi_tactic", precision, *flags)
    counts = [
        f"Layer 'CircPadPlugin_0' (PluginV3 'CircPadPlugin'): {tactics} candidates, {tactics} timed",
        f"Layer 'CircPadPlugin_1' (PluginV3 'CircPadPlugin'): {tactics} candidates, 0 timed",
    ]
    assert all(text in log for text in counts), log
    assert log.count("as layer 'CircPadPlugin_0'") == tactics


@pytest.mark.parametrize("script", ["cupy", "cuda_python", "inetdef_cuda_python"])
def test_without_a_gpu(script):
    done = run(script, OPWRIGHT_CUDA_DRIVER="/nowhere/libcuda.so")
    assert done.returncode == 2
    assert "This sample needs a GPU: the GPU was asked for, but " in done.stderr


def test_the_samples_find_wrong_results(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import common

    x = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
    left, right, above, below = common.PADS
    y = np.pad(x, [(0, 0), (0, 0), (above, below), (left, right)], mode="wrap")
    assert common.error(y, x) == 0
    y[1, 2, 3, 4] += 0.5
    assert common.error(y, x) == pytest.approx(0.5)
    y[0] = np.nan
    assert np.isnan(common.error(y, x))
    with pytest.raises(SystemExit, match="FAILED"):
        common.error(y[..., 1:], x)
