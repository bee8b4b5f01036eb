"""Operators that move, choose or make elements."""

from __future__ import annotations

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
from ._writer import Extent, Unsupported, Writer, all_known, known

_SUM, _SUB = ElementWiseOperation.SUM, ElementWiseOperation.SUB


# Views. The shape of a result is what PyTorch's fake tensors say.


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


@converter("permute")
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


def _start(w: Writer, x: ITensor, axis: int, start: Any) -> Extent:
    """Where a slice of PyTorch begins: negative numbers count from the end."""
    number = known(start)
    if number is None:
        if not start.node.expr.is_nonnegative:
            raise Unsupported(f"a slice from {start} on, which may be negative")
        return start
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
    if (
        known(start or 0) == 0
        and step == 1
        and known(end if end is not None else 1 << 62)
        in (
            x.shape[axis],
            (1 << 63) - 1,
            1 << 62,
        )
    ):
        return x
    starts: list[Extent] = [0] * rank
    starts[axis] = _start(w, x, axis, 0 if start is None else start)
    strides = [step if i == axis else 1 for i in range(rank)]
    return w.slice(x, starts, list(w.meta.shape), strides)


@converter("narrow")
def _narrow(w: Writer, x: ITensor, dim: int, start: Any, length: Any) -> ITensor:
    rank = len(x.shape)
    starts: list[Extent] = [0] * rank
    starts[dim % rank] = _start(w, x, dim % rank, start)
    return w.slice(x, starts, list(w.meta.shape), [1] * rank)


@converter("select.int")
def _select(w: Writer, x: ITensor, dim: int, index: Any) -> ITensor:
    axis = dim % len(x.shape)
    return w.gather(x, w.reshape(w.extent(_start(w, x, axis, index)), []), axis)


def _parts(w: Writer, x: ITensor, dim: int) -> list[ITensor]:
    """What a split gives, by the extents that PyTorch's fake tensors have."""
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


@converter("unbind.int")
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
    # PyTorch takes tensors of shape [0] for nothing.
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
    return w.gather(x, index, dim)


@converter("gather")
def _gather(w: Writer, x: ITensor, dim: int, index: ITensor, sparse_grad: bool = False) -> ITensor:
    layer = w.network.add_gather_v2(x, index, GatherMode.ELEMENT)
    layer.axis = dim % len(x.shape)
    return layer.get_output(0)


def _joined_indices(w: Writer, indices: Sequence[ITensor]) -> ITensor:
    """[..., n] for GatherMode.ND of several tensors that broadcast."""
    if len(indices) == 1:
        index = indices[0]
        return w.unsqueeze(w.cast(index, DataType.INT64), [len(index.shape)])
    aligned = w.align(*[w.cast(index, DataType.INT64) for index in indices])
    whole = aligned[0]
    for other in aligned[1:]:  # of the broadcast shape
        whole = w.add(whole, w.binary(_SUB, other, other))
    nothing = w.binary(_SUB, whole, whole)
    parts = [w.unsqueeze(w.add(index, nothing), [len(whole.shape)]) for index in aligned]
    return w.concatenate(parts, -1)


def _from_end(w: Writer, x: ITensor, axes: Sequence[int], indices: Sequence[ITensor]) -> list[Any]:
    """Indices that are not negative."""
    result = []
    for axis, index in zip(axes, indices):
        index = w.cast(index, DataType.INT64)
        extent = w.reshape(w.extent(w.size(x, axis)), [1] * len(index.shape))
        negative = w.binary(ElementWiseOperation.LESS, index, 0, DataType.INT64)
        result.append(w.select(negative, w.add(index, extent), index))
    return result


