"""A GPU for tests that need none: the emulated CUDA driver and NVRTC of tests/emulation.

Import it at the top of a test module. That sets OPWRIGHT_CUDA_DRIVER, OPWRIGHT_NVRTC,
OPWRIGHT_NCCL and OPWRIGHT_DEVICE=cpu before any test runs. So only tests that request the GPU (`device="cuda"`) use
it. Variables that are already set keep their values. Without the emulation the tests run on NVIDIA's
GPU, and without any GPU they are skipped::

    import emulated_gpu
    from cuda_driver import DeviceArray

    pytestmark = emulated_gpu.required
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import paths
from paths import ROOT

_DEFAULT = ROOT / "build" / "dev" / "tests" / "emulation"


def _find(pattern: str) -> Path | None:
    folder = Path(os.environ.get("OPWRIGHT_EMULATION_DIR", _DEFAULT))
    return next(iter(sorted(folder.rglob(pattern))), None)


def _choose(variable: str, pattern: str) -> str | None:
    if variable not in os.environ and (path := _find(pattern)) is not None:
        os.environ[variable] = str(path)
    return os.environ.get(variable)


def _is_there(driver: str) -> bool:
    """Loads no emulated driver: other libraries of the process would then find it in NVIDIA's place."""
    if "/" in driver:
        return os.path.isfile(driver)
    try:
        ctypes.CDLL(driver)
    except OSError:
        return False
    return True


DRIVER = _choose("OPWRIGHT_CUDA_DRIVER", "libcuda.so*") or "libcuda.so.1"
NVRTC = _choose("OPWRIGHT_NVRTC", "libnvrtc.so*")
_emulated = _find("libcuda.so*")
IS_EMULATED = _emulated is not None and os.path.realpath(DRIVER) == os.path.realpath(_emulated)
NCCL = _choose("OPWRIGHT_NCCL", "libnccl.so.2") if IS_EMULATED else None
_has_driver = _is_there(DRIVER)
if _has_driver:
    os.environ.setdefault("OPWRIGHT_DEVICE", "cpu")


def _runtime_environment() -> dict[str, str]:
    runtime = _find("libcudart.so.*")
    if not IS_EMULATED or runtime is None:
        return {}
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        "LD_LIBRARY_PATH": os.pathsep.join([str(runtime.parent), *([before] if before else [])])
    }


#: With this environment, programs that look for CUDA's runtime library find the one over the
#: emulated driver; empty on a real GPU.
RUNTIME_ENVIRONMENT = _runtime_environment()

required = pytest.mark.skipif(
    not _has_driver,
    reason=f"there is no GPU: {DRIVER} cannot be loaded, and tests/emulation is not built"
    " (OPWRIGHT_EMULATION_DIR)",
)
#: For what asks the emulation for faults, for counts of calls, or for its libraries.
emulated_only = pytest.mark.skipif(
    not IS_EMULATED, reason="needs the emulated GPU (OPWRIGHT_EMULATION_DIR)"
)


def run_program(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python source in a process of its own, for injected faults, which the driver reads at
    its start."""
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**paths.environment("gpu"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
