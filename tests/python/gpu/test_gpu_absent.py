"""Without any GPU the tests of one are skipped, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_without_a_gpu_all_are_skipped_with_the_reason():
    file = Path(__file__).with_name("test_gpu_runtime.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", str(file)]
    environment = {**os.environ, "OPWRIGHT_CUDA_DRIVER": "/nowhere/libcuda.so.1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" not in done.stdout and "/nowhere/libcuda.so.1" in done.stdout
