"""Attributes of plugins: what their hints say, and how values become what the engine stores."""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core import PluginFieldType
from .._core._plugin import AttributeForm, Parameter

_SCALARS: dict[Any, tuple[AttributeForm, PluginFieldType]] = {
    int: (AttributeForm.SCALAR, PluginFieldType.INT64),
    float: (AttributeForm.SCALAR, PluginFieldType.FLOAT64),
    bool: (AttributeForm.SCALAR, PluginFieldType.INT8),
    str: (AttributeForm.TEXT, PluginFieldType.CHAR),
    bytes: (AttributeForm.BYTES, PluginFieldType.CHAR),
}
_ELEMENTS: dict[Any, PluginFieldType] = {
    np.int8: PluginFieldType.INT8,
    np.int16: PluginFieldType.INT16,
    np.int32: PluginFieldType.INT32,
    np.int64: PluginFieldType.INT64,
    np.float16: PluginFieldType.FLOAT16,
    np.float32: PluginFieldType.FLOAT32,
    np.float64: PluginFieldType.FLOAT64,
    np.bool_: PluginFieldType.INT8,
}
# What lists and tuples hold, and the arrays in which the engine gets the numbers.
_LISTED: dict[Any, Any] = {int: np.int64, float: np.float64, bool: np.bool_, str: None}
_ACCEPTED: dict[Any, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (float, int, np.floating, np.integer),
    str: (str,),
    bytes: (bytes,),
}
EXPECTED = (
    "int, float, str, bool, bytes, a class derived from enum.Enum, List[T] or Tuple[T, ...] with T "
    "one of int, float, str, bool, or numpy.typing.NDArray[T] with T one of "
    + ", ".join(t.__name__ for t in _ELEMENTS)
)


class HintError(ValueError):
    """A hint that no attribute can have; the text says why."""


def shown(hint: Any) -> str:
    """A hint as messages show it."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    return str(hint).replace("typing.", "")


@dataclass(frozen=True)
class AttributeType:
    """What an attribute's hint says."""

    form: AttributeForm
    element: Any
    """A scalar type, the element type of a list, tuple or array, or the class of an enum."""
    length: int = -1
    """Of a tuple; -1: any."""

    @classmethod
    def of(cls, hint: Any) -> AttributeType:
        """The type that a hint stands for; raises HintError for others."""
        if hint in _SCALARS:
            return cls(_SCALARS[hint][0], hint)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            if issubclass(hint, enum.Flag):
                raise HintError("members of a Flag are combined: register an int")
            if not len(hint):
                raise HintError("this enum has no members")
            return cls(AttributeForm.ENUM, hint)
        origin, entries = typing.get_origin(hint) or hint, typing.get_args(hint)
        # ndarray[shape, dtype[T]], or from NumPy 2.5 on an alias with T as its parameter.
        is_array = origin is np.ndarray or origin is typing.get_origin(NDArray[np.int8])
        if is_array and entries:
            element = (typing.get_args(entries[-1]) or entries[-1:])[0]
            if element in _ELEMENTS:
                return cls(AttributeForm.ARRAY, element)
        if origin in (list, typing.List, tuple, typing.Tuple) and not entries:  # noqa: UP006
            raise HintError("say what it holds, as in List[int]")
        if origin is list and entries[0] in _LISTED:
            return cls(AttributeForm.LIST, entries[0])
        if origin is tuple and entries[0] in _LISTED:
            if len(entries) == 2 and entries[1] is Ellipsis:
                return cls(AttributeForm.TUPLE, entries[0])
            if any(entry is not entries[0] for entry in entries):
                raise HintError("the elements of a tuple have one type")
            return cls(AttributeForm.TUPLE, entries[0], len(entries))
        raise HintError("")

    def __str__(self) -> str:
        name = self.element.__name__
        if self.form is AttributeForm.ARRAY:
            return f"NDArray[{name}]"
        if self.form is AttributeForm.LIST:
            return f"List[{name}]"
        if self.form is AttributeForm.TUPLE:
            held = ", ".join([name] * self.length) if self.length >= 0 else f"{name}, ..."
            return f"Tuple[{held}]"
        return name

    def agrees(self, other: AttributeType) -> bool:
        """Whether it is the same type. An enum in a notebook's cell that is run again is a new
        class of the same name."""
        if self == other:
            return True
        if not self.form is other.form is AttributeForm.ENUM:
            return False
        names = [(t.element.__module__, t.element.__qualname__) for t in (self, other)]
        return names[0] == names[1] and list(self.element.__members__) == list(
            other.element.__members__
        )

    @property
    def field_type(self) -> PluginFieldType:
        """The type of the elements that the engine stores."""
        if self.form is AttributeForm.ARRAY:
            return _ELEMENTS[self.element]
        if self.form is AttributeForm.ENUM:
            return PluginFieldType.CHAR
        return _SCALARS[self.element][1]

    def value(self, given: Any) -> Any:
        """What functions get for what was given. Raises TypeError with the reason, perhaps none."""
        if self.form is AttributeForm.ARRAY:
            return _array(self.element, given)
        if self.form is AttributeForm.ENUM:
            return _member(self.element, given)
        if self.form not in (AttributeForm.LIST, AttributeForm.TUPLE):
            return _scalar(self.element, given)
        is_sequence = isinstance(given, Sequence) or (isinstance(given, np.ndarray) and given.ndim)
        if not is_sequence or isinstance(given, (str, bytes)):
            raise TypeError("")
        if self.length not in (-1, len(given)):
            raise TypeError(f"it has {len(given)} elements instead of {self.length}")
        elements = [_scalar(self.element, element) for element in given]
        return elements if self.form is AttributeForm.LIST else tuple(elements)

    def field(self, given: Any) -> Any:
        """What the engine stores for it: an array, str, bytes or a list of str."""
        value = self.value(given)
        if self.form is AttributeForm.ENUM:
            return value.name
        if isinstance(value, (str, bytes, np.ndarray)):
            return value
        elements = list(value) if isinstance(value, (list, tuple)) else [value]
        return elements if self.element is str else np.array(elements, _LISTED[self.element])


