import warp as wp

from opwright import aot


@wp.kernel
def update(x: wp.array2d(dtype=wp.float32), y: wp.array2d(dtype=wp.float32)):
    i, j = wp.tid()
    x[i, j] = x[i, j] + 2.0 * y[i, j]


def compile(inputs, **options):
    x = inputs[0]
    extents = x[1] if isinstance(x, tuple) else x.shape_expr
    return aot.warp(update, list(extents), inputs=inputs, **options)
