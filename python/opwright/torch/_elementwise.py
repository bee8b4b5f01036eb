"""Operators that compute each element of its own, and reductions."""

from __future__ import annotations

import math
from typing import Any

import torch

from .._core import (
    ActivationType,
    CumulativeOperation,
    DataType,
    ElementWiseOperation,
    ITensor,
    ReduceOperation,
    TopKOperation,
    UnaryOperation,
)
from ._converters import CONVERTERS, converter
from ._writer import Unsupported, Writer, known

_FLOATS = (DataType.FLOAT, DataType.HALF, DataType.BF16)


def _is_float(x: ITensor) -> bool:
    return x.dtype in _FLOATS


def _unary(name: str, op: UnaryOperation) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor) -> ITensor:
        return w.unary(op, w.cast(x, w.dtype))


for _name in (
    "exp log sqrt abs neg sin cos tan sinh cosh asin acos atan asinh acosh atanh ceil floor erf sign"
).split():
    _unary(_name, getattr(UnaryOperation, _name.upper()))
_unary("reciprocal", UnaryOperation.RECIP)
_unary("round", UnaryOperation.ROUND)


converter("isinf")(lambda w, x: w.unary(UnaryOperation.ISINF, x))
converter("isnan")(lambda w, x: w.unary(UnaryOperation.ISNAN, x))


@converter("rsqrt")
def _rsqrt(w: Writer, x: ITensor) -> ITensor:
    return w.unary(UnaryOperation.RECIP, w.unary(UnaryOperation.SQRT, w.cast(x, w.dtype)))


def _scaled_log(base: float) -> Any:
    return lambda w, x: w.mul(w.unary(UnaryOperation.LOG, w.cast(x, w.dtype)), 1 / math.log(base))


converter("log2")(_scaled_log(2))
converter("log10")(_scaled_log(10))


@converter("trunc")
def _trunc(w: Writer, x: ITensor) -> ITensor:
    if not _is_float(x):
        return x
    magnitude = w.unary(UnaryOperation.FLOOR, w.unary(UnaryOperation.ABS, x))
    return w.mul(magnitude, w.unary(UnaryOperation.SIGN, x))


# Activations


def _activation(name: str, kind: ActivationType) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor) -> ITensor:
        return w.activation(kind, w.cast(x, w.dtype))


for _name in ("sigmoid", "tanh"):
    _activation(_name, getattr(ActivationType, _name.upper()))


@converter("relu")
def _relu(w: Writer, x: ITensor) -> ITensor:
    if _is_float(x):
        return w.activation(ActivationType.RELU, x)
    return w.binary(ElementWiseOperation.MAX, x, 0, x.dtype)


@converter("relu6")
def _relu6(w: Writer, x: ITensor) -> ITensor:
    return w.activation(ActivationType.CLIP, x, 0.0, 6.0)


@converter("leaky_relu")
def _leaky_relu(w: Writer, x: ITensor, slope: float = 0.01) -> ITensor:
    return w.activation(ActivationType.LEAKY_RELU, x, slope)


