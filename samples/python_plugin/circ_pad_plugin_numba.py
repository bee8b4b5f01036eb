"""Circular padding with Numba: loops in Python that are compiled and run on all cores."""

import common
import numba
import numpy as np
from circ_pad_plugin import CircPadCreatorV2, CircPadPluginV2, as_four_axes

from opwright.plugin import Tensor


@numba.njit(parallel=True, cache=True)
def circ_pad(x, y, before):
    """Pads x into y, both of four axes; `before` is what is added in front of each."""
    for n in numba.prange(y.shape[0]):
        for c in range(y.shape[1]):
            image = x[(n - before[0]) % x.shape[0], (c - before[1]) % x.shape[1]]
            for i in range(y.shape[2]):
                for j in range(y.shape[3]):
                    row, column = (i - before[2]) % x.shape[2], (j - before[3]) % x.shape[3]
                    y[n, c, i, j] = image[row, column]


class CircPadPlugin(CircPadPluginV2):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = np.asarray(Tensor(input_desc[0], inputs[0]))
        y = np.asarray(Tensor(output_desc[0], outputs[0]))
        bits = f"u{x.itemsize}"  # values are moved, and Numba has no float16 on the CPU
        x_dims, y_dims, before = as_four_axes(input_desc[0], output_desc[0], self.pads)
        circ_pad(x.view(bits).reshape(x_dims), y.view(bits).reshape(y_dims), before)


creator = CircPadCreatorV2(CircPadPlugin)
common.add_example(creator)

if __name__ == "__main__":
    common.main(__doc__, creator)
