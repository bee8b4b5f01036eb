"""Expressions of single elements, for `pointwise_impl`.

>>> from opwright.plugin import elements
>>> @trtp.pointwise_impl("example::soften")
... def soften_elements(x, limit):
...     return elements.sign(x) * elements.maximum(abs(x) - limit, 0.0)

Elements have ``+ - * / **``, ``abs()`` and comparisons with each other and with numbers. Everything
is computed in FP32.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, Union

from .._core import ActivationType, DataType, ElementWiseOperation, UnaryOperation

_INPUT, _CONSTANT, _SELECT, _BINARY, _UNARY, _ACTIVATION = 0, 1, 2, 100, 200, 300
_FLOAT, _BOOL = int(DataType.FLOAT), int(DataType.BOOL)

#: Operand of operators and functions.
Operand = Union["Element", float, int]


class _Program:
    """The instructions so far. Equal instructions are stored once."""

    def __init__(self) -> None:
        self.instructions: dict[tuple[Any, ...], int] = {}

    def add(
        self,
        op: int,
        kind: int,
        a: int = -1,
        b: int = -1,
        c: int = -1,
        alpha: float = 0.0,
        beta: float = 0.0,
    ) -> Element:
        # Numbers are compared as text: NaN equals nothing, and -0.0 is not 0.0.
        key = (op, kind, a, b, c, repr(float(alpha)), repr(float(beta)))
        return Element(self, self.instructions.setdefault(key, len(self.instructions)), kind)

    def element(self, value: Any, what: str) -> Element:
        if isinstance(value, Element):
            if value._program is not self:
                raise ValueError(f"{what}: an element of another call of pointwise_impl came")
            return value
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            return self.add(_CONSTANT, _FLOAT, alpha=float(value))
        raise TypeError(
            f"{what}: expected elements and numbers; {type(value).__name__} came. Only operators and "
            "the functions of opwright.plugin.elements make elements of elements"
        )


class Element:
    """An element of a tensor, or a value computed from elements: a number or, for a comparison, a
    truth value."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's numbers leave operators to this class

    def __init__(self, program: _Program, register: int, kind: int):
        self._program = program
        self._register = register
        self._kind = kind

    def __bool__(self) -> bool:
        raise TypeError(
            "an element has no value while pointwise_impl is called: choose with "
            "elements.where(condition, a, b) instead of `if`, `and`, `or` and `not`"
        )

    def _binary(self, name: str, a: Any, b: Any) -> Element:
        x, y = self._program.element(a, name), self._program.element(b, name)
        _require_numbers(name, x, y)
        op = ElementWiseOperation[name]
        compares = name in ("EQUAL", "GREATER", "LESS")
        kind = _BOOL if compares else _FLOAT
        return self._program.add(_BINARY + int(op), kind, x._register, y._register)

    def __add__(self, other: Operand) -> Element:
        return self._binary("SUM", self, other)

    def __radd__(self, other: Operand) -> Element:
        return self._binary("SUM", other, self)

    def __sub__(self, other: Operand) -> Element:
        return self._binary("SUB", self, other)

    def __rsub__(self, other: Operand) -> Element:
        return self._binary("SUB", other, self)

    def __mul__(self, other: Operand) -> Element:
        return self._binary("PROD", self, other)

    def __rmul__(self, other: Operand) -> Element:
        return self._binary("PROD", other, self)

    def __truediv__(self, other: Operand) -> Element:
        return self._binary("DIV", self, other)

    def __rtruediv__(self, other: Operand) -> Element:
        return self._binary("DIV", other, self)

    def __pow__(self, other: Operand) -> Element:
        return self._binary("POW", self, other)

    def __rpow__(self, other: Operand) -> Element:
        return self._binary("POW", other, self)

    def __lt__(self, other: Operand) -> Element:
        return self._binary("LESS", self, other)

    def __gt__(self, other: Operand) -> Element:
        return self._binary("GREATER", self, other)

    def __le__(self, other: Operand) -> Element:
        return (self < other) | self._binary("EQUAL", self, other)

    def __ge__(self, other: Operand) -> Element:
        return (self > other) | self._binary("EQUAL", self, other)

    def __and__(self, other: Element) -> Element:
        return _logic("AND", self, other)

    def __or__(self, other: Element) -> Element:
        return _logic("OR", self, other)

    def __invert__(self) -> Element:
        _require_truth("~", self)
        return self._program.add(_UNARY + int(UnaryOperation.NOT), _BOOL, self._register)

    def __neg__(self) -> Element:
        return _unary("NEG", self)

    def __abs__(self) -> Element:
        return _unary("ABS", self)


