"""Operators that move, choose or make elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .._core import (
    DataType,
    ElementWiseOperation,
    FillOperation,
    GatherMode,
    ITensor,
    SampleMode,
    ScatterMode,
)
from ._converters import converter
from ._elementwise import is_float
from ._writer import TO_TORCH, Extent, Unsupported, Writer, all_known, known

_SUM, _SUB = ElementWiseOperation.SUM, ElementWiseOperation.SUB


# Views. The shape of a result is that of PyTorch's fake tensor.


@converter(
    "view",
    "reshape",
    "_unsafe_view",
    "_reshape_alias",
    "flatten.using_ints",
    "unflatten.int",
    "view_copy",
    "_reshape_copy",
)
def _view(w: Writer, x: ITensor, *_args: Any) -> ITensor:
    return w.reshape(x, list(w.meta.shape))


@converter("unsqueeze")
def _unsqueeze(w: Writer, x: ITensor, dim: int) -> ITensor:
    return w.unsqueeze(x, [dim % (len(x.shape) + 1)])


@converter("squeeze", "squeeze.dim", "squeeze.dims")
def _squeeze(w: Writer, x: ITensor, dim: Any = None) -> ITensor:
    rank = len(x.shape)
    axes = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    chosen = [axis % rank for axis in axes if rank] if rank else []
    return w.squeeze(x, [axis for axis in chosen if x.shape[axis] == 1])


@converter("permute", "permute_copy")
def _permute(w: Writer, x: ITensor, dims: Sequence[int]) -> ITensor:
    return w.transpose(x, dims)


@converter("transpose.int", "swapaxes")
def _transpose(w: Writer, x: ITensor, a: int, b: int) -> ITensor:
    axes = list(range(len(x.shape)))
    if axes:
        axes[a], axes[b] = axes[b], axes[a]
    return w.transpose(x, axes)


@converter("t", "numpy_T", "mT")
def _t(w: Writer, x: ITensor) -> ITensor:
    return x if len(x.shape) < 2 else _transpose(w, x, -1, -2)


@converter("movedim.int")
def _movedim(w: Writer, x: ITensor, source: int, destination: int) -> ITensor:
    axes = list(range(len(x.shape)))
    axes.insert(destination % len(axes), axes.pop(source % len(axes)))
    return w.transpose(x, axes)


@converter("expand", "expand_as")
def _expand(w: Writer, x: ITensor, *_args: Any, **_options: Any) -> ITensor:
    return w.expand(x, list(w.meta.shape))


@converter("repeat", "tile")
def _repeat(w: Writer, x: ITensor, repeats: Sequence[Any]) -> ITensor:
    shape = list(w.meta.shape)
    x = w.unsqueeze(x, list(range(len(shape) - len(x.shape))))
    return w.slice(x, [0] * len(shape), shape, [1] * len(shape), SampleMode.WRAP)


def _dense_axes(base: Any) -> list[int]:
    """The axes of a tensor in memory order. The elements must lie without gaps.

    :raises Unsupported: the elements have gaps or overlap.
    """
    axes = sorted(range(base.dim()), key=lambda axis: (-base.stride(axis), base.shape[axis]))
    expected = 1
    for axis in reversed(axes):
        if base.shape[axis] != 1 and base.stride(axis) != expected:
            raise Unsupported("a view by strides of a tensor whose elements are not one by one")
        expected *= base.shape[axis]
    return axes


@converter("as_strided", "as_strided_copy")
def _as_strided(
    w: Writer, x: ITensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> ITensor:
    (base,) = w.inputs
    given = [*size, *stride, *base.shape, *base.stride(), base.storage_offset(), offset or 0]
    if not all_known(given):
        raise Unsupported("a view by strides whose numbers are not known")
    flat = w.reshape(w.transpose(x, _dense_axes(base)), [-1])
    first = 0 if offset is None else offset - base.storage_offset()
    last = first + sum((extent - 1) * step for extent, step in zip(size, stride))
    if 0 in size or first < 0 or last >= base.numel():
        raise Unsupported("a view by strides of elements that are not the tensor's own")
    # Rows of the last axes are taken as a whole.
    axes, row = len(size), 1
    for axis in reversed(range(len(size))):
        longer = row * size[axis]
        steps = [first, base.numel(), *stride[:axis]]
        if stride[axis] != row or any(step % longer for step in steps):
            break
        axes, row = axis, longer
    places = torch.tensor(first // row)
    for extent, step in zip(size[:axes], stride[:axes]):
        places = places.unsqueeze(-1) + torch.arange(extent) * (step // row)
    rows = w.gather(w.reshape(flat, [-1, row]), w.constant(places), 0)
    return w.reshape(rows, list(size))


def _start(w: Writer, x: ITensor, axis: int, start: Any) -> Extent:
    """The start of a PyTorch slice. Negative numbers count from the end."""
    number = known(start)
    if number is None:
        if start.node.expr.is_nonnegative:
            return start
        extent, op = w.size(x, axis), ElementWiseOperation
        back = w.arithmetic(op.MIN, w.arithmetic(op.MAX, w.arithmetic(_SUB, 0, start), 0), 1)
        shift = w.arithmetic(op.PROD, extent, back)  # the extent if the start is negative, else 0
        return w.arithmetic(op.MAX, w.arithmetic(_SUM, start, shift), 0)
    extent = w.size(x, axis)
    if number >= 0:
        return min(number, extent) if isinstance(extent, int) else number
    if isinstance(extent, int):
        return max(extent + number, 0)
    return w.arithmetic(ElementWiseOperation.MAX, 0, w.arithmetic(_SUM, extent, number))


@converter("slice.Tensor", "slice_copy.Tensor")
def _slice(
    w: Writer, x: ITensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> ITensor:
    rank = len(x.shape)
    axis = dim % rank
    last = (1 << 63) - 1 if end is None else known(end)
    is_whole = last == (1 << 63) - 1 or (last == x.shape[axis] != -1)
    if is_whole and known(0 if start is None else start) == 0 and step == 1:
        return x
    starts: list[Extent] = [0] * rank
    starts[axis] = _start(w, x, axis, 0 if start is None else start)
    strides = [step if i == axis else 1 for i in range(rank)]
    return w.slice(x, starts, list(w.meta.shape), strides)


@converter("narrow", "narrow_copy")
def _narrow(w: Writer, x: ITensor, dim: int, start: Any, length: Any) -> ITensor:
    rank = len(x.shape)
    starts: list[Extent] = [0] * rank
    starts[dim % rank] = _start(w, x, dim % rank, start)
    return w.slice(x, starts, list(w.meta.shape), [1] * rank)


@converter("select.int")
def _select(w: Writer, x: ITensor, dim: int, index: Any) -> ITensor:
    axis = dim % len(x.shape)
    if id(x) in w.stacks and axis == len(x.shape) - 1:
        return w.stacks[id(x)][1][index]
    return w.gather(x, w.reshape(w.extent(_start(w, x, axis, index)), []), axis)


def _parts(w: Writer, x: ITensor, dim: int) -> list[ITensor]:
    """The parts of a split, by the extents of PyTorch's fake tensors."""
    rank = len(x.shape)
    axis = dim % rank
    offset: Extent = 0
    parts = []
    for meta in w.meta:
        start: list[Extent] = [0] * rank
        start[axis] = offset
        parts.append(w.slice(x, start, list(meta.shape), [1] * rank))
        offset = w.arithmetic(_SUM, offset, meta.shape[axis])
    return parts


