"""Operators that compute each element by itself, and reductions."""

from __future__ import annotations

import math
from typing import Any

import torch

from .._core import (
    ActivationType,
    DataType,
    ElementWiseOperation,
    ITensor,
    UnaryOperation,
)
from ._converters import CONVERTERS, converter
from ._writer import Unsupported, Writer

_FLOATS = (DataType.FLOAT, DataType.HALF, DataType.BF16)


def is_float(x: ITensor) -> bool:
    return x.dtype in _FLOATS


def _unary(name: str, op: UnaryOperation) -> None:
    @converter(name)
    def convert(w: Writer, x: ITensor) -> ITensor:
        return w.unary(op, w.cast(x, w.dtype))


for _name in (
    "exp log sqrt abs neg sin cos tan sinh cosh asin acos atan asinh acosh atanh erf sign"
).split():
    _unary(_name, getattr(UnaryOperation, _name.upper()))
_unary("reciprocal", UnaryOperation.RECIP)


def _of_floats(name: str, op: UnaryOperation, otherwise: Any) -> None:
    """Registers a unary operator of floats. `otherwise(writer, tensor)` is its result for
    integers."""

    @converter(name)
    def convert(w: Writer, x: ITensor) -> ITensor:
        return w.unary(op, x) if is_float(x) else otherwise(w, x)


for _name in ("ceil", "floor", "round"):
    _of_floats(_name, getattr(UnaryOperation, _name.upper()), lambda w, x: x)
for _name in ("isinf", "isnan"):
    _of_floats(
        _name,
        getattr(UnaryOperation, _name.upper()),
        lambda w, x: w.expand(w.full(False, DataType.BOOL, len(x.shape)), w.sizes(x)),
    )


@converter("erfc")
def _erfc(w: Writer, x: ITensor) -> ITensor:
    """1 - erf(x). It is 0 for x above 4, where the true value is below 2e-8."""
    error = w.unary(UnaryOperation.ERF, w.cast(x, w.dtype))
    return w.binary(ElementWiseOperation.SUB, 1, error, w.dtype)


@converter("exp2")
def _exp2(w: Writer, x: ITensor) -> ITensor:
    return w.binary(ElementWiseOperation.POW, 2, x, w.dtype)


@converter("round.decimals")
def _round_decimals(w: Writer, x: ITensor, decimals: int = 0) -> ITensor:
    if not is_float(x):
        raise Unsupported("integers rounded to decimals")
    factor = 10.0 ** abs(decimals)
    there, back = ElementWiseOperation.PROD, ElementWiseOperation.DIV
    if decimals < 0:
        there, back = back, there
    scaled = w.binary(there, x, factor, x.dtype)
    return w.binary(back, w.unary(UnaryOperation.ROUND, scaled), factor, x.dtype)


@converter("rsqrt")
def _rsqrt(w: Writer, x: ITensor) -> ITensor:
    return w.unary(UnaryOperation.RECIP, w.unary(UnaryOperation.SQRT, w.cast(x, w.dtype)))


def _scaled_log(base: float) -> Any:
    return lambda w, x: w.mul(w.unary(UnaryOperation.LOG, w.cast(x, w.dtype)), 1 / math.log(base))


converter("log2")(_scaled_log(2))
converter("log10")(_scaled_log(10))


@converter("trunc")
def _trunc(w: Writer, x: ITensor) -> ITensor:
    if not is_float(x):
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
    if is_float(x):
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
    if not is_float(x):
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
        return _floor_divide(w, a, b)
    quotient = w.binary(ElementWiseOperation.DIV, a, b, w.dtype)  # integers are rounded towards 0
    return quotient if rounding_mode is None else _trunc(w, quotient)


@converter("floor_divide", "floor_divide.Scalar")
def _floor_divide(w: Writer, a: Any, b: Any) -> ITensor:
    if w.dtype not in _FLOATS:
        return w.binary(ElementWiseOperation.FLOOR_DIV, a, b, w.dtype)
    # A quotient that rounding lifts to the next whole number would be 1 too large: 1 // 0.1 is 9.
    ratio = w.binary(ElementWiseOperation.DIV, a, b, w.dtype)
    rest, b = _fmod(w, a, b), w.tensor(b, w.dtype)
    whole = w.binary(
        ElementWiseOperation.DIV, w.binary(ElementWiseOperation.SUB, a, rest, w.dtype), b, w.dtype
    )
    lower = w.binary(ElementWiseOperation.SUB, whole, 1.0, w.dtype)
    whole = w.unary(UnaryOperation.ROUND, w.select(_has_other_sign(w, rest, b), lower, whole))
    zero = w.binary(ElementWiseOperation.PROD, ratio, 0.0, w.dtype)
    whole = w.select(w.binary(ElementWiseOperation.EQUAL, whole, 0.0, w.dtype), zero, whole)
    return w.select(w.binary(ElementWiseOperation.EQUAL, b, 0.0, w.dtype), ratio, whole)


