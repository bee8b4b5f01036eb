"""What the signatures of a plugin's functions say."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core import PluginFieldType
from .._core._plugin import AutoTuneCombination, Parameter, Tensor, TensorDesc

_SCALARS: dict[Any, dict[str, Any]] = {
    int: {"type": PluginFieldType.INT64},
    float: {"type": PluginFieldType.FLOAT64},
    bool: {"type": PluginFieldType.INT8, "is_bool": True},
    str: {"type": PluginFieldType.CHAR, "is_array": True, "is_text": True},
    bytes: {"type": PluginFieldType.CHAR, "is_array": True},
}
_ELEMENTS: dict[Any, dict[str, Any]] = {
    np.int8: {"type": PluginFieldType.INT8},
    np.int16: {"type": PluginFieldType.INT16},
    np.int32: {"type": PluginFieldType.INT32},
    np.int64: {"type": PluginFieldType.INT64},
    np.float16: {"type": PluginFieldType.FLOAT16},
    np.float32: {"type": PluginFieldType.FLOAT32},
    np.float64: {"type": PluginFieldType.FLOAT64},
    np.bool_: {"type": PluginFieldType.INT8, "is_bool": True},
}
_ATTRIBUTES = "int, float, str, bool, bytes or numpy.typing.NDArray[T] with T one of " + ", ".join(
    t.__name__ for t in _ELEMENTS
)


class SignatureError(TypeError):
    """A function of a plugin has not the parameters or hints that it needs."""


@dataclass
class Attribute:
    """One registered attribute: its name and its hint, a scalar type or a NumPy element type."""

    name: str
    hint: Any
    is_array: bool
    default: Any = inspect.Parameter.empty
    """What `op` takes where the attribute is not given; `empty`: it must be given."""

    def __str__(self) -> str:
        kind = f"NDArray[{self.hint.__name__}]" if self.is_array else self.hint.__name__
        return f"{self.name}: {kind}"


@dataclass
class Signature:
    """What `register` declares."""

    text: str
    tensors: list[str]
    attributes: list[Attribute]
    parameters: list[Parameter]
    num_outputs: int


def describe(function: Callable[..., Any]) -> str:
    """The function's signature as it was written, in one line."""
    return f"{function.__name__}{inspect.signature(function)}"


def _fail(plugin: str, kind: str, function: Callable[..., Any], message: str) -> typing.NoReturn:
    raise SignatureError(f"plugin '{plugin}', {kind} function `{describe(function)}`: {message}")


