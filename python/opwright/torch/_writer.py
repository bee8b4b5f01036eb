"""Writes layers of a network by PyTorch's rules: promoted types, symbolic extents, axes from the
end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from .. import _core
from .._core import (
    CumulativeOperation,
    DataType,
    ElementWiseOperation,
    FillOperation,
    GatherMode,
    ITensor,
    ScatterMode,
    UnaryOperation,
)

TO_NETWORK = {
    torch.float32: DataType.FLOAT,
    torch.float16: DataType.HALF,
    torch.bfloat16: DataType.BF16,
    torch.int8: DataType.INT8,
    torch.uint8: DataType.UINT8,
    torch.int32: DataType.INT32,
    torch.int64: DataType.INT64,
    torch.bool: DataType.BOOL,
}
TO_TORCH = {ours: theirs for theirs, ours in TO_NETWORK.items()}

Extent = Any
"""An int, a torch.SymInt, or a tensor of the network: INT64 of shape [1]."""


class Unsupported(Exception):
    """Why an operator cannot be a layer."""

    symbol: Any = None
    """The PyTorch extent that would have to be known."""


class UnknownExtent(Unsupported):
    """An extent is needed that no tensor of the network has."""

    def __init__(self, symbol: Any):
        super().__init__(f"the extent {symbol} is of no tensor that is known here")
        self.symbol = symbol


def known(extent: Any) -> int | None:
    """The number that an extent is in every run; None if it is not known."""
    if isinstance(extent, int):
        return int(extent)
    if isinstance(extent, torch.SymInt):
        expr = extent.node.expr
        return int(expr) if expr.is_Integer else None
    return None


def all_known(extents: Sequence[Any]) -> bool:
    return all(known(extent) is not None for extent in extents)


def scalar_type(value: Any) -> torch.dtype:
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    return torch.float32


def spread(values: int | Sequence[Any], count: int) -> list[Any]:
    """A list with one value for each spatial axis."""
    values = [values] if isinstance(values, int) else list(values)
    return values * count if len(values) == 1 else values


class Writer:
    """A network that is being written.

    :param network: the network to add layers to.
    """

    def __init__(self, network: _core.INetworkDefinition):
        self.network = network
        self.meta: Any = None
        """PyTorch's fake tensor of the current operator's result."""
        self.inputs: list[Any] = []
        """The fake tensors of the operands, each once."""
        self.used: set[int] | None = None
        """The indices of the current operator's used results; None: all."""
        self.in_place = False
        """Whether the current operator's result replaces an input that it writes to."""
        self.on_gpu = False
        """Whether the engine is for a GPU."""
        self.stacks: dict[int, tuple[ITensor, Any]] = {}
        """Tensors whose last axis has the parts of complex numbers, by id, with the complex
        values."""
        self.symbols: dict[sympy.Symbol, ITensor] = {}
        """The extents for symbols, as INT64 of shape [1]."""
        self.numbers_given: set[sympy.Symbol] = set()
        """The symbols that are numbers which the program takes."""
        self._extents: dict[Any, Extent] = {}

    def uses(self, result: int) -> bool:
        """Whether that result of the current operator is used."""
        return self.used is None or result in self.used

    # Types

    @property
    def dtype(self) -> DataType:
        """The type of the current operator's first result."""
        meta = self.meta[0] if isinstance(self.meta, (tuple, list)) else self.meta
        return network_type(meta.dtype)

    def promoted(self, *values: Any) -> DataType:
        """The type in which PyTorch computes with these tensors and numbers."""
        stand_ins: list[Any] = []
        for value in values:
            if isinstance(value, ITensor):
                shape = (1,) * len(value.shape)
                stand_ins.append(torch.empty(shape, dtype=TO_TORCH[value.dtype], device="meta"))
            else:
                stand_ins.append(False if isinstance(value, bool) else _plain(value))
        result = stand_ins[0]
        if len(stand_ins) == 1:
            dtype = result.dtype if isinstance(result, torch.Tensor) else scalar_type(result)
        else:
            dtype = torch.result_type(*stand_ins)
        return network_type(dtype)

    def cast(self, x: ITensor, dtype: DataType) -> ITensor:
        return x if x.dtype == dtype else self.network.add_cast(x, dtype).get_output(0)

    # Constants

    def constant(self, tensor: torch.Tensor) -> ITensor:
        """A PyTorch tensor as a constant. A dense tensor on the host is not copied."""
        network_type(tensor.dtype)
        tensor = tensor.detach().cpu().contiguous()
        return self.network.add_constant(list(tensor.shape), tensor).get_output(0)

    def full(self, value: float | int | bool, dtype: DataType, rank: int = 0) -> ITensor:
        """A constant of one element."""
        return self.constant(torch.full((1,) * rank, value, dtype=TO_TORCH[dtype]))

    def numbers(self, extent: Extent) -> ITensor:
        """The INT64 numbers from 0 to below the extent."""
        count = known(extent)
        if count is not None:
            return self.constant(torch.arange(count))
        layer = self.network.add_fill([0], FillOperation.LINSPACE, DataType.INT64)
        layer.set_input(0, self.extent(extent))
        layer.set_input(1, self.full(0, DataType.INT64))
        layer.set_input(2, self.full(1, DataType.INT64, 1))
        return layer.get_output(0)

    def integers(self, values: Sequence[int]) -> ITensor:
        return self.constant(torch.tensor([int(v) for v in values], dtype=torch.int64))

    def tensor(self, value: Any, dtype: DataType, rank: int = 0) -> ITensor:
        """A tensor or number as a tensor of that type."""
        if isinstance(value, ITensor):
            return self.cast(value, dtype)
        if isinstance(value, torch.SymInt) and known(value) is None:
            return self.reshape(self.cast(self.extent(value), dtype), [1] * rank)
        if isinstance(value, torch.SymFloat):
            number = self._real(value.node.expr)
            if isinstance(number, ITensor):
                return self.reshape(self.cast(number, dtype), [1] * rank)
            return self.full(number, dtype, rank)
        return self.full(_plain(value), dtype, rank)

    # Extents

    def extent(self, extent: Extent) -> ITensor:
        """The extent as a tensor, INT64 of shape [1]."""
        if isinstance(extent, ITensor):
            return extent
        number = known(extent)
        return self.extent_of(number if number is not None else extent.node.expr)

    def extent_of(self, key: Any) -> ITensor:
        """An expression of PyTorch's symbols as a tensor, INT64 of shape [1]."""
        if key not in self._extents:
            made = self._translate(sympy.sympify(key))
            self._extents[key] = made if isinstance(made, ITensor) else self.integers([made])
        return self._extents[key]

    def extents(self, values: Sequence[Extent]) -> ITensor:
        """A shape as a tensor, INT64 of one axis."""
        if all_known(values):
            return self.integers([known(value) or 0 for value in values])
        return self.concatenate([self.extent(value) for value in values], 0)

    def size(self, x: ITensor, axis: int) -> Extent:
        """The extent of an axis, as a number if it is known."""
        if x.shape[axis] >= 0:
            return x.shape[axis]
        shape = self.network.add_shape(x).get_output(0)
        return self.network.add_slice(shape, [axis % len(x.shape)], [1], [1]).get_output(0)

    def sizes(self, x: ITensor) -> list[Extent]:
        return [self.size(x, axis) for axis in range(len(x.shape))]

    def arithmetic(self, op: ElementWiseOperation, a: Extent, b: Extent) -> Extent:
        """An operation on extents; a number if both are."""
        x, y = known(a), known(b)
        if x is not None and y is not None:
            return _ARITHMETIC[op](x, y)
        return self.network.add_elementwise(self.extent(a), self.extent(b), op).get_output(0)

    def learn(self, x: ITensor, meta: Any) -> None:
        """Notes the symbols that are extents of a tensor with the fake tensor `meta`."""
        for axis, extent in enumerate(meta.shape):
            if not isinstance(extent, torch.SymInt):
                continue
            expr = extent.node.expr
            if expr.is_Symbol and expr not in self.symbols:
                shape = self.network.add_shape(x).get_output(0)
                self.symbols[expr] = self.network.add_slice(shape, [axis], [1], [1]).get_output(0)

    def learn_extent(self, expr: Any, extent: ITensor) -> None:
        """Notes that an expression is the element of a tensor, INT64 of shape [1]."""
        if expr.is_Symbol:
            self.symbols[expr] = extent
            self.numbers_given.add(expr)
        self._extents[expr] = extent

    def _translate(self, expr: Any) -> Extent:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            if expr not in self.symbols:
                raise UnknownExtent(expr)
            return self.symbols[expr]
        op, name = ElementWiseOperation, type(expr).__name__
        if name in ("FloorToInt", "TruncToInt", "CeilToInt", "floor", "ceiling", "FloorDiv"):
            if name == "FloorDiv":
                a, b = expr.args
            else:
                a, b = _rational(expr.args[0]).as_numer_denom()
            if name in ("CeilToInt", "ceiling"):
                a = -a
            quotient = self.arithmetic(op.FLOOR_DIV, self._translate(a), self._translate(b))
            return self.arithmetic(op.SUB, 0, quotient) if name[0] in "Cc" else quotient
        args = [self._translate(arg) for arg in expr.args]
        if name in _FOLDS:
            result = args[0]
            for arg in args[1:]:
                result = self.arithmetic(_FOLDS[name], result, arg)
            return result
        if name in ("Mod", "PythonMod"):
            quotient = self.arithmetic(op.FLOOR_DIV, *args)
            return self.arithmetic(op.SUB, args[0], self.arithmetic(op.PROD, quotient, args[1]))
        if name in ("Pow", "PowByNatural") and isinstance(args[1], int) and args[1] >= 0:
            result = 1
            for _ in range(args[1]):
                result = self.arithmetic(op.PROD, result, args[0])
            return result
        if name == "Identity":
            return args[0]
        raise Unsupported(f"the extent {expr} has {name}, which no layer computes")

    def _real(self, expr: Any) -> ITensor | float:
        """A number that is computed from extents, as FP32 of shape [1], or as a number if it is
        known."""
        if expr.is_number:
            return float(expr)
        if expr.is_integer:
            return self.cast(self.extent_of(expr), DataType.FLOAT)
        op, name = ElementWiseOperation, type(expr).__name__
        args = [self._real(arg) for arg in expr.args]
        if name in ("ToFloat", "Identity"):
            return args[0]
        if name in ("OpaqueUnaryFn_sqrt", "OpaqueUnaryFn_exp", "OpaqueUnaryFn_log"):
            kind = getattr(UnaryOperation, name.rpartition("_")[2].upper())
            return self.unary(kind, self.tensor(args[0], DataType.FLOAT, 1))
        kinds = {"Add": op.SUM, "Mul": op.PROD, "Pow": op.POW, "FloatPow": op.POW}
        kinds |= {"IntTrueDiv": op.DIV, "FloatTrueDiv": op.DIV}
        if name not in kinds:
            raise Unsupported(f"the number {expr} has {name}, which no layer computes")
        result = self.tensor(args[0], DataType.FLOAT, 1)
        for arg in args[1:]:
            result = self.binary(kinds[name], result, arg, DataType.FLOAT)
        return result

    def mark_output(self, tensor: ITensor, name: str) -> None:
        """Makes a tensor an output, even if it is already an input or another output."""
        if tensor.is_network_input or tensor.is_network_output:
            tensor = self.network.add_identity(tensor).get_output(0)
        tensor.name = name
        self.network.mark_output(tensor)

    # Layers

    def unary(self, op: UnaryOperation, x: ITensor) -> ITensor:
        return self.network.add_unary(x, op).get_output(0)

    def align(self, *tensors: ITensor) -> list[ITensor]:
        """The tensors with axes of extent 1 in front, so that all have the same rank."""
        rank = max(len(x.shape) for x in tensors)
        return [self.unsqueeze(x, list(range(rank - len(x.shape)))) for x in tensors]

    def binary(
        self, op: ElementWiseOperation, a: Any, b: Any, dtype: DataType | None = None
    ) -> ITensor:
        """An operation on tensors and numbers in a type; None: the promoted type."""
        if dtype is None:
            dtype = self.promoted(a, b)
        rank = max(len(x.shape) for x in (a, b) if isinstance(x, ITensor))
        x, y = self.align(self.tensor(a, dtype, rank), self.tensor(b, dtype, rank))
        return self.network.add_elementwise(x, y, op).get_output(0)

    def add(self, a: Any, b: Any) -> ITensor:
        return self.binary(ElementWiseOperation.SUM, a, b)

    def mul(self, a: Any, b: Any) -> ITensor:
        return self.binary(ElementWiseOperation.PROD, a, b)

    def activation(
        self, kind: Any, x: ITensor, alpha: float | None = None, beta: float | None = None
    ) -> ITensor:
        layer = self.network.add_activation(x, kind)
        if alpha is not None:
            layer.alpha = alpha
        if beta is not None:
            layer.beta = beta
        return layer.get_output(0)

    def select(self, condition: ITensor, a: ITensor, b: ITensor) -> ITensor:
        return self.network.add_select(*self.align(condition, a, b)).get_output(0)

    def concatenate(self, tensors: Sequence[ITensor], axis: int) -> ITensor:
        if len(tensors) == 1:
            return tensors[0]
        layer = self.network.add_concatenation(list(tensors))
        layer.axis = axis % len(tensors[0].shape)
        return layer.get_output(0)

    def reshape(self, x: ITensor, shape: Sequence[Extent]) -> ITensor:
        """Reshapes to these extents. One of them may be -1."""
        layer = self.network.add_shuffle(x)
        layer.zero_is_placeholder = False
        if sum(known(extent) is None for extent in shape) == 1 and -1 not in shape:
            shape = [-1 if known(extent) is None else extent for extent in shape]
            if 0 in [known(extent) for extent in shape]:
                raise Unsupported("a tensor without elements")
        if all_known(shape):
            layer.reshape_dims = [known(extent) for extent in shape]
        else:
            layer.set_input(1, self.extents(shape))
        return layer.get_output(0)

    def transpose(self, x: ITensor, axes: Sequence[int]) -> ITensor:
        rank = len(x.shape)
        axes = [axis % rank for axis in axes]
        if axes == list(range(rank)):
            return x
        layer = self.network.add_shuffle(x)
        layer.first_transpose = axes
        return layer.get_output(0)

    def unsqueeze(self, x: ITensor, axes: Sequence[int]) -> ITensor:
        if not axes:
            return x
        return self.network.add_unsqueeze(x, self.integers(axes)).get_output(0)

    def squeeze(self, x: ITensor, axes: Sequence[int]) -> ITensor:
        if not axes:
            return x
        return self.network.add_squeeze(x, self.integers(axes)).get_output(0)

    def slice(
        self,
        x: ITensor,
        start: Sequence[Extent],
        shape: Sequence[Extent],
        stride: Sequence[Extent],
        mode: Any = None,
        fill: ITensor | None = None,
    ) -> ITensor:
        rank = len(x.shape)
        parts = (start, shape, stride)
        numbers = [[known(v) or 0 for v in p] if all_known(p) else [0] * rank for p in parts]
        layer = self.network.add_slice(x, *numbers)
        if mode is not None:
            layer.mode = mode
        for index, part in enumerate(parts):
            if not all_known(part):
                layer.set_input(1 + index, self.extents(part))
        if fill is not None:
            layer.set_input(4, fill)
        return layer.get_output(0)

    def on_two_axes(self, x: ITensor, count: int, run: Callable[[ITensor], ITensor]) -> ITensor:
        """Calls `run` with a batch that has at least two spatial axes, as layers require, and
        restores the shape. `count` is the number of spatial axes of x, whose batch axis may be
        absent."""
        batched = len(x.shape) == count + 2
        if not batched:
            x = self.unsqueeze(x, [0])
        if count == 1:
            x = self.unsqueeze(x, [2])
        y = run(x)
        if count == 1:
            y = self.squeeze(y, [2])
        return y if batched else self.squeeze(y, [0])

    def expand(self, x: ITensor, shape: Sequence[Extent]) -> ITensor:
        """Broadcasts to the shape. An extent of -1 keeps the tensor's."""
        rank = len(shape)
        x = self.unsqueeze(x, list(range(rank - len(x.shape))))
        extents = [self.size(x, i) if known(e) == -1 else e for i, e in enumerate(shape)]
        strides = []
        for axis, extent in enumerate(extents):
            own = x.shape[axis]  # PyTorch knows that symbolic extents stay
            strides.append(int(own != 1 or known(extent) == 1))
        return x if all(strides) else self.slice(x, [0] * rank, extents, strides)

    def reduce(self, op: Any, x: ITensor, axes: Sequence[int] | None, keep: bool) -> ITensor:
        rank = len(x.shape)
        if rank == 0:
            return x
        chosen = [axis % rank for axis in axes] if axes else range(rank)
        mask = sum(1 << axis for axis in set(chosen))
        return self.network.add_reduce(x, op, mask, keep).get_output(0)

    def gather(self, x: ITensor, indices: ITensor, axis: int) -> ITensor:
        return self.network.add_gather(x, indices, axis % len(x.shape)).get_output(0)

    def broadcast(self, a: ITensor, b: ITensor) -> list[ITensor]:
        """Both tensors, expanded to their broadcast shape."""
        a, b = self.align(a, b)
        whole = [p if q == 1 else q for p, q in zip(self.sizes(a), self.sizes(b))]
        return [self.expand(x, whole) for x in (a, b)]

    def running_sum(self, x: ITensor, axis: int) -> ITensor:
        number = self.constant(torch.tensor(axis % len(x.shape), dtype=torch.int32))
        layer = self.network.add_cumulative(x, number, CumulativeOperation.SUM, False, False)
        return layer.get_output(0)

    def with_axis(self, tensors: Sequence[ITensor], run: Callable[..., Any]) -> Any:
        """Calls `run` with tensors that have an axis. Scalars get one of extent 1."""
        scalar = len(tensors[0].shape) == 0
        given = [self.unsqueeze(x, [0]) if len(x.shape) == 0 else x for x in tensors]
        results = run(*given)
        if not scalar:
            return results
        if isinstance(results, tuple):
            return tuple(self.squeeze(y, [0]) for y in results)
        return self.squeeze(results, [0])

    def gather_elements(self, x: ITensor, indices: ITensor, axis: int) -> ITensor:
        layer = self.network.add_gather_v2(x, indices, GatherMode.ELEMENT)
        layer.axis = axis % len(x.shape)
        return layer.get_output(0)

    def operator(self, kind: str, inputs: Sequence[ITensor | None], **parameters: Any) -> Any:
        """A layer of an operator, or with parameters, that the public API lacks."""
        return self.network._add_operator(kind, parameters, list(inputs))

    def scatter(
        self,
        x: ITensor,
        indices: ITensor,
        updates: ITensor,
        mode: ScatterMode,
        axis: int = 0,
        reduction: str = "none",
    ) -> ITensor:
        """A copy of x with the updates, or x itself if `in_place` holds and x is an input. The
        reductions are those of ONNX's ScatterND."""
        number = ("none", "add", "mul", "min", "max").index(reduction)
        layer = self.operator(
            "Scatter",
            [x, indices, updates],
            mode=mode.value,
            axis=axis,
            reduction=number,
            in_place=self.in_place and x.is_network_input,
        )
        return layer.get_output(0)

    def matmul(self, a: ITensor, b: ITensor, ta: bool = False, tb: bool = False) -> ITensor:
        """The product of stacks of matrices. Leading axes broadcast."""
        op = _core.MatrixOperation
        x, y = self.align(a, b)
        kinds = [op.TRANSPOSE if flag else op.NONE for flag in (ta, tb)]
        return self.network.add_matrix_multiply(x, kinds[0], y, kinds[1]).get_output(0)


