"""Circular padding with Numba: loops in Python, compiled for all cores, or a CUDA kernel in Python."""

import common
import numba
import numpy as np
from circ_pad_plugin import CircPadCreatorV2, CircPadPluginV2, as_four_axes

from opwright.plugin import Tensor

if common.default_is_gpu():
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 asks for it, NumPy 2.5 has it no more
        np.row_stack = np.vstack
    from numba import cuda

    BLOCK = 256  # threads

    @cuda.jit
    def circ_pad_kernel(x, y, before):
        """Pads x into y, both of four axes; `before` is what is added in front of each."""
        element = cuda.grid(1)
        if element < y.size:
            j, rest = element % y.shape[3], element // y.shape[3]
            i, rest = rest % y.shape[2], rest // y.shape[2]
            c, n = rest % y.shape[1], rest // y.shape[1]
            y[n, c, i, j] = x[
                (n - before[0]) % x.shape[0],
                (c - before[1]) % x.shape[1],
                (i - before[2]) % x.shape[2],
                (j - before[3]) % x.shape[3],
            ]

    def arrays(x: Tensor, y: Tensor):
        return cuda.as_cuda_array(x), cuda.as_cuda_array(y)

    def circ_pad(x, y, before, stream: int):
        # numba.cuda takes the stream at each launch.
        blocks = -(-y.size // BLOCK)
        circ_pad_kernel[blocks, BLOCK, cuda.external_stream(stream)](x, y, before)

else:

    @numba.njit(parallel=True, cache=True)
    def circ_pad_loops(x, y, before):
        for n in numba.prange(y.shape[0]):
            for c in range(y.shape[1]):
                image = x[(n - before[0]) % x.shape[0], (c - before[1]) % x.shape[1]]
                for i in range(y.shape[2]):
                    for j in range(y.shape[3]):
                        row, column = (i - before[2]) % x.shape[2], (j - before[3]) % x.shape[3]
                        y[n, c, i, j] = image[row, column]

    def arrays(x: Tensor, y: Tensor):
        return np.asarray(x), np.asarray(y)

    def circ_pad(x, y, before, stream: int):
        circ_pad_loops(x, y, before)


class CircPadPlugin(CircPadPluginV2):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = arrays(Tensor(input_desc[0], inputs[0]), Tensor(output_desc[0], outputs[0]))
        # Values are moved, so their bits will do: Numba has no float16 on the CPU.
        bits = np.dtype(f"u{x.dtype.itemsize}")
        x_dims, y_dims, before = as_four_axes(input_desc[0], output_desc[0], self.pads)
        circ_pad(x.view(bits).reshape(x_dims), y.view(bits).reshape(y_dims), before, stream)


creator = CircPadCreatorV2(CircPadPlugin)
common.add_example(creator)

if __name__ == "__main__":
    common.main(__doc__, creator)
