"""Complex numbers, where each tensor is a pair of real and imaginary part, and Fourier
transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .._core import DataType, ElementWiseOperation, ITensor, UnaryOperation
from . import _layers, _movement, _pooling, _reductions  # noqa: F401 (they fill CONVERTERS
from ._converters import CONVERTERS, Converter, converter
from ._elementwise import _atan2, _hypot
from ._writer import Unsupported, Writer, known

_OP = ElementWiseOperation
COMPLEX: dict[Any, Converter] = {}
"""The converters of operators with complex operands or results, by overload. They take and return
complex tensors as `Complex`. `Writer.meta` describes the real and imaginary parts."""


class Complex(NamedTuple):
    real: ITensor
    imag: ITensor

    @property
    def shape(self) -> Any:
        return self.real.shape


def is_complex(value: Any) -> bool:
    """Whether a fake tensor, or one of several, is complex."""
    if isinstance(value, (list, tuple)):
        return any(map(is_complex, value))
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


def real_meta(value: Any) -> Any:
    """Fake tensors of the real parts."""
    if isinstance(value, (list, tuple)):
        return [real_meta(each) for each in value]
    if not is_complex(value):
        return value
    mode = getattr(value, "fake_mode", None)
    if mode is None:
        return value.real
    with mode:
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype.to_real(), device=value.device
        )


def stacked(w: Writer, z: Complex) -> ITensor:
    """The parts along a new last axis, as torch.view_as_real gives them."""
    axis = len(z.real.shape)
    both = w.concatenate([w.unsqueeze(part, [axis]) for part in z], axis)
    w.stacks[id(both)] = both, z
    return both


def unstacked(w: Writer, x: ITensor) -> Complex:
    """The inverse of `stacked`, as torch.view_as_complex."""
    axis = len(x.shape) - 1
    return Complex(*(w.gather(x, w.full(i, DataType.INT64), axis) for i in range(2)))


def complex_converter(target: Any) -> Converter | None:
    return COMPLEX.get(target)


def _part(value: Any, which: int) -> Any:
    """The real or imaginary part of a complex argument; other arguments unchanged."""
    if isinstance(value, Complex):
        return value[which]
    if isinstance(value, complex):
        return value.imag if which else value.real
    if isinstance(value, (list, tuple)):
        return [_part(each, which) for each in value]
    return value


def _joined(real: Any, imag: Any) -> Any:
    if isinstance(real, (list, tuple)):
        return [_joined(*parts) for parts in zip(real, imag)]
    return Complex(real, imag)


def _by_parts(*names: str) -> None:
    """Registers operators that compute each part of the result from the same part of the
    operands."""
    table: dict[Any, Converter] = {}
    converter(*names, table=table)(_by_parts)
    for target in table:
        if target in CONVERTERS:
            COMPLEX[target] = _of_parts(CONVERTERS[target])


def _of_parts(convert: Converter) -> Converter:
    def run(w: Writer, *args: Any, **options: Any) -> Any:
        return _joined(*(convert(w, *_part(args, i), **options) for i in range(2)))

    return run


_by_parts(
    *"view _unsafe_view reshape permute permute_copy transpose.int swapaxes t mT movedim.int".split(),
    *"unsqueeze squeeze squeeze.dim squeeze.dims expand expand_as repeat tile narrow".split(),
    *"slice.Tensor slice_copy.Tensor select.int split.Tensor split_with_sizes unbind.int".split(),
    *"flip roll cat concat stack as_strided diagonal unfold index_select gather".split(),
    *"index.Tensor _unsafe_index.Tensor embedding clone alias detach contiguous".split(),
    *"lift_fresh_copy index_copy slice_scatter select_scatter copy".split(),
    *"sum sum.dim_IntList mean mean.dim neg cumsum".split(),
)


def _complex(*names: str) -> Callable[[Converter], Converter]:
    return converter(*names, table=COMPLEX)


def _parts(w: Writer, value: Any) -> tuple[Any, Any]:
    """The real and imaginary part of a tensor or number. The imaginary part of a real one is 0."""
    if isinstance(value, Complex):
        return value
    if isinstance(value, complex):
        return value.real, value.imag
    return (w.cast(value, w.dtype) if isinstance(value, ITensor) else value), 0


def _is_real(value: Any) -> bool:
    return not isinstance(value, (Complex, complex))


def _spread(w: Writer, real: Any, imag: Any) -> Complex:
    """Makes a complex tensor of two parts. One may be a number, or broadcast to the other."""
    shape = list(w.meta.shape)
    parts = [w.expand(w.tensor(part, w.dtype, len(shape)), shape) for part in (real, imag)]
    return Complex(*parts)


@_complex("complex")
def _of_two(w: Writer, real: ITensor, imag: ITensor) -> Complex:
    return _spread(w, real, imag)


@_complex("polar")
def _polar(w: Writer, radius: ITensor, angle: ITensor) -> Complex:
    turns = (w.unary(op, angle) for op in (UnaryOperation.COS, UnaryOperation.SIN))
    return _spread(w, *(w.mul(radius, turn) for turn in turns))


@_complex("view_as_complex", "view_as_complex_copy")
def _view_as_complex(w: Writer, x: ITensor) -> Complex:
    return unstacked(w, x)


@_complex("view_as_real", "view_as_real_copy")
def _view_as_real(w: Writer, z: Complex) -> ITensor:
    return stacked(w, z)


@_complex("_to_copy", "to.dtype")
def _to(w: Writer, x: Any, *_args: Any, **_options: Any) -> Complex:
    return x if isinstance(x, Complex) else _spread(w, *_parts(w, x))


@_complex("full", "new_full", "full_like", "scalar_tensor")
def _full(w: Writer, *args: Any, **_options: Any) -> Complex:
    return _spread(w, *_parts(w, args[-1]))


@_complex("zeros", "zeros_like", "new_zeros", "empty.memory_format", "empty_like", "new_empty")
def _zeros(w: Writer, *_args: Any, **_options: Any) -> Complex:
    return _spread(w, 0, 0)


@_complex("ones", "ones_like", "new_ones")
def _ones(w: Writer, *_args: Any, **_options: Any) -> Complex:
    return _spread(w, 1, 0)


@_complex("constant_pad_nd")
def _constant_pad(w: Writer, z: Complex, padding: Any, value: Any = 0) -> Complex:
    return _pad(w, z, padding, "constant", value)


@_complex("pad")
def _pad(w: Writer, z: Complex, padding: Any, mode: str = "constant", value: Any = None) -> Complex:
    convert = CONVERTERS[torch.ops.aten.pad.default]
    fills = _parts(w, value or 0)
    if mode != "constant":
        fills = (None, None)
    return Complex(*(convert(w, part, padding, mode, fill) for part, fill in zip(z, fills)))


@_complex("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(w: Writer, condition: ITensor, a: Any, b: Any) -> Complex:
    rank = len(w.meta.shape)
    pairs = zip(_parts(w, a), _parts(w, b))
    return Complex(
        *(w.select(condition, *(w.tensor(each, w.dtype, rank) for each in pair)) for pair in pairs)
    )


# Arithmetic


@_complex("_conj", "_conj_physical", "conj_physical", "conj")
def _conj(w: Writer, z: Complex) -> Complex:
    return Complex(z.real, w.unary(UnaryOperation.NEG, z.imag))


@_complex("resolve_conj", "resolve_neg")
def _same(w: Writer, z: Complex) -> Complex:
    return z


@_complex("abs")
def _abs(w: Writer, z: Complex) -> ITensor:
    return _hypot(w, *z)


@_complex("angle")
def _angle(w: Writer, z: Complex) -> ITensor:
    return _atan2(w, z.imag, z.real)


def _sum(op: ElementWiseOperation) -> Converter:
    def convert(w: Writer, a: Any, b: Any, alpha: Any = 1) -> Complex:
        x, y = _parts(w, a), _product(w, b, alpha) if alpha != 1 else _parts(w, b)
        pairs = [(p, q) for p, q in zip(x, y)]
        return _spread(w, *(_combined(w, op, *pair) for pair in pairs))

    return convert


def _combined(w: Writer, op: ElementWiseOperation, a: Any, b: Any) -> Any:
    if not isinstance(a, ITensor) and not isinstance(b, ITensor):
        return a + b if op == _OP.SUM else a - b
    return w.binary(op, a, b, w.dtype)


_complex("add.Tensor", "add.Scalar")(_sum(_OP.SUM))
_complex("sub.Tensor", "sub.Scalar")(_sum(_OP.SUB))
_complex("rsub.Tensor", "rsub.Scalar")(
    lambda w, a, b, alpha=1: _sum(_OP.SUB)(w, b, a if alpha == 1 else _product(w, a, alpha))
)


def _product(w: Writer, a: Any, b: Any) -> tuple[Any, Any]:
    if _is_real(a):
        a, b = b, a
    if _is_real(a):
        return w.mul(a, b), 0
    (x, y), (u, v) = _parts(w, a), _parts(w, b)
    if _is_real(b):
        return _times(w, x, u), _times(w, y, u)
    real = _combined(w, _OP.SUB, _times(w, x, u), _times(w, y, v))
    return real, _combined(w, _OP.SUM, _times(w, x, v), _times(w, y, u))


def _times(w: Writer, a: Any, b: Any) -> Any:
    numbers = not isinstance(a, ITensor) and not isinstance(b, ITensor)
    return a * b if numbers else w.binary(_OP.PROD, a, b, w.dtype)


@_complex("mul.Tensor", "mul.Scalar")
def _mul(w: Writer, a: Any, b: Any) -> Complex:
    return _spread(w, *_product(w, a, b))


def _inverse(w: Writer, z: Any) -> tuple[Any, Any]:
    """1 / z, by the quotient of the smaller and the larger part, so that no square overflows."""
    x, y = _parts(w, z)
    if not isinstance(x, ITensor) and not isinstance(y, ITensor):
        inverse = 1 / complex(x, y)
        return inverse.real, inverse.imag
    rank = max(len(part.shape) for part in (x, y) if isinstance(part, ITensor))
    x, y = (w.tensor(part, w.dtype, rank) for part in (x, y))
    sizes = [w.unary(UnaryOperation.ABS, part) for part in (x, y)]
    most = w.binary(_OP.MAX, *sizes)
    x, y = (w.binary(_OP.DIV, part, most) for part in (x, y))
    square = w.mul(w.add(w.mul(x, x), w.mul(y, y)), most)
    return w.binary(_OP.DIV, x, square), w.unary(UnaryOperation.NEG, w.binary(_OP.DIV, y, square))


@_complex("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(w: Writer, a: Any, b: Any) -> Complex:
    if _is_real(b):
        x, y = _parts(w, a)
        return _spread(w, *(w.binary(_OP.DIV, part, b, w.dtype) for part in (x, y)))
    return _spread(w, *_product(w, a, complex_of(*_inverse(w, b))))


def complex_of(real: Any, imag: Any) -> Any:
    """A complex tensor of two tensors, or a complex number of two numbers."""
    return Complex(real, imag) if isinstance(real, ITensor) else complex(real, imag)


@_complex("reciprocal")
def _reciprocal(w: Writer, z: Complex) -> Complex:
    return Complex(*_inverse(w, z))


@_complex("exp")
def _exp(w: Writer, z: Complex) -> Complex:
    return _polar(w, w.unary(UnaryOperation.EXP, z.real), z.imag)


@_complex("log")
def _log(w: Writer, z: Complex) -> Complex:
    return Complex(w.unary(UnaryOperation.LOG, _hypot(w, *z)), _atan2(w, z.imag, z.real))


@_complex("sgn")
def _sgn(w: Writer, z: Complex) -> Complex:
    size = _hypot(w, *z)
    is_zero = w.binary(_OP.EQUAL, size, 0)
    return Complex(*(w.select(is_zero, part, w.binary(_OP.DIV, part, size)) for part in z))


@_complex("pow.Tensor_Scalar")
def _pow(w: Writer, z: Complex, exponent: Any) -> Complex:
    if exponent not in (2, 3, 4):
        raise Unsupported(f"complex numbers to the power of {exponent}")
    result: Any = z
    for _ in range(exponent - 1):
        result = Complex(*_product(w, result, z))
    return result


def _bilinear(*names: str) -> None:
    """Registers operators that are products of two operands."""
    table: dict[Any, Converter] = {}
    converter(*names, table=table)(_bilinear)
    for target in table:
        if target in CONVERTERS:
            COMPLEX[target] = _of_products(CONVERTERS[target])


def _of_products(convert: Converter) -> Converter:
    def run(w: Writer, a: Any, b: Any) -> Complex:
        (x, y), (u, v) = a, b
        real = w.binary(_OP.SUB, convert(w, x, u), convert(w, y, v))
        return Complex(real, w.add(convert(w, x, v), convert(w, y, u)))

    return run


_bilinear("mm", "bmm", "matmul")


@_complex("einsum")
def _einsum(w: Writer, equation: str, tensors: Sequence[Any], **options: Any) -> Complex:
    convert = CONVERTERS[torch.ops.aten.einsum.default]
    make: Converter = lambda w, *operands: convert(w, equation, list(operands), **options)  # noqa: E731
    if len(tensors) == 1:
        return _of_parts(make)(w, *tensors)
    if len(tensors) != 2:
        raise Unsupported(f"einsum of {len(tensors)} complex tensors; at most 2")
    return _of_products(make)(w, *tensors)


# Fourier transforms


def _points(x: ITensor) -> int:
    points = x.shape[-1]
    if points < 1:
        raise Unsupported("a Fourier transform along an axis of unknown extent")
    return points


def _transform(w: Writer, parts: Sequence[ITensor], points: int, **parameters: Any) -> ITensor:
    """The Fourier transform along the last axis of one real part, or of two. The axis of the
    result's parts is in front of the last one."""
    axis = len(parts[0].shape) - 1
    planes = w.concatenate([w.unsqueeze(part, [axis]) for part in parts], axis)
    layer = w.operator("FourierTransform", [planes], length=points, planes=True, **parameters)
    return layer.get_output(0)


