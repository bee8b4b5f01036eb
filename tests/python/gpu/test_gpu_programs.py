"""Programs in TensorRT's own style, unmodified, by `python -m opwright.trt`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("on_gpu")

FOLDER = Path(__file__).resolve().parent / "programs"
NEEDS = {"torch_buffers": "torch", "cupy_buffers": "cupy", "cuda_python_buffers": "cuda_python"}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", NEEDS)
def test_program(name, request, tmp_path):
    request.getfixturevalue(NEEDS[name])
    command = [sys.executable, "-m", "opwright.trt", str(FOLDER / f"{name}.py")]
    environment = {key: value for key, value in os.environ.items() if key != "OPWRIGHT_DEVICE"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Inference result correct!" in done.stdout


def test_they_name_tensorrt_alone():
    for path in FOLDER.glob("*.py"):
        text = path.read_text()
        assert "import tensorrt as trt" in text and "opwright" not in text