def _array(element: Any, value: Any) -> np.ndarray:
    if np.isscalar(value) or value is None:
        raise TypeError("")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError("its rows differ in length") from error
    if array.dtype == element:
        return array
    if array.size and not np.can_cast(array.dtype, element, "same_kind"):
        raise TypeError(f"it is an array of {array.dtype}")
    with np.errstate(all="ignore"):
        converted = array.astype(element)
    with np.errstate(all="ignore"):
        is_kept = (
            converted.astype(array.dtype) == array
            if array.dtype.kind in "biu"
            else np.isfinite(converted) == np.isfinite(array)
        )
    if not np.all(is_kept):
        raise TypeError(f"{shown(element)} cannot hold the values {array}")
    return converted


def _scalar(element: Any, value: Any) -> Any:
    """The value as its hint's type; integers serve as float, NumPy's scalars as Python's."""
    is_bool = isinstance(value, (bool, np.bool_))
    if not isinstance(value, _ACCEPTED[element]) or is_bool != (element is bool):
        raise TypeError("")
    try:
        converted = element(value)
    except OverflowError as error:
        raise TypeError("it is too large") from error
    if element is int and not -(2**63) <= converted < 2**63:
        raise TypeError("it does not fit 64 bits")
    if element is float and isinstance(value, (int, np.integer)) and converted != value:
        raise TypeError("float cannot hold the value")
    if element is str:
        try:
            converted.encode()
        except UnicodeEncodeError as error:
            raise TypeError("it is no text that UTF-8 can encode") from error
    return converted


def _member(enumeration: Any, value: Any) -> Any:
    """The member that a value is, or that its name or its value says."""
    if isinstance(value, enumeration):
        return value
    if isinstance(value, str) and value in enumeration.__members__:
        return enumeration[value]
    if isinstance(value, np.integer):
        value = int(value)
    for member in enumeration:
        if type(member.value) is type(value) and member.value == value:
            return member
    raise TypeError(f"it is one of {', '.join(member.name for member in enumeration)}")


@dataclass
class Attribute:
    """One registered attribute."""

    name: str
    type: AttributeType
    default: Any = inspect.Parameter.empty
    """What it is where it is not given; `empty`: it must be given."""
    is_keyword_only: bool = False
    hint: Any = None
    """As the function has it."""

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    def field(self, plugin: str, given: Any) -> Any:
        """What the engine stores for what was given; TypeError where it cannot be that."""
        try:
            return self.type.field(given)
        except TypeError as error:
            is_array = isinstance(given, np.ndarray)
            found = f"an array of {given.dtype}" if is_array else repr(given)
            reason = f": {error}" if str(error) else ""
            raise TypeError(
                f"plugin '{plugin}': attribute `{self}` cannot be {found}{reason}"
            ) from None

    def parameter(self, plugin: str) -> Parameter:
        """The attribute as the engine knows it."""
        members = self.type.element if self.type.form is AttributeForm.ENUM else ()
        has_default = self.default is not inspect.Parameter.empty
        return Parameter(
            self.name,
            is_keyword_only=self.is_keyword_only,
            form=self.type.form,
            type=self.type.field_type,
            is_bool=self.type.element in (bool, np.bool_),
            length=self.type.length,
            enumerators=[_enumerator(member) for member in members],
            default=self.field(plugin, self.default) if has_default else None,
        )


def _enumerator(member: Any) -> tuple[str, int | None, str | None]:
    value = member.value
    is_number = type(value) is int and -(2**63) <= value < 2**63
    return member.name, value if is_number else None, value if type(value) is str else None


def listing(attributes: Iterable[Attribute]) -> str:
    """The attributes for messages."""
    return ", ".join(map(str, attributes)) or "none"