def network_type(dtype: torch.dtype) -> DataType:
    if dtype not in TO_NETWORK:
        raise Unsupported(f"tensors of {dtype}")
    return TO_NETWORK[dtype]


def _plain(value: Any) -> Any:
    """The value as a Python number."""
    # An unknown value is only used for type promotion.
    if isinstance(value, torch.SymInt):
        return 2
    if isinstance(value, torch.SymFloat):
        return 0.5
    if isinstance(value, torch.SymBool):
        raise Unsupported(f"a {type(value).__name__}")
    return value


def _rational(expr: Any) -> Any:
    """Replaces PyTorch's floats and true divisions by exact quotients."""
    name = type(expr).__name__
    if expr.is_Float:
        return sympy.nsimplify(expr, rational=True)
    if name in ("ToFloat", "Identity"):
        return _rational(expr.args[0])
    if name in ("IntTrueDiv", "FloatTrueDiv"):
        return _rational(expr.args[0]) / _rational(expr.args[1])
    return expr.func(*map(_rational, expr.args)) if expr.is_Add or expr.is_Mul else expr


_ARITHMETIC: dict[ElementWiseOperation, Callable[[int, int], int]] = {
    ElementWiseOperation.SUM: lambda a, b: a + b,
    ElementWiseOperation.SUB: lambda a, b: a - b,
    ElementWiseOperation.PROD: lambda a, b: a * b,
    ElementWiseOperation.FLOOR_DIV: lambda a, b: a // b,
    ElementWiseOperation.MAX: max,
    ElementWiseOperation.MIN: min,
}
_FOLDS = {
    "Add": ElementWiseOperation.SUM,
    "Mul": ElementWiseOperation.PROD,
    "Max": ElementWiseOperation.MAX,
    "Min": ElementWiseOperation.MIN,
    "CleanDiv": ElementWiseOperation.FLOOR_DIV,
}
