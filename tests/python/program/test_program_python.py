"""`python -m opwright build|run|bench`: the program's commands with operators in Python."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opwright
from small_models import model

OPERATORS = """
    import numpy as np
    import opwright.plugin as trtp

    @trtp.register("cmd::scaled")
    def scaled(x: trtp.TensorDesc, factor: float = 2.0) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("cmd::scaled")
    def scaled_impl(x, factor, outputs, stream):
        np.multiply(x, np.float32(factor), out=np.asarray(outputs[0]))
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    node = helper.make_node("scaled", ["x"], ["y"], plugin_namespace="cmd", factor=3.0)
    ports = [(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    onnx.save(model([node], ports[:1], ports[1:]), folder / "m.onnx")
    (folder / "ops.py").write_text(textwrap.dedent(OPERATORS))
    np.save(folder / "x.npy", X)
    return folder


def run(folder: Path, *words: object, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OPWRIGHT_DEVICE": "cpu", **environment},
    )


def python(folder: Path, *arguments: object) -> subprocess.CompletedProcess:
    return run(folder, sys.executable, "-m", "opwright", *arguments)


BUILD = ["build", "m.onnx", "--plugins", "ops.py", "--shapes", "x:1x3,2x3,4x3"]


def test_operators_in_python(folder):
    done = python(folder, *BUILD, "-o", "e")
    assert done.returncode == 0, done.stderr
    loads = ["e", "--plugins", "ops.py", "--input", "x.npy"]
    done = python(folder, "run", *loads, "--output", "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "y.npy"), 3 * X)
    done = python(folder, "bench", *loads, "--iterations", "3")
    assert done.returncode == 0 and "median" in done.stdout, done.stderr
    done = python(
        folder, "trtexec", "--loadEngine=e", "--plugins=ops.py", "--iterations=3", "--duration=0"
    )
    assert done.returncode == 0 and "Throughput: " in done.stdout, done.stderr
    assert done.stdout.count("&&&& RUNNING") == 1


def test_the_native_program_becomes_python_for_them(folder, program):
    done = run(folder, program, *BUILD, "-o", "native", OPWRIGHT_PYTHON=sys.executable)
    assert done.returncode == 0 and (folder / "native").is_file(), done.stderr


def test_embedded_operators(folder):
    embeds = [word.replace("--plugins", "--embed-plugins") for word in BUILD]
    done = python(folder, *embeds, "-o", "whole")
    assert done.returncode == 0, done.stderr
    done = python(
        folder, "run", "whole", "--allow-host-code", "--input", "x.npy", "--output", "z.npy"
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(folder / "z.npy"), 3 * X)


def test_the_native_program_says_that_this_is_the_way(folder, program):
    done = run(folder, program, "build", "m.onnx", "-o", "never")
    assert done.returncode == 1
    assert "'scaled'" in done.stderr and "python -m opwright build" in done.stderr


@pytest.mark.parametrize(
    "text, match",
    [
        ("import no_such_module", 'ModuleNotFoundError.*bad.py", line 1'),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("\n1 / 0", "ZeroDivisionError.*line 2"),
    ],
)
def test_files_that_fail(folder, text, match):
    (folder / "bad.py").write_text(text)
    done = python(folder, "build", "m.onnx", "-o", "never", "--plugins", "bad.py")
    assert done.returncode == 1 and "'bad.py' raised" in done.stderr
    assert all(part in done.stderr for part in match.split(".*")), done.stderr
    done = python(folder, "build", "m.onnx", "-o", "never", "--plugins", "none.py")
    assert done.returncode == 1 and "none.py" in done.stderr


def test_the_options_are_the_native_programs(folder, program):
    native = run(folder, program, "build", "--help").stdout
    ours = python(folder, "build", "--help").stdout
    assert "--embed-plugins" in native
    assert ours.replace("python -m opwright", "opwright").split() == native.split()
    done = python(folder, "build", "m.onnx", "--outptu", "e")
    assert done.returncode == 2 and "did you mean '--output'?" in done.stderr
    assert "build" in python(folder, "--help").stdout
    done = python(folder, "buidl", "m.onnx")
    assert done.returncode == 2 and "no command 'buidl'; did you mean 'build'?" in done.stderr
    assert python(folder, "--version").stdout.strip() == opwright.__version__
