"""These tests run on an NVIDIA GPU; where there is none all are skipped, with the reason.

The driver may be another library than libcuda.so.1 (OPWRIGHT_CUDA_DRIVER). What needs a framework (torch,
CuPy, Triton...) asks for its fixture and is skipped where that is not there or sees no GPU.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

os.environ["OPWRIGHT_DEVICE"] = "cuda"  # before anything asks for the device

import driver
import numpy as np
import pytest

import opwright as trt

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))  # for the helpers that tests of both share


def obstacle() -> str:
    """Why there is no GPU; empty where there is one."""
    try:
        config = trt.Builder(trt.Logger()).create_builder_config()
        config.default_device_type = trt.DeviceType.GPU
        config.create_timing_cache(b"")  # asks for the device
    except trt.Error as error:
        return str(error)
    return ""


def pytest_configure(config):
    config.addinivalue_line("markers", "frameworks: loads torch, CuPy or another framework")
    config.addinivalue_line("markers", "driver: needs NVIDIA's driver, not an emulated one")
    config.addinivalue_line("markers", "faulty: makes the device fail, on purpose")


def pytest_collection_modifyitems(items):
    for item in items:
        if {"torch", "cupy", "triton", "numba_cuda"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("frameworks")
        if item.get_closest_marker("driver") and "OPWRIGHT_CUDA_DRIVER" in os.environ:
            item.add_marker(pytest.mark.skip(reason="needs NVIDIA's driver"))
    reason = obstacle()
    if reason:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def gpu():
    """The device's primary context, current on this thread; makes streams and buffers."""
    return driver.Driver()


@pytest.fixture
def stream(gpu):
    made = gpu.stream()
    yield made
    made.destroy()


@pytest.fixture(scope="session")
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return module


@pytest.fixture(scope="session")
def cupy():
    module = pytest.importorskip("cupy")
    if not module.cuda.is_available():
        pytest.skip("CuPy sees no GPU")
    return module


@pytest.fixture(scope="session")
def triton(torch):
    """Triton's own launcher, which works with torch's context."""
    return pytest.importorskip("triton")


@pytest.fixture(scope="session")
def numba_cuda():
    if "OPWRIGHT_CUDA_DRIVER" in os.environ:
        pytest.skip("Numba loads NVIDIA's driver alone")
    if not hasattr(np, "row_stack"):  # numba-cuda asks for what NumPy 2.5 has dropped
        np.row_stack = np.vstack
    module = pytest.importorskip("numba.cuda")
    if not module.is_available():
        pytest.skip("Numba sees no GPU")
    return module


@pytest.fixture(scope="session")
def cuda_python():
    """cuda-python's bindings: (driver, nvrtc)."""
    pytest.importorskip("cuda.bindings.driver")
    if "OPWRIGHT_CUDA_DRIVER" in os.environ:
        pytest.skip("cuda-python loads NVIDIA's driver alone")
    names = ("cuda.bindings.driver", "cuda.bindings.nvrtc")
    return tuple(importlib.import_module(name) for name in names)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def program() -> Path:
    """The native program: $OPWRIGHT_PROGRAM, else beside the interpreter, else of the build folder."""
    candidates = [
        Path(os.environ.get("OPWRIGHT_PROGRAM", "")),
        Path(sys.executable).with_name("opwright"),
        ROOT / "build" / "dev" / "cli" / "opwright",
    ]
    found = [path for path in candidates if path.is_file()]
    assert found, f"no program among {', '.join(map(str, candidates))}: make build"
    return found[0]
