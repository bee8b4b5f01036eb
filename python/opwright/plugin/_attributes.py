"""Types of plugins' attributes, from their hints. The engine fits values to these types."""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core import PluginField, PluginFieldType
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
# Element types of lists and tuples.
_LISTED = (int, float, bool, str)
EXPECTED = (
    "int, float, str, bool, bytes, a class derived from enum.Enum, List[T] or Tuple[T, ...] with T "
    "one of int, float, str, bool, or numpy.typing.NDArray[T] with T one of "
    + ", ".join(t.__name__ for t in _ELEMENTS)
)


class HintError(ValueError):
    """A hint that no attribute can have. The text says why."""


def shown(hint: Any) -> str:
    """A hint as text for messages."""
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return hint.__name__
    return str(hint).replace("typing.", "")


@dataclass(frozen=True)
class AttributeType:
    """The type that an attribute's hint declares."""

    form: AttributeForm
    element: Any
    """A scalar type, the element type of a list, tuple or array, or the class of an enum."""
    length: int = -1
    """The length of a tuple; -1: any."""

    @classmethod
    def of(cls, hint: Any) -> AttributeType:
        """The type of a hint. Raises HintError for other hints."""
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
        """Whether two types are the same. Running a notebook's cell again makes a new enum class of
        the same name, which counts as the same."""
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

    def raw(self, given: Any) -> Any:
        """The value that the engine fits to the type: members of an enum by name."""
        if self.form is not AttributeForm.ENUM:
            return given
        if isinstance(given, self.element):
            return given.name
        if isinstance(given, str) and given in self.element.__members__:
            return given
        if isinstance(given, np.generic):
            given = given.item()
        for member in self.element:
            if type(member.value) is type(given) and member.value == given:
                return member.name
        return given


@dataclass
class Attribute:
    """One registered attribute."""

    name: str
    type: AttributeType
    default: Any = inspect.Parameter.empty
    """The default value; `empty`: the attribute must be given."""
    is_keyword_only: bool = False
    hint: Any = None
    """The hint in the function's signature."""

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    def field(self, plugin: str, given: Any) -> PluginField:
        """The field that the engine stores for a given value. Raises TypeError if the value does
        not fit."""
        try:
            return self._parameter.fit(self.type.raw(given))
        except TypeError as error:
            is_array = isinstance(given, np.ndarray)
            found = f"an array of {given.dtype}" if is_array else repr(given)
            raise TypeError(
                f"plugin '{plugin}': attribute `{self}` cannot be {found}: it {error}"
            ) from None

    def parameter(self, plugin: str) -> Parameter:
        """The attribute as the engine's Parameter."""
        parameter = self._parameter
        if self.default is not inspect.Parameter.empty:
            parameter.set_default(self.field(plugin, self.default))
        return parameter

    @cached_property
    def _parameter(self) -> Parameter:
        members = self.type.element if self.type.form is AttributeForm.ENUM else ()
        return Parameter(
            self.name,
            is_keyword_only=self.is_keyword_only,
            form=self.type.form,
            type=self.type.field_type,
            is_bool=self.type.element in (bool, np.bool_),
            length=self.type.length,
            enumerators=[_enumerator(member) for member in members],
            written=shown(self.hint),
        )


def _enumerator(member: Any) -> tuple[str, int | None, str | None]:
    value = member.value
    is_number = type(value) is int and -(2**63) <= value < 2**63
    return member.name, value if is_number else None, value if type(value) is str else None


def listing(attributes: Iterable[Attribute]) -> str:
    """The attributes for messages."""
    return ", ".join(map(str, attributes)) or "none"
