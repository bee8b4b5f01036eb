"""Row-wise RMS normalization for Numba-CUDA."""

import numba_cuda  # noqa: F401  (its version of numba.cuda)
import numpy as np
from numba import cuda

THREADS = 256
WARPS = 8


def rms_norm(x, scale, columns, epsilon, y):
    """One row, which one block makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    sums = cuda.shared.array(WARPS, np.float32)
    first, thread = cuda.blockIdx.x * columns, cuda.threadIdx.x
    total = np.float32(0)
    for i in range(thread, columns, THREADS):
        value = np.float32(x[first + i])
        total += value * value
    for step in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, step)
    if thread % 32 == 0:
        sums[thread // 32] = total
    cuda.syncthreads()
    total = np.float32(0)
    for warp in range(WARPS):
        total += sums[warp]
    factor = np.float32(1) / cuda.libdevice.sqrtf(total / np.float32(columns) + epsilon)
    for i in range(thread, columns, THREADS):
        y[first + i] = np.float32(x[first + i]) * factor * np.float32(scale[i])
