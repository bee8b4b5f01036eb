"""Row-wise RMS normalization for cuTile."""

import cuda.tile as ct


@ct.kernel
def rms_norm(x, scale, epsilon, y, BLOCK: ct.Constant[int]):
    """One row, which one block makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    row, columns = ct.bid(0), x.shape[1]
    squares = ct.zeros((1, BLOCK), ct.float32)
    for i in range(ct.cdiv(columns, BLOCK)):
        value = ct.load(x, (row, i), (1, BLOCK), padding_mode=ct.PaddingMode.ZERO)
        value = value.astype(ct.float32)
        squares += value * value
    factor = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / columns + epsilon)
    for i in range(ct.cdiv(columns, BLOCK)):
        value = ct.load(x, (row, i), (1, BLOCK)).astype(ct.float32)
        weight = ct.load(scale, (i,), (BLOCK,)).astype(ct.float32)
        ct.store(y, (row, i), (value * factor * weight).astype(y.dtype))