def _parts_of(w: Writer, planes: ITensor) -> Complex:
    rank, sizes = len(planes.shape), w.sizes(planes)
    shape = [*sizes[:-2], 1, sizes[-1]]
    starts = ([*[0] * (rank - 2), part, 0] for part in range(2))
    return Complex(
        *(w.squeeze(w.slice(planes, start, shape, [1] * rank), [rank - 2]) for start in starts)
    )


def _along(w: Writer, value: Any, dim: int, run: Callable[[Any], Any]) -> Any:
    """Calls `run` with the axis moved to the end, and moves it back."""
    rank = len(value.shape)
    axes = [axis for axis in range(rank) if axis != dim % rank] + [dim % rank]
    back = [axes.index(axis) for axis in range(rank)]

    def moved(value: Any, order: Sequence[int]) -> Any:
        if isinstance(value, Complex):
            return Complex(*(w.transpose(part, order) for part in value))
        return w.transpose(value, order)

    return moved(run(moved(value, axes)), back)


def _factor(normalization: int, points: int) -> float:
    """What PyTorch's normalization multiplies with: 0 nothing, 1 by the root, 2 by the points."""
    return 1.0 if normalization == 0 else 1 / (math.sqrt(points) if normalization == 1 else points)


@_complex("_fft_c2c")
def _fft_c2c(w: Writer, z: Complex, dims: Any, normalization: int, forward: bool) -> Complex:
    def run(z: Complex) -> Complex:
        points = _points(z.real)
        scale = _factor(normalization, points)
        return _parts_of(w, _transform(w, list(z), points, inverse=not forward, scale=scale))

    for dim in dims:
        z = _along(w, z, dim, run)
    return z


@_complex("_fft_r2c")
def _fft_r2c(w: Writer, x: ITensor, dims: Any, normalization: int, onesided: bool) -> Complex:
    def run(x: ITensor) -> Complex:
        points = _points(x)
        scale = _factor(normalization, points)
        return _parts_of(w, _transform(w, [x], points, onesided=onesided, scale=scale))

    z = _along(w, x, dims[-1], run)
    return _fft_c2c(w, z, dims[:-1], normalization, True)


@_complex("_fft_c2r")
def _fft_c2r(w: Writer, z: Complex, dims: Any, normalization: int, last: int) -> ITensor:
    points = known(last)
    if points is None:
        raise Unsupported("a Fourier transform to an unknown extent")

    def run(z: Complex) -> ITensor:
        bins = _points(z.real)
        if bins != points // 2 + 1:
            raise Unsupported(f"{bins} bins of {points} points")
        scale = _factor(normalization, points)
        x = _transform(w, list(z), points, inverse=True, onesided=True, scale=scale)
        return w.squeeze(x, [len(x.shape) - 2])

    return _along(w, _fft_c2c(w, z, dims[:-1], normalization, False), dims[-1], run)
