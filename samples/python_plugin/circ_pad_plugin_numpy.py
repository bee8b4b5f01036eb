"""Circular padding with NumPy, on the CPU."""

import common
import numpy as np
from circ_pad_plugin import CircPadCreatorV2, CircPadPluginV2

import opwright as trt
from opwright.plugin import Tensor


class CircPadPlugin(CircPadPluginV2):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = np.asarray(Tensor(input_desc[0], inputs[0]))
        y = np.asarray(Tensor(output_desc[0], outputs[0]))
        before, after = self.pads[0::2][::-1], self.pads[1::2][::-1]
        np.copyto(
            y, np.pad(x, [(0, 0)] * (x.ndim - len(before)) + list(zip(before, after)), "wrap")
        )


creator = CircPadCreatorV2(CircPadPlugin)
common.add_example(creator)

if __name__ == "__main__":
    common.main(__doc__, creator, trt.DeviceType.CPU)
