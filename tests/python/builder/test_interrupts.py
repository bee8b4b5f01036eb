"""Builds for the CPU that are interrupted: they end soon and keep the times that they have taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opwright as trt
from small_models import model

LAYERS = 60


def chain() -> onnx.ModelProto:
    """Products that all differ, so that tuning them takes long."""
    nodes, weights, width = [], {}, 400
    for i in range(LAYERS):
        weights[f"w{i}"] = np.full((width + i, width + i + 1), 1e-3, np.float32)
        nodes.append(helper.make_node("MatMul", [f"x{i}" if i else "x", f"w{i}"], [f"x{i + 1}"]))
    output = (f"x{LAYERS}", TensorProto.FLOAT, [8192, width + LAYERS])
    return model(nodes, [("x", TensorProto.FLOAT, [8192, width])], [output], weights)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("interrupts")
    onnx.save(chain(), folder / "m.onnx")
    return folder


SCRIPT = """
import signal
import opwright
signal.signal(signal.SIGINT, signal.default_int_handler)
print("building", flush=True)
try:
    opwright.build("m.onnx", device="cpu", timing_cache="python.times", {options})
except KeyboardInterrupt:
    print("interrupted")
else:
    print("done")
"""


def interrupted_while_timing(
    command: list[str], folder: Path, times: Path, by: int = signal.SIGINT
):
    """The same of a build that has measured something by then."""
    for seconds in (1, 4, 16):  # the first is enough where nothing else runs
        times.unlink(missing_ok=True)
        result = interrupted(command, folder, by, seconds)
        if times.exists() and known(times) > 0:
            break
    return result


def interrupted(
    command: list[str], folder: Path, by: int = signal.SIGINT, after_seconds: float = 1
):
    """What it wrote, its status, and how long it went on."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "OPWRIGHT_DEVICE": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if command[0] == sys.executable:
        assert process.stdout is not None and process.stdout.readline() == "building\n"
    time.sleep(after_seconds)
    start = time.monotonic()
    process.send_signal(by)
    out, err = process.communicate(timeout=60)
    return out, err, process.returncode, time.monotonic() - start


def known(path: Path) -> int:
    """How many times the file has."""
    config = trt.Builder(trt.Logger()).create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    return len(config.create_timing_cache(path.read_bytes()).queryKeys())


@pytest.mark.parametrize("options", ["", "progress=lambda *step: True"], ids=["quiet", "shown"])
def test_python(folder, options):
    times = folder / "python.times"
    command = [sys.executable, "-c", SCRIPT.format(options=options)]
    out, err, _, seconds = interrupted_while_timing(command, folder, times)
    assert out == "interrupted\n" and seconds < 5, (out, err, seconds)
    first = known(times)
    assert 0 < first < 2 * LAYERS
    out, err, _, _ = interrupted(command, folder, after_seconds=4)
    assert out == "done\n" or known(times) > first, (out, err)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_the_program(program, folder, by):
    times = folder / f"{by.name}.times"
    command = [str(program), "build", "m.onnx", "-o", "m.engine", "--timing-cache", times.name]
    out, err, status, seconds = interrupted_while_timing(command, folder, times, by)
    assert status == 130 and seconds < 5, (out, err, status)
    assert f"The build was interrupted ({by.name}); the next one goes on from" in err
    assert known(times) > 0 and not (folder / "m.engine").exists()
    assert "interrupted" in interrupted(command[:-2], folder, by)[1]
