"""Circular padding as a plugin of the engine: `sample::circ_pad_plugin`.

`pads[2 i]` and `pads[2 i + 1]` elements are added before and after the i-th last axis, taken from the
opposite side. One operator, two implementations: Python functions that the engine calls (NumPy or
Numba, whichever the tuner finds faster) and kernels that are compiled into the engine file (C++ or
Numba), with which the engine needs no Python.
"""

from enum import IntEnum
from typing import List, Tuple

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.extending import intrinsic

import opwright.plugin as trtp
from opwright import aot


@trtp.register("sample::circ_pad_plugin")
def circ_pad_desc(inp0: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    out = inp0.like()
    for i in range(len(pads) // 2):
        out.shape_expr[inp0.ndim - i - 1] += int(pads[2 * i] + pads[2 * i + 1])
    return out


class Tactic(IntEnum):
    NUMPY = 1  # compiled ahead of time: C++
    NUMBA = 2


@trtp.autotune("sample::circ_pad_plugin")
def circ_pad_autotune(
    inp0: trtp.TensorDesc, pads: npt.NDArray[np.int32], outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    combination = trtp.AutoTuneCombination()
    combination.pos([0, 1], "FP32|FP16")
    combination.tactics([Tactic.NUMPY, Tactic.NUMBA])
    return [combination]


# The Python implementation ---------------------------------------------------------------------


@numba.njit(parallel=True, cache=True)
def pad_images(x, y, top, left):
    """Pads the last two axes of x [images, height, width] into y, row by row."""
    images, height, width = x.shape
    rows, columns = y.shape[1:]
    for i in numba.prange(images * rows):
        image, row = i // rows, i % rows
        source = x[image, (row - top) % height]
        for j in range(left):
            y[image, row, j] = source[(j - left) % width]
        y[image, row, left : left + width] = source
        for j in range(left + width, columns):
            y[image, row, j] = source[(j - left) % width]


@trtp.impl("sample::circ_pad_plugin")
def circ_pad_impl(
    inp0: trtp.Tensor,
    pads: npt.NDArray[np.int32],
    outputs: Tuple[trtp.Tensor],
    stream: int,
    tactic: int,
) -> None:
    x, y = np.asarray(inp0), np.asarray(outputs[0])
    before, after = pads[0::2], pads[1::2]
    if tactic == Tactic.NUMBA and len(pads) == 4 and x.dtype == np.float32:
        images = x.reshape(-1, *x.shape[-2:])
        pad_images(images, y.reshape(-1, *y.shape[-2:]), before[1], before[0])
    else:
        widths = [(0, 0)] * (x.ndim - len(before)) + list(zip(before, after))[::-1]
        np.copyto(y, np.pad(x, widths, mode="wrap"))


# The compiled implementation -------------------------------------------------------------------

# A row of y is the row of x over and over, beginning `left` elements before its start: a few runs that are
# copied whole, without a division for each element.

CPP_SOURCE = """
#include <algorithm>
#include <cstdint>
#include <cstring>

// Copies a run by lines of the cache, the last of which overlaps the one before, and asks for what
// lies 1 KiB ahead: in runs of some hundred bytes the processor does not look ahead by itself.
template <class T>
void copy_run(const T* from, int32_t count, T* to) {
  constexpr int32_t line = 64 / sizeof(T), ahead = 1024 / sizeof(T);
  if (count < line) {
    std::memcpy(to, from, sizeof(T) * count);
    return;
  }
  for (int32_t i = 0; i < count; i += line) {
    const int32_t at = std::min(i, count - line);
    __builtin_prefetch(from + at + ahead);
    std::memcpy(to + at, from + at, sizeof(T) * line);
  }
}

// One task pads one image: rows of `width` become rows of `columns`.
template <class T>
void pad_image(const T* x, int32_t height, int32_t width, int32_t rows, int32_t columns, int32_t top,
               int32_t left, T* y, int64_t image, int64_t, int64_t) {
  x += image * height * width;
  y += image * rows * columns;
  int32_t row = (height - top % height) % height;
  for (int32_t i = 0; i < rows; ++i) {
    int32_t column = (width - left % width) % width;
    for (int32_t done = 0, run; done < columns; done += run, column = 0) {
      run = std::min(width - column, columns - done);
      copy_run(x + int64_t{row} * width + column, run, y + done);
    }
    y += columns;
    row = row + 1 < height ? row + 1 : 0;
  }
}
"""


@intrinsic
def prefetch(_, pointer, index):
    """Asks for the line of the cache in which pointer[index] lies."""

    def generate(_, builder, signature, arguments):
        address = builder.gep(arguments[0], arguments[1:])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type] + [number] * 3)
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        return builder.call(function, [address, number(0), number(3), number(1)])

    return numba.void(pointer, index), generate


def pad_image(x, height, width, rows, columns, top, left, y, image, _y, _z):
    """The same for Numba: pointers and scalars in, nothing out."""
    row, first_column = -top % height, -left % width
    target = image * rows * columns
    for _ in range(rows):
        source = (image * height + row) * width
        # The row after this one; 16 floats are a line of the cache.
        for j in range(width, 2 * width, 16):
            prefetch(x, source + j)
        column, end = first_column, target + columns
        while target < end:
            run = min(width - column, end - target)
            for j in range(run):
                y[target + j] = x[source + column + j]
            target += run
            column = 0
        row = row + 1 if row + 1 < height else 0


@trtp.aot_impl("sample::circ_pad_plugin")
def circ_pad_aot(
    inp0: trtp.TensorDesc,
    pads: npt.NDArray[np.int32],
    outputs: Tuple[trtp.TensorDesc],
    tactic: int,
) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    if len(pads) != 4:
        raise ValueError(
            f"the compiled kernel pads two axes, so pads needs 4 elements, not {len(pads)}"
        )
    *outer, height, width = inp0.shape_expr
    rows, columns = list(outputs[0].shape_expr)[-2:]
    images = outer[0]
    for extent in outer[1:]:
        images = images * extent
    values = (height, width, rows, columns, int(pads[2]), int(pads[0]))
    extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(v) for v in values])
    if tactic == Tactic.NUMBA:
        code = aot.numba(pad_image, "circ_pad", inputs=[inp0], extra=extra, outputs=outputs)
    else:
        code = aot.cpp(CPP_SOURCE, "pad_image", inputs=[inp0], extra=extra, outputs=outputs)
    return code.name, code, trtp.KernelLaunchParams(grid_x=images), extra
