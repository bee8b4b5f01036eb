"""The operator of samples/aot is compiled from each kind of source, runs without Python, and is right."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "aot"


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OPWRIGHT_DEVICE": "cpu", "OPWRIGHT_PROGRAM": str(program)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("source", ["cpp", "numba"])
def test_kernel_for_the_cpu(source, program, tmp_path):
    if importlib.util.find_spec("numba") is None:
        pytest.skip("numba not installed for this version of Python")
    done = run(program, "run.py", source, "--artifacts_dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(rf"passed: {source}, (\w+), .* in the native program too\n", done.stdout)
    assert found == ["fp32", "fp16"]
    # What the program wrote last, once more without the sample's own arithmetic.
    x, scale, y = (np.load(tmp_path / f"{name}.npy").astype(float) for name in ("x", "scale", "y"))
    assert x.shape == (3, 77) and np.load(tmp_path / "y.npy").dtype == np.float16
    rms = np.linalg.norm(x, axis=1, keepdims=True) / np.sqrt(77)
    np.testing.assert_allclose(y, x / rms * scale, rtol=0, atol=1e-3)


def test_wrong_results_are_found(program):
    spoil = """
import sys, numpy as np, run
right = run.run_program
run.run_program = lambda *arguments: right(*arguments) + np.float16(0.01)
sys.argv = ["run.py", "cpp"]
sys.exit(run.main())
"""
    done = run(program, "-c", spoil)
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("FAILED: cpp") == 2
    done = run(program, "run.py", "fortran")
    assert done.returncode == 2
    assert "'fortran' is none of cpp, numba" in done.stderr
