"""Parses the signatures of a plugin's functions."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._core._plugin import (
    AttributeForm,
    AutoTuneCombination,
    Comm,
    Parameter,
    ParameterKind,
    ShapeInput,
    SizeTensorDesc,
    Tensor,
    TensorDesc,
)
from ._attributes import EXPECTED, Attribute, AttributeType, HintError, listing, shown

# Names that have another meaning than attributes.
_RESERVED = {
    **dict.fromkeys(("outputs", "stream", "tactic"), "is a parameter of impl"),
    **dict.fromkeys(("plugin_namespace", "plugin_version", "aot"), "chooses the plugin in ONNX"),
}


class SignatureError(TypeError):
    """A function of a plugin lacks the parameters or hints that it needs."""


@dataclass
class Signature:
    """The declarations of `register`."""

    text: str
    tensors: dict[str, ParameterKind]
    attributes: list[Attribute]
    parameters: list[Parameter]
    num_outputs: int

    @property
    def enums(self) -> dict[str, Any]:
        """The classes of the attributes that are enums."""
        forms = {a.name: a.type for a in self.attributes}
        return {n: t.element for n, t in forms.items() if t.form is AttributeForm.ENUM}


@dataclass
class Taken:
    """The arguments that one of the other functions takes."""

    attributes: list[int]
    """The indices of its attributes among the registered ones."""
    wants_tactic: bool
    keywords: list[str] = field(default_factory=list)
    """The names of its last parameters, which are keyword-only."""
    communicator: int = -1
    """The place of its Comm behind the tensors; -1: it takes none."""


class _Verbatim:
    """A hint that is printed as in the source."""

    def __init__(self, hint: Any):
        self._text = hint if isinstance(hint, str) else shown(hint)

    def __repr__(self) -> str:
        return self._text


def describe(function: Callable[..., Any]) -> str:
    """The function's signature as in the source, in one line."""
    signature = inspect.signature(function)
    empty = inspect.Parameter.empty
    parameters = [
        p if p.annotation is empty else p.replace(annotation=_Verbatim(p.annotation))
        for p in signature.parameters.values()
    ]
    returned = signature.return_annotation
    signature = signature.replace(
        parameters=parameters,
        return_annotation=returned if returned is empty else _Verbatim(returned),
    )
    return f"{getattr(function, '__name__', type(function).__name__)}{signature}"


def _fail(plugin: str, kind: str, function: Callable[..., Any], message: str) -> typing.NoReturn:
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = "" if code is None else f" at {code.co_filename}:{code.co_firstlineno}"
    raise SignatureError(
        f"plugin '{plugin}', {kind} function `{describe(function)}`{place}: {message}"
    )


