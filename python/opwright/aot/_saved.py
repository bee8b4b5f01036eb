"""Saving and loading of kernels, which are compiled on one machine and built into engines on
another."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .. import _core
from .._core import DataType
from .._core._plugin import (
    ShapeExpr,
    SymExprs,
    SymFloat32,
    SymFloat64,
    SymInt8,
    SymInt16,
    SymInt32,
    SymInt64,
    SymIntExpr,
    SymPointer,
    TensorDesc,
    expression_parts,
    make_expression,
    open_extent,
)
from ._arrays import Aliased, aliased_input, symbols
from ._code import MOST_CODE, Code, CompileError

_MAGIC = b"opwright kernel 1\n"
_MOST_OPEN = 64
_SYMBOLS = {
    each.__name__: each
    for each in (SymInt8, SymInt16, SymInt32, SymInt64, SymFloat32, SymFloat64, SymPointer)
}
_KINDS = ("elf", "ptx", "cubin")
_LAUNCH = {f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"} | {"shared_mem"}

_names: list[str] = []


def open_extents(*names: str) -> tuple[ShapeExpr, ...]:
    """Open extents outside of a build, for a kernel that is compiled for any extents and saved with
    `Code.save`. They have the arithmetic of other extents; equal names are the same extent.

    ::

        rows, columns = aot.open_extents("rows", "columns")
        x = (trt.float32, [rows, columns])
        aot.warp(kernel, rows, inputs=[x], outputs=[x], arch="sm_90").save("kernel.sm_90")

    :param names: the names in messages.
    """
    made = []
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"aot.open_extents: names are strings; {name!r} came")
        if name not in _names:
            _names.append(name)
        made.append(open_extent(_names.index(name)))
    return tuple(made)


@dataclass
class Port:
    """A tensor that a kernel was compiled for."""

    dtype: DataType
    extents: list[Any] | None
    """None if the kernel does not know them."""


@dataclass
class Ports:
    """Inputs, extra arguments and outputs that a kernel was compiled for."""

    inputs: list[Port | None]
    extra: list[Any]
    outputs: list[Port | None]
    aliased: list[int]
    """The number of the input whose memory each output shares, or -1."""


def _port(maker: str, tensor: Any) -> Port | None:
    if tensor is None:
        return None
    if isinstance(tensor, Aliased):
        tensor = tensor.tensor
    if isinstance(tensor, DataType):
        return Port(tensor, None)
    if isinstance(tensor, TensorDesc):
        return Port(tensor.dtype, list(tensor.shape_expr))
    if isinstance(tensor, tuple) and len(tensor) == 2 and isinstance(tensor[0], DataType):
        return Port(tensor[0], list(tensor[1]))
    raise TypeError(
        f"{maker}: inputs and outputs must be tensor descriptors, data types, or pairs of a data type "
        f"and extents: (trt.float32, [rows, columns]); {type(tensor).__name__} came"
    )


_Maker = TypeVar("_Maker", bound=Callable[..., Code])


def portable(maker: _Maker) -> _Maker:
    """Wraps a maker so that its code records the ports that it was compiled for and can be
    saved."""
    name = f"aot.{maker.__name__}"
    has_extra = "extra" in inspect.signature(maker).parameters

    @functools.wraps(maker)
    def made(*args: Any, inputs: Iterable[Any], outputs: Iterable[Any], **options: Any) -> Code:
        inputs, outputs = list(inputs), list(outputs)
        if has_extra:
            options["extra"] = symbols(options.get("extra", ()))
        code = maker(*args, inputs=inputs, outputs=outputs, **options)
        code.ports = Ports(
            [_port(name, tensor) for tensor in inputs],
            options.get("extra", []),
            [_port(name, tensor) for tensor in outputs],
            [aliased_input(name, tensor, inputs) for tensor in outputs],
        )
        return code

    return made  # type: ignore[return-value]


def _packed(value: Any) -> Any:
    """An expression in JSON: a number, or a list of the operation's name and operands."""
    if isinstance(value, int):
        return value
    operation, *operands = expression_parts(value)
    if operation == "constant":
        return operands[0]
    if operation == "symbol":
        if not 0 <= operands[0] < len(_names):
            raise CompileError(
                "Code.save: the kernel was compiled for the extents of a network; compile it with "
                "numbers, or with those of aot.open_extents(), to save it"
            )
        return ["extent", _names[operands[0]]]
    return [operation, *(_packed(operand) for operand in operands)]