@converter("elu")
def _elu(
    w: Writer, x: ITensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> ITensor:
    if input_scale != 1:
        raise Unsupported(f"input_scale is {input_scale}; expected 1")
    if scale == 1:
        return w.activation(ActivationType.ELU, x, alpha)
    return w.activation(ActivationType.SELU, x, alpha, scale)


@converter("selu")
def _selu(w: Writer, x: ITensor) -> ITensor:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return w.activation(ActivationType.SELU, x, alpha, scale)


@converter("celu")
def _celu(w: Writer, x: ITensor, alpha: float = 1.0) -> ITensor:
    low = w.unary(UnaryOperation.EXP, w.mul(x, 1 / alpha))
    low = w.mul(w.binary(ElementWiseOperation.SUB, low, 1), alpha)
    return w.select(w.binary(ElementWiseOperation.GREATER, x, 0), x, low)


@converter("gelu")
def _gelu(w: Writer, x: ITensor, approximate: str = "none") -> ITensor:
    kind = ActivationType.GELU_TANH if approximate == "tanh" else ActivationType.GELU_ERF
    return w.activation(kind, x)


@converter("silu")
def _silu(w: Writer, x: ITensor) -> ITensor:
    return w.mul(x, w.activation(ActivationType.SIGMOID, x))


@converter("hardsigmoid")
def _hardsigmoid(w: Writer, x: ITensor) -> ITensor:
    return w.activation(ActivationType.HARD_SIGMOID, x, 1 / 6, 0.5)


@converter("hardswish")
def _hardswish(w: Writer, x: ITensor) -> ITensor:
    return w.mul(x, _hardsigmoid(w, x))


@converter("hardtanh")
def _hardtanh(w: Writer, x: ITensor, low: float = -1.0, high: float = 1.0) -> ITensor:
    if not _is_float(x):
        return _clamp(w, x, low, high)
    return w.activation(ActivationType.CLIP, x, float(low), float(high))


@converter("softplus")
def _softplus(w: Writer, x: ITensor, beta: float = 1.0, threshold: float = 20.0) -> ITensor:
    smooth = w.activation(ActivationType.SOFTPLUS, x, 1 / beta, beta)
    return w.select(w.binary(ElementWiseOperation.GREATER, w.mul(x, beta), threshold), x, smooth)


@converter("mish")
def _mish(w: Writer, x: ITensor) -> ITensor:
    return w.mul(x, w.activation(ActivationType.TANH, _softplus(w, x)))


@converter("log_sigmoid")
def _log_sigmoid(w: Writer, x: ITensor) -> ITensor:
    return w.unary(UnaryOperation.NEG, _softplus(w, w.unary(UnaryOperation.NEG, x)))


@converter("prelu", "_prelu_kernel")
def _prelu(w: Writer, x: ITensor, slope: ITensor) -> ITensor:
    rank = len(x.shape)
    if len(slope.shape) == 1:
        shape = [1] * rank
        if rank > 1:
            shape[1] = slope.shape[0]
        slope = w.reshape(slope, shape)
    return w.network.add_parametric_relu(*w.align(x, slope)).get_output(0)


@converter("glu")
def _glu(w: Writer, x: ITensor, dim: int = -1) -> ITensor:
    axis = dim % len(x.shape)
    extents = w.sizes(x)
    half = w.arithmetic(ElementWiseOperation.FLOOR_DIV, extents[axis], 2)
    extents[axis] = half
    start: list[Any] = [0] * len(extents)
    ones = [1] * len(extents)
    a = w.slice(x, start, extents, ones)
    start[axis] = half
    b = w.slice(x, start, extents, ones)
    return w.mul(a, w.activation(ActivationType.SIGMOID, b))


# Arithmetic


def _scaled(w: Writer, value: Any, alpha: Any, dtype: DataType) -> Any:
    if alpha == 1:
        return value
    if not isinstance(value, ITensor):
        return value * alpha
    return w.binary(ElementWiseOperation.PROD, value, alpha, dtype)


@converter("add.Tensor", "add.Scalar")
def _add(w: Writer, a: Any, b: Any, alpha: Any = 1) -> ITensor:
    if w.dtype == DataType.BOOL:
        return w.binary(ElementWiseOperation.OR, a, b, w.dtype)
    return w.binary(ElementWiseOperation.SUM, a, _scaled(w, b, alpha, w.dtype), w.dtype)


@converter("sub.Tensor", "sub.Scalar")
def _sub(w: Writer, a: Any, b: Any, alpha: Any = 1) -> ITensor:
    return w.binary(ElementWiseOperation.SUB, a, _scaled(w, b, alpha, w.dtype), w.dtype)


@converter("rsub.Tensor", "rsub.Scalar")
def _rsub(w: Writer, a: Any, b: Any, alpha: Any = 1) -> ITensor:
    return w.binary(ElementWiseOperation.SUB, b, _scaled(w, a, alpha, w.dtype), w.dtype)


@converter("mul.Tensor", "mul.Scalar")
def _mul(w: Writer, a: Any, b: Any) -> ITensor:
    op = ElementWiseOperation.AND if w.dtype == DataType.BOOL else ElementWiseOperation.PROD
    return w.binary(op, a, b, w.dtype)


@converter("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(w: Writer, a: Any, b: Any) -> ITensor:
    return w.binary(ElementWiseOperation.DIV, a, b, w.dtype)


@converter("div.Tensor_mode", "div.Scalar_mode")
def _div_rounded(w: Writer, a: Any, b: Any, rounding_mode: str | None = None) -> ITensor:
    if rounding_mode == "floor":
        return w.binary(ElementWiseOperation.FLOOR_DIV, a, b, w.dtype)
    quotient = w.binary(ElementWiseOperation.DIV, a, b, w.dtype)  # of integers towards 0
    return quotient if rounding_mode is None else _trunc(w, quotient)


@converter("floor_divide", "floor_divide.Scalar")
def _floor_divide(w: Writer, a: Any, b: Any) -> ITensor:
    return w.binary(ElementWiseOperation.FLOOR_DIV, a, b, w.dtype)


@converter("remainder.Tensor", "remainder.Scalar")
def _remainder(w: Writer, a: Any, b: Any) -> ITensor:
    quotient = w.binary(ElementWiseOperation.FLOOR_DIV, a, b, w.dtype)
    product = w.binary(ElementWiseOperation.PROD, quotient, b, w.dtype)
    return w.binary(ElementWiseOperation.SUB, a, product, w.dtype)


@converter("fmod.Tensor", "fmod.Scalar")
def _fmod(w: Writer, a: Any, b: Any) -> ITensor:
    quotient = _trunc(w, w.binary(ElementWiseOperation.DIV, a, b, w.dtype))
    product = w.binary(ElementWiseOperation.PROD, quotient, b, w.dtype)
    return w.binary(ElementWiseOperation.SUB, a, product, w.dtype)


@converter("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(w: Writer, a: Any, b: Any) -> ITensor:
    if b == 2 and not isinstance(b, ITensor):
        return w.binary(ElementWiseOperation.PROD, a, a, w.dtype)
    return w.binary(ElementWiseOperation.POW, a, b, w.dtype)


@converter("maximum")
def _maximum(w: Writer, a: ITensor, b: ITensor) -> ITensor:
    return w.binary(ElementWiseOperation.MAX, a, b, w.dtype)


@converter("minimum")
def _minimum(w: Writer, a: ITensor, b: ITensor) -> ITensor:
    return w.binary(ElementWiseOperation.MIN, a, b, w.dtype)


@converter("clamp", "clamp.Tensor", "clip")
def _clamp(w: Writer, x: ITensor, low: Any = None, high: Any = None) -> ITensor:
    if low is not None:
        x = w.binary(ElementWiseOperation.MAX, x, low, w.dtype)
    if high is not None:
        x = w.binary(ElementWiseOperation.MIN, x, high, w.dtype)
    return w.cast(x, w.dtype)


@converter("clamp_min", "clamp_min.Tensor")
def _clamp_min(w: Writer, x: ITensor, low: Any) -> ITensor:
    return _clamp(w, x, low)


@converter("clamp_max", "clamp_max.Tensor")
def _clamp_max(w: Writer, x: ITensor, high: Any) -> ITensor:
    return _clamp(w, x, None, high)


@converter("addcmul")
def _addcmul(w: Writer, x: ITensor, a: ITensor, b: ITensor, value: Any = 1) -> ITensor:
    return w.add(x, _scaled(w, w.mul(a, b), value, w.dtype))


@converter("addcdiv")
def _addcdiv(w: Writer, x: ITensor, a: ITensor, b: ITensor, value: Any = 1) -> ITensor:
    return w.add(x, _scaled(w, w.binary(ElementWiseOperation.DIV, a, b), value, w.dtype))


@converter("expm1")
def _expm1(w: Writer, x: ITensor) -> ITensor:
    power = w.unary(UnaryOperation.EXP, w.cast(x, w.dtype))
    return w.binary(ElementWiseOperation.SUB, power, 1, w.dtype)


@converter("log1p")
def _log1p(w: Writer, x: ITensor) -> ITensor:
    return w.unary(UnaryOperation.LOG, w.binary(ElementWiseOperation.SUM, x, 1, w.dtype))


@converter("lerp.Tensor", "lerp.Scalar")
def _lerp(w: Writer, a: ITensor, b: ITensor, weight: Any) -> ITensor:
    return w.add(a, w.mul(w.binary(ElementWiseOperation.SUB, b, a), weight))


# Comparisons and logic


def _not(w: Writer, x: ITensor) -> ITensor:
    return w.unary(UnaryOperation.NOT, x)


def _comparison(name: str, op: ElementWiseOperation, negated: bool) -> None:
    @converter(f"{name}.Tensor", f"{name}.Scalar")
    def convert(w: Writer, a: Any, b: Any) -> ITensor:
        if w.promoted(a, b) == DataType.BOOL:
            dtype = DataType.INT32
        else:
            dtype = w.promoted(a, b)
        result = w.binary(op, a, b, dtype)
        return _not(w, result) if negated else result


_comparison("eq", ElementWiseOperation.EQUAL, False)
_comparison("ne", ElementWiseOperation.EQUAL, True)
_comparison("gt", ElementWiseOperation.GREATER, False)
_comparison("lt", ElementWiseOperation.LESS, False)


def _or_equal(name: str, op: ElementWiseOperation) -> None:
    @converter(f"{name}.Tensor", f"{name}.Scalar")
    def convert(w: Writer, a: Any, b: Any) -> ITensor:
        dtype = w.promoted(a, b)
        if dtype == DataType.BOOL:
            dtype = DataType.INT32
        # Not "not less": that would be true of NaN.
        strict, equal = (w.binary(each, a, b, dtype) for each in (op, ElementWiseOperation.EQUAL))
        return w.binary(ElementWiseOperation.OR, strict, equal)


_or_equal("ge", ElementWiseOperation.GREATER)
_or_equal("le", ElementWiseOperation.LESS)


def _truth(w: Writer, x: Any) -> ITensor:
    if x.dtype == DataType.BOOL:
        return x
    return _not(w, w.binary(ElementWiseOperation.EQUAL, x, 0, x.dtype))


def _logical(name: str, op: ElementWiseOperation) -> None:
    @converter(f"logical_{name}")
    def convert(w: Writer, a: ITensor, b: ITensor) -> ITensor:
        return w.binary(op, _truth(w, a), _truth(w, b))

    @converter(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar", f"__{name}__.Tensor")
    def convert_bits(w: Writer, a: Any, b: Any) -> ITensor:
        if w.dtype != DataType.BOOL:
            raise Unsupported("bits of integers; expected bool")
        return w.binary(op, a, b, DataType.BOOL)


for _name in ("and", "or", "xor"):
    _logical(_name, getattr(ElementWiseOperation, _name.upper()))


@converter("logical_not")
def _logical_not(w: Writer, x: ITensor) -> ITensor:
    return _not(w, _truth(w, x))


@converter("bitwise_not")
def _bitwise_not(w: Writer, x: ITensor) -> ITensor:
    if x.dtype != DataType.BOOL:
        raise Unsupported("bits of integers; expected bool")
    return _not(w, x)


@converter("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(w: Writer, condition: ITensor, a: Any, b: Any) -> ITensor:
    return w.select(_truth(w, condition), w.tensor(a, w.dtype), w.tensor(b, w.dtype))


@converter("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(w: Writer, x: ITensor, mask: ITensor, value: Any) -> ITensor:
    return w.select(mask, w.tensor(value, x.dtype), x)


# Types


@converter("_to_copy", "to.dtype", "to.device", "to.dtype_layout")
def _to(w: Writer, x: ITensor, *_args: Any, **_options: Any) -> ITensor:
    return w.cast(x, w.dtype)


@converter("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh")
def _same(w: Writer, x: ITensor, **_options: Any) -> ITensor:
    return x


@converter("_assert_tensor_metadata", "_assert_scalar", "_assert_async.msg")
def _nothing(w: Writer, *_args: Any, **_options: Any) -> None:
    """PyTorch has checked it, by its guards or while it traced."""


@converter("dropout", "feature_dropout", "alpha_dropout")
def _dropout(w: Writer, x: ITensor, p: float, train: bool) -> ITensor:
    if train and p:
        raise Unsupported("it draws random numbers: train is True; call eval() of the module")
    return x


@converter("native_dropout")
def _native_dropout(w: Writer, x: ITensor, p: float, train: bool | None) -> Any:
    return (_dropout(w, x, p, train is not False), None)


@converter("type_as")
def _type_as(w: Writer, x: ITensor, other: ITensor) -> ITensor:
    return w.cast(x, w.dtype)


# Reductions


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
    axis = dim % len(x.shape)
    layer = w.network.add_topk(x, op, 1, 1 << axis, DataType.INT64)
    outputs = [layer.get_output(i) for i in range(2)]
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
    return _topk(w, x, w.size(x, dim), dim, descending) if x.shape[dim] >= 0 else _dynamic_sort()


def _dynamic_sort() -> Any:
    raise Unsupported("it sorts along an axis of unknown extent")


@converter("any", "any.dim", "any.dims")
def _any(w: Writer, x: ITensor, dim: Any = None, keepdim: bool = False) -> ITensor:
    count = w.reduce(ReduceOperation.MAX, w.cast(_truth(w, x), DataType.INT32), _axes(dim), keepdim)
    return w.cast(count, DataType.BOOL)


@converter("all", "all.dim", "all.dims")
def _all(w: Writer, x: ITensor, dim: Any = None, keepdim: bool = False) -> ITensor:
    count = w.reduce(ReduceOperation.MIN, w.cast(_truth(w, x), DataType.INT32), _axes(dim), keepdim)
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


@converter("linalg_vector_norm")
def _vector_norm(
    w: Writer, x: ITensor, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> ITensor:
    x = w.cast(x, w.dtype)
    if ord == 2:
        total = w.reduce(ReduceOperation.SUM, w.mul(x, x), _axes(dim), keepdim)
        return w.unary(UnaryOperation.SQRT, total)
    if ord == 1:
        return w.reduce(ReduceOperation.SUM, w.unary(UnaryOperation.ABS, x), _axes(dim), keepdim)
    if ord == math.inf:
        return w.reduce(ReduceOperation.MAX, w.unary(UnaryOperation.ABS, x), _axes(dim), keepdim)
    raise Unsupported(f"the norm of order {ord}; expected 1, 2 or infinity")


@converter("cumsum")
def _cumsum(w: Writer, x: ITensor, dim: int, dtype: Any = None) -> ITensor:
    x = w.cast(x, w.dtype)
    axis = w.constant(torch.tensor(dim % len(x.shape), dtype=torch.int32))
    layer = w.network.add_cumulative(x, axis, CumulativeOperation.SUM, False, False)
    return layer.get_output(0)


@converter("_softmax", "softmax.int")
def _softmax(w: Writer, x: ITensor, dim: int, *_args: Any) -> ITensor:
    layer = w.network.add_softmax(w.cast(x, w.dtype))
    layer.axes = 1 << (dim % max(len(x.shape), 1))
    return layer.get_output(0)


@converter("_log_softmax", "log_softmax.int")
def _log_softmax(w: Writer, x: ITensor, dim: int, *_args: Any) -> ITensor:
    x = w.cast(x, w.dtype)
    x = w.binary(ElementWiseOperation.SUB, x, w.reduce(ReduceOperation.MAX, x, [dim], True))
    total = w.reduce(ReduceOperation.SUM, w.unary(UnaryOperation.EXP, x), [dim], True)
    return w.binary(ElementWiseOperation.SUB, x, w.unary(UnaryOperation.LOG, total))


CONVERTERS[torch.ops.prims.convert_element_type.default] = _to
