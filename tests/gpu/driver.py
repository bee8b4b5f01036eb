"""The CUDA driver by ctypes: memory and streams, with nothing but NumPy."""

from __future__ import annotations

import ctypes
import os

import numpy as np

LIBRARY = os.environ.get("OPWRIGHT_CUDA_DRIVER", "libcuda.so.1")


class CudaError(Exception):
    pass


class Driver:
    """The first device's primary context, made current on the calling thread."""

    def __init__(self, ordinal: int = 0):
        self.library = ctypes.CDLL(LIBRARY)
        self("cuInit", ctypes.c_uint(0))
        self.device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(self.device), ctypes.c_int(ordinal))
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.make_current()

    def __call__(self, name: str, *arguments) -> None:
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise CudaError(f"{name}: error {status}")

    def make_current(self) -> None:
        """For a thread that has not made this object."""
        self("cuCtxSetCurrent", self.context)

    def synchronize(self) -> None:
        self("cuCtxSynchronize")

    def stream(self) -> Stream:
        return Stream(self)

    def buffer(self, array_or_bytes) -> Buffer:
        return Buffer(self, array_or_bytes)

    def zeros(self, shape, dtype=np.float32) -> Buffer:
        return Buffer(self, np.zeros(shape, dtype))


class Stream:
    """One that does not wait for the default stream, nor that for it."""

    NON_BLOCKING = 1

    def __init__(self, gpu: Driver):
        self.gpu = gpu
        handle = ctypes.c_void_p()
        gpu("cuStreamCreate", ctypes.byref(handle), ctypes.c_uint(self.NON_BLOCKING))
        self.handle: int = handle.value or 0

    def synchronize(self) -> None:
        self.gpu("cuStreamSynchronize", ctypes.c_void_p(self.handle))

    def destroy(self) -> None:
        if self.handle:
            self.gpu("cuStreamDestroy_v2", ctypes.c_void_p(self.handle))
            self.handle = 0


class Buffer:
    """Device memory with the shape and type of an array, whose content it gets."""

    def __init__(self, gpu: Driver, array_or_bytes: np.ndarray | int):
        self.gpu = gpu
        if isinstance(array_or_bytes, int):
            array_or_bytes = np.zeros(array_or_bytes, np.uint8)
        self.shape, self.dtype = array_or_bytes.shape, array_or_bytes.dtype
        self.nbytes = array_or_bytes.nbytes
        pointer = ctypes.c_uint64()
        gpu("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(self.nbytes, 1)))
        self.address = pointer.value
        self.write(array_or_bytes)

    def write(self, array: np.ndarray) -> None:
        """Waits for all work on the device, then writes."""
        array = np.ascontiguousarray(array, self.dtype)
        assert array.nbytes == self.nbytes
        self.gpu.synchronize()
        if self.nbytes:
            self.gpu(
                "cuMemcpyHtoD_v2",
                ctypes.c_uint64(self.address),
                ctypes.c_void_p(array.ctypes.data),
                ctypes.c_size_t(self.nbytes),
            )
            # From pageable memory the call returns before the device has the bytes.
            self.gpu.synchronize()

    def read(self, synchronize: bool = True) -> np.ndarray:
        """The content, once the device (or what the caller has waited for) is done."""
        if synchronize:
            self.gpu.synchronize()
        array = np.empty(self.shape, self.dtype)
        if self.nbytes:
            self.gpu(
                "cuMemcpyDtoH_v2",
                ctypes.c_void_p(array.ctypes.data),
                ctypes.c_uint64(self.address),
                ctypes.c_size_t(self.nbytes),
            )
        return array

    def free(self) -> None:
        if self.address:
            self.gpu("cuMemFree_v2", ctypes.c_uint64(self.address))
            self.address = 0

    def __del__(self):
        try:
            self.free()
        except Exception:  # a context that is lost, an interpreter that ends
            pass
