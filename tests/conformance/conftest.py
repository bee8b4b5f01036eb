"""Runs each test of this folder in a process of its own."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import case_server

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"


@pytest.fixture(scope="session", autouse=True)
def server(tmp_path_factory):
    """From which the tests' processes are forked."""
    imported = ["cases", "onnx.helper", "onnx.parser", "pytest"]
    server = case_server.Server(tmp_path_factory.mktemp("cases"), HERE, imported)
    yield server
    server.stop()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Calls the test in another process; its arguments are text."""
    function = pyfuncitem.function
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(function).parameters}
    status, output = case_server.run(function.__module__, function.__name__, **arguments)
    if status != 0:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        pytest.fail(f"{output}\nthe test's process ended with {how}", pytrace=False)
    return True


# Fixtures are text, which goes to another process.


def output_of(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path) -> str:
    return str(tmp_path)


@pytest.fixture(scope="session")
def program() -> str:
    """The native program: $OPWRIGHT_PROGRAM, else beside the interpreter."""
    return os.environ.get("OPWRIGHT_PROGRAM") or str(Path(sys.executable).with_name("opwright"))


@pytest.fixture(scope="session")
def pad_library(tmp_path_factory) -> str:
    """A library with the plugins in pads/, which CMake builds as a user's."""
    cmake_dir = output_of(sys.executable, "-m", "opwright", "--cmake-dir").strip()
    build = tmp_path_factory.mktemp("pads")
    settings = [f"-DOpwright_DIR={cmake_dir}"]
    if shutil.which("ccache"):
        settings.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    output_of("cmake", "-S", HERE / "pads", "-B", build, *settings)
    output_of("cmake", "--build", build)
    return str(build / "libpads.so")


@pytest.fixture(scope="session")
def nvidia_package() -> str:
    """NVIDIA's package tensorrt.plugin, which tools/setup.py puts beside the environment: in it, it would be in the
    way of ours."""
    folder = BUILD / "tensorrt-bindings" / "tensorrt_bindings" / "plugin"
    if not folder.is_dir():
        pytest.skip("no tensorrt-cu13-bindings: make setup, with PyPI in reach")
    return str(folder)


@pytest.fixture(scope="session")
def tensorrt_python(tmp_path_factory) -> str:
    """The interpreter of an environment with this one's packages, in which `import tensorrt` gives Opwright."""
    environment = tmp_path_factory.mktemp("tensorrt")
    output_of(sys.executable, "-m", "venv", "--without-pip", environment)
    (site,) = (environment / "lib").glob("python*/site-packages")
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "here.pth").write_text("\n".join(here))
    python = environment / "bin" / "python"
    output_of(python, "-m", "opwright", "tensorrt", "install")
    return str(python)
