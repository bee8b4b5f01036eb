"""Loads and launches compiled CUDA kernels by the driver, in the calling thread's CUDA context."""

import ctypes
import functools
import os

import numpy as np


@functools.cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ.get("OPWRIGHT_CUDA_DRIVER", "libcuda.so.1"))


def call(name: str, *arguments) -> None:
    result = getattr(driver(), name)(*arguments)
    if result != 0:
        raise RuntimeError(f"{name}: CUDA error {result}")


def architecture() -> str:
    """The current GPU's, such as "sm_90"."""
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    call("cuCtxGetDevice", ctypes.byref(device))
    call("cuDeviceGetAttribute", ctypes.byref(major), 75, device)
    call("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
    return f"sm_{major.value}{minor.value}"


class Kernel:
    """A kernel of a cubin in the current context."""

    def __init__(self, cubin: bytes, name: str):
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self.module), cubin)
        call("cuModuleGetFunction", ctypes.byref(self.function), self.module, name.encode())

    def __call__(self, grid: int, block: int, shared: int, stream: int, *arguments) -> None:
        """:param shared: bytes of dynamic shared memory, at most 48 KB.
        :param arguments: addresses, which are plain numbers, and numbers of NumPy's types."""
        values = [np.uint64(each) if isinstance(each, int) else each for each in arguments]
        kept = [np.atleast_1d(each) for each in values]
        addresses = (ctypes.c_void_p * len(kept))(*[each.ctypes.data for each in kept])
        handle = ctypes.c_void_p(stream)
        call(
            "cuLaunchKernel",
            self.function,
            grid,
            1,
            1,
            block,
            1,
            1,
            shared,
            handle,
            addresses,
            None,
        )