def _hints(plugin: str, kind: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The hints, also where they are strings that name things local to the caller."""
    scope: dict[str, Any] = {}
    frame = sys._getframe(1)
    package = __name__.rpartition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None:
        scope.update(frame.f_locals)
    try:
        return typing.get_type_hints(function, localns=scope)
    except NameError as error:
        _fail(plugin, kind, function, f"a type hint cannot be resolved: {error}")


def _parameters(plugin: str, kind: str, function: Callable[..., Any]) -> list[str]:
    names = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            _fail(plugin, kind, function, f"the parameter '{parameter}' takes a variable number")
        if parameter.kind is parameter.KEYWORD_ONLY:
            _fail(plugin, kind, function, f"'{parameter.name}' cannot be given by position")
        if parameter.default is not parameter.empty and kind != "register":
            _fail(plugin, kind, function, f"'{parameter.name}' has a default value")
        names.append(parameter.name)
    return names


def _is_desc(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, TensorDesc)


def _element_type(hint: Any) -> Any:
    """T of NDArray[T]; None for other hints."""
    if typing.get_origin(hint) is not np.ndarray:
        return None
    dtype = typing.get_args(hint)[-1]
    return (typing.get_args(dtype) or (None,))[0]


def _attribute(plugin: str, function: Callable[..., Any], name: str, hint: Any) -> Attribute:
    default = inspect.signature(function).parameters[name].default
    if hint in _SCALARS:
        return Attribute(name, hint, False, default)
    element = _element_type(hint)
    if element in _ELEMENTS:
        return Attribute(name, element, True, default)
    _fail(
        plugin,
        "register",
        function,
        f"attribute '{name}' has the type {getattr(hint, '__name__', hint)}; expected {_ATTRIBUTES}",
    )


def _count_outputs(plugin: str, function: Callable[..., Any], hint: Any) -> int:
    if _is_desc(hint):
        return 1
    if typing.get_origin(hint) is tuple:
        entries = typing.get_args(hint)
        if entries and all(_is_desc(entry) for entry in entries):
            return len(entries)
    _fail(
        plugin,
        "register",
        function,
        "the return type decides the number of outputs: annotate it with `-> TensorDesc`, or "
        "`-> Tuple[TensorDesc, TensorDesc]` for two",
    )


def parse_register(plugin: str, function: Callable[..., Any]) -> Signature:
    """Tensors first, then attributes; the returned hint decides the number of outputs."""
    names = _parameters(plugin, "register", function)
    hints = _hints(plugin, "register", function)
    tensors: list[str] = []
    attributes: list[Attribute] = []
    for name in names:
        if name not in hints:
            _fail(plugin, "register", function, f"parameter '{name}' has no type hint")
        if _is_desc(hints[name]):
            if inspect.signature(function).parameters[name].default is not inspect.Parameter.empty:
                _fail(plugin, "register", function, f"tensor '{name}' has a default value")
            if attributes:
                message = f"tensor '{name}' follows attribute '{attributes[-1].name}'"
                _fail(plugin, "register", function, f"{message}; tensors come first")
            tensors.append(name)
        else:
            attributes.append(_attribute(plugin, function, name, hints[name]))
    if not tensors:
        _fail(plugin, "register", function, "a plugin needs at least one input: a TensorDesc")
    if "return" not in hints:
        _fail(plugin, "register", function, "the return type is not annotated: `-> TensorDesc`")
    parameters = [Parameter(name, is_tensor=True) for name in tensors]
    for a in attributes:
        kind = _ELEMENTS[a.hint] | {"is_array": True} if a.is_array else _SCALARS[a.hint]
        parameters.append(Parameter(a.name, **kind))
    outputs = _count_outputs(plugin, function, hints["return"])
    return Signature(describe(function), tensors, attributes, parameters, outputs)


def parse_function(
    plugin: str,
    kind: str,
    function: Callable[..., Any],
    registered: Signature,
    tail: list[str],
    optional_tail: str | None = None,
) -> tuple[list[int], bool]:
    """Checks a function against the registered signature.

    Its parameters are the tensors, any of the attributes in any order, then `tail`, then perhaps
    `optional_tail`. Returns the attributes' places and whether `optional_tail` is there.
    """
    names = _parameters(plugin, kind, function)
    hints = _hints(plugin, kind, function)
    expected = ", ".join([*registered.tensors, "attributes...", *tail])
    if optional_tail is not None:
        expected += f"[, {optional_tail}]"
    expected = f"expected ({expected}) for the registered `{registered.text}`"

    has_optional = optional_tail is not None and names[-1:] == [optional_tail]
    body = names[:-1] if has_optional else names
    if body[-len(tail) :] != tail:
        _fail(plugin, kind, function, f"it must end with {', '.join(tail)}; {expected}")
    body = body[: -len(tail)]
    count = len(registered.tensors)
    places = {attribute.name: i for i, attribute in enumerate(registered.attributes)}
    if len(body) < count or any(name in places for name in body[:count]):
        _fail(plugin, kind, function, f"it must begin with {count} tensors; {expected}")
    for name in body[count:]:
        if name not in places:
            known = ", ".join(map(str, registered.attributes)) or "none"
            message = f"'{name}' is not an attribute of the plugin (those are: {known})"
            _fail(plugin, kind, function, f"{message}; {expected}")
    _check_hints(plugin, kind, function, registered, body, hints)
    return [places[name] for name in body[count:]], has_optional


def _check_hints(
    plugin: str,
    kind: str,
    function: Callable[..., Any],
    registered: Signature,
    body: list[str],
    hints: dict[str, Any],
) -> None:
    """Hints are optional in all functions but `register`; those that are there must agree."""
    count = len(registered.tensors)
    tensor = Tensor if kind == "impl" else TensorDesc
    for name in body[:count]:
        if name in hints and hints[name] not in (tensor, Any):
            _fail(plugin, kind, function, f"'{name}' is a tensor: annotate it as {tensor.__name__}")
    attributes = {attribute.name: attribute for attribute in registered.attributes}
    for name in body[count:]:
        hint, attribute = hints.get(name, Any), attributes[name]
        if hint is Any:
            continue
        given = _element_type(hint) if attribute.is_array else hint
        if given != attribute.hint:
            found = getattr(hint, "__name__", hint)
            message = f"attribute '{name}' is annotated as {found}, but registered as `{attribute}`"
            _fail(plugin, kind, function, message)
    if kind == "impl" and hints.get("return") not in (None, type(None)):
        _fail(plugin, kind, function, "it writes into `outputs` and must return None")
    if kind == "autotune" and "return" in hints:
        entry = typing.get_args(hints["return"])
        if entry and entry[0] is not AutoTuneCombination:
            _fail(plugin, kind, function, "it must return a list of AutoTuneCombination")
