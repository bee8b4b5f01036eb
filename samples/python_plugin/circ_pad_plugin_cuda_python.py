"""Circular padding with a CUDA kernel that cuda-python compiles (NVRTC) and launches. Needs a GPU."""

import ctypes
import functools

import common

# The names since cuda-python 12.8, and those before.
cuda = common.import_for_gpu("cuda.bindings.driver", "cuda.cuda", package="cuda-python")
nvrtc = common.import_for_gpu("cuda.bindings.nvrtc", "cuda.nvrtc", package="cuda-python")

import numpy as np
from circ_pad_cuda import BLOCK, SOURCE, options
from circ_pad_plugin import CircPadCreatorV2, CircPadPluginV2, as_four_axes

import opwright as trt


def checked(result: tuple):
    """The values of a call that gave (error, values...)."""
    error, *values = result
    if error.value != 0:
        raise RuntimeError(str(error))
    return values[0] if len(values) == 1 else values


@functools.cache
def kernel(itemsize: int):
    """The kernel for elements of this many bytes, compiled for the current device."""
    device = checked(cuda.cuCtxGetDevice())
    names = cuda.CUdevice_attribute
    major, minor = (
        checked(cuda.cuDeviceGetAttribute(attribute, device))
        for attribute in (
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    arguments = [f"--gpu-architecture=sm_{major}{minor}", *options(itemsize)]
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"circ_pad.cu", 0, [], []))
    (status,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [a.encode() for a in arguments])
    if status.value != 0:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return checked(cuda.cuModuleGetFunction(checked(cuda.cuModuleLoadData(cubin)), b"circ_pad"))


class CircPadPlugin(CircPadPluginV2):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x_dims, y_dims, before = as_four_axes(input_desc[0], output_desc[0], self.pads)
        itemsize = np.dtype(trt.nptype(input_desc[0].type)).itemsize
        values = (inputs[0], outputs[0], *x_dims, *y_dims, *before)
        types = (ctypes.c_void_p,) * 2 + (ctypes.c_int,) * 12
        blocks = -(-trt.volume(y_dims) // BLOCK)
        checked(
            cuda.cuLaunchKernel(
                kernel(itemsize), blocks, 1, 1, BLOCK, 1, 1, 0, stream, (values, types), 0
            )
        )


if __name__ == "__main__":
    common.main(__doc__, CircPadCreatorV2(CircPadPlugin), trt.DeviceType.GPU)
