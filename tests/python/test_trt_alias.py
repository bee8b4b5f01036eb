"""`python -m opwright.trt`: programs that import tensorrt."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import tensorrt as trt
import tensorrt.plugin as trtp
from tensorrt.plugin import TensorDesc

assert trt.plugin is trtp and trtp.TensorDesc is TensorDesc
assert int(trt.__version__.split(".")[0]) >= 10
assert trt.nptype(trt.float32)(1) == 1 and trt.volume((2, 3)) == 6 and trt.bool.itemsize == 1
network = trt.Builder(trt.Logger()).create_network(0)
y = network.add_unary(network.add_input("x", trt.float32, (3,)), trt.UnaryOperation.NEG)
assert tuple(y.get_output(0).shape) == (3,)
import helper

print(__name__, sys.argv[1:], helper.NAME)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("NAME = 'beside the program'")
    return tmp_path


def run(folder, *arguments):
    command = [sys.executable, "-m", "opwright.trt", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [["program.py"], ["-m", "program"]])
def test_a_program_runs_as_python_runs_it(folder, arguments):
    done = run(folder, *arguments, "--name", "value")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ ['--name', 'value'] beside the program\n"


def test_what_a_program_raises_and_its_status(folder):
    (folder / "program.py").write_text("import tensorrt, sys\nsys.exit(3)")
    assert run(folder, "program.py").returncode == 3
    (folder / "program.py").write_text("import tensorrt\nraise KeyError('here')")
    done = run(folder, "program.py")
    assert done.returncode == 1 and "KeyError: 'here'" in done.stderr


def test_usage(folder):
    assert "usage: python -m opwright.trt" in run(folder, "--help").stdout
    done = run(folder)
    assert done.returncode == 1 and "usage" in done.stderr


def test_tensorrt_that_is_imported_already(folder):
    (folder / "tensorrt.py").write_text("")
    (folder / "program.py").write_text(
        "import tensorrt, opwright.trt\n"
        "try:\n    opwright.trt.install()\n"
        "except ImportError as error:\n    print(error)"
    )
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert "TensorRT is imported already" in done.stdout, done.stderr
