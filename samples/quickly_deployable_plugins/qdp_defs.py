"""The plugins of the sample. Whoever loads an engine that needs one imports this module."""

import contextlib
import logging
import os
import threading
from enum import IntEnum
from pathlib import Path
from typing import List, Tuple

import numba
import numpy as np
import numpy.typing as npt

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

# Without a GPU Triton's kernels are interpreted, which is slow. Read where a kernel is defined. The
# interpreter keeps the place in the grid in a global variable: one thread at a time may use it.
triton_lock = contextlib.nullcontext()
if trt.Builder(trt.Logger()).create_builder_config().default_device_type == trt.DeviceType.CPU:
    os.environ["TRITON_INTERPRET"] = "1"
    triton_lock = threading.Lock()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

log = logging.getLogger("qdp")


# On a GPU work goes to the engine's stream: it is the current one of torch, and so of Triton, while an impl
# function runs. Frameworks that have no current stream are given the function's argument `stream`.

# Elementwise add: a Triton kernel ----------------------------------------------------------------


@trtp.register("sample::elemwise_add_plugin")
def add_plugin_desc(inp0: trtp.TensorDesc, block_size: int) -> trtp.TensorDesc:
    return inp0.like()


# Decorated by the runner, on request: trtp.autotune("sample::elemwise_add_plugin").
def add_plugin_autotune(
    inp0: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16")]


@triton.jit
def add_kernel(x, y, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@trtp.impl("sample::elemwise_add_plugin")
def add_plugin_impl(
    inp0: trtp.Tensor, block_size: int, outputs: Tuple[trtp.Tensor], stream: int
) -> None:
    log.debug("Executing for inp0.dtype=%s, outputs[0].dtype=%s", inp0.dtype, outputs[0].dtype)
    x, y = torch.from_dlpack(inp0), torch.from_dlpack(outputs[0])
    grid = (triton.cdiv(inp0.numel(), block_size),)
    with triton_lock:
        add_kernel[grid](x, y, inp0.numel(), BLOCK_SIZE=block_size)


# Elementwise add in place: an output that is aliased to an input ---------------------------------


@trtp.register("sample::elemwise_add_plugin_")
def add_plugin_desc_(inp0: trtp.TensorDesc, delta: int) -> trtp.TensorDesc:
    return inp0.aliased()


def add_plugin_autotune_(
    inp0: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR")]


# Each device may have an implementation of its own.
@trtp.impl("sample::elemwise_add_plugin_", device="cpu")
def add_plugin_impl_(
    inp0: trtp.Tensor, delta: int, outputs: Tuple[trtp.Tensor], stream: int
) -> None:
    log.debug("Executing for inp0.dtype=%s, outputs[0].dtype=%s", inp0.dtype, outputs[0].dtype)
    np.asarray(outputs[0])[...] += delta  # the memory is that of inp0


@trtp.impl("sample::elemwise_add_plugin_", device="cuda")
def add_plugin_impl_cuda_(
    inp0: trtp.Tensor, delta: int, outputs: Tuple[trtp.Tensor], stream: int
) -> None:
    torch.from_dlpack(outputs[0]).add_(delta)


# Non-zero: an output whose shape depends on data -------------------------------------------------


@trtp.register("sample::non_zero_plugin")
def non_zero_plugin_reg(inp0: trtp.TensorDesc) -> Tuple[trtp.TensorDesc, trtp.TensorDesc]:
    upper_bound = inp0.shape_expr[0] * inp0.shape_expr[1]
    st = trtp.size_tensor(upper_bound // 2, upper_bound)
    return trtp.from_shape_expr((st.expr(), 2), dtype=trt.int32), st


@trtp.autotune("sample::non_zero_plugin")
def non_zero_plugin_autotune(
    inp0: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc, trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, INT32|INT32, INT32|INT32")]


@numba.njit
def find_non_zero(x, indices) -> int:
    """Writes [row, column] of each element that is not zero; returns their number."""
    count = 0
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            if x[row, column] != 0:
                indices[count, 0], indices[count, 1] = row, column
                count += 1
    return count


@trtp.impl("sample::non_zero_plugin", device="cpu")
def non_zero_plugin_impl(
    inp0: trtp.Tensor, outputs: Tuple[trtp.Tensor, trtp.Tensor], stream: int
) -> None:
    log.debug("Executing for inp0.dtype=%s", inp0.dtype)
    x = np.asarray(inp0)
    bits = x.view(f"u{x.itemsize}") << 1  # without the sign; Numba has no FP16 on the CPU
    np.asarray(outputs[1])[...] = find_non_zero(bits, np.asarray(outputs[0]))


@trtp.impl("sample::non_zero_plugin", device="cuda")
def non_zero_plugin_impl_cuda(
    inp0: trtp.Tensor, outputs: Tuple[trtp.Tensor, trtp.Tensor], stream: int
) -> None:
    found = torch.nonzero(torch.from_dlpack(inp0))
    torch.from_dlpack(outputs[0])[: len(found)] = found
    torch.from_dlpack(outputs[1]).fill_(len(found))


# Circular padding: several tactics, and kernels that are compiled into the engine ----------------


@trtp.register("sample::circ_pad_plugin")
def circ_pad_plugin_desc(inp0: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    out_desc = inp0.like()
    for i in range(np.size(pads) // 2):
        out_desc.shape_expr[inp0.ndim - i - 1] += int(pads[i * 2] + pads[i * 2 + 1])
    return out_desc


class Tactic(IntEnum):
    TORCH = 1  # compiled ahead of time: C++, for a GPU CUDA C++
    TRITON = 2  # compiled ahead of time: Numba, for a GPU the Triton kernel


def circ_pad_plugin_autotune(
    inp0: trtp.TensorDesc, pads: npt.NDArray[np.int32], outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    c = trtp.AutoTuneCombination()
    c.pos([0, 1], "FP32|FP16")
    c.tactics([int(Tactic.TORCH), int(Tactic.TRITON)])
    return [c]


@triton.jit
def circ_pad_kernel(x, height, width, rows, columns, top, left, n, y, BLOCK_SIZE: tl.constexpr):
    """Pads the last two axes: [..., height, width] becomes [..., rows, columns]. The parameters stand
    in the order that compiled kernels have: inputs, what is extra, outputs."""
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    source_row = (i // columns % rows + height - top) % height
    source_column = (i % columns + width - left) % width
    source = (i // (rows * columns) * height + source_row) * width + source_column
    tl.store(y + i, tl.load(x + source, mask=i < n), mask=i < n)


@trtp.impl("sample::circ_pad_plugin")
def circ_pad_plugin_impl(
    inp0: trtp.Tensor,
    pads: npt.NDArray[np.int32],
    outputs: Tuple[trtp.Tensor],
    stream: int,
    tactic: int,
) -> None:
    log.debug("Executing for inp0.dtype=%s, tactic %s", inp0.dtype, tactic)
    x, y = torch.from_dlpack(inp0), torch.from_dlpack(outputs[0])
    if tactic == Tactic.TRITON:
        sizes = *x.shape[-2:], *y.shape[-2:], int(pads[2]), int(pads[0]), y.numel()
        with triton_lock:
            circ_pad_kernel[(triton.cdiv(y.numel(), 1024),)](x, *sizes, y, BLOCK_SIZE=1024)
    else:  # TORCH, also where no tactics are named
        y.copy_(torch.nn.functional.pad(x, pads.tolist(), mode="circular"))


# A row of y is the row of x over and over, beginning `left` elements before its start: a few runs that are
# copied whole, without a division for each element.

CIRC_PAD_CPP = """
#include <algorithm>
#include <cstdint>
#include <cstring>

// One task pads one image: rows of `width` become rows of `columns`.
template <class T>
void circ_pad_image(const T* x, int32_t height, int32_t width, int32_t rows, int32_t columns,
                    int32_t top, int32_t left, T* y, int64_t image, int64_t, int64_t) {
  x += image * height * width;
  y += image * rows * columns;
  int32_t row = (height - top % height) % height;
  for (int32_t i = 0; i < rows; ++i) {
    int32_t column = (width - left % width) % width;
    for (int32_t done = 0, run; done < columns; done += run, column = 0) {
      run = std::min(width - column, columns - done);
      std::memcpy(y + done, x + int64_t{row} * width + column, sizeof(T) * run);
    }
    y += columns;
    row = row + 1 < height ? row + 1 : 0;
  }
}
"""


def circ_pad_image(x, height, width, rows, columns, top, left, y, image, _y, _z):
    """The same for Numba: pointers and scalars in, nothing out."""
    row, first_column = -top % height, -left % width
    target = image * rows * columns
    for _ in range(rows):
        source = (image * height + row) * width
        column, end = first_column, target + columns
        while target < end:
            run = min(width - column, end - target)
            for j in range(run):
                y[target + j] = x[source + column + j]
            target += run
            column = 0
        row = row + 1 if row + 1 < height else 0


@trtp.aot_impl("sample::circ_pad_plugin", device="cpu")
def circ_pad_plugin_aot_impl(
    inp0: trtp.TensorDesc,
    pads: npt.NDArray[np.int32],
    outputs: Tuple[trtp.TensorDesc],
    tactic: int,
) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    height, width = inp0.shape_expr[-2:]
    rows, columns = outputs[0].shape_expr[-2:]
    sizes = (height, width, rows, columns, int(pads[2]), int(pads[0]))
    extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(size) for size in sizes])
    if tactic == Tactic.TRITON:  # FP16 elements are copied as their bits
        code = aot.numba(circ_pad_image, "circ_pad", inputs=[inp0], extra=extra, outputs=outputs)
    else:
        code = aot.cpp(CIRC_PAD_CPP, "circ_pad_image", inputs=[inp0], extra=extra, outputs=outputs)
    launch = trtp.KernelLaunchParams(grid_x=inp0.shape_expr.numel() // (height * width))
    return code.name, code, launch, extra


# For GPUs: the kernel of samples/aot, which has a warp for each row, or the Triton kernel above.
CIRC_PAD_CU = Path(__file__).resolve().parent.parent / "aot" / "circ_pad.cu"
WARPS = 4  # of a block


@trtp.aot_impl("sample::circ_pad_plugin", device="cuda")
def circ_pad_plugin_aot_impl_cuda(
    inp0: trtp.TensorDesc,
    pads: npt.NDArray[np.int32],
    outputs: Tuple[trtp.TensorDesc],
    tactic: int,
) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    height, width = inp0.shape_expr[-2:]
    rows, columns = outputs[0].shape_expr[-2:]
    n = outputs[0].shape_expr.numel()
    sizes = [height, width, rows, columns, int(pads[2]), int(pads[0])]
    sizes = [*sizes, n] if tactic == Tactic.TRITON else [n // columns, *sizes]
    extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(size) for size in sizes])
    ports = {"inputs": [inp0], "extra": extra, "outputs": outputs}
    if tactic == Tactic.TRITON:
        code = aot.triton(circ_pad_kernel, {"BLOCK_SIZE": 1024}, **ports)
        launch = code.launch(grid_x=trtp.cdiv(n, 1024))
    else:
        flags = [f"-DWARPS={WARPS}", "-DBYTES=16", "-DEARLY=0"]
        code = aot.cuda(CIRC_PAD_CU, "circ_pad", flags=flags, **ports)
        launch = code.launch(grid_x=trtp.cdiv(n // columns, WARPS), block_x=32 * WARPS)
    return code.name, code, launch, extra
