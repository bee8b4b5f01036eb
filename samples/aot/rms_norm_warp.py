"""Row-wise RMS normalization for NVIDIA Warp."""

from typing import Any

import warp as wp


@wp.kernel
def rms_norm(
    x: wp.array2d(dtype=Any),
    scale: wp.array(dtype=Any),
    epsilon: wp.float32,
    y: wp.array2d(dtype=Any),
):
    """One row, which one block makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    row, thread = wp.tid()
    columns = x.shape[1]
    total = wp.float32(0.0)
    for i in range(thread, columns, wp.block_dim()):
        value = wp.float32(x[row, i])
        total += value * value
    total = wp.tile_sum(wp.tile(total))[0]
    factor = 1.0 / wp.sqrt(total / wp.float32(columns) + epsilon)
    for i in range(thread, columns, wp.block_dim()):
        y[row, i] = y.dtype(wp.float32(x[row, i]) * factor * wp.float32(scale[i]))