def _packed_port(port: Port | None) -> Any:
    if port is None:
        return None
    extents = None if port.extents is None else [_packed(extent) for extent in port.extents]
    return [port.dtype.name, extents]


def _is_open(packed: Any) -> bool:
    return isinstance(packed, list) and packed[:1] == ["extent"] and len(packed) == 2


def _extents_of(packed: Any) -> set[str]:
    if not isinstance(packed, list):
        return set()
    if _is_open(packed):
        return {packed[1]}
    return set().union(*(_extents_of(each) for each in packed))


def save(code: Code, path: str | os.PathLike[str]) -> None:
    if code.ports is None:
        raise CompileError(
            f"Code.save: what the kernel '{code.name}' takes is not known: only what a maker of "
            "opwright.aot has compiled can be saved, and aot.object takes code that is a file already"
        )
    added = [[type(symbol).__name__, _packed(symbol)] for symbol in code.added or ()]
    facts: dict[str, Any] = {
        "name": code.name,
        "kind": code.kind,
        "target": code.target,
        "inputs": [_packed_port(port) for port in code.ports.inputs],
        "outputs": [_packed_port(port) for port in code.ports.outputs],
        "aliased": code.ports.aliased,
        "extra": [
            [type(each).__name__, _packed(each) if isinstance(each, SymIntExpr) else None]
            for each in code.ports.extra
        ],
        "scratch": list(code.scratch),
        "added": added,
        "order": list(code.order),
        "begins_early": code.begins_early,
        "launch": {name: _packed(value) for name, value in code._launch.items()},
    }
    tensors = [port[1] for port in facts["inputs"] if port is not None and port[1] is not None]
    told = {extent[1] for extents in tensors for extent in extents if _is_open(extent)}
    for what in ("inputs", "outputs", "added", "launch"):
        content = facts[what]
        needed = _extents_of(list(content.values()) if isinstance(content, dict) else content)
        if needed - told:
            raise CompileError(
                f"Code.save: the kernel '{code.name}' needs the extent '{min(needed - told)}', which "
                f"no input has; those of the inputs are {', '.join(sorted(told)) or 'all known'}"
            )
    header = json.dumps(facts).encode()
    digest = hashlib.sha256(header + b"\n" + code).hexdigest().encode()
    _core._write_file(os.fspath(path), _MAGIC + digest + b"\n" + header + b"\n" + code)


class _Reader:
    """Reads the facts of a file, which may contain anything."""

    def __init__(self, what: str, facts: Any):
        self.what = what
        self.facts = facts

    def fail(self, reason: str) -> CompileError:
        return CompileError(f"aot.load: {self.what} {reason}")

    def damaged(self, reason: str) -> CompileError:
        return self.fail(f"is no kernel that Code.save wrote: {reason}")

    def item(self, name: str, kind: type) -> Any:
        value = self.facts.get(name) if isinstance(self.facts, dict) else None
        if not isinstance(value, kind):
            raise self.damaged(f"its '{name}' is {type(value).__name__}, not {kind.__name__}")
        return value

    def numbers(self, name: str, most: int) -> tuple[int, ...]:
        values = self.item(name, list)
        if not all(type(value) is int and 0 <= value <= most for value in values):
            raise self.damaged(f"its '{name}' is {values}")
        return tuple(values)

    def symbol(self, packed: Any) -> tuple[type, Any]:
        is_pair = isinstance(packed, list) and len(packed) == 2 and isinstance(packed[0], str)
        if not is_pair or packed[0] not in _SYMBOLS:
            raise self.damaged(f"{packed!r} is no argument")
        return _SYMBOLS[packed[0]], packed[1]

    def port(self, packed: Any) -> tuple[DataType, list[Any] | None]:
        is_port = isinstance(packed, list) and len(packed) == 2 and isinstance(packed[0], str)
        dtype = DataType.__members__.get(packed[0]) if is_port else None
        if dtype is None or not isinstance(packed[1], (list, type(None))):
            raise self.damaged(f"{packed!r} is no tensor")
        return dtype, packed[1]

    def expression(self, packed: Any, extents: dict[str, Any]) -> Any:
        if type(packed) is int and -(1 << 63) <= packed < 1 << 63:
            return packed
        if not isinstance(packed, list) or not packed or not isinstance(packed[0], str):
            raise self.damaged(f"{packed!r} is no expression")
        operation, *operands = packed
        if operation == "extent":
            is_name = len(operands) == 1 and isinstance(operands[0], str)
            if not is_name or operands[0] not in extents:
                raise self.damaged(f"no input has the extent {operands!r}")
            return extents[operands[0]]
        return make_expression(operation, [self.expression(each, extents) for each in operands])


