"""Circular padding with a Triton kernel. On the CPU Triton's interpreter runs it, which is slow."""

import contextlib
import os
import threading

import common

if not common.default_is_gpu():
    os.environ["TRITON_INTERPRET"] = "1"  # is read where a kernel is defined

import torch
import triton
import triton.language as tl
from circ_pad_plugin import CircPadCreatorV2, CircPadPluginV2, as_four_axes

from opwright.plugin import Tensor

# The interpreter keeps the place in the grid in a global variable: one thread at a time may use it.
one_at_a_time = contextlib.nullcontext() if common.default_is_gpu() else threading.Lock()

BLOCK = 1024 if common.default_is_gpu() else 16384  # the interpreter takes its time per program


@triton.jit
def circ_pad_kernel(x, y, x_dims, y_dims, before, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source = tl.zeros_like(i)
    rest = i
    stride = 1
    for axis in tl.static_range(3, -1, -1):
        index = (rest % y_dims[axis] - before[axis]) % x_dims[axis]
        index = (index + x_dims[axis]) % x_dims[axis]  # % has the sign of the dividend
        source += index * stride
        stride *= x_dims[axis]
        rest //= y_dims[axis]
    tl.store(y + i, tl.load(x + source, mask=i < count), mask=i < count)


def circ_pad(x: torch.Tensor, y: torch.Tensor, x_dims, y_dims, before) -> None:
    """Pads x into y, seen as four axes; `before` is what is added in front of each."""
    count = y.numel()
    with one_at_a_time:
        circ_pad_kernel[(triton.cdiv(count, BLOCK),)](x, y, x_dims, y_dims, before, count, BLOCK)


class CircPadPlugin(CircPadPluginV2):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = torch.from_dlpack(Tensor(input_desc[0], inputs[0]))
        y = torch.from_dlpack(Tensor(output_desc[0], outputs[0]))
        # Triton takes torch's current stream, which on a GPU the engine has made its own.
        circ_pad(x, y, *as_four_axes(input_desc[0], output_desc[0], self.pads))


creator = CircPadCreatorV2(CircPadPlugin)
common.add_example(creator)

if __name__ == "__main__":
    common.main(__doc__, creator)