@converter("index.Tensor", "_unsafe_index.Tensor")
def _index(w: Writer, x: ITensor, indices: Sequence[ITensor | None]) -> ITensor:
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    present = [index for index in indices if index is not None]
    if any(index.dtype == DataType.BOOL for index in present):
        if len(present) > 1 or axes != [0]:
            raise Unsupported("a mask beside other indices")
        places = w.network.add_non_zero(present[0], DataType.INT64).get_output(0)
        layer = w.network.add_gather_v2(x, w.transpose(places, [1, 0]), GatherMode.ND)
        return layer.get_output(0)
    if axes != list(range(axes[0], axes[-1] + 1)):
        raise Unsupported("indices of axes that are not neighbours")
    present = _from_end(w, x, axes, present)
    if len(axes) == 1:
        return w.gather(x, present[0], axes[0])
    rank, first, count = len(x.shape), axes[0], len(axes)
    x = w.transpose(x, [*axes, *(i for i in range(rank) if i not in axes)])
    joined = _joined_indices(w, present)
    y = w.network.add_gather_v2(x, joined, GatherMode.ND).get_output(0)
    chosen = len(y.shape) - (rank - count)  # axes that the indices gave, in front
    order = [*range(chosen, chosen + first), *range(chosen), *range(chosen + first, len(y.shape))]
    return w.transpose(y, order)


@converter("index_put")
def _index_put(
    w: Writer,
    x: ITensor,
    indices: Sequence[ITensor | None],
    values: ITensor,
    accumulate: bool = False,
) -> ITensor:
    if accumulate or any(index is None for index in indices):
        raise Unsupported("index_put that adds up, or that leaves axes out")
    present: list[Any] = list(indices)
    if any(index.dtype == DataType.BOOL for index in present):
        if len(present) == 1 and len(values.shape) == 0:
            mask = present[0]
            rank = len(x.shape) - len(mask.shape)
            axes = list(range(len(mask.shape), len(mask.shape) + rank))
            return w.select(w.unsqueeze(mask, axes), w.cast(values, x.dtype), x)
        raise Unsupported("index_put by a mask of more than one value")
    joined = _joined_indices(w, _from_end(w, x, list(range(len(present))), present))
    shape = [*w.sizes(joined)[:-1], *w.sizes(x)[len(present) :]]
    updates = w.expand(w.cast(values, x.dtype), shape)
    return w.network.add_scatter(x, joined, updates, ScatterMode.ND).get_output(0)


def _scattered(w: Writer, x: ITensor, dim: int, index: ITensor, updates: ITensor) -> ITensor:
    layer = w.network.add_scatter(x, index, updates, ScatterMode.ELEMENT)
    layer.axis = dim % len(x.shape)
    return layer.get_output(0)


@converter("scatter.src")
def _scatter(w: Writer, x: ITensor, dim: int, index: ITensor, source: ITensor) -> ITensor:
    if list(source.shape) != list(index.shape):
        rank = len(x.shape)
        source = w.slice(source, [0] * rank, w.sizes(index), [1] * rank)
    return _scattered(w, x, dim, index, source)


@converter("scatter.value")
def _scatter_value(w: Writer, x: ITensor, dim: int, index: ITensor, value: Any) -> ITensor:
    updates = w.expand(w.full(value, x.dtype, len(x.shape)), w.sizes(index))
    return _scattered(w, x, dim, index, updates)


@converter("index_copy")
def _index_copy(w: Writer, x: ITensor, dim: int, index: ITensor, source: ITensor) -> ITensor:
    rank = len(x.shape)
    axis = dim % rank
    front = [axis, *(i for i in range(rank) if i != axis)]
    back = [front.index(i) for i in range(rank)]
    joined = _joined_indices(w, _from_end(w, x, [axis], [index]))
    moved, updates = w.transpose(x, front), w.transpose(source, front)
    y = w.network.add_scatter(moved, joined, updates, ScatterMode.ND).get_output(0)
    return w.transpose(y, back)


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
    """Where a matrix keeps its elements, [rows, columns] of BOOL."""
    extents = [w.size(x, -2), w.size(x, -1)]
    if all_known(extents):
        ones = torch.ones(extents[0], extents[1], dtype=torch.bool)
        return w.constant(ones.triu(diagonal) if upper else ones.tril(diagonal))
    numbers = []
    for axis, extent in enumerate(extents):
        layer = w.network.add_fill([0], FillOperation.LINSPACE, DataType.INT64)
        layer.set_input(0, w.extent(extent))
        layer.set_input(1, w.full(0, DataType.INT64))
        layer.set_input(2, w.full(1, DataType.INT64, 1))
        numbers.append(w.unsqueeze(layer.get_output(0), [1 - axis]))
    rows, columns = numbers
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
