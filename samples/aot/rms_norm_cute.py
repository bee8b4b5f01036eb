"""Row-wise RMS normalization for CuTe DSL."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32

THREADS = 256


@cute.kernel
def rms_norm(x: cute.Tensor, scale: cute.Tensor, epsilon: Float32, y: cute.Tensor):
    """One row, which one block of THREADS makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    columns = x.shape[1]
    total = Float32(0)
    for i in cutlass.range(thread, columns, THREADS):
        value = Float32(x[row, i])
        total += value * value

    total = cute.arch.warp_reduction_sum(total)
    sums = cutlass.memory.SmemAllocator().allocate_tensor(Float32, cute.make_layout(THREADS // 32))
    if thread % 32 == 0:
        sums[thread // 32] = total
    cute.arch.sync_threads()
    total = Float32(0)
    for warp in cutlass.range_constexpr(THREADS // 32):
        total += sums[warp]

    factor = cute.math.rsqrt(total / columns + epsilon)
    for i in cutlass.range(thread, columns, THREADS):
        y[row, i] = (Float32(x[row, i]) * factor * Float32(scale[i])).to(y.element_type)
