"""What of tests/gpu needs no framework passes on the emulated driver, too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import emulated_gpu

pytestmark = emulated_gpu.required
FOLDER = Path(__file__).resolve().parents[1] / "gpu"


@pytest.mark.parametrize("name", ["test_runtime"])
def test_of_a_gpu(name):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not frameworks and not faulty", str(FOLDER / f"{name}.py")]
    environment = {**os.environ, "OPWRIGHT_DEVICE": "cuda"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed", done.stdout, re.M), done.stdout


def test_without_a_gpu_all_are_skipped_with_the_reason():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
    environment = {**os.environ, "OPWRIGHT_CUDA_DRIVER": "/nowhere/libcuda.so.1"}
    done = subprocess.run(
        [*command, str(FOLDER / "test_runtime.py")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" not in done.stdout and "/nowhere/libcuda.so.1" in done.stdout
