import tilelang.language as T

from opwright import aot

BLOCK = 256
rows, columns = T.dynamic("rows"), T.dynamic("columns")


@T.prim_func
def update(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
    with T.Kernel(rows, threads=128) as row:
        for start in T.serial(T.ceildiv(columns, BLOCK)):
            for i in T.Parallel(BLOCK):
                if start * BLOCK + i < columns:
                    x[row, start * BLOCK + i] = (
                        x[row, start * BLOCK + i] + 2.0 * y[row, start * BLOCK + i]
                    )


def compile(**options):
    return aot.tilelang(update, **options)