@converter("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(w: Writer, a: Any, b: Any) -> ITensor:
    if w.dtype not in _FLOATS:
        quotient = w.binary(ElementWiseOperation.FLOOR_DIV, a, b, w.dtype)
        product = w.binary(ElementWiseOperation.PROD, quotient, b, w.dtype)
        return w.binary(ElementWiseOperation.SUB, a, product, w.dtype)
    rest, b = _fmod(w, a, b), w.tensor(b, w.dtype)
    moved = w.binary(ElementWiseOperation.SUM, rest, b, w.dtype)
    return w.select(_has_other_sign(w, rest, b), moved, rest)


def _has_other_sign(w: Writer, rest: ITensor, b: ITensor) -> ITensor:
    """Whether the rest is not 0 and has another sign than the divisor."""
    first, second = (w.binary(ElementWiseOperation.LESS, x, 0.0, w.dtype) for x in (rest, b))
    differs = w.binary(ElementWiseOperation.XOR, first, second, DataType.BOOL)
    is_zero = w.binary(ElementWiseOperation.EQUAL, rest, 0.0, w.dtype)
    return w.binary(
        ElementWiseOperation.AND, differs, w.unary(UnaryOperation.NOT, is_zero), DataType.BOOL
    )


@converter("fmod.Tensor", "fmod.Scalar")
def _fmod(w: Writer, a: Any, b: Any) -> ITensor:
    if w.dtype in _FLOATS:
        rank = max(len(x.shape) for x in (a, b) if isinstance(x, ITensor))
        operands = w.align(w.tensor(a, w.dtype, rank), w.tensor(b, w.dtype, rank))
        return w.operator("Remainder", operands).get_output(0)
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
    op = ElementWiseOperation
    return w.binary(op.OR if w.dtype == DataType.BOOL else op.MAX, a, b, w.dtype)


@converter("minimum")
def _minimum(w: Writer, a: ITensor, b: ITensor) -> ITensor:
    op = ElementWiseOperation
    return w.binary(op.AND if w.dtype == DataType.BOOL else op.MIN, a, b, w.dtype)


def _number_of(name: str, choose: Any) -> None:
    @converter(name)
    def convert(w: Writer, a: ITensor, b: ITensor) -> ITensor:
        """The other operand if one is NaN."""
        y = choose(w, a, b)
        if not is_float(y):
            return y
        a, b = w.cast(a, y.dtype), w.cast(b, y.dtype)
        y = w.select(w.unary(UnaryOperation.ISNAN, a), b, y)
        return w.select(w.unary(UnaryOperation.ISNAN, b), a, y)


_number_of("fmax", _maximum)
_number_of("fmin", _minimum)


@converter("clamp", "clamp.Tensor", "clip")
def _clamp(w: Writer, x: ITensor, low: Any = None, high: Any = None) -> ITensor:
    if low is not None:
        x = _maximum(w, x, low)
    if high is not None:
        x = _minimum(w, x, high)
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


@converter("atan2")
def _atan2(w: Writer, y: ITensor, x: ITensor) -> ITensor:
    """The arc tangent of the quotient, turned by half a circle if x is negative."""
    op, dtype = ElementWiseOperation, w.dtype
    y, x = w.cast(y, dtype), w.cast(x, dtype)
    angle = w.unary(UnaryOperation.ATAN, w.binary(op.DIV, y, x))
    # 0 / 0 and infinity / infinity are NaN. Their angles are multiples of a quarter of pi.
    at_origin = w.binary(op.AND, w.binary(op.EQUAL, y, 0), w.binary(op.EQUAL, x, 0))
    angle = w.select(at_origin, y, angle)
    endless = w.binary(op.AND, *(w.unary(UnaryOperation.ISINF, each) for each in (y, x)))
    signs = w.mul(*(w.unary(UnaryOperation.SIGN, each) for each in (y, x)))
    angle = w.select(endless, w.mul(signs, math.pi / 4), angle)
    half = w.select(
        _is_negative(w, y),
        w.full(-math.pi, dtype, len(angle.shape)),
        w.full(math.pi, dtype, len(angle.shape)),
    )
    return w.select(_is_negative(w, x), w.add(angle, half), angle)


def _is_negative(w: Writer, x: ITensor) -> ITensor:
    """Whether the sign is negative. This includes -0.0."""
    op = ElementWiseOperation
    below = w.binary(op.LESS, x, 0)
    if not is_float(x):
        return below
    beyond = w.binary(op.LESS, w.unary(UnaryOperation.RECIP, x), 0)
    return w.binary(op.OR, below, w.binary(op.AND, w.binary(op.EQUAL, x, 0), beyond))


@converter("angle")
def _angle(w: Writer, x: ITensor) -> ITensor:
    """The angle of real numbers: pi for negative ones, else 0."""
    below = w.binary(ElementWiseOperation.LESS, x, 0)
    angle = w.mul(w.cast(below, w.dtype), math.pi)
    if not is_float(x):
        return angle
    return w.select(w.unary(UnaryOperation.ISNAN, x), x, angle)


@converter("signbit")
def _signbit(w: Writer, x: ITensor) -> ITensor:
    return _is_negative(w, x)


@converter("hypot")
def _hypot(w: Writer, a: ITensor, b: ITensor) -> ITensor:
    """The length of a vector, from the quotient of the smaller and the larger side, so that no
    square overflows."""
    op = ElementWiseOperation
    a, b = (w.unary(UnaryOperation.ABS, w.cast(x, w.dtype)) for x in (a, b))
    most, least = w.binary(op.MAX, a, b), w.binary(op.MIN, a, b)
    ratio = w.binary(op.DIV, least, w.binary(op.MAX, most, torch.finfo(w.meta.dtype).tiny))
    return w.mul(most, w.unary(UnaryOperation.SQRT, w.add(w.mul(ratio, ratio), 1)))


@converter("copysign.Tensor", "copysign.Scalar")
def _copysign(w: Writer, x: ITensor, sign: Any) -> ITensor:
    magnitude = w.unary(UnaryOperation.ABS, w.cast(x, w.dtype))
    negative = w.unary(UnaryOperation.NEG, magnitude)
    return w.select(_is_negative(w, w.tensor(sign, w.dtype, len(x.shape))), negative, magnitude)


@converter("ldexp.Tensor")
def _ldexp(w: Writer, x: ITensor, exponent: ITensor) -> ITensor:
    return w.mul(w.cast(x, w.dtype), w.binary(ElementWiseOperation.POW, 2, exponent, w.dtype))


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
        # The negation of "less" would be true for NaN.
        strict, equal = (w.binary(each, a, b, dtype) for each in (op, ElementWiseOperation.EQUAL))
        return w.binary(ElementWiseOperation.OR, strict, equal)


_or_equal("ge", ElementWiseOperation.GREATER)
_or_equal("le", ElementWiseOperation.LESS)


def truth(w: Writer, x: Any) -> ITensor:
    if x.dtype == DataType.BOOL:
        return x
    return _not(w, w.binary(ElementWiseOperation.EQUAL, x, 0, x.dtype))


def _logical(name: str, op: ElementWiseOperation) -> None:
    @converter(f"logical_{name}")
    def convert(w: Writer, a: ITensor, b: ITensor) -> ITensor:
        return w.binary(op, truth(w, a), truth(w, b))

    @converter(f"bitwise_{name}.Tensor", f"bitwise_{name}.Scalar", f"__{name}__.Tensor")
    def convert_bits(w: Writer, a: Any, b: Any) -> ITensor:
        return w.binary(op, a, b, w.dtype)


for _name in ("and", "or", "xor"):
    _logical(_name, getattr(ElementWiseOperation, _name.upper()))


@converter("logical_not")
def _logical_not(w: Writer, x: ITensor) -> ITensor:
    return _not(w, truth(w, x))


@converter("bitwise_not")
def _bitwise_not(w: Writer, x: ITensor) -> ITensor:
    if x.dtype == DataType.BOOL:
        return _not(w, x)
    ones = 255 if x.dtype == DataType.UINT8 else -1
    return w.binary(ElementWiseOperation.XOR, x, ones, x.dtype)


@converter("bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar")
def _left_shift(w: Writer, x: ITensor, count: Any) -> ITensor:
    power = w.binary(ElementWiseOperation.POW, w.full(2, w.dtype), count, w.dtype)
    return w.binary(ElementWiseOperation.PROD, x, power, w.dtype)


@converter("bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Scalar")
def _right_shift(w: Writer, x: ITensor, count: Any) -> ITensor:
    power = w.binary(ElementWiseOperation.POW, w.full(2, w.dtype), count, w.dtype)
    return w.binary(ElementWiseOperation.FLOOR_DIV, x, power, w.dtype)


@converter("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(w: Writer, condition: ITensor, a: Any, b: Any) -> ITensor:
    return w.select(truth(w, condition), w.tensor(a, w.dtype), w.tensor(b, w.dtype))


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
    """Adds no layer for an assertion: PyTorch has checked it, by its guards or while it traced."""


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


CONVERTERS[torch.ops.prims.convert_element_type.default] = _to