def _known(extent: Any) -> int | None:
    if isinstance(extent, int):
        return extent
    return extent.constant_value() if extent.is_constant else None


def _same(first: Any, second: Any) -> bool:
    """Whether two extents are certainly equal."""
    equal = first == second
    return bool(equal) if isinstance(equal, bool) or equal.is_constant else False


class _Matcher:
    """Compares the given tensors with those that a kernel was compiled for."""

    def __init__(self, reader: _Reader):
        self.reader = reader
        self.extents: dict[str, Any] = {}
        self._places: dict[str, str] = {}

    def tensors(self, what: str, given: Sequence[Any]) -> None:
        """Matches tensors. Inputs must come first, since they define the open extents."""
        saved = self.reader.item(f"{what}s", list)
        if len(given) != len(saved):
            raise self.reader.fail(f"was compiled for {len(saved)} {what}s, but {len(given)} come")
        pairs = [
            pair
            for number, (tensor, packed) in enumerate(zip(given, saved))
            for pair in self._tensor(f"{what} {number}", tensor, packed)
        ]
        if what == "input":
            for where, came, wanted in pairs:
                if _is_open(wanted):
                    self.extents.setdefault(str(wanted[1]), came)
                    self._places.setdefault(str(wanted[1]), where)
        for pair in pairs:
            self._check(*pair)

    def aliases(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Checks aliased outputs. A kernel that changes an input does not get the address of the
        output in its memory."""
        saved = self.reader.facts.get("aliased", [-1] * len(outputs))  # older files do not say
        if not isinstance(saved, list) or len(saved) != len(outputs):
            raise self.reader.damaged(f"its 'aliased' is {saved!r}")
        for number, (tensor, wanted) in enumerate(zip(outputs, saved)):
            if wanted not in (-1, aliased_input("aot.load", tensor, inputs)):
                raise self.reader.fail(
                    f"was compiled for output {number} in the memory of input {wanted}, which it "
                    f"changes; describe that output as aliased to it, x.aliased()"
                )

    def _tensor(self, where: str, tensor: Any, packed: Any) -> list[tuple[str, Any, Any]]:
        """Each axis with its given and its expected extent."""
        port = _port("aot.load", tensor)
        if (port is None) != (packed is None):
            states = ("present", "absent")
            raise self.reader.fail(
                f"was compiled with {where} {states[packed is None]}; it is {states[port is None]}"
            )
        if port is None:
            return []
        dtype, extents = self.reader.port(packed)
        if port.dtype != dtype:
            raise self.reader.fail(f"was compiled for {where} of {dtype}; {port.dtype} came")
        if extents is None:
            return []
        if port.extents is None:
            raise TypeError(
                f"aot.load: {where} must be a tensor's descriptor, or a pair of a data type and "
                "extents; a data type came"
            )
        if len(port.extents) != len(extents):
            raise self.reader.fail(
                f"was compiled for {where} of {len(extents)} axes; it has {len(port.extents)}"
            )
        axes = (f"axis {axis} of {where}" for axis in range(len(extents)))
        return list(zip(axes, port.extents, extents))

    def _check(self, where: str, came: Any, wanted: Any) -> None:
        value = self.reader.expression(wanted, self.extents)
        if _same(came, value):
            return
        if type(wanted) is int:
            raise self.reader.fail(f"was compiled for the extent {wanted} of {where}; {came} came")
        name = f"'{wanted[1]}', {self._places[wanted[1]]}," if _is_open(wanted) else "an expression"
        raise self.reader.fail(
            f"was compiled for {name} as {where}, which is {value} here; {came} came, which is not "
            "known to be the same. Where it is, give a pair of the data type and the extents: "
            "(x.dtype, [...])"
        )

    def extra(self, given: Sequence[Any]) -> tuple[type, ...]:
        saved = [self.reader.symbol(packed) for packed in self.reader.item("extra", list)]
        classes = tuple(kind for kind, _ in saved)
        if tuple(type(symbol) for symbol in given) != classes:
            named = (
                ", ".join(kind.__name__ for kind in each) for each in (classes, map(type, given))
            )
            wanted, came = named
            raise self.reader.fail(
                f"was compiled for the extra arguments ({wanted}); ({came}) came"
            )
        for number, (symbol, (_, value)) in enumerate(zip(given, saved)):
            # A compiler may have used the number's divisors.
            if type(value) is int and _known(symbol) != value:
                raise self.reader.fail(
                    f"was compiled for the extra argument {number} of {value}; {symbol} came. Compile "
                    "it with one of aot.open_extents() for any number"
                )
        return classes


@portable
def load(
    path: str | os.PathLike[str],
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
) -> Code:
    """Loads a kernel that `Code.save` wrote. The machine may lack its language and compiler.

    Use it like the maker's result: ``code.name``, ``code`` and ``code.launch(...)`` with the same
    grid. The engine passes the tensors' open extents. The code is as trusted as a plugin: load only
    your own files.

    :param path: of the file.
    :param inputs: the descriptors that ``aot_impl`` gets, or pairs of a data type and extents, as
        for the maker. Types must match those of the compilation, and so must extents that were
        numbers. Equal extents must be known to be equal.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns. An integer that was a number when the
        kernel was compiled must be that number.
    :raises CompileError: for tensors or arguments that the kernel was not compiled for, and for a
        file that cannot be read, is damaged, or does not come from `Code.save`.
    """
    path = Path(path)
    reader = _Reader(str(path), None)
    try:
        data = _core._read_file(os.fspath(path), MOST_CODE)
    except _core.Error as error:
        raise reader.fail(f"cannot be read: {error}") from error
    magic, digest, rest = data[: len(_MAGIC)], data[len(_MAGIC) :][:64], data[len(_MAGIC) + 65 :]
    if magic != _MAGIC:
        raise reader.damaged(f"it begins with {data[:16]!r}")
    if hashlib.sha256(rest).hexdigest().encode() != digest:
        raise reader.damaged("its content is damaged")
    header, _, code = rest.partition(b"\n")
    try:
        reader.facts = json.loads(header)
        return _make(reader, code, list(inputs), symbols(extra), list(outputs))
    except RecursionError as error:
        raise reader.damaged("an expression is too deep") from error
    except ValueError as error:
        raise reader.damaged(str(error)) from error


def _make(
    reader: _Reader, code: bytes, inputs: list[Any], extra: list[Any], outputs: list[Any]
) -> Code:
    kind = reader.item("kind", str)
    if kind not in _KINDS:
        raise reader.damaged(f"its kind is {kind!r}")
    matcher = _Matcher(reader)
    matcher.tensors("input", inputs)
    classes = matcher.extra(extra)
    matcher.tensors("output", outputs)
    matcher.aliases(inputs, outputs)
    added = []
    for each, value in map(reader.symbol, reader.item("added", list)):
        if not issubclass(each, SymIntExpr):
            raise reader.damaged(f"it adds a {each.__name__}")
        added.append(each(reader.expression(value, matcher.extents)))
    launch = reader.item("launch", dict)
    if not set(launch) <= _LAUNCH:
        raise reader.damaged(f"it is launched with {sorted(set(launch) - _LAUNCH)}")
    scratch = reader.numbers("scratch", 1 << 40)
    arguments = len(inputs) + len(classes) + len(added) + len(outputs) + len(scratch)
    made = Code(
        code,
        reader.item("name", str),
        reader.item("target", str),
        (len(inputs), classes, len(outputs)),
        kind=kind,
        scratch=scratch,
        added=SymExprs.from_tuple(added) if added else None,
        order=reader.numbers("order", max(arguments - 1, 0)),
        begins_early=reader.item("begins_early", bool),
        launch={name: reader.expression(value, matcher.extents) for name, value in launch.items()},
    )
    if _kind_of(code) != kind:
        raise reader.damaged(f"its code is no {kind}")
    return made


def _kind_of(code: bytes) -> str:
    if code[:4] != b"\x7fELF":
        return "ptx"
    return "cubin" if code[18:20] == b"\xbe\x00" else "elf"  # EM_CUDA
