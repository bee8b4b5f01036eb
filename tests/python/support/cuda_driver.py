"""The CUDA driver by ctypes, and arrays in a GPU's memory, with nothing but NumPy.

The driver is the library that OPWRIGHT_CUDA_DRIVER names, else NVIDIA's. `emulated_gpu` sets the variable.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np


class DriverError(Exception):
    """A function of the driver failed."""


_NOT_READY = 600


class Driver:
    """Some functions of the driver, called within the primary context of a device."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ.get("OPWRIGHT_CUDA_DRIVER", "libcuda.so.1"))
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self.call_here("cuInit", 0)

    def _context(self, device: int) -> ctypes.c_void_p:
        """The device's primary context."""
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self.call_here("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context
        return self._contexts[device]

    def call(self, name: str, *arguments: Any, device: int | None = 0) -> None:
        """Calls a function within the device's primary context; None: the thread's current context. Raises
        DriverError."""
        if device is None:
            self.call_here(name, *arguments)
            return
        self.call_here("cuCtxPushCurrent_v2", self._context(device))
        try:
            self.call_here(name, *arguments)
        finally:
            self.call_here("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def call_here(self, name: str, *arguments: Any) -> None:
        """Calls a function within the thread's current context, as a plugin's function does."""
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise DriverError(f"{name}: {result}")

    def make_current(self, device: int = 0) -> None:
        """Makes the device's primary context the thread's current one."""
        self.call_here("cuCtxSetCurrent", self._context(device))

    def count(self) -> int:
        """The number of GPUs."""
        count = ctypes.c_int()
        self.call_here("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def allocate(self, num_bytes: int, device: int | None = 0) -> int:
        address = ctypes.c_uint64()
        size = ctypes.c_size_t(max(num_bytes, 1))
        self.call("cuMemAlloc_v2", ctypes.byref(address), size, device=device)
        return address.value

    def free(self, address: int, device: int | None = 0) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address), device=device)

    def write(self, address: int, values: np.ndarray, device: int | None = 0) -> None:
        values = np.ascontiguousarray(values)
        size, data = ctypes.c_size_t(values.nbytes), ctypes.c_void_p(values.ctypes.data)
        if values.nbytes:
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, size, device=device)

    def read(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: Any,
        device: int | None = 0,
        wait: bool = True,
    ) -> np.ndarray:
        """The content of device memory once all work is done, or, without `wait`, now."""
        if wait:
            self.synchronize(device)
        values = np.empty(shape, dtype)
        size, data = ctypes.c_size_t(values.nbytes), ctypes.c_void_p(values.ctypes.data)
        if values.nbytes:
            self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), size, device=device)
        return values

    def synchronize(self, device: int | None = 0) -> None:
        self.call("cuCtxSynchronize", device=device)

    def fail(self, function: str, result: int, after_calls: int = 0) -> None:
        """Emulation only: after `after_calls` more calls, a call of the function returns `result`,
        once."""
        self.library.opwright_emulation_fail(function.encode(), result, after_calls)

    def calls(self, function: str) -> int:
        """Emulation only: the number of calls so far of a function, named without a version."""
        count = self.library.opwright_emulation_calls
        count.restype = ctypes.c_long
        return int(count(function.encode()))

    def is_done(self, stream: int, device: int = 0) -> bool:
        """Whether all work on the stream is done."""
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


class Stream:
    """A stream of a device; None: of the thread's current context. It does not wait for the default stream, nor
    that for it."""

    NON_BLOCKING = 1

    def __init__(self, device: int | None = 0):
        self.device = device
        handle = ctypes.c_void_p()
        driver().call("cuStreamCreate", ctypes.byref(handle), self.NON_BLOCKING, device=device)
        self.handle = handle.value or 0

    def synchronize(self) -> None:
        driver().call("cuStreamSynchronize", ctypes.c_void_p(self.handle), device=self.device)

    def destroy(self) -> None:
        if self.handle:
            driver().call("cuStreamDestroy_v2", ctypes.c_void_p(self.handle), device=self.device)
            self.handle = 0


class DeviceArray:
    """A dense array in GPU memory with __cuda_array_interface__, like those of other libraries.

    `stream` is the stream that writes its memory, as the interface reports it.
    """

    def __init__(self, values: Any, device: int | None = 0, stream: int | None = None):
        host = np.asarray(values)
        self.shape, self.dtype, self.device = host.shape, host.dtype, device
        self.nbytes, self.stream = host.nbytes, stream
        self.ptr = driver().allocate(host.nbytes, device)
        driver().write(self.ptr, host, device)
        driver().synchronize(device)  # from pageable memory a copy returns before its end

    def free(self) -> None:
        if self.ptr:
            driver().free(self.ptr, self.device)
            self.ptr = 0

    def __del__(self) -> None:
        if _driver is not None and hasattr(self, "ptr"):
            self.free()

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

    def write(self, values: Any) -> None:
        """Waits for all work on the device, then writes values of the array's type and size."""
        host = np.ascontiguousarray(values, self.dtype)
        assert host.nbytes == self.nbytes
        driver().synchronize(self.device)
        driver().write(self.ptr, host, self.device)
        driver().synchronize(self.device)

    def numpy(self, wait: bool = True) -> np.ndarray:
        """The array's values once all work is done, or, without `wait`, now."""
        return driver().read(self.ptr, self.shape, self.dtype, self.device, wait)


def read_interface(array: Any) -> np.ndarray:
    """The values of an object with __cuda_array_interface__ once all work is done."""
    interface = array.__cuda_array_interface__
    assert interface["strides"] is None
    return driver().read(interface["data"][0], interface["shape"], interface["typestr"])
