"""The quickly deployable plugins run, each with its flags, and find their results right."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from paths import SAMPLES

FOLDER = SAMPLES / "quickly_deployable_plugins"
MISSING = [n for n in ("numba", "torch", "triton") if importlib.util.find_spec(n) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"{MISSING} not installed for this version of Python"
)


def run(*command: object) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OPWRIGHT_DEVICE": "cpu"}
    command = tuple(map(str, command))
    return subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True)


def passes(arguments: str) -> str:
    """What the runner logs."""
    done = run(sys.executable, "qdp_runner.py", *arguments.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"passed: {arguments.split()[0]}, largest error 0\n"
    return done.stderr


def timed(log: str) -> set[tuple[str, str]]:
    """The types and tactics in the tuner's table."""
    return set(re.findall(r"^ +\*? +(\S+ -> \S.*?)  +(\d+) +[\d.]+ [num]?s ", log, re.M))


def test_without_flags():
    # In one process, since most of each other test's time goes to importing the frameworks.
    script = """
import sys, qdp_runner
for command in ("add", "inplace_add", "non_zero", "circ_pad"):
    sys.argv = ["qdp_runner.py", command]
    assert qdp_runner.main() == 0
"""
    done = run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 4 and done.stderr == ""


@pytest.mark.parametrize("command", ["add", "inplace_add"])
def test_add_tuned(command):
    log = passes(f"{command} --autotune --verbose")
    assert timed(log) == {("FP32 -> FP32", "0"), ("FP16 -> FP16", "0")}
    for dtype in ("FLOAT", "HALF"):
        called = f"Executing for inp0.dtype=DataType.{dtype}, outputs[0].dtype=DataType.{dtype}"
        assert log.count(called) > 1


def test_non_zero():
    log = passes("non_zero -v")
    assert timed(log) == {("FP32 -> INT32, INT32", "0"), ("FP16 -> INT32, INT32", "0")}


TACTICS = {(f"{t} -> {t}", tactic) for t in ("FP32", "FP16") for tactic in "12"}


@pytest.mark.parametrize("flags", ["--mode onnx", "--mode inetdef --aot"])
def test_circ_pad_with_tactics(flags):
    assert timed(passes(f"circ_pad --multi_tactic -v {flags}")) == TACTICS


def test_circ_pad_saved(tmp_path):
    folder = f"--artifacts_dir {tmp_path}"
    assert passes(f"circ_pad --mode inetdef --save_engine {folder}") == ""
    log = passes(f"circ_pad --load_engine --verbose {folder}")
    assert log.count("Executing for inp0.dtype=DataType.FLOAT") == 1


def test_circ_pad_compiled_and_saved(tmp_path, program):
    folder = f"--artifacts_dir {tmp_path}"
    assert passes(f"circ_pad --mode onnx --aot --save_engine {folder}") == ""
    assert "Executing" not in passes(f"circ_pad --load_engine -v {folder}")
    # The engine needs no Python.
    x = np.random.default_rng(0).random((10, 3, 32, 32), np.float32)
    np.save(tmp_path / "x.npy", x)
    files = ["--input", f"x={tmp_path / 'x.npy'}", "--output", f"y={tmp_path / 'y.npy'}"]
    done = run(program, "run", tmp_path / "circ_pad.engine", "--allow-host-code", *files)
    assert done.returncode == 0, done.stderr
    expected = np.pad(x, [(0, 0), (0, 0), (3, 4), (1, 2)], mode="wrap")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_wrong_results_and_wrong_arguments():
    spoil = """
import sys, numpy as np, qdp_runner
reference = np.argwhere
for wrong in [
    lambda x: reference(x) + np.array([2, 0]),
    lambda x: reference(x)[1:],
]:
    np.argwhere, sys.argv = wrong, ["qdp_runner.py", "non_zero"]
    assert qdp_runner.main() == 1
sys.argv = ["qdp_runner.py", "circ_pad", "--load_engine"]
qdp_runner.main()
"""
    done = run(sys.executable, "-c", spoil)
    assert done.returncode == 2
    assert "--save_engine and --load_engine need --artifacts_dir" in done.stderr
    assert re.fullmatch(
        r"FAILED: non_zero, largest error 2\nFAILED: non_zero: the shape is \(\d+, 2\), expected "
        r"\(\d+, 2\)\n",
        done.stdout,
    )
