"""A GPU for tests that need none: the emulated CUDA driver and NVRTC of tests/emulation.

Import it at the top of a test module. That sets OPWRIGHT_CUDA_DRIVER, OPWRIGHT_NVRTC and OPWRIGHT_DEVICE=cpu before
any test runs, so that the GPU is there for those who ask for it (`device="cuda"`) and for nobody else. Those variables
count where they are set already, so the tests run on a real GPU, too. Where neither is there the tests are skipped::

    import emulated_gpu
    from emulated_gpu import DeviceArray

    pytestmark = emulated_gpu.required
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
_DEFAULT = ROOT / "build" / "dev" / "tests" / "emulation"


def _find(pattern: str) -> Path | None:
    folder = Path(os.environ.get("OPWRIGHT_EMULATION_DIR", _DEFAULT))
    return next(iter(sorted(folder.rglob(pattern))), None)


def _choose(variable: str, pattern: str) -> str | None:
    if variable not in os.environ and (path := _find(pattern)) is not None:
        os.environ[variable] = str(path)
    return os.environ.get(variable)


DRIVER = _choose("OPWRIGHT_CUDA_DRIVER", "libcuda.so*")
NVRTC = _choose("OPWRIGHT_NVRTC", "libnvrtc.so*")
if DRIVER is not None:
    os.environ.setdefault("OPWRIGHT_DEVICE", "cpu")


def _runtime_environment() -> dict[str, str]:
    runtime, emulated = _find("libcudart.so.*"), _find("libcuda.so*")
    if DRIVER is None or runtime is None or emulated is None:
        return {}
    if os.path.realpath(DRIVER) != os.path.realpath(emulated):
        return {}
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        "LD_LIBRARY_PATH": os.pathsep.join([str(runtime.parent), *([before] if before else [])])
    }


#: With it, programs that look for CUDA's runtime library find the one over the emulated driver; empty on a real GPU.
RUNTIME_ENVIRONMENT = _runtime_environment()

required = pytest.mark.skipif(
    DRIVER is None,
    reason="neither tests/emulation is built (OPWRIGHT_EMULATION_DIR) nor OPWRIGHT_CUDA_DRIVER set",
)


def run_program(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python source in a process of its own: for faults of the driver, which it reads at its start."""
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parent,
    )


class DriverError(Exception):
    """A function of the driver failed."""


_NOT_READY = 600


class Driver:
    """Some functions of the driver, called within the primary context of a device."""

    def __init__(self) -> None:
        assert DRIVER is not None
        self._library = ctypes.CDLL(DRIVER)
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise DriverError(f"{name}: {result}")

    def call(self, name: str, *arguments: Any, device: int = 0) -> None:
        """Within the device's primary context. Raises DriverError."""
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context
        self._call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            self._call(name, *arguments)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def call_here(self, name: str, *arguments: Any) -> None:
        """Within the context that the thread works in, as in a plugin's function."""
        self._call(name, *arguments)

    def allocate(self, num_bytes: int, device: int = 0) -> int:
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(max(num_bytes, 1))
        self.call("cuMemAlloc_v2", ctypes.byref(address), size, device=device)
        return address.value

    def free(self, address: int, device: int = 0) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address), device=device)

    def write(self, address: int, values: np.ndarray, device: int = 0) -> None:
        values = np.ascontiguousarray(values)
        size, data = ctypes.c_size_t(values.nbytes), ctypes.c_void_p(values.ctypes.data)
        if values.nbytes:
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, size, device=device)

    def read(self, address: int, shape: tuple[int, ...], dtype: Any, device: int = 0) -> np.ndarray:
        """What lies in device memory once all work is done."""
        self.synchronize(device)
        values = np.empty(shape, dtype)
        size, data = ctypes.c_size_t(values.nbytes), ctypes.c_void_p(values.ctypes.data)
        if values.nbytes:
            self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), size, device=device)
        return values

    def make_stream(self, device: int = 0) -> int:
        """A stream that does not wait for the default one."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1, device=device)
        return int(stream.value or 0)

    def synchronize(self, device: int = 0) -> None:
        self.call("cuCtxSynchronize", device=device)

    def fail(self, function: str, result: int, after_calls: int = 0) -> None:
        """Emulation only: the call of the function after so many more answers `result`, once."""
        self._library.opwright_emulation_fail(function.encode(), result, after_calls)

    def calls(self, function: str) -> int:
        """Emulation only: how often the function, named without a version, was called so far."""
        count = self._library.opwright_emulation_calls
        count.restype = ctypes.c_long
        return int(count(function.encode()))

    def is_done(self, stream: int, device: int = 0) -> bool:
        """Whether nothing is left to do on the stream."""
        try:
            self.call("cuStreamQuery", ctypes.c_void_p(stream), device=device)
        except DriverError as error:
            if str(error) != f"cuStreamQuery: {_NOT_READY}":
                raise
            return False
        return True


_driver: Driver | None = None


def driver() -> Driver:
    """The driver of this process."""
    global _driver
    if _driver is None:
        _driver = Driver()
    return _driver


class DeviceArray:
    """A dense array in GPU memory as other libraries have them, with __cuda_array_interface__.

    `stream` is what its memory is written on, as the interface tells it.
    """

    def __init__(self, values: Any, device: int = 0, stream: int | None = None):
        host = np.asarray(values)
        self.shape, self.dtype, self.device = host.shape, host.dtype, device
        self.nbytes, self.stream = host.nbytes, stream
        self.ptr = driver().allocate(host.nbytes, device)
        driver().write(self.ptr, host, device)

    def __del__(self) -> None:
        if _driver is not None and hasattr(self, "ptr"):
            _driver.free(self.ptr, self.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "version": 3,
            "strides": None,
            "stream": self.stream,
        }

    def numpy(self) -> np.ndarray:
        """Its values once all work is done."""
        return driver().read(self.ptr, self.shape, self.dtype, self.device)


def read_interface(array: Any) -> np.ndarray:
    """What an object with __cuda_array_interface__ holds once all work is done."""
    interface = array.__cuda_array_interface__
    assert interface["strides"] is None
    return driver().read(interface["data"][0], interface["shape"], interface["typestr"])
