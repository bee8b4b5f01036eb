"""Fixtures of the tests on a GPU: the emulated one, or NVIDIA's where tests/emulation is not built or
OPWRIGHT_CUDA_DRIVER names NVIDIA's driver.

What needs a framework (torch, CuPy, Triton...) asks for its fixture and is skipped where that is not there or sees
no GPU.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

import cuda_driver
import emulated_gpu

FOLDER = Path(__file__).resolve().parent
FRAMEWORKS = {"torch", "cupy", "triton", "numba_cuda"}


def pytest_configure(config):
    config.addinivalue_line("markers", "frameworks: loads torch, CuPy or another framework")
    config.addinivalue_line(
        "markers", "nvidia: needs a GPU of NVIDIA's, or is slow on an emulated one"
    )
    config.addinivalue_line("markers", "faulty: makes the device fail, on purpose")


def pytest_collection_modifyitems(items):
    for item in items:
        if FOLDER not in item.path.parents:
            continue
        if FRAMEWORKS & set(getattr(item, "fixturenames", ())):
            item.add_marker("frameworks")
        if item.get_closest_marker("nvidia") and emulated_gpu.IS_EMULATED:
            item.add_marker(pytest.mark.skip(reason="needs a GPU of NVIDIA's"))
        item.add_marker(emulated_gpu.required)


@pytest.fixture(scope="module")
def on_gpu():
    """The GPU is the device of engines for which a test names none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPWRIGHT_DEVICE", "cuda")
        yield


@pytest.fixture
def gpu(on_gpu):
    """The driver; the GPU's primary context is current on this thread."""
    cuda_driver.driver().make_current()
    return cuda_driver.driver()


@pytest.fixture
def stream(gpu):
    made = cuda_driver.Stream()
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
    if emulated_gpu.IS_EMULATED:
        pytest.skip("Numba loads NVIDIA's driver only")
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
    if emulated_gpu.IS_EMULATED:
        pytest.skip("cuda-python loads NVIDIA's driver only")
    names = ("cuda.bindings.driver", "cuda.bindings.nvrtc")
    return tuple(importlib.import_module(name) for name in names)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
