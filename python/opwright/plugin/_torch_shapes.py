"""Infers shapes through operators of PyTorch. Extents of a plugin's tensors become PyTorch's
symbolic integers, and the results of fake functions become extents again."""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from .._core import DataType
from .._core._plugin import ShapeExpr, TensorDesc, cdiv, from_shape_expr
from .._core._plugin import max as max_of
from .._core._plugin import min as min_of

_TO_TORCH = {
    DataType.FLOAT: torch.float32,
    DataType.HALF: torch.float16,
    DataType.BF16: torch.bfloat16,
    DataType.FP8: torch.float8_e4m3fn,
    DataType.INT8: torch.int8,
    DataType.UINT8: torch.uint8,
    DataType.INT32: torch.int32,
    DataType.INT64: torch.int64,
    DataType.BOOL: torch.bool,
}
_FROM_TORCH = {dtype: type for type, dtype in _TO_TORCH.items()}

Operation = Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]

# PyTorch answers a fake function's questions about unknown extents by example values. Multiples of
# these numbers are large compared to padding and filters, divisible by common divisors of extents,
# and the product of six of them fits in 64 bits.
_EXAMPLES = (240, 360)


class _Rounded:
    """A quotient that is not rounded yet."""

    def __init__(self, dividend: Any, divisor: Any):
        self.dividend, self.divisor = dividend, divisor


def _power(base: Any, exponent: int) -> Any:
    return reduce(operator.mul, [base] * exponent)


def _modulo(a: Any, b: Any) -> Any:
    return a - a // b * b


# PyTorch's functions of integers, by class name.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *terms: reduce(operator.add, terms),
    "Mul": lambda *factors: reduce(operator.mul, factors),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": _modulo,
    "PythonMod": _modulo,
    "ModularIndexing": lambda a, divisor, modulus: _modulo(a // divisor, modulus),
    "Max": lambda *values: reduce(max_of, values),
    "Min": lambda *values: reduce(min_of, values),
    "Identity": lambda value: value,
    "IntTrueDiv": _Rounded,
    "CeilToInt": lambda quotient: cdiv(quotient.dividend, quotient.divisor),
    "FloorToInt": lambda quotient: quotient.dividend // quotient.divisor,
    "TruncToInt": lambda quotient: quotient.dividend // quotient.divisor,
}


def _is_same(a: ShapeExpr, b: ShapeExpr) -> bool:
    is_equal = a == b
    return bool(is_equal.is_constant and is_equal.constant_value())


class _Extents:
    """The dynamic extents of a plugin's inputs, each as a PyTorch symbol.

    :param example: the first extent's example value; the others' are multiples of it.
    :param distinct: whether example values of different extents differ. If they do not, a fake
        function may take the extents for equal, which the operator checks when it runs.
    """

    def __init__(self, example: int, distinct: bool):
        self.env = ShapeEnv(duck_shape=False)
        self._example, self._distinct = example, distinct
        self._known: list[tuple[ShapeExpr, Any]] = []
        self._by_symbol: dict[Any, ShapeExpr] = {}

    def to_torch(self, extent: ShapeExpr) -> Any:
        """An int, or the SymInt of an extent. The same extent gives the same SymInt."""
        if extent.is_constant:
            return extent.constant_value()
        for known, size in self._known:
            if _is_same(known, extent):
                return size
        number = len(self._known)
        example = self._example * (number + 1 if self._distinct else 1)
        source = ConstantSource(f"extent{number}")
        symbol = self.env.create_symbol(example, source, DimDynamic.DYNAMIC)
        size = self.env.create_symintnode(symbol, hint=example, source=source)
        self._known.append((extent, size))
        self._by_symbol[symbol] = extent
        return size

    def from_torch(self, size: Any) -> ShapeExpr | int:
        """The extent that an int or a SymInt stands for."""
        return size if isinstance(size, int) else self._translate(size.node.expr, size)

    def _translate(self, expr: Any, size: Any) -> Any:
        if expr.is_Integer:
            return int(expr)
        if expr in self._by_symbol:
            return self._by_symbol[expr]
        if expr.is_Symbol:
            raise NotImplementedError(
                f"the extent {size} depends on data, so that no size is known before it runs; "
                "write the plugin with register, impl and a size tensor"
            )
        function = _FUNCTIONS.get(type(expr).__name__)
        if function is not None:
            try:
                return function(*(self._translate(argument, size) for argument in expr.args))
            except (AttributeError, TypeError):
                pass  # a quotient that is not rounded, or a number that is not a quotient
        raise NotImplementedError(
            f"the extent {size} is not made of + - * // % max min and rounded quotients of "
            "extents, so the engine cannot compute it"
        )


def _run(
    operation: Operation, inputs: Sequence[TensorDesc], example: int, distinct: bool
) -> list[TensorDesc]:
    extents = _Extents(example, distinct)
    with FakeTensorMode(shape_env=extents.env):
        fakes = []
        for desc in inputs:
            if desc.dtype not in _TO_TORCH:
                raise NotImplementedError(f"PyTorch has no type for {desc.dtype}")
            shape = [extents.to_torch(extent) for extent in desc.shape_expr]
            fakes.append(torch.empty(shape, dtype=_TO_TORCH[desc.dtype], device="cpu"))
        outputs = []
        for index, result in enumerate(operation(fakes)):
            if result.dtype not in _FROM_TORCH:
                raise NotImplementedError(
                    f"output {index} is of type {result.dtype}, which no tensor of a network has"
                )
            shape = [extents.from_torch(size) for size in result.shape]
            outputs.append(from_shape_expr(shape, _FROM_TORCH[result.dtype]))
        return outputs


def _infer(operation: Operation, inputs: Sequence[TensorDesc], distinct: bool) -> list[TensorDesc]:
    made, again = (_run(operation, inputs, example, distinct) for example in _EXAMPLES)
    for index, (a, b) in enumerate(zip(made, again)):
        shapes = list(a.shape_expr), list(b.shape_expr)
        if len(shapes[0]) != len(shapes[1]) or not all(map(_is_same, *shapes)):
            raise NotImplementedError(
                f"its fake function turns extents into numbers, as int() does: output {index} has "
                f"the shape {a.shape_expr} for one example and {b.shape_expr} for another; use //, "
                "math.floor and math.ceil"
            )
    return made


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Disables PyTorch's log of exceptions in fake functions. The caller tries again or reports
    them."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    # Each call has its own function, so that threads do not remove each other's.
    is_wanted = lambda record: False  # noqa: E731
    logger.addFilter(is_wanted)
    try:
        yield
    finally:
        logger.removeFilter(is_wanted)


def infer(operation: Operation, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
    """The types and shapes of an operator's outputs.

    :param operation: called with fake tensors, one per input; returns the outputs.
    :raises NotImplementedError: for outputs whose shapes depend on data, or that the engine has no
        expression or type for. Errors of the operator's fake function pass.
    """
    with _without_log():
        try:
            return _infer(operation, inputs, distinct=True)
        except Exception as error:
            # The operator may need equal extents that are not known to be equal, such as those of
            # two network inputs that it adds.
            try:
                return _infer(operation, inputs, distinct=False)
            except Exception:
                raise error from None
