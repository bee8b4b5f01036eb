import cutlass
import cutlass.cute as cute

from opwright import aot

THREADS = 128


@cute.kernel
def update(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    for i in cutlass.range(thread, x.shape[1], THREADS):
        x[row, i] = x[row, i] + 2.0 * y[row, i]


def compile(**options):
    return aot.cute(update, block=THREADS, **options)
