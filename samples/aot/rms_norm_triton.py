"""Row-wise RMS normalization for Triton."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(x, scale, columns, epsilon, y, BLOCK: tl.constexpr):
    """One row, which one program makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    first = tl.program_id(0).to(tl.int64) * columns
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + i, mask=i < columns, other=0).to(tl.float32)
        squares += value * value
    factor = tl.rsqrt(tl.sum(squares) / columns + epsilon)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(x + first + i, mask=i < columns).to(tl.float32)
        weight = tl.load(scale + i, mask=i < columns).to(tl.float32)
        tl.store(y + first + i, value * factor * weight, mask=i < columns)
