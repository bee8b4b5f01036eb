"""The operator sample::circ_pad_rows: circular padding of the last two axes, compiled from C++ for the
CPU and from CUDA C++ for GPUs, where the tuner compares ways to read and write rows."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

import opwright.plugin as trtp

FOLDER = Path(__file__).resolve().parent
TACTICS = [
    {"WARPS": warps, "BYTES": size, "EARLY": early}
    for early, warps, size in (
        (0, 4, 16),
        (1, 4, 16),
        (0, 8, 16),
        (1, 8, 16),
        (0, 2, 16),
        (0, 4, 8),
        (0, 8, 4),
    )
]


def lines(outputs):
    """How many rows all images of the output have together."""
    return outputs[0].shape_expr.numel() // outputs[0].shape_expr[-1]


def sizes(x, pads, outputs):
    height, width = x.shape_expr[-2:]
    rows, columns = outputs[0].shape_expr[-2:]
    values = height, width, rows, columns, int(pads[2]), int(pads[0])
    return [trtp.SymInt32(value) for value in values]


@trtp.kernel(
    "sample::circ_pad_rows",
    FOLDER / "circ_pad.cu",
    "circ_pad",
    grid=lambda outputs, WARPS: trtp.cdiv(lines(outputs), WARPS),
    block=lambda WARPS: 32 * WARPS,
    extra=lambda x, pads, outputs: [trtp.SymInt32(lines(outputs)), *sizes(x, pads, outputs)],
    types="FP32|FP16",
    constants=TACTICS,
)
@trtp.kernel(
    "sample::circ_pad_rows",
    FOLDER / "circ_pad.cpp",
    "circ_pad",
    grid=lambda x: x.shape_expr.numel() // (x.shape_expr[-2] * x.shape_expr[-1]),
    extra=sizes,
    types="FP32|FP16",
)
def circ_pad(x: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    """`pads` are the elements before and after the last axis, then before and after the one in front."""
    y = x.like()
    for i in range(2):
        y.shape_expr[x.ndim - 1 - i] += int(pads[2 * i] + pads[2 * i + 1])
    return y
