"""Pooling, and extraction of windows from a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .._core import (
    DataType,
    ElementWiseOperation,
    ITensor,
    PaddingMode,
    PoolingType,
    ReduceOperation,
    SampleMode,
    TopKOperation,
)
from ._converters import converter
from ._writer import Unsupported, Writer, known, spread


def _pool(
    w: Writer,
    kind: PoolingType,
    x: ITensor,
    window: Any,
    stride: Any,
    padding: Any,
    count: int,
    ceil_mode: bool,
    excludes_padding: bool = False,
) -> ITensor:
    windows = spread(window, count)
    strides = spread(stride, count) if stride else list(windows)
    pads = spread(padding, count)
    for i, extent in enumerate(list(x.shape)[len(x.shape) - count :]):
        if ceil_mode and 0 <= extent + 2 * pads[i] < windows[i]:  # one window over everything
            windows[i], strides[i] = extent + 2 * pads[i], 1
    if count == 1:
        windows, strides, pads = [1, *windows], [1, *strides], [0, *pads]

    def run(x: ITensor) -> ITensor:
        layer = w.network.add_pooling_nd(x, kind, windows)
        layer.stride_nd, layer.padding_nd = strides, pads
        layer.average_count_excludes_padding = excludes_padding
        if ceil_mode:
            layer.padding_mode = PaddingMode.EXPLICIT_ROUND_UP
        return layer.get_output(0)

    return w.on_two_axes(x, count, run)


# Windows as indices

Indices = list[list[int]]
"""The elements of each window of an axis. All windows have the same number; an element may occur
twice."""


def _window_indices(
    extent: int, window: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> Indices:
    """The elements of a pooling's windows. Places in the padding are replaced by another
    element."""
    covered = dilation * (window - 1) + 1
    count = (extent + 2 * padding - covered) / stride + 1
    windows = math.ceil(count) if ceil_mode else math.floor(count)
    if ceil_mode and (windows - 1) * stride >= extent + padding:
        windows -= 1  # the last window would begin behind the tensor
    found = []
    for number in range(windows):
        first = number * stride - padding
        inside = [i for i in range(first, first + covered, dilation) if 0 <= i < extent]
        if not inside:
            raise Unsupported("a window that covers only padding")
        found.append(inside + inside[-1:] * (window - len(inside)))
    return found


def _adaptive_indices(extent: int, windows: int) -> Indices:
    """The windows of adaptive pooling. Window i begins at floor(i extent / windows) and ends before
    ceil((i + 1) extent / windows)."""
    ends = [(i * extent // windows, -(-(i + 1) * extent // windows)) for i in range(windows)]
    most = max(end - begin for begin, end in ends)
    return [[*range(begin, end), *[end - 1] * (most - end + begin)] for begin, end in ends]


def _maximum_of(w: Writer, x: ITensor, axes: Sequence[Indices], with_indices: bool) -> Any:
    """The largest element of each window over the last axes, and its index in them."""
    rank, count = len(x.shape), len(axes)
    own = list(x.shape)[rank - count :]
    for i, indices in enumerate(axes):
        axis = rank - count + 2 * i
        x = w.gather(x, w.constant(torch.tensor(indices)), axis)
    outer = list(range(rank - count))
    places = range(rank - count, rank + count, 2)
    x = w.transpose(x, [*outer, *places, *(place + 1 for place in places)])
    if not with_indices:
        return w.reduce(ReduceOperation.MAX, x, list(range(rank, rank + count)), False), None
    elements = math.prod(len(indices[0]) for indices in axes)
    extents = [*w.sizes(x)[:rank], elements]
    layer = w.network.add_topk(w.reshape(x, extents), TopKOperation.MAX, 1, 1 << rank)
    chosen = w.cast(layer.get_output(1), DataType.INT64)
    grids = torch.meshgrid(*(torch.tensor(indices).flatten() for indices in axes), indexing="ij")
    numbers = sum(grid * math.prod(own[i + 1 :]) for i, grid in enumerate(grids))
    shape = [extent for indices in axes for extent in (len(indices), len(indices[0]))]
    order = [*range(0, 2 * count, 2), *range(1, 2 * count, 2)]
    table = torch.as_tensor(numbers).reshape(shape).permute(order).reshape(*shape[::2], -1)
    stretched = w.expand(w.constant(table.contiguous()), extents)
    found = w.gather_elements(stretched, chosen, rank)
    return w.squeeze(layer.get_output(0), [rank]), w.squeeze(found, [rank])


def _fixed(x: ITensor, count: int) -> list[int]:
    """The last `count` extents, which must be known."""
    extents = list(x.shape)[len(x.shape) - count :]
    if min(extents) < 0:
        raise Unsupported(f"windows over extents that are not known: {list(x.shape)}")
    return extents


# Operators


def _max_pool(name: str, count: int, with_indices: bool) -> None:
    @converter(name)
    def convert(
        w: Writer,
        x: ITensor,
        window: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        dilations = spread(dilation, count)
        if all(d == 1 for d in dilations) and not (with_indices and w.uses(1)):
            y = _pool(w, PoolingType.MAX, x, window, stride, padding, count, ceil_mode)
            return (y, None) if with_indices else y
        windows = spread(window, count)
        strides = spread(stride, count) if stride else windows
        numbers = zip(_fixed(x, count), windows, strides, spread(padding, count), dilations)
        axes = [_window_indices(*each, ceil_mode) for each in numbers]
        result = _maximum_of(w, x, axes, with_indices and w.uses(1))
        return result if with_indices else result[0]


def _avg_pool(name: str, count: int) -> None:
    @converter(name)
    def convert(
        w: Writer,
        x: ITensor,
        window: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> ITensor:
        excludes = not count_include_pad
        kind = PoolingType.AVERAGE
        if divisor_override is None:
            return _pool(w, kind, x, window, stride, padding, count, ceil_mode, excludes)
        if ceil_mode:
            raise Unsupported("divisor_override with ceil_mode")
        y = _pool(w, kind, x, window, stride, padding, count, False)
        return w.mul(y, math.prod(spread(window, count)) / divisor_override)


def _wanted(x: ITensor, size: Any, count: int) -> list[int]:
    """The output extents of adaptive pooling."""
    own = list(x.shape)[len(x.shape) - count :]
    wanted = [o if s is None else known(s) for s, o in zip(spread(size, count), own)]
    if any(extent is None or extent < 0 for extent in wanted):
        raise Unsupported(f"adaptive pooling to a size that is not known: {size}")
    return [extent or 0 for extent in wanted]


def _even(own: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether all windows have the same extent and do not overlap."""
    return all(o >= 0 and s > 0 and o % s == 0 for o, s in zip(own, wanted))


