"""Circular padding with a CUDA kernel that CuPy compiles and launches. Needs a GPU."""

import functools

import common

cp = common.import_for_gpu("cupy", package="cupy-cuda13x")

import numpy as np
from circ_pad_cuda import BLOCK, SOURCE, options
from circ_pad_plugin import CircPadCreatorV2, CircPadPluginV2, as_four_axes

import opwright as trt


def array(desc: trt.PluginTensorDesc, address: int) -> cp.ndarray:
    """The tensor at this address as an array of CuPy."""
    dtype = np.dtype(trt.nptype(desc.type))
    size = trt.volume(desc.dims) * dtype.itemsize
    memory = cp.cuda.UnownedMemory(address, size, owner=None)
    return cp.ndarray(tuple(desc.dims), dtype, cp.cuda.MemoryPointer(memory, 0))


@functools.cache
def kernel(itemsize: int) -> cp.RawKernel:
    return cp.RawKernel(SOURCE, "circ_pad", options=options(itemsize))


class CircPadPlugin(CircPadPluginV2):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = array(input_desc[0], inputs[0]), array(output_desc[0], outputs[0])
        x_dims, y_dims, before = as_four_axes(input_desc[0], output_desc[0], self.pads)
        numbers = map(np.int32, (*x_dims, *y_dims, *before))
        with cp.cuda.ExternalStream(stream):
            kernel(x.itemsize)((-(-y.size // BLOCK),), (BLOCK,), (x, y, *numbers))


if __name__ == "__main__":
    common.main(__doc__, CircPadCreatorV2(CircPadPlugin), trt.DeviceType.GPU)