def _require_numbers(what: str, *elements: Element) -> None:
    if any(element._kind != _FLOAT for element in elements):
        raise TypeError(f"{what}: expected numbers; a comparison came, choose with where()")


def _require_truth(what: str, *elements: Any) -> None:
    if any(not isinstance(e, Element) or e._kind != _BOOL for e in elements):
        raise TypeError(f"{what}: expected the result of a comparison, as in x > 0")


def _program_of(what: str, *values: Any) -> _Program:
    for value in values:
        if isinstance(value, Element):
            return value._program
    raise TypeError(
        f"{what}: expected an element; {', '.join(type(v).__name__ for v in values)} came"
    )


def _logic(name: str, a: Any, b: Any) -> Element:
    _require_truth(name.lower(), a, b)
    op = int(ElementWiseOperation[name])
    return a._program.add(_BINARY + op, _BOOL, a._register, b._register)


def _unary(name: str, x: Any) -> Element:
    program = _program_of(name.lower(), x)
    _require_numbers(name.lower(), x)
    return program.add(_UNARY + int(UnaryOperation[name]), _FLOAT, x._register)


def _activation(name: str, x: Any, alpha: float = 0.0, beta: float = 0.0) -> Element:
    program = _program_of(name.lower(), x)
    _require_numbers(name.lower(), x)
    op = _ACTIVATION + int(ActivationType[name])
    return program.add(op, _FLOAT, x._register, alpha=alpha, beta=beta)


def exp(x: Element) -> Element:
    """e to the power of x."""
    return _unary("EXP", x)


def log(x: Element) -> Element:
    """The natural logarithm."""
    return _unary("LOG", x)


def sqrt(x: Element) -> Element:
    """The square root."""
    return _unary("SQRT", x)


def sin(x: Element) -> Element:
    """The sine of x in radians."""
    return _unary("SIN", x)


def cos(x: Element) -> Element:
    """The cosine of x in radians."""
    return _unary("COS", x)


def erf(x: Element) -> Element:
    """The error function."""
    return _unary("ERF", x)


def floor(x: Element) -> Element:
    """The next whole number below."""
    return _unary("FLOOR", x)


def ceil(x: Element) -> Element:
    """The next whole number above."""
    return _unary("CEIL", x)


def round(x: Element) -> Element:
    """The nearest whole number, halves to the even one."""
    return _unary("ROUND", x)


def sign(x: Element) -> Element:
    """-1, 0 or 1."""
    return _unary("SIGN", x)


def tanh(x: Element) -> Element:
    """The hyperbolic tangent."""
    return _activation("TANH", x)


def sigmoid(x: Element) -> Element:
    """1 / (1 + exp(-x))"""
    return _activation("SIGMOID", x)


def softplus(x: Element) -> Element:
    """log(1 + exp(x))"""
    return _activation("SOFTPLUS", x, 1.0, 1.0)


def minimum(a: Operand, b: Operand) -> Element:
    """The smaller one."""
    return _program_of("minimum", a, b).element(a, "minimum")._binary("MIN", a, b)


def maximum(a: Operand, b: Operand) -> Element:
    """The larger one."""
    return _program_of("maximum", a, b).element(a, "maximum")._binary("MAX", a, b)


def where(condition: Element, a: Operand, b: Operand) -> Element:
    """`a` if the condition, a comparison, holds, else `b`."""
    _require_truth("where", condition)
    program = condition._program
    x, y = program.element(a, "where"), program.element(b, "where")
    _require_numbers("where", x, y)
    return program.add(_SELECT, _FLOAT, condition._register, x._register, y._register)


def trace(function: Callable[..., Any], tensors: int) -> Callable[..., tuple[Any, ...]]:
    """A function that calls `function`, whose first `tensors` arguments are tensors, and returns
    its program: five integers and two numbers for each instruction, and the register of the
    result."""

    def traced(*args: Any, **keywords: Any) -> tuple[list[int], list[float], list[int]]:
        program = _Program()
        inputs = [program.add(_INPUT, _FLOAT, i) for i in range(tensors)]
        result = program.element(function(*inputs, *args, **keywords), "pointwise_impl's result")
        code: list[int] = []
        immediates: list[float] = []
        for op, kind, a, b, c, alpha, beta in program.instructions:
            code += [op, kind, a, b, c]
            immediates += [float(alpha), float(beta)]
        return code, immediates, [result._register]

    return traced
