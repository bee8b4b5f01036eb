"""Running products, maxima and logarithms of sums; medians and order statistics; bags of
embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._core import (
    DataType,
    ElementWiseOperation,
    ITensor,
    ReduceOperation,
    ScatterMode,
    TopKOperation,
    UnaryOperation,
)
from ._converters import converter
from ._elementwise import is_float
from ._writer import Unsupported, Writer, known

_OP = ElementWiseOperation
Combine = Callable[[Sequence[ITensor], Sequence[ITensor]], Sequence[ITensor]]


def _part(w: Writer, x: ITensor, axis: int, start: int, extent: int) -> ITensor:
    sizes = w.sizes(x)
    starts = [start if i == axis else 0 for i in range(len(sizes))]
    return w.slice(x, starts, [*sizes[:axis], extent, *sizes[axis + 1 :]], [1] * len(sizes))


def _scan(w: Writer, tensors: Sequence[ITensor], dim: int, combine: Combine) -> list[ITensor]:
    """Combines each element with all elements before it, by doubling (Hillis and Steele, 1986).

    :param combine: an associative function of the earlier and the later elements.
    """
    axis = dim % len(tensors[0].shape)
    extent = tensors[0].shape[axis]
    if extent < 0:
        raise Unsupported("a running result along an axis of unknown extent")
    results, distance = list(tensors), 1
    while distance < extent:
        earlier = [_part(w, x, axis, 0, extent - distance) for x in results]
        later = [_part(w, x, axis, distance, extent - distance) for x in results]
        joined = combine(earlier, later)
        first = [_part(w, x, axis, 0, distance) for x in results]
        results = [w.concatenate([a, b], axis) for a, b in zip(first, joined)]
        distance *= 2
    return results


@converter("cumprod")
def _cumprod(w: Writer, x: ITensor, dim: int, dtype: Any = None) -> ITensor:
    x = w.cast(x, w.dtype)
    multiply: Combine = lambda a, b: [w.binary(_OP.PROD, a[0], b[0])]  # noqa: E731
    return w.with_axis([x], lambda x: _scan(w, [x], dim, multiply)[0])


@converter("logcumsumexp")
def _logcumsumexp(w: Writer, x: ITensor, dim: int) -> ITensor:
    def join(a: Sequence[ITensor], b: Sequence[ITensor]) -> list[ITensor]:
        most = w.binary(_OP.MAX, a[0], b[0])
        difference = w.binary(_OP.SUB, w.binary(_OP.MIN, a[0], b[0]), most)
        rest = w.unary(UnaryOperation.LOG, w.add(w.unary(UnaryOperation.EXP, difference), 1.0))
        same = w.binary(_OP.EQUAL, a[0], b[0])  # equal infinities have no difference
        return [w.add(most, w.select(same, w.full(math.log(2), most.dtype, len(most.shape)), rest))]

    return w.with_axis([x], lambda x: _scan(w, [x], dim, join)[0])


def _running_extreme(name: str, is_later: ElementWiseOperation) -> None:
    """Registers a running extreme: the values, and their last indices. NaN stays."""

    @converter(name)
    def convert(w: Writer, x: ITensor, dim: int) -> Any:
        dtype = x.dtype
        if dtype == DataType.BOOL:
            x = w.cast(x, DataType.INT32)

        def join(a: Sequence[ITensor], b: Sequence[ITensor]) -> list[ITensor]:
            takes = w.binary(is_later, b[0], a[0])
            takes = w.binary(_OP.OR, takes, w.binary(_OP.EQUAL, b[0], a[0]))
            if is_float(x):
                takes = w.binary(_OP.OR, takes, w.unary(UnaryOperation.ISNAN, b[0]))
            return [w.select(takes, later, earlier) for earlier, later in zip(a, b)]

        def run(x: ITensor) -> Any:
            axis = dim % len(x.shape)
            numbers = w.numbers(w.size(x, axis))
            shape = [-1 if i == axis else 1 for i in range(len(x.shape))]
            places = w.expand(w.reshape(numbers, shape), w.sizes(x))
            values, indices = _scan(w, [x, places], axis, join)
            return w.cast(values, dtype), indices

        return w.with_axis([x], run)


_running_extreme("cummax", _OP.GREATER)
_running_extreme("cummin", _OP.LESS)


def _smallest(w: Writer, x: ITensor, axis: int, k: int) -> tuple[ITensor, ITensor]:
    """The k smallest elements in order, and their indices."""
    layer = w.network.add_topk(x, TopKOperation.MIN, k, 1 << axis, DataType.INT64)
    return layer.get_output(0), layer.get_output(1)


def _of_rank(w: Writer, x: ITensor, dim: int, keepdim: bool, k: int | None) -> Any:
    """The k-th smallest element along an axis; None: the lower median, which is NaN if an element
    is NaN."""

    def run(x: ITensor) -> Any:
        axis = dim % len(x.shape)
        extent = x.shape[axis]
        if extent < 1 or (k is not None and not 0 < k <= extent):
            raise Unsupported(f"an element by its rank along an axis of extent {extent}")
        rank = (extent + 1) // 2 if k is None else k
        results = [_part(w, y, axis, rank - 1, 1) for y in _smallest(w, x, axis, rank)]
        if is_float(x):
            marks = w.cast(w.unary(UnaryOperation.ISNAN, x), DataType.INT32)
            has = w.cast(w.reduce(ReduceOperation.MAX, marks, [axis], True), DataType.BOOL)
            if k is None:
                places = w.network.add_topk(
                    marks, TopKOperation.MAX, 1, 1 << axis, DataType.INT64
                ).get_output(1)
                nothing = w.full(math.nan, x.dtype, len(x.shape))
                results = [w.select(has, nothing, results[0]), w.select(has, places, results[1])]
        return tuple(y if keepdim else w.squeeze(y, [axis]) for y in results)

    if len(x.shape) == 0:
        return tuple(w.squeeze(y, [0]) for y in _of_rank(w, w.unsqueeze(x, [0]), 0, True, k))
    return run(x)


@converter("median")
def _median(w: Writer, x: ITensor) -> ITensor:
    return _of_rank(w, w.reshape(x, [-1]), 0, False, None)[0]


@converter("median.dim")
def _median_dim(w: Writer, x: ITensor, dim: int, keepdim: bool = False) -> Any:
    return _of_rank(w, x, dim, keepdim, None)


@converter("kthvalue")
def _kthvalue(w: Writer, x: ITensor, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    number = known(k)
    if number is None:
        raise Unsupported("kthvalue of a rank that is not known")
    return _of_rank(w, x, dim, keepdim, number)


@converter("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    w: Writer,
    weight: ITensor,
    indices: ITensor,
    offsets: ITensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: ITensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (mode 0) or means (mode 1) of the rows between two offsets."""
    if mode not in (0, 1):
        raise Unsupported("maxima of bags of embeddings")
    if any(w.uses(i) for i in (1, 2, 3)):
        raise Unsupported("which embeddings are in which bag")
    count, bags = w.size(indices, 0), w.size(offsets, 0)
    if include_last_offset:
        bags = w.arithmetic(_OP.SUB, bags, 1)
        offsets = w.slice(offsets, [0], [bags], [1])
    # The bag of an index is the number of bags that begin at or before it, minus one.
    begins = w.expand(w.full(0, DataType.INT32, 1), [w.arithmetic(_OP.SUM, count, 1)])
    ones = w.expand(w.full(1, DataType.INT32, 1), [bags])
    begins = w.scatter(begins, offsets, ones, ScatterMode.ELEMENT, 0, "add")
    numbers = w.slice(w.running_sum(begins, 0), [0], [count], [1])
    numbers = w.unsqueeze(w.binary(_OP.SUB, numbers, 1), [1])
    rows = w.gather(weight, indices, 0)
    shares = w.expand(w.full(1, weight.dtype, 2), [count, 1])
    if padding_idx >= 0:
        kept = w.binary(_OP.EQUAL, w.unsqueeze(indices, [1]), padding_idx)
        shares = w.select(kept, w.full(0, weight.dtype, 2), shares)
    weights = shares
    if per_sample_weights is not None:
        weights = w.mul(shares, w.unsqueeze(per_sample_weights, [1]))
    nothing = w.full(0, weight.dtype, 2)
    width = w.size(weight, 1)
    total = w.scatter(
        w.expand(nothing, [bags, width]), numbers, w.mul(rows, weights), ScatterMode.ND, 0, "add"
    )
    if mode == 1:
        sizes = w.expand(nothing, [bags, 1])
        sizes = w.scatter(sizes, numbers, shares, ScatterMode.ND, 0, "add")
        total = w.binary(_OP.DIV, total, w.binary(_OP.MAX, sizes, 1.0))
    return total, None, None, None


@converter("diagonal_scatter")
def _diagonal_scatter(
    w: Writer, x: ITensor, source: ITensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ITensor:
    shape = list(x.shape)
    if min(shape) < 0:
        raise Unsupported("the diagonal of a tensor of unknown extents")
    numbers = torch.arange(math.prod(shape)).reshape(shape).diagonal(offset, dim1, dim2)
    return _put(w, x, w.constant(numbers.contiguous()), source)


@converter("put")
def _put(
    w: Writer, x: ITensor, index: ITensor, source: ITensor, accumulate: bool = False
) -> ITensor:
    """Writes elements by their index in the flattened tensor."""
    flat, shape = w.reshape(x, [-1]), w.sizes(x)
    updates = w.reshape(w.cast(source, x.dtype), [-1])
    how = "add" if accumulate else "none"
    made = w.scatter(flat, w.reshape(index, [-1]), updates, ScatterMode.ELEMENT, 0, how)
    return w.reshape(made, shape)