def _adaptive_avg_pool(name: str, count: int) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor, size: Any) -> ITensor:
        wanted, rank = _wanted(x, size, count), len(x.shape)
        if all(extent == 1 for extent in wanted):
            return w.reduce(ReduceOperation.AVG, x, list(range(rank - count, rank)), True)
        own = list(x.shape)[rank - count :]
        if _even(own, wanted):
            window = [o // s for o, s in zip(own, wanted)]
            return _pool(w, PoolingType.AVERAGE, x, window, window, 0, count, False)
        for i, (extent, windows) in enumerate(zip(_fixed(x, count), wanted)):
            # A product with a matrix of weights computes the means over one axis.
            weights = torch.zeros(extent, windows)
            for number, indices in enumerate(_adaptive_indices(extent, windows)):
                members = sorted(set(indices))
                weights[members, number] = 1 / len(members)
            order = [*(axis for axis in range(rank) if axis != rank - count + i), rank - count + i]
            back = [order.index(axis) for axis in range(rank)]
            product = w.matmul(w.transpose(x, order), w.cast(w.constant(weights), x.dtype))
            x = w.transpose(product, back)
        return x


def _adaptive_max_pool(name: str, count: int) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor, size: Any) -> Any:
        wanted = _wanted(x, size, count)
        own = list(x.shape)[len(x.shape) - count :]
        if _even(own, wanted) and not w.uses(1):
            window = [o // s for o, s in zip(own, wanted)]
            return _pool(w, PoolingType.MAX, x, window, window, 0, count, False), None
        axes = [_adaptive_indices(o, s) for o, s in zip(_fixed(x, count), wanted)]
        return _maximum_of(w, x, axes, w.uses(1))


for _count in (1, 2, 3):
    _max_pool(f"max_pool{_count}d", _count, False)
    _max_pool(f"max_pool{_count}d_with_indices", _count, True)
    _avg_pool(f"avg_pool{_count}d", _count)
    _adaptive_avg_pool(f"adaptive_avg_pool{_count}d", _count)
    _adaptive_avg_pool(f"_adaptive_avg_pool{_count}d", _count)
    _adaptive_max_pool(f"adaptive_max_pool{_count}d", _count)


@converter("col2im")
def _col2im(
    w: Writer,
    x: ITensor,
    size: Any,
    window: Any,
    dilation: Any,
    padding: Any,
    stride: Any,
) -> ITensor:
    """The operator of nn.Fold: puts columns back and adds them up where windows overlap."""
    batched = len(x.shape) == 3
    layer = w.operator(
        "Col2Im",
        [x if batched else w.unsqueeze(x, [0]), w.extents(list(size))],
        block=spread(window, 2),
        stride=spread(stride, 2),
        dilation=spread(dilation, 2),
        pre_padding=spread(padding, 2),
        post_padding=spread(padding, 2),
    )
    y = layer.get_output(0)
    return y if batched else w.squeeze(y, [0])


@converter("unfold_backward")
def _unfold_backward(
    w: Writer, x: ITensor, sizes: Any, dimension: int, size: int, step: int
) -> ITensor:
    """Puts the windows of an axis, whose elements the last axis has, back and adds them up where
    they overlap."""
    rank = len(x.shape) - 1
    axis = dimension % rank
    outer = [i for i in range(rank) if i != axis]
    extents = w.sizes(x)
    extents[:rank] = [own if i == axis else sizes[i] for i, own in enumerate(extents[:rank])]
    x = w.expand(x, extents)
    columns = w.reshape(w.transpose(x, [*outer, rank, axis]), [-1, size, extents[axis]])
    layer = w.operator(
        "Col2Im",
        [columns, w.extents([1, sizes[axis]])],
        block=[1, size],
        stride=[1, step],
        dilation=[1, 1],
        pre_padding=[0, 0],
        post_padding=[0, 0],
    )
    y = w.reshape(layer.get_output(0), [*(extents[i] for i in outer), sizes[axis]])
    order = [*outer, axis]
    return w.transpose(y, [order.index(i) for i in range(rank)])


@converter("unfold")
def _unfold(w: Writer, x: ITensor, dimension: int, size: int, step: int) -> ITensor:
    """The windows of an axis, with their elements along a new last axis."""
    rank = len(x.shape)
    if rank == 0:
        return w.unsqueeze(x, [0])
    axis = dimension % rank
    windows = known(w.meta.shape[axis])
    inner = torch.arange(size)
    if windows is not None:
        indices = w.constant(torch.arange(windows)[:, None] * step + inner)
    else:
        begins = w.mul(w.numbers(w.meta.shape[axis]), step)
        indices = w.add(w.unsqueeze(begins, [1]), w.constant(inner[None]))
    y = w.gather(x, indices, axis)
    axes = [i for i in range(rank + 1) if i != axis + 1]
    return w.transpose(y, [*axes, axis + 1])


@converter("im2col")
def _im2col(
    w: Writer, x: ITensor, window: Any, dilation: Any, padding: Any, stride: Any
) -> ITensor:
    """The operator of nn.Unfold: the elements of each window as a column."""
    batched = len(x.shape) == 4
    if not batched:
        x = w.unsqueeze(x, [0])
    pads = spread(padding, 2)
    batch, channels, *own = w.sizes(x)
    if any(pads):
        total = [w.arithmetic(ElementWiseOperation.SUM, o, 2 * p) for o, p in zip(own, pads)]
        begins, shape = [0, 0, *(-p for p in pads)], [batch, channels, *total]
        x = w.slice(x, begins, shape, [1] * 4, SampleMode.FILL, w.full(0, x.dtype))
    extents = _fixed(x, 2)
    columns = 1
    numbers = zip(extents, spread(window, 2), spread(stride, 2), spread(dilation, 2))
    for i, (extent, size, step, gap) in enumerate(numbers):
        indices = torch.tensor(_window_indices(extent, size, step, 0, gap, False)).T
        columns *= indices.shape[1]
        x = w.gather(x, w.constant(indices.contiguous()), 2 + 2 * i)
    y = w.transpose(x, [0, 1, 2, 4, 3, 5])
    elements = w.arithmetic(ElementWiseOperation.PROD, channels, math.prod(spread(window, 2)))
    y = w.reshape(y, [batch, elements, columns])
    return y if batched else w.squeeze(y, [0])