@converter("split.Tensor", "split_with_sizes", "split.sizes", "chunk")
def _split(w: Writer, x: ITensor, size: Any, dim: int = 0) -> Any:
    return _parts(w, x, dim)


@converter("unbind.int", "unbind_copy.int")
def _unbind(w: Writer, x: ITensor, dim: int = 0) -> Any:
    return [
        w.gather(x, w.constant(torch.tensor(i, dtype=torch.int64)), dim) for i in range(len(w.meta))
    ]


@converter("flip")
def _flip(w: Writer, x: ITensor, dims: Sequence[int]) -> ITensor:
    rank, extents = len(x.shape), w.sizes(x)
    axes = {axis % rank for axis in dims}
    start = [w.arithmetic(_SUB, e, 1) if i in axes else 0 for i, e in enumerate(extents)]
    return w.slice(x, start, extents, [-1 if i in axes else 1 for i in range(rank)])


@converter("roll")
def _roll(w: Writer, x: ITensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> ITensor:
    if not dims:
        flat = w.reshape(x, [-1])
        return w.reshape(_roll(w, flat, shifts, [0]), list(w.meta.shape))
    rank, extents = len(x.shape), w.sizes(x)
    start: list[Extent] = [0] * rank
    for axis, shift in zip(dims, shifts):
        extent, number = extents[axis], known(shift)
        if number is None or not isinstance(extent, int):
            raise Unsupported("roll by or along an extent that is not known")
        start[axis] = -number % extent if extent else 0
    return w.slice(x, start, extents, [1] * rank, SampleMode.WRAP)


@converter("cat", "concat")
def _cat(w: Writer, tensors: Sequence[ITensor], dim: int = 0) -> ITensor:
    rank = len(w.meta.shape)
    # PyTorch ignores tensors of shape [0].
    kept = [x for x in tensors if len(x.shape) == rank and x.shape[dim] != 0]
    return w.concatenate([w.cast(x, w.dtype) for x in kept or tensors], dim)


@converter("stack")
def _stack(w: Writer, tensors: Sequence[ITensor], dim: int = 0) -> ITensor:
    axis = dim % len(w.meta.shape)
    parts = [w.unsqueeze(w.cast(x, w.dtype), [axis]) for x in tensors]
    return w.concatenate(parts, axis)


# Padding

_MODES = {
    "constant": SampleMode.FILL,
    "reflect": SampleMode.REFLECT,
    "replicate": SampleMode.CLAMP,
    "circular": SampleMode.WRAP,
}


@converter("pad")
def _pad(
    w: Writer, x: ITensor, pads: Sequence[Any], mode: str = "constant", value: Any = None
) -> ITensor:
    rank = len(x.shape)
    start: list[Extent] = [0] * rank
    for i, before in enumerate(pads[::2]):
        start[rank - 1 - i] = w.arithmetic(_SUB, 0, before)
    if mode == "circular" and any(known(p) is None or p < 0 for p in pads):
        # Elements that negative padding cuts off do not wrap around.
        if not all_known(pads):
            raise Unsupported("circular padding whose extents are not known")
        begin, extents = [0] * rank, w.sizes(x)
        for i, (before, after) in enumerate(zip(pads[::2], pads[1::2])):
            axis = rank - 1 - i
            begin[axis], start[axis] = max(-before, 0), min(-before, 0)
            extents[axis] = w.arithmetic(_SUM, extents[axis], min(before, 0) + min(after, 0))
        x = w.slice(x, begin, extents, [1] * rank)
    fill = w.full(value or 0, x.dtype) if mode == "constant" else None
    return w.slice(x, start, list(w.meta.shape), [1] * rank, _MODES[mode], fill)


@converter("constant_pad_nd")
def _constant_pad(w: Writer, x: ITensor, pads: Sequence[Any], value: Any = 0) -> ITensor:
    return _pad(w, x, pads, "constant", value)


for _count in (1, 2, 3):
    converter(f"reflection_pad{_count}d")(lambda w, x, pads: _pad(w, x, pads, "reflect"))
    converter(f"replication_pad{_count}d")(lambda w, x, pads: _pad(w, x, pads, "replicate"))


# Elements by indices


@converter("embedding")
def _embedding(w: Writer, weight: ITensor, indices: ITensor, *_args: Any) -> ITensor:
    return w.gather(weight, indices, 0)


@converter("index_select")
def _index_select(w: Writer, x: ITensor, dim: int, index: ITensor) -> ITensor:
    return w.with_axis([x, index], lambda x, index: w.gather(x, index, dim))


@converter("take")
def _take(w: Writer, x: ITensor, index: ITensor) -> ITensor:
    return w.gather(w.reshape(x, [-1]), index, 0)


@converter("gather")
def _gather(w: Writer, x: ITensor, dim: int, index: ITensor, sparse_grad: bool = False) -> ITensor:
    if len(x.shape) == 0 and len(index.shape) == 1:
        return w.gather_elements(w.unsqueeze(x, [0]), index, 0)
    return w.with_axis([x, index], lambda x, index: w.gather_elements(x, index, dim))


def _joined_indices(w: Writer, indices: Sequence[ITensor]) -> ITensor:
    """Joins several broadcasting index tensors to [..., n] for GatherMode.ND."""
    if len(indices) == 1:
        index = indices[0]
        return w.unsqueeze(w.cast(index, DataType.INT64), [len(index.shape)])
    aligned = w.align(*[w.cast(index, DataType.INT64) for index in indices])
    whole = aligned[0]
    for other in aligned[1:]:  # `whole` gets the broadcast shape
        whole = w.add(whole, w.binary(_SUB, other, other))
    nothing = w.binary(_SUB, whole, whole)
    parts = [w.unsqueeze(w.add(index, nothing), [len(whole.shape)]) for index in aligned]
    return w.concatenate(parts, -1)


def _from_end(w: Writer, x: ITensor, axes: Sequence[int], indices: Sequence[ITensor]) -> list[Any]:
    """The indices with negative ones counted from the start instead of the end."""
    result = []
    for axis, index in zip(axes, indices):
        index = w.cast(index, DataType.INT64)
        extent = w.reshape(w.extent(w.size(x, axis)), [1] * len(index.shape))
        negative = w.binary(ElementWiseOperation.LESS, index, 0, DataType.INT64)
        result.append(w.select(negative, w.add(index, extent), index))
    return result


def _places(
    w: Writer, x: ITensor, indices: Sequence[ITensor | None]
) -> tuple[list[int], list[Any]]:
    """The indexed axes, and the indices of each, none negative. A mask stands for the places where
    it is true, along all its axes."""
    axes: list[int] = []
    found: list[Any] = []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.dtype == DataType.BOOL:
            rank = len(index.shape)
            places = w.network.add_non_zero(index, DataType.INT64).get_output(0)
            for i in range(rank):
                axes.append(axis + i)
                number = w.constant(torch.tensor(i, dtype=torch.int64))
                found.append(w.gather(places, number, 0))
            axis += rank
        else:
            axes.append(axis)
            found += _from_end(w, x, [axis], [index])
            axis += 1
    return axes, found


@converter("index.Tensor", "_unsafe_index.Tensor")
def _index(w: Writer, x: ITensor, indices: Sequence[ITensor | None]) -> ITensor:
    axes, present = _places(w, x, indices)
    if len(axes) == 1:
        return w.gather(x, present[0], axes[0])
    rank, first, count = len(x.shape), axes[0], len(axes)
    x = w.transpose(x, [*axes, *(i for i in range(rank) if i not in axes)])
    joined = _joined_indices(w, present)
    y = w.network.add_gather_v2(x, joined, GatherMode.ND).get_output(0)
    if axes != list(range(first, first + count)):
        return y  # the axes of the indices stay in front
    chosen = len(y.shape) - (rank - count)
    order = [*range(chosen, chosen + first), *range(chosen), *range(chosen + first, len(y.shape))]
    return w.transpose(y, order)


@converter("index_put", "_unsafe_index_put")
def _index_put(
    w: Writer,
    x: ITensor,
    indices: Sequence[ITensor | None],
    values: ITensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> ITensor:
    values = w.cast(values, x.dtype)
    mask = indices[0]
    if len(indices) == 1 and mask is not None and mask.dtype == DataType.BOOL and not accumulate:
        if all(extent == 1 for extent in values.shape):
            inner = list(range(len(mask.shape), len(x.shape)))
            return w.select(w.unsqueeze(mask, inner), w.reshape(values, []), x)
    axes, present = _places(w, x, indices)
    rank, first, count = len(x.shape), axes[0], len(axes)
    front = [*axes, *(i for i in range(rank) if i not in axes)]
    joined = _joined_indices(w, present)
    chosen = len(joined.shape) - 1  # number of axes that come from the indices
    moved = w.transpose(x, front)
    shape = [*w.sizes(joined)[:-1], *w.sizes(moved)[count:]]
    if axes == list(range(first, first + count)) and first:
        order = [*range(first), *range(first + chosen, len(shape))]
        there = [*range(first, first + chosen), *order]
        own = [shape[there.index(i)] for i in range(len(shape))]
        updates = w.transpose(w.expand(values, own), there)
    else:
        updates = w.expand(values, shape)
    y = w.scatter(moved, joined, updates, ScatterMode.ND, reduction="add" if accumulate else "none")
    return w.transpose(y, [front.index(i) for i in range(rank)])


@converter("masked_select")
def _masked_select(w: Writer, x: ITensor, mask: ITensor) -> ITensor:
    flat, chosen = (w.reshape(each, [-1]) for each in w.broadcast(x, mask))
    return _index(w, flat, [chosen])


@converter("masked_scatter")
def _masked_scatter(w: Writer, x: ITensor, mask: ITensor, source: ITensor) -> ITensor:
    """Replaces elements where the mask is true by the elements of the source in order."""
    extents = list(w.meta.shape)
    x = w.expand(x, extents)
    chosen = w.reshape(w.cast(w.expand(mask, extents), DataType.INT64), [-1])
    number = w.binary(_SUB, w.running_sum(chosen, 0), chosen)
    flat = w.reshape(source, [-1])
    last = w.binary(_SUB, w.extent(w.size(flat, 0)), 1)
    number = w.binary(ElementWiseOperation.MIN, number, last)
    taken = w.reshape(w.gather(flat, number, 0), extents)
    return w.select(mask, taken, x)


def _updates(w: Writer, index: ITensor, source: ITensor) -> ITensor:
    """The part of the source with as many elements as there are indices."""
    if list(source.shape) == list(index.shape):
        return source
    rank = len(index.shape)
    return w.slice(source, [0] * rank, w.sizes(index), [1] * rank)


_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul"}
_REDUCTIONS |= {"amax": "max", "amin": "min"}


@converter("scatter.src", "scatter.reduce")
def _scatter(
    w: Writer, x: ITensor, dim: int, index: ITensor, source: ITensor, *, reduce: str = ""
) -> ITensor:
    return w.with_axis(
        [x, index, source],
        lambda x, index, source: w.scatter(
            x,
            index,
            _updates(w, index, source),
            ScatterMode.ELEMENT,
            dim % len(x.shape),
            _REDUCTIONS[reduce] if reduce else "none",
        ),
    )


@converter("scatter.value", "scatter.value_reduce")
def _scatter_value(
    w: Writer, x: ITensor, dim: int, index: ITensor, value: Any, *, reduce: str = ""
) -> ITensor:
    updates = w.expand(w.full(value, x.dtype, len(index.shape)), w.sizes(index))
    return _scatter(w, x, dim, index, updates, reduce=reduce)


@converter("scatter_add")
def _scatter_add(w: Writer, x: ITensor, dim: int, index: ITensor, source: ITensor) -> ITensor:
    return _scatter(w, x, dim, index, source, reduce="sum")


@converter("scatter_reduce.two")
def _scatter_reduce(
    w: Writer,
    x: ITensor,
    dim: int,
    index: ITensor,
    source: ITensor,
    reduce: str,
    include_self: bool = True,
) -> ITensor:
    mean = reduce == "mean"
    kind = "sum" if mean else reduce
    if not include_self:
        # The old element is excluded, so it is replaced by the neutral element of the reduction.
        least, most = (-math.inf, math.inf) if is_float(x) else _integer_limits(x.dtype)
        neutral = {"sum": 0, "prod": 1, "amax": least, "amin": most}[kind]
        x = _scatter_value(w, x, dim, index, neutral)
    y = _scatter(w, x, dim, index, source, reduce=kind)
    if not mean:
        return y
    if not is_float(x):
        raise Unsupported("the mean of integers")
    ones = w.expand(w.full(1, x.dtype, len(index.shape)), w.sizes(index))
    count = w.expand(w.full(1, x.dtype, len(x.shape)), w.sizes(x))
    if not include_self:
        count = _scatter_value(w, count, dim, index, 0)
    count = _scatter(w, count, dim, index, ones, reduce="sum")
    return w.binary(ElementWiseOperation.DIV, y, count)


@converter("index_reduce")
def _index_reduce(
    w: Writer,
    x: ITensor,
    dim: int,
    index: ITensor,
    source: ITensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> ITensor:
    rank = len(x.shape)
    if rank == 0 or len(source.shape) < rank:
        raise Unsupported("reductions of scalars by indices")
    axis = dim % rank
    places = w.reshape(index, [-1 if i == axis else 1 for i in range(rank)])
    places = w.expand(places, w.sizes(source))
    return _scatter_reduce(w, x, dim, places, source, reduce, include_self)


def _integer_limits(dtype: DataType) -> tuple[int, int]:
    info = torch.iinfo(TO_TORCH[dtype])
    return info.min, info.max


def _along(w: Writer, x: ITensor, dim: int, index: ITensor, source: ITensor, how: str) -> ITensor:
    """Writes slices of the source into x along an axis."""
    if len(x.shape) == 0:
        x = w.unsqueeze(x, [0])
        source = w.reshape(source, [-1])
        return w.squeeze(_along(w, x, 0, w.reshape(index, [-1]), source, how), [0])
    rank = len(x.shape)
    axis = dim % rank
    front = [axis, *(i for i in range(rank) if i != axis)]
    joined = _joined_indices(w, _from_end(w, x, [axis], [w.reshape(index, [-1])]))
    if len(source.shape) < rank:
        source = w.unsqueeze(source, [axis])
    moved, updates = w.transpose(x, front), w.transpose(source, front)
    y = w.scatter(moved, joined, updates, ScatterMode.ND, reduction=how)
    return w.transpose(y, [front.index(i) for i in range(rank)])


@converter("index_copy")
def _index_copy(w: Writer, x: ITensor, dim: int, index: ITensor, source: ITensor) -> ITensor:
    rank = len(x.shape)
    axis = dim % rank if rank else 0
    if axis == 0 or len(source.shape) < rank:
        return _along(w, x, dim, index, source, "none")
    places = w.reshape(index, [-1 if i == axis else 1 for i in range(rank)])
    places = w.expand(places, w.sizes(source))
    return w.scatter(x, places, source, ScatterMode.ELEMENT, axis)


@converter("index_add")
def _index_add(
    w: Writer, x: ITensor, dim: int, index: ITensor, source: ITensor, *, alpha: Any = 1
) -> ITensor:
    if alpha != 1:
        source = w.binary(ElementWiseOperation.PROD, source, alpha, x.dtype)
    return _along(w, x, dim, index, source, "add")


@converter("slice_scatter")
def _slice_scatter(
    w: Writer,
    x: ITensor,
    source: ITensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> ITensor:
    rank = len(x.shape)
    axis = dim % rank
    extents = w.sizes(x)
    first = _start(w, x, axis, 0 if start is None else start)
    if step != 1:
        raise Unsupported(f"slice_scatter with step {step}")
    extent, length = extents[axis], w.size(source, axis)
    if first == 0 and length == extent and isinstance(extent, int):
        return w.cast(source, x.dtype)
    after = w.arithmetic(_SUM, first, length)
    parts = [w.cast(source, x.dtype)]
    for begin, stop in ((0, first), (after, extent)):
        size = w.arithmetic(_SUB, stop, begin)
        if size == 0 and isinstance(size, int):
            continue
        starts: list[Extent] = [0] * rank
        starts[axis] = begin
        shape = [size if i == axis else e for i, e in enumerate(extents)]
        part = w.slice(x, starts, shape, [1] * rank)
        parts.insert(0 if begin is not after else len(parts), part)
    return w.concatenate(parts, axis)


@converter("select_scatter")
def _select_scatter(w: Writer, x: ITensor, source: ITensor, dim: int, index: Any) -> ITensor:
    axis = dim % len(x.shape)
    return _slice_scatter(w, x, w.unsqueeze(source, [axis]), axis, index)


@converter("copy")
def _copy(w: Writer, x: ITensor, source: ITensor, non_blocking: bool = False) -> ITensor:
    return w.expand(w.cast(source, x.dtype), list(w.meta.shape))


@converter("diagonal", "diagonal_copy")
def _diagonal(w: Writer, x: ITensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ITensor:
    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    rows, columns = x.shape[first], x.shape[second]
    if rows < 0 or columns < 0:
        raise Unsupported(f"the diagonal of a matrix of {rows} by {columns}")
    outer = [i for i in range(rank) if i not in (first, second)]
    moved = w.transpose(x, [*outer, first, second])
    flat = w.reshape(moved, [*w.sizes(moved)[: rank - 2], rows * columns])
    numbers = torch.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    return w.gather(flat, w.constant(numbers), rank - 2)


@converter("nonzero")
def _nonzero(w: Writer, x: ITensor) -> ITensor:
    return w.transpose(w.network.add_non_zero(x, DataType.INT64).get_output(0), [1, 0])


# New tensors


def _filled(w: Writer, value: Any) -> ITensor:
    shape = list(w.meta.shape)
    return w.expand(w.tensor(value, w.dtype, len(shape)), shape)


@converter("full", "new_full", "full_like")
def _full(w: Writer, _like: Any, *args: Any, **_options: Any) -> ITensor:
    return _filled(w, args[-1])


@converter("zeros", "zeros_like", "new_zeros", "empty.memory_format", "empty_like", "new_empty")
def _zeros(w: Writer, *_args: Any, **_options: Any) -> ITensor:
    return _filled(w, 0)


@converter("ones", "ones_like", "new_ones")
def _ones(w: Writer, *_args: Any, **_options: Any) -> ITensor:
    return _filled(w, 1)


@converter("scalar_tensor")
def _scalar_tensor(w: Writer, value: Any, **_options: Any) -> ITensor:
    return w.tensor(value, w.dtype)


@converter("arange", "arange.start", "arange.start_step")
def _arange(w: Writer, *bounds: Any, **_options: Any) -> ITensor:
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if all(not isinstance(value, torch.SymInt) for value in (start, end, step)):
        numbers = torch.arange(start, end, step, dtype=w.meta.dtype, device="cpu")
        return w.constant(numbers)
    dtype = w.dtype if w.dtype in (DataType.FLOAT, DataType.INT32) else DataType.INT64
    layer = w.network.add_fill([0], FillOperation.LINSPACE, dtype)
    layer.set_input(0, w.extents(list(w.meta.shape)))
    layer.set_input(1, w.tensor(start, dtype))
    layer.set_input(2, w.tensor(step, dtype, 1))
    return w.cast(layer.get_output(0), w.dtype)


def _triangle(w: Writer, x: ITensor, diagonal: int, upper: bool) -> ITensor:
    """A mask [rows, columns] of the elements that a triangular matrix keeps."""
    extents = [w.size(x, -2), w.size(x, -1)]
    if all_known(extents):
        ones = torch.ones(extents[0], extents[1], dtype=torch.bool)
        return w.constant(ones.triu(diagonal) if upper else ones.tril(diagonal))
    rows, columns = (w.unsqueeze(w.numbers(e), [1 - axis]) for axis, e in enumerate(extents))
    op = ElementWiseOperation.GREATER if upper else ElementWiseOperation.LESS
    limit = diagonal - 1 if upper else diagonal + 1
    return w.binary(op, columns, w.add(rows, limit))


def _keeps_triangle(name: str, upper: bool) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor, diagonal: int = 0) -> ITensor:
        mask = _triangle(w, x, diagonal, upper)
        return w.select(mask, x, w.full(0, x.dtype))


_keeps_triangle("triu", True)
_keeps_triangle("tril", False)
