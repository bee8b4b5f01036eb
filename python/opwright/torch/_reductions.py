"""Reductions, sorting and sums along an axis."""

from __future__ import annotations

import math
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
from ._elementwise import is_float, truth
from ._writer import Unsupported, Writer, known


def _axes(dim: Any) -> list[int]:
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)


@converter("sum", "sum.dim_IntList")
def _sum(
    w: Writer, x: ITensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> ITensor:
    return w.reduce(ReduceOperation.SUM, w.cast(x, w.dtype), _axes(dim), keepdim)


@converter("mean", "mean.dim")
def _mean(
    w: Writer, x: ITensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> ITensor:
    if isinstance(dim, torch.dtype):
        dim = None
    return w.reduce(ReduceOperation.AVG, w.cast(x, w.dtype), _axes(dim), keepdim)


@converter("prod", "prod.dim_int")
def _prod(
    w: Writer, x: ITensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> ITensor:
    return w.reduce(ReduceOperation.PROD, w.cast(x, w.dtype), _axes(dim), keepdim)


@converter("amax")
def _amax(w: Writer, x: ITensor, dim: Any = (), keepdim: bool = False) -> ITensor:
    return w.reduce(ReduceOperation.MAX, x, _axes(dim), keepdim)


@converter("amin")
def _amin(w: Writer, x: ITensor, dim: Any = (), keepdim: bool = False) -> ITensor:
    return w.reduce(ReduceOperation.MIN, x, _axes(dim), keepdim)


converter("max")(lambda w, x: _amax(w, x))
converter("min")(lambda w, x: _amin(w, x))


def _extreme(w: Writer, op: TopKOperation, x: ITensor, dim: int, keep: bool) -> Any:
    if len(x.shape) == 0:
        return w.with_axis([x], lambda x: _extreme(w, op, x, 0, True))
    axis, dtype = dim % len(x.shape), x.dtype
    x = w.cast(x, DataType.INT32) if dtype == DataType.BOOL else x
    # For PyTorch's minimum and maximum the first NaN wins. In sorting, NaN is the greatest.
    is_negated = op == TopKOperation.MIN and is_float(x)
    if is_negated:
        x, op = w.unary(UnaryOperation.NEG, x), TopKOperation.MAX
    layer = w.network.add_topk(x, op, 1, 1 << axis, DataType.INT64)
    value = layer.get_output(0)
    value = w.unary(UnaryOperation.NEG, value) if is_negated else w.cast(value, dtype)
    outputs = value, layer.get_output(1)
    return tuple(y if keep else w.squeeze(y, [axis]) for y in outputs)


@converter("max.dim")
def _max_dim(w: Writer, x: ITensor, dim: int, keepdim: bool = False) -> Any:
    return _extreme(w, TopKOperation.MAX, x, dim, keepdim)


@converter("min.dim")
def _min_dim(w: Writer, x: ITensor, dim: int, keepdim: bool = False) -> Any:
    return _extreme(w, TopKOperation.MIN, x, dim, keepdim)


def _arg_extreme(name: str, op: TopKOperation) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor, dim: int | None = None, keepdim: bool = False) -> ITensor:
        if dim is None:
            flat = w.reshape(x, [-1])
            index = _extreme(w, op, flat, 0, False)[1]
            return w.reshape(index, [1] * len(x.shape)) if keepdim else index
        return _extreme(w, op, x, dim, keepdim)[1]


_arg_extreme("argmax", TopKOperation.MAX)
_arg_extreme("argmin", TopKOperation.MIN)


@converter("topk")
def _topk(
    w: Writer, x: ITensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    op = TopKOperation.MAX if largest else TopKOperation.MIN
    if len(x.shape) == 0:
        return w.with_axis([x], lambda x: _topk(w, x, k, 0, largest))
    axis = dim % len(x.shape)
    layer = w.network.add_topk(x, op, known(k) or 1, 1 << axis, DataType.INT64)
    if known(k) is None:
        layer.set_input(1, w.reshape(w.cast(w.extent(k), DataType.INT32), []))
    return layer.get_output(0), layer.get_output(1)


@converter("sort", "sort.stable")
def _sort(w: Writer, x: ITensor, *args: Any, **options: Any) -> Any:
    if isinstance(args[0] if args else None, bool):
        args = args[1:]
    dim = options.get("dim", args[0] if args else -1)
    descending = options.get("descending", args[1] if len(args) > 1 else False)
    extent = w.size(x, dim) if len(x.shape) else 1
    if known(extent) is None:
        raise Unsupported("it sorts along an axis of unknown extent")
    return _topk(w, x, extent, dim, descending)


@converter("any", "any.dim", "any.dims")
def _any(w: Writer, x: ITensor, dim: Any = None, keepdim: bool = False) -> ITensor:
    count = w.reduce(ReduceOperation.MAX, w.cast(truth(w, x), DataType.INT32), _axes(dim), keepdim)
    return w.cast(count, DataType.BOOL)


@converter("all", "all.dim", "all.dims")
def _all(w: Writer, x: ITensor, dim: Any = None, keepdim: bool = False) -> ITensor:
    count = w.reduce(ReduceOperation.MIN, w.cast(truth(w, x), DataType.INT32), _axes(dim), keepdim)
    return w.cast(count, DataType.BOOL)


def _variance(w: Writer, x: ITensor, dim: Any, correction: Any, keep: bool) -> Any:
    rank = len(x.shape)
    axes = [axis % rank for axis in _axes(dim)] or list(range(rank))
    mean = w.reduce(ReduceOperation.AVG, x, axes, True)
    centered = w.binary(ElementWiseOperation.SUB, x, mean)
    total = w.reduce(ReduceOperation.SUM, w.mul(centered, centered), axes, keep)
    count: Any = 1
    for axis in axes:
        count = w.arithmetic(ElementWiseOperation.PROD, count, w.size(x, axis))
    correction = 1 if correction is None else correction
    if isinstance(count, int):
        freedom: Any = max(count - correction, 0)
    else:
        freedom = w.reshape(w.cast(count, x.dtype), [])
        freedom = w.binary(ElementWiseOperation.SUB, freedom, float(correction))
    variance = w.binary(ElementWiseOperation.DIV, total, freedom, x.dtype)
    return variance, mean if keep else w.squeeze(mean, axes)


def _corrected(take: Any) -> Any:
    def convert(
        w: Writer, x: ITensor, dim: Any = None, correction: Any = None, keepdim: bool = False
    ) -> Any:
        return take(w, *_variance(w, x, dim, correction, keepdim))

    return convert


def _biased(take: Any) -> Any:
    def convert(
        w: Writer, x: ITensor, dim: Any, unbiased: bool = True, keepdim: bool = False
    ) -> Any:
        return take(w, *_variance(w, x, dim, int(unbiased), keepdim))

    return convert


for _name, _take in (
    ("var", lambda w, variance, mean: variance),
    ("std", lambda w, variance, mean: w.unary(UnaryOperation.SQRT, variance)),
    ("var_mean", lambda w, variance, mean: (variance, mean)),
):
    converter(f"{_name}.correction")(_corrected(_take))
    converter(f"{_name}.dim")(_biased(_take))


@converter("dist")
def _dist(w: Writer, a: ITensor, b: ITensor, p: Any = 2) -> ITensor:
    return _vector_norm(w, w.binary(ElementWiseOperation.SUB, a, b), p)


@converter("linalg_vector_norm")
def _vector_norm(
    w: Writer, x: ITensor, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> ITensor:
    x = w.cast(x, w.dtype)
    if ord == 2:
        total = w.reduce(ReduceOperation.SUM, w.mul(x, x), _axes(dim), keepdim)
        return w.unary(UnaryOperation.SQRT, total)
    magnitude = w.unary(UnaryOperation.ABS, x)
    if ord == 1:
        return w.reduce(ReduceOperation.SUM, magnitude, _axes(dim), keepdim)
    if ord == math.inf:
        return w.reduce(ReduceOperation.MAX, magnitude, _axes(dim), keepdim)
    if ord == -math.inf:
        return w.reduce(ReduceOperation.MIN, magnitude, _axes(dim), keepdim)
    if ord == 0:
        counted = w.cast(truth(w, x), w.dtype)
        return w.reduce(ReduceOperation.SUM, counted, _axes(dim), keepdim)
    power = w.binary(ElementWiseOperation.POW, magnitude, ord, w.dtype)
    total = w.reduce(ReduceOperation.SUM, power, _axes(dim), keepdim)
    return w.binary(ElementWiseOperation.POW, total, 1 / ord, w.dtype)


@converter("cumsum")
def _cumsum(w: Writer, x: ITensor, dim: int, dtype: Any = None) -> ITensor:
    x = w.cast(x, w.dtype)
    if len(x.shape) == 0:
        return x
    return w.running_sum(x, dim)


@converter("_softmax", "softmax.int")
def _softmax(w: Writer, x: ITensor, dim: int, *_args: Any) -> ITensor:
    def run(x: ITensor) -> ITensor:
        layer = w.network.add_softmax(x)
        layer.axes = 1 << (dim % len(x.shape))
        return layer.get_output(0)

    return w.with_axis([w.cast(x, w.dtype)], run)


@converter("_log_softmax", "log_softmax.int")
def _log_softmax(w: Writer, x: ITensor, dim: int, *_args: Any) -> ITensor:
    x = w.cast(x, w.dtype)
    x = w.binary(ElementWiseOperation.SUB, x, w.reduce(ReduceOperation.MAX, x, [dim], True))
    total = w.reduce(ReduceOperation.SUM, w.unary(UnaryOperation.EXP, x), [dim], True)
    return w.binary(ElementWiseOperation.SUB, x, w.unary(UnaryOperation.LOG, total))


def _order(w: Writer, sequence: ITensor, values: ITensor, right: bool) -> ITensor:
    """The number of elements of the sequences, along the last axis, that come before each value."""
    x, y = w.align(
        w.unsqueeze(sequence, [len(sequence.shape) - 1]), w.unsqueeze(values, [len(values.shape)])
    )
    op, dtype = ElementWiseOperation, w.promoted(sequence, values)
    before = w.binary(op.LESS, x, y, dtype)
    if right:
        before = w.binary(op.OR, before, w.binary(op.EQUAL, x, y, dtype))
    count = w.cast(before, DataType.INT64)
    total = w.reduce(ReduceOperation.SUM, count, [len(count.shape) - 1], False)
    return w.cast(total, w.dtype)


@converter("searchsorted.Tensor")
def _searchsorted(
    w: Writer,
    sequence: ITensor,
    values: ITensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ITensor | None = None,
) -> ITensor:
    if sorter is not None:
        sequence = w.gather_elements(sequence, sorter, len(sequence.shape) - 1)
    flat = len(sequence.shape) == 1
    y = _order(w, sequence, w.reshape(values, [-1]) if flat else values, right or side == "right")
    return w.reshape(y, w.sizes(values)) if flat else y


@converter("bucketize.Tensor")
def _bucketize(
    w: Writer, values: ITensor, bounds: ITensor, *, out_int32: bool = False, right: bool = False
) -> ITensor:
    return _searchsorted(w, bounds, values, right=right)


@converter("_cdist_forward")
def _cdist(w: Writer, a: ITensor, b: ITensor, p: float, _mode: Any = None) -> ITensor:
    """The distance of each row of `a` to each row of `b`."""
    x, y = w.unsqueeze(a, [len(a.shape) - 1]), w.unsqueeze(b, [len(b.shape) - 2])
    difference = w.binary(ElementWiseOperation.SUB, *w.align(x, y))
    return _vector_norm(w, difference, p, [-1])


@converter("histc")
def _histc(w: Writer, x: ITensor, bins: int = 100, min: float = 0, max: float = 0) -> ITensor:
    op, dtype = ElementWiseOperation, x.dtype
    working = DataType.FLOAT if is_float(x) else dtype
    x = w.cast(w.reshape(x, [-1]), working)

    def rounded(y: ITensor) -> ITensor:
        return w.cast(w.cast(y, dtype), working)

    least, most = (rounded(w.tensor(each, working, 1)) for each in (min, max))
    if min == max:
        least, most = (
            w.reduce(kind, x, [0], True) for kind in (ReduceOperation.MIN, ReduceOperation.MAX)
        )
        is_one = w.binary(op.EQUAL, least, most)
        least = w.select(is_one, rounded(w.binary(op.SUB, least, 1, working)), least)
        most = w.select(is_one, rounded(w.binary(op.SUM, most, 1, working)), most)
    # NaN and elements beyond the range are not counted.
    outside = w.binary(op.OR, w.binary(op.LESS, x, least), w.binary(op.GREATER, x, most))
    if is_float(x):
        outside = w.binary(op.OR, outside, w.unary(UnaryOperation.ISNAN, x))
    counts = w.unary(UnaryOperation.NOT, outside)
    # Rounds in the same order as PyTorch.
    offset = w.binary(op.PROD, rounded(w.binary(op.SUB, x, least)), bins, working)
    place = w.binary(op.DIV, rounded(offset), rounded(w.binary(op.SUB, most, least)))
    place = w.select(counts, rounded(place), w.full(0, working, 1))
    place = w.binary(op.MIN, w.cast(place, DataType.INT64), bins - 1, DataType.INT64)
    kind = DataType.INT32 if working == DataType.FLOAT else working
    empty = w.expand(w.full(0, kind, 1), [bins])
    result = w.scatter(empty, place, w.cast(counts, kind), ScatterMode.ELEMENT, 0, "add")
    return w.cast(result, w.dtype)


@converter("_grouped_mm", "transformers::grouped_mm_fallback")
def _grouped_mm(
    w: Writer,
    a: ITensor,
    b: ITensor,
    offs: ITensor | None = None,
    bias: ITensor | None = None,
    out_dtype: Any = None,
) -> ITensor:
    """Multiplies rows of a [rows, inner] with the matrix of their group in b [groups, inner,
    columns]. Group g ends before row offs[g]."""
    if len(a.shape) == 3 and len(b.shape) == 3 and offs is None:
        return w.cast(w.matmul(a, b), w.dtype)
    if len(a.shape) != 2 or len(b.shape) != 3 or offs is None or bias is not None:
        raise Unsupported("groups of columns, or of what is summed, and a bias")
    op = ElementWiseOperation
    # Multiplies all rows with all matrices, [groups, rows, columns]. Each row keeps its own group's
    # product.
    products = w.matmul(w.unsqueeze(a, [0]), b)
    row = w.unsqueeze(w.numbers(w.size(a, 0)), [0])
    ends = w.unsqueeze(w.cast(offs, DataType.INT64), [1])
    is_before = w.cast(w.binary(op.LESS, row, ends), DataType.INT32)
    # Ends grow, so the first end behind a row belongs to the row's group.
    group = w.reduce(ReduceOperation.SUM, is_before, [0], True)
    number = w.unsqueeze(w.numbers(w.size(b, 0)), [1])
    left = w.binary(op.SUB, w.size(b, 0), number, DataType.INT64)
    is_own = w.unsqueeze(w.binary(op.EQUAL, w.cast(group, DataType.INT64), left), [2])
    kept = w.select(is_own, products, w.full(0, products.dtype, 3))
    return w.cast(w.reduce(ReduceOperation.SUM, kept, [0], False), w.dtype)
