import cuda.tile as ct

from opwright import aot


@ct.kernel
def update(x, y, BLOCK: ct.Constant[int]):
    row = ct.bid(0)
    for i in range(ct.cdiv(x.shape[1], BLOCK)):
        old = ct.load(x, (row, i), (1, BLOCK), padding_mode=ct.PaddingMode.ZERO)
        added = ct.load(y, (row, i), (1, BLOCK), padding_mode=ct.PaddingMode.ZERO)
        ct.store(x, (row, i), old + 2.0 * added)


def compile(**options):
    return aot.cutile(update, {"BLOCK": 256}, **options)
