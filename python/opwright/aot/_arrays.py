"""Tensors with their extents, for languages whose kernels take arrays, and the parameters of such
kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .._core import DataType
from .._core._plugin import ShapeExpr, SymExprs, SymInt32, SymInt64, TensorDesc
from ._code import CompileError, by_symbol

_SIZES = {
    DataType.FLOAT: 4,
    DataType.HALF: 2,
    DataType.BF16: 2,
    DataType.INT8: 1,
    DataType.UINT8: 1,
    DataType.INT32: 4,
    DataType.INT64: 8,
    DataType.BOOL: 1,
    DataType.FP8: 1,
}

# Names of element types and of types of extra arguments in most languages.
ELEMENTS = {
    DataType.FLOAT: "float32",
    DataType.HALF: "float16",
    DataType.BF16: "bfloat16",
    DataType.INT8: "int8",
    DataType.UINT8: "uint8",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.BOOL: "bool",
    DataType.FP8: "float8_e4m3fn",
}
SCALARS = by_symbol(
    {
        "int8": "int8",
        "int16": "int16",
        "int32": "int32",
        "int64": "int64",
        "float32": "float32",
        "float64": "float64",
        "pointer": None,
    }
)


@dataclass
class Array:
    """A tensor in C order."""

    dtype: DataType
    extents: list[Any]
    """Numbers for known extents, expressions for others."""
    aliased: int
    """For an output: the number of the input whose memory it shares, or -1."""

    @property
    def size(self) -> int:
        """The size of an element in bytes."""
        return _SIZES[self.dtype]

    def stride(self, axis: int) -> Any:
        """The stride of an axis in elements."""
        return prod(self.extents[axis + 1 :])

    @property
    def type_text(self) -> str:
        return f"{self.dtype.name} of rank {len(self.extents)}"


@dataclass(frozen=True)
class Aliased:
    """An output in the memory of an input."""

    tensor: Any
    """The input: a descriptor, or a pair of a data type and extents."""


def aliased(tensor: Any) -> Aliased:
    """An output in an input's memory, for a kernel that changes the input in place and is compiled
    outside of a build. In a build use the output's descriptor, ``x.aliased()``.

    ::

        x, y = ((trt.float32, aot.open_extents("rows", "columns")) for _ in range(2))
        aot.cute(update, inputs=[x, y], outputs=[aot.aliased(x)], arch="sm_90")

    :param tensor: the pair of a data type and extents that is among the inputs, the same object.
    """
    return Aliased(tensor)


def aliased_input(maker: str, output: Any, inputs: Iterable[Any]) -> int:
    """The number of the input whose memory an output shares, or -1."""
    if isinstance(output, Aliased):
        shared = output.tensor
    elif isinstance(output, TensorDesc) and output.is_aliased:
        shared = output.get_aliased()
    else:
        return -1
    found = [i for i, each in enumerate(inputs) if each is shared]
    if len(found) != 1:
        raise ValueError(
            f"{maker}: an output is aliased to a tensor that is {len(found)} of the inputs; "
            "give each input a pair of its own, and aot.aliased() one of them"
        )
    return found[0]


def _extent(value: Any) -> Any:
    if isinstance(value, int):
        return value
    expression = value if isinstance(value, ShapeExpr) else ShapeExpr(value)
    return expression.constant_value() if expression.is_constant else expression


def arrays(
    maker: str, what: str, tensors: Iterable[Any], known: dict[DataType, Any], inputs: Any = ()
) -> list[Array | None]:
    """Converts descriptors to arrays, with None for an absent one. A pair of a data type and
    extents may replace a descriptor: for a kernel that sees other extents, or outside of a build.

    :param known: the language's types of elements.
    :param inputs: for outputs: the descriptors of the inputs whose memory they may share.
    """
    made: list[Array | None] = []
    for tensor in tensors:
        if tensor is None:
            made.append(None)
            continue
        memory = aliased_input(maker, tensor, inputs)
        if isinstance(tensor, Aliased):
            tensor = tensor.tensor
        if isinstance(tensor, TensorDesc):
            dtype, extents = tensor.dtype, list(tensor.shape_expr)
        elif isinstance(tensor, tuple) and len(tensor) == 2 and isinstance(tensor[0], DataType):
            dtype, extents = tensor[0], list(tensor[1])
        else:
            raise TypeError(
                f"{maker}: {what} must be tensor descriptors, or pairs of a data type and extents: "
                f"(trt.float32, [rows, columns]); {type(tensor).__name__} came"
            )
        if dtype not in known or dtype not in _SIZES:
            raise CompileError(f"{maker}: it has no type for elements of type {dtype}")
        made.append(Array(dtype, [_extent(extent) for extent in extents], memory))
    return made


def symbols(extra: Iterable[Any]) -> list[Any]:
    """The extra arguments as a list of symbols."""
    return list(extra if isinstance(extra, SymExprs) else SymExprs.from_tuple(extra))


def check_alignment(maker: str, alignment: int | None) -> None:
    if alignment is not None and (alignment < 1 or alignment & (alignment - 1)):
        raise ValueError(f"{maker}: alignment={alignment} is no power of two")


def left_out(count: int, before: int, outputs: Sequence[Array | None]) -> list[int]:
    """The arguments that a kernel of `count` parameters does not take: outputs in the memory of an
    input that it already has. Empty if it takes these, too.

    :param before: the number of inputs and extra arguments.
    """
    shared = [
        before + i for i, each in enumerate(outputs) if each is not None and each.aliased >= 0
    ]
    return shared if count + len(shared) == before + len(outputs) else []


def places(
    names: Sequence[str],
    order: Iterable[str] | None,
    fail: Callable[[str], CompileError],
    without: Sequence[int] = (),
) -> list[int]:
    """The argument that each of a kernel's parameters takes, as a number among the inputs, the
    extra arguments and the outputs.

    :param order: the names in the order of the arguments; None: the kernel's own order.
    :param without: the arguments that the kernel does not take.
    """
    taken = [each for each in range(len(names) + len(without)) if each not in without]
    if order is None:
        return taken
    wanted = list(order)
    if sorted(wanted) != sorted(names):
        raise fail(f"order has ({', '.join(wanted)}); its parameters are ({', '.join(names)})")
    return [taken[wanted.index(name)] for name in names]


class Layout:
    """The value of each parameter of a kernel, in the kernel's own order."""

    def __init__(self, inputs: int, extra: Sequence[Any], outputs: int):
        self.parameters = (inputs, tuple(type(symbol) for symbol in extra), outputs)
        self._added: list[Any] = []
        self._taken: list[tuple[str, int]] = []

    def tensor(self, number: int) -> None:
        """Adds an address: that of an input or, counting on, of an output."""
        inputs = self.parameters[0]
        is_input = number < inputs
        self._taken.append(("input", number) if is_input else ("output", number - inputs))

    def extra(self, number: int) -> None:
        self._taken.append(("extra", number))

    def integer(self, value: Any, bits: int = 32) -> None:
        """Adds a number or an expression."""
        self._taken.append(("added", len(self._added)))
        self._added.append(SymInt32(value) if bits == 32 else SymInt64(value))

    @property
    def count(self) -> int:
        return len(self._taken)

    @property
    def added(self) -> SymExprs | None:
        return SymExprs.from_tuple(self._added) if self._added else None

    @property
    def order(self) -> tuple[int, ...]:
        inputs, extra, _ = self.parameters
        first = {"input": 0, "extra": inputs, "added": inputs + len(extra)}
        first["output"] = first["added"] + len(self._added)
        return tuple(first[kind] + number for kind, number in self._taken)