def _hints(plugin: str, kind: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The function's hints, including strings that name locals of the caller."""
    scope: dict[str, Any] = {}
    frame = sys._getframe(1)
    package = __name__.rpartition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None:
        scope.update(frame.f_locals)
    try:
        return typing.get_type_hints(function, localns=scope)
    except (NameError, SyntaxError, TypeError) as error:
        _fail(plugin, kind, function, f"a type hint cannot be resolved: {error}")


def _parameters(plugin: str, kind: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    if not callable(function) or isinstance(function, type):
        raise SignatureError(
            f"plugin '{plugin}': {kind} decorates a function, not {shown(type(function))}"
        )
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            message = f"'{parameter}' takes any number of attributes; each needs a parameter"
            _fail(plugin, kind, function, message)
    return parameters


def _is_desc(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, TensorDesc)


def _optional(hint: Any) -> Any:
    """T of Optional[T]; None for other hints."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return None
    entries = [entry for entry in typing.get_args(hint) if entry is not type(None)]
    return entries[0] if len(entries) == 1 else None


def _tensor_kind(parameter: inspect.Parameter, hint: Any) -> ParameterKind | None:
    """The kind of tensor that a parameter of `register` stands for; None if it is not a tensor."""
    if _is_desc(_optional(hint)):
        return ParameterKind.OPTIONAL_TENSOR
    if not _is_desc(hint):
        return None
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ParameterKind.TENSORS
    return ParameterKind.SHAPE_INPUT if issubclass(hint, ShapeInput) else ParameterKind.TENSOR


def _check_tensor(
    plugin: str,
    function: Callable[..., Any],
    parameter: inspect.Parameter,
    kind: ParameterKind,
    hint: Any,
) -> None:
    name = parameter.name
    if parameter.kind is parameter.KEYWORD_ONLY:
        _fail(plugin, "register", function, f"tensor '{name}' is keyword-only")
    if (_optional(hint) or hint) is SizeTensorDesc:
        message = f"'{name}' is annotated as SizeTensorDesc, which describes outputs; expected "
        _fail(plugin, "register", function, message + "TensorDesc")
    if kind is ParameterKind.TENSORS and hint is ShapeInput:
        _fail(plugin, "register", function, f"'*{name}' cannot be shape inputs; name each")
    has_default = parameter.default is not parameter.empty
    if kind is ParameterKind.OPTIONAL_TENSOR:
        if not has_default or parameter.default is not None:
            message = f"the default value of optional tensor '{name}' must be None"
            _fail(plugin, "register", function, message)
    elif has_default:
        message = f"tensor '{name}' has a default value; `{name}: Optional[TensorDesc] = None`"
        _fail(plugin, "register", function, f"{message} is a tensor that may be absent")


def _attribute(
    plugin: str, function: Callable[..., Any], parameter: inspect.Parameter, hint: Any
) -> Attribute:
    name = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        message = f"'{parameter}' takes a variable number; only tensors may: `*{name}: TensorDesc`"
        _fail(plugin, "register", function, message)
    if name in _RESERVED:
        message = f"an attribute cannot be named '{name}', which {_RESERVED[name]}"
        _fail(plugin, "register", function, message)
    try:
        attribute = Attribute(
            name,
            AttributeType.of(hint),
            parameter.default,
            parameter.kind is parameter.KEYWORD_ONLY,
            hint,
        )
    except HintError as error:
        reason = f"{error}; " if str(error) else ""
        message = f"attribute '{name}' has the type {shown(hint)}; {reason}expected {EXPECTED}"
        _fail(plugin, "register", function, message)
    try:
        attribute.parameter(plugin)
    except TypeError as error:
        _fail(plugin, "register", function, f"the default value of '{name}': {error}")
    return attribute


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
    """Parses `register`'s signature: tensors first, then attributes. The return hint decides the
    number of outputs."""
    parameters = _parameters(plugin, "register", function)
    hints = _hints(plugin, "register", function)
    tensors: dict[str, ParameterKind] = {}
    attributes: list[Attribute] = []
    for parameter in parameters:
        name = parameter.name
        if name not in hints:
            _fail(plugin, "register", function, f"parameter '{name}' has no type hint")
        tensor = _tensor_kind(parameter, hints[name])
        if tensor is None:
            attributes.append(_attribute(plugin, function, parameter, hints[name]))
            continue
        _check_tensor(plugin, function, parameter, tensor, hints[name])
        if attributes:
            message = f"tensor '{name}' follows attribute '{attributes[-1].name}'"
            _fail(plugin, "register", function, f"{message}; tensors come first")
        tensors[name] = tensor
    if not tensors:
        _fail(plugin, "register", function, "a plugin needs at least one input: a TensorDesc")
    if "return" not in hints:
        _fail(plugin, "register", function, "the return type is not annotated: `-> TensorDesc`")
    declared = [Parameter(name, kind) for name, kind in tensors.items()]
    declared += [attribute.parameter(plugin) for attribute in attributes]
    outputs = _count_outputs(plugin, function, hints["return"])
    return Signature(describe(function), tensors, attributes, declared, outputs)


def parse_function(
    plugin: str,
    kind: str,
    function: Callable[..., Any],
    registered: Signature,
    tail: list[str],
    optional_tail: str | None = None,
) -> Taken:
    """Checks a function against the registered signature.

    Its parameters are the tensors, any of the attributes in any order, then `tail`, then perhaps
    `optional_tail`. Parameters behind `*` or a variable number of tensors are passed by keyword.
    `impl` may have a Comm anywhere behind the tensors.
    """
    parameters = _parameters(plugin, kind, function)
    hints = _hints(plugin, kind, function)
    communicator = _place_of_comm(plugin, kind, function, registered, parameters, hints)
    names = [p.name for p in parameters if hints.get(p.name) is not Comm]
    tensors = [f"*{n}" if k is ParameterKind.TENSORS else n for n, k in registered.tensors.items()]
    expected = ", ".join([*tensors, "attributes...", *tail])
    if optional_tail is not None:
        expected += f"[, {optional_tail}]"
    expected = f"expected ({expected}) for the registered `{registered.text}`"

    has_optional = optional_tail is not None and names[-1:] == [optional_tail]
    body = names[:-1] if has_optional else names
    if tail and body[-len(tail) :] != tail:
        _fail(plugin, kind, function, f"it must end with {', '.join(tail)}; {expected}")
    body = body[: len(body) - len(tail)]
    count = len(registered.tensors)
    places = {attribute.name: i for i, attribute in enumerate(registered.attributes)}
    if len(body) < count or any(name in places for name in body[:count]):
        _fail(plugin, kind, function, f"it must begin with {count} tensors; {expected}")
    for i, parameter in enumerate(parameters):
        tensor = list(registered.tensors.items())[i] if i < count else None
        _check_parameter(plugin, kind, function, parameter, tensor)
    for name in body[count:]:
        if name not in places:
            known = listing(registered.attributes)
            message = f"'{name}' is not an attribute of the plugin (those are: {known})"
            _fail(plugin, kind, function, f"{message}; {expected}")
    _check_hints(plugin, kind, function, registered, body, hints)
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return Taken([places[name] for name in body[count:]], has_optional, keywords, communicator)


def _place_of_comm(
    plugin: str,
    kind: str,
    function: Callable[..., Any],
    registered: Signature,
    parameters: list[inspect.Parameter],
    hints: dict[str, Any],
) -> int:
    """The place behind the tensors of the parameter that is a Comm; -1 where there is none."""
    places = [i for i, p in enumerate(parameters) if hints.get(p.name) is Comm]
    if not places:
        return -1
    name = parameters[places[0]].name
    if kind != "impl":
        message = f"'{name}' is a Comm, which only impl gets: no other function runs among ranks"
        _fail(plugin, kind, function, message)
    if len(places) > 1:
        other = parameters[places[1]].name
        _fail(plugin, kind, function, f"'{name}' and '{other}' are both a Comm; one is enough")
    if places[0] < len(registered.tensors):
        _fail(plugin, kind, function, f"'{name}' is a Comm; it comes behind the tensors")
    return places[0] - len(registered.tensors)


def _check_parameter(
    plugin: str,
    kind: str,
    function: Callable[..., Any],
    parameter: inspect.Parameter,
    tensor: tuple[str, ParameterKind] | None,
) -> None:
    """Checks a parameter. `tensor` is the registered tensor that the parameter stands for, or
    None."""
    name = parameter.name
    is_variadic = parameter.kind is parameter.VAR_POSITIONAL
    if tensor is not None and parameter.kind is parameter.KEYWORD_ONLY:
        _fail(plugin, kind, function, f"tensor '{name}' is keyword-only")
    if tensor is not None and tensor[1] is ParameterKind.TENSORS and not is_variadic:
        message = f"'{name}' stands for the registered '*{tensor[0]}'; write `*{name}`"
        _fail(plugin, kind, function, message)
    if is_variadic and (tensor is None or tensor[1] is not ParameterKind.TENSORS):
        _fail(plugin, kind, function, f"the parameter '{parameter}' takes a variable number")
    is_optional = tensor is not None and tensor[1] is ParameterKind.OPTIONAL_TENSOR
    if parameter.default is not parameter.empty and not (is_optional and parameter.default is None):
        _fail(plugin, kind, function, f"'{name}' has a default value")


def _check_hints(
    plugin: str,
    kind: str,
    function: Callable[..., Any],
    registered: Signature,
    body: list[str],
    hints: dict[str, Any],
) -> None:
    """Checks that hints agree with the registered ones. Only `register` needs hints."""
    count = len(registered.tensors)
    tensor = Tensor if kind == "impl" else TensorDesc
    for name, registered_kind in zip(body, registered.tensors.values()):
        accepted = [tensor, Any]
        if registered_kind is ParameterKind.OPTIONAL_TENSOR:
            accepted.append(tensor | None)
        elif registered_kind is ParameterKind.SHAPE_INPUT and kind != "impl":
            accepted.append(ShapeInput)
        if name in hints and hints[name] not in accepted:
            _fail(plugin, kind, function, f"'{name}' is a tensor: annotate it as {tensor.__name__}")
    attributes = {attribute.name: attribute for attribute in registered.attributes}
    for name in body[count:]:
        hint, attribute = hints.get(name, Any), attributes[name]
        if hint is Any:
            continue
        try:
            agrees = AttributeType.of(hint).agrees(attribute.type)
        except HintError:
            agrees = False
        if not agrees:
            found = shown(hint)
            message = f"attribute '{name}' is annotated as {found}, but registered as `{attribute}`"
            _fail(plugin, kind, function, message)
    if hints.get("outputs", Any) is not Any and not _holds(hints["outputs"], tensor):
        message = f"'outputs' is a tuple: annotate it as Tuple[{tensor.__name__}]"
        _fail(plugin, kind, function, message)
    for name in ("stream", "tactic"):
        if name not in attributes and hints.get(name, int) not in (int, Any):
            _fail(plugin, kind, function, f"'{name}' is an int")
    returned = hints.get("return", Any)
    if kind == "impl" and returned not in (Any, None, type(None)):
        _fail(plugin, kind, function, "it writes into `outputs` and must return None")
    if kind == "autotune" and returned is not Any and not _holds(returned, AutoTuneCombination):
        _fail(plugin, kind, function, "it must return a list of AutoTuneCombination")
    if kind == "aot_impl" and returned is not Any:
        entries = typing.get_args(returned)
        if (typing.get_origin(returned) or returned) is not tuple or len(entries) not in (0, 4):
            message = "it must return (kernel name, code, KernelLaunchParams, SymIntExprs)"
            _fail(plugin, kind, function, message)


def _holds(hint: Any, element: type) -> bool:
    """Whether a hint is a list or tuple of `element`, as far as it names its elements."""
    if (typing.get_origin(hint) or hint) not in (list, tuple, Sequence):
        return False
    return all(entry in (element, Any, ...) for entry in typing.get_args(hint))
