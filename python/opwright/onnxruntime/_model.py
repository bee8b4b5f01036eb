"""Reads an ONNX model's inputs, outputs and metadata, without the onnx package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from ._errors import InvalidProtobuf

# The numbers of onnx.TensorProto.DataType and ONNX Runtime's names of the types.
ELEMENT_TYPES = {
    1: "float",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "double",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8e4m3fn",
    21: "uint4",
    22: "int4",
}
_ENGINE_TYPES = {
    _core.DataType.FLOAT: "float",
    _core.DataType.HALF: "float16",
    _core.DataType.BF16: "bfloat16",
    _core.DataType.FP8: "float8e4m3fn",
    _core.DataType.INT8: "int8",
    _core.DataType.UINT8: "uint8",
    _core.DataType.INT32: "int32",
    _core.DataType.INT64: "int64",
    _core.DataType.INT4: "int4",
    _core.DataType.BOOL: "bool",
}
_NUMPY_NAMES = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn"}


def numpy_type(type_: str) -> np.dtype[Any]:
    """The NumPy type of "tensor(float)".

    :raises TypeError: NumPy has no such type. BF16 and FP8 come from ml_dtypes.
    """
    name = type_.removeprefix("tensor(").removesuffix(")")
    name = _NUMPY_NAMES.get(name, name)
    if name in ("bfloat16", "float8_e4m3fn"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(object if name == "string" else name)


def type_of(dtype: Any) -> str:
    """ "tensor(float)" for a NumPy type."""
    name = np.dtype(dtype).name
    names = {made: given for given, made in _NUMPY_NAMES.items()}
    return f"tensor({names.get(name, 'string' if np.dtype(dtype).kind in 'OUS' else name)})"


def element_type_of(dtype: Any) -> int:
    """The number of onnx.TensorProto.DataType for a NumPy type."""
    name = type_of(dtype).removeprefix("tensor(").removesuffix(")")
    return next(number for number, known in ELEMENT_TYPES.items() if known == name)


class NodeArg:
    """An input or output: ``name``, ``type`` such as "tensor(float)", and ``shape``, a list of
    extents. An extent that varies is its name, or None without a name."""

    def __init__(self, name: str, type: str, shape: list[int | str | None]) -> None:
        self.name, self.type, self.shape = name, type, shape

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass
class ModelMetadata:
    """A model's metadata."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


@dataclass
class Description:
    """Inputs of a run, inputs with initial values, outputs, and the model's metadata."""

    inputs: list[NodeArg]
    overridable: list[NodeArg]
    outputs: list[NodeArg]
    metadata: ModelMetadata


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer's message: numbers, and ranges of bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise ValueError("a field is cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _text(data: Any) -> str:
    return bytes(data).decode(errors="backslashreplace")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _shape(data: memoryview) -> list[int | str | None]:
    shape: list[int | str | None] = []
    for number, dim in _fields(data):
        if number == 1:
            extent: int | str | None = None
            for part, value in _fields(dim):
                if part == 1 and _signed(value) >= 0:
                    extent = _signed(value)
                elif part == 2 and len(value):
                    extent = _text(value)
            shape.append(extent)
    return shape


def _type(data: memoryview) -> tuple[str, list[int | str | None]]:
    """The type and shape of a TypeProto."""
    for number, part in _fields(data):
        if number == 1:
            element = 0
            shape: list[int | str | None] = []
            for inner, value in _fields(part):
                if inner == 1:
                    element = value
                elif inner == 2:
                    shape = _shape(value)
            return f"tensor({ELEMENT_TYPES.get(element, element)})", shape
        if number in (4, 9):
            held = next((_type(value)[0] for inner, value in _fields(part) if inner == 1), "")
            return f"{'seq' if number == 4 else 'optional'}({held})", []
        if number == 5:
            return "map", []
    return "", []


def _value(data: memoryview) -> NodeArg:
    name, type_ = "", ""
    shape: list[int | str | None] = []
    for number, part in _fields(data):
        if number == 1:
            name = _text(part)
        elif number == 2:
            type_, shape = _type(part)
    return NodeArg(name, type_, shape)


def _property(data: memoryview) -> tuple[str, str]:
    parts = dict(_fields(data))
    return _text(parts.get(1, b"")), _text(parts.get(2, b""))


def describe(model: bytes) -> Description:
    """The description of a serialized ``onnx.ModelProto``.

    :raises InvalidProtobuf: for anything else.
    """
    about = ModelMetadata()
    inputs: list[NodeArg] = []
    outputs: list[NodeArg] = []
    initializers: set[str] = set()
    has_graph = False
    try:
        for number, part in _fields(memoryview(model)):
            if number == 2:
                about.producer_name = _text(part)
            elif number == 4:
                about.domain = _text(part)
            elif number == 5:
                about.version = _signed(part)
            elif number == 6:
                about.description = _text(part)
            elif number == 14:
                key, value = _property(part)
                about.custom_metadata_map[key] = value
            elif number == 7:
                has_graph = True
                for inner, value in _fields(part):
                    if inner == 2:
                        about.graph_name = _text(value)
                    elif inner == 10:
                        about.graph_description = _text(value)
                    elif inner == 11:
                        inputs.append(_value(value))
                    elif inner == 12:
                        outputs.append(_value(value))
                    elif inner == 5:
                        initializers |= {_text(v) for n, v in _fields(value) if n == 8}
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise InvalidProtobuf(f"Protobuf parsing failed: {error}") from None
    if not has_graph:
        raise InvalidProtobuf("Protobuf parsing failed: the bytes hold no graph")
    return Description(
        [arg for arg in inputs if arg.name not in initializers],
        [arg for arg in inputs if arg.name in initializers],
        outputs,
        about,
    )


def describe_engine(engine: _core.Engine) -> Description:
    """The description of an engine."""

    def args(tensors: Any) -> list[NodeArg]:
        made = []
        for tensor in tensors.values():
            names = [*tensor.dimension_names, *[""] * len(tensor.shape)]
            shape = [
                extent if extent >= 0 else name or None for extent, name in zip(tensor.shape, names)
            ]
            made.append(NodeArg(tensor.name, f"tensor({_ENGINE_TYPES[tensor.dtype]})", shape))
        return made

    about = engine.metadata
    metadata = ModelMetadata(
        about.producer_name,
        about.graph_name,
        about.domain,
        about.description,
        about.graph_description,
        about.version,
        dict(about),
    )
    return Description(args(engine.inputs), [], args(engine.outputs), metadata)
