"""Row-wise RMS normalization for TileLang."""

import tilelang.language as T


def rms_norm(dtype, BLOCK=1024):
    """The kernel for one type of elements: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    rows, columns = T.dynamic("rows"), T.dynamic("columns")

    @T.prim_func
    def rms_norm(
        x: T.Tensor((rows, columns), dtype),
        scale: T.Tensor((columns,), dtype),
        epsilon: T.float32,
        y: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(rows, threads=256) as row:
            squares = T.alloc_fragment((1, BLOCK), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(squares)
            for start in T.serial(T.ceildiv(columns, BLOCK)):
                for i in T.Parallel(BLOCK):
                    if start * BLOCK + i < columns:
                        value = T.cast(x[row, start * BLOCK + i], "float32")
                        squares[0, i] += value * value
            T.reduce_sum(squares, total, dim=1)
            factor = T.rsqrt(total[0] / T.cast(columns, "float32") + epsilon)
            for start in T.serial(T.ceildiv(columns, BLOCK)):
                for i in T.Parallel(BLOCK):
                    if start * BLOCK + i < columns:
                        value = T.cast(x[row, start * BLOCK + i], "float32")
                        weight = T.cast(scale[start * BLOCK + i], "float32")
                        y[row, start * BLOCK + i] = T.cast(value * factor * weight, dtype)

    return rms_norm
