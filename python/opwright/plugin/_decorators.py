"""The decorators that define a plugin."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .._core import DeviceType
from .._core._plugin import Definition
from ._fingerprint import fingerprint
from ._signature import Signature, Taken, parse_function, parse_register
from .elements import trace

F = TypeVar("F", bound=Callable[..., Any])

_DEVICES = {None: None, "cpu": DeviceType.CPU, "cuda": DeviceType.GPU}


@dataclass
class Written:
    """A function that was written for a plugin, and the attributes that it takes."""

    function: Callable[..., Any]
    attributes: list[str]
    wants_tactic: bool = False


@dataclass
class Plugin:
    """The definitions for one plugin id so far."""

    id: str
    source: tuple[str, str]
    signature: Signature
    definition: Definition
    # Calls that set the other functions on another definition.
    functions: dict[str, Callable[[Definition], None]] = field(default_factory=dict)
    # The functions that runs need, for engines that carry their source.
    sources: dict[str, Callable[..., Any]] = field(default_factory=dict)
    # The functions by decorator name; of functions for several devices, the last one.
    written: dict[str, Written] = field(default_factory=dict)
    # The kernels that `kernel` compiles, by device.
    kernels: dict[str, Any] = field(default_factory=dict)
    registered: bool = False

    def make_findable(self) -> None:
        """Lets the ONNX parser and engines find the plugin."""
        if not self.registered:
            self.definition.register()
            self.registered = True

    def set(self, kind: str, function: Callable[[Definition], None]) -> None:
        """Keeps and applies a call that sets a function."""
        self.functions[kind] = function
        function(self.definition)

    def note(self, kind: str, function: Callable[..., Any], taken: Taken) -> None:
        """Keeps the function itself."""
        names = [self.signature.attributes[place].name for place in taken.attributes]
        self.written[kind] = Written(function, names, taken.wants_tactic)


plugins: dict[str, Plugin] = {}
# The dictionary in which plugins are defined: `plugins`, or that of an engine whose sources are
# being run.
current: ContextVar[dict[str, Plugin]] = ContextVar("plugins", default=plugins)


def _split(plugin_id: str) -> tuple[str, str]:
    if not isinstance(plugin_id, str) or not re.fullmatch(r"[^:.\s]+::[^:.\s]+", plugin_id):
        raise ValueError(
            f"{plugin_id!r} is not a plugin id; expected 'namespace::name' without dots and spaces"
        )
    namespace, name = plugin_id.split("::")
    return namespace, name


def _find(plugin_id: str, kind: str) -> Plugin:
    _split(plugin_id)
    plugin = current.get().get(plugin_id)
    if plugin is None:
        raise ValueError(
            f"{kind}: plugin '{plugin_id}' is not registered; define it first with "
            f"@register('{plugin_id}')"
        )
    return plugin


def _source(function: Callable[..., Any]) -> tuple[str, str]:
    """The place of a function in the source. Each run of a notebook cell has another file name, so
    for notebooks the module and the name count."""
    code = getattr(function, "__code__", None)
    file = code.co_filename if code is not None else "<unknown>"
    if file.startswith("<") or "ipykernel" in file:
        file = function.__module__
    return file, function.__qualname__


def _check_device(kind: str, device: str | None) -> None:
    if device not in _DEVICES:
        raise ValueError(f"{kind}: device={device!r}; expected 'cpu', 'cuda' or None")


def register(
    plugin_id: str, lazy_register: bool = False, repeatable: bool = True
) -> Callable[[F], F]:
    """Defines a plugin: the function infers the outputs' types and shapes, and its signature
    declares the plugin's inputs and attributes. Those are hinted as ``int``, ``float``, ``str``,
    ``bool``, ``bytes``, a list or tuple of one of the first four, ``NDArray`` or an enum, and may
    have default values.

    :param plugin_id: ``"namespace::name"``. Registering an id again is an error unless it is the
        same function once more (a module or a notebook cell that is run again).
    :param lazy_register: whether the ONNX parser is to find the plugin only once it was used
        through ``op``.
    :param repeatable: False for what draws random numbers or keeps state: builds compare no
        results of the plugin, which are different each time.
    :raises SignatureError: for a signature without the hints that are needed.
    """
    namespace, name = _split(plugin_id)

    def decorate(function: F) -> F:
        signature = parse_register(plugin_id, function)
        source = _source(function)
        previous = current.get().get(plugin_id)
        if previous is not None and previous.source != source:
            raise ValueError(
                f"plugin '{plugin_id}' is registered already, by {previous.source[1]} in "
                f"{previous.source[0]}; choose another namespace or name"
            )
        definition = Definition(
            namespace,
            name,
            signature.parameters,
            signature.num_outputs,
            signature.text,
            function,
            signature.enums,
        )
        definition.set_repeatable(repeatable)
        plugin = Plugin(plugin_id, source, signature, definition)
        if previous is not None and previous.signature.parameters == signature.parameters:
            # A notebook cell with only `register`: definitions of other cells stay.
            for kind, apply in previous.functions.items():
                plugin.set(kind, apply)
            plugin.sources.update(previous.sources)
            plugin.written.update(previous.written)
            plugin.kernels.update(previous.kernels)
        plugin.sources["register"] = function
        plugin.note("register", function, Taken(list(range(len(signature.attributes))), False))
        current.get()[plugin_id] = plugin
        if not lazy_register or (previous is not None and previous.registered):
            plugin.make_findable()
        return function

    return decorate


def impl(plugin_id: str, device: str | None = None, capturable: bool = False) -> Callable[[F], F]:
    """Defines how a plugin computes: ``(tensors..., attributes..., outputs, stream[, tactic])``.

    The engine calls the function in each run. It stores only the attributes that the function
    takes. A function that exchanges data with other ranks has one more parameter anywhere behind
    the tensors, annotated as `Comm`. Builds do not run it.

    :param plugin_id: the id of a registered plugin.
    :param device: ``"cpu"``, ``"cuda"``, or None for both.
    :param capturable: whether the function only launches kernels and copies on ``stream``, the same
        ones for the same shapes. The engine may then capture them in a CUDA graph, and replay it
        without calling the function.
    :raises SignatureError: for parameters or hints that contradict those of `register`.
    """
    plugin = _find(plugin_id, "impl")
    _check_device("impl", device)

    def decorate(function: F) -> F:
        taken = parse_function(
            plugin_id, "impl", function, plugin.signature, ["outputs", "stream"], "tactic"
        )
        plugin.sources[f"impl {device}"] = function
        plugin.note("impl", function, taken)
        plugin.set(
            f"impl {device}",
            lambda d: d.set_impl(
                _DEVICES[device],
                function,
                taken.attributes,
                taken.wants_tactic,
                taken.keywords,
                fingerprint(function),
                taken.communicator,
                capturable,
            ),
        )
        return function

    return decorate


def autotune(plugin_id: str) -> Callable[[F], F]:
    """Defines the types, layouts and tactics that the engine compares:
    ``(tensors..., attributes..., outputs) -> list of AutoTuneCombination``.

    The build calls the function, with descriptors that know the profile's shapes. Without it a
    plugin runs in the network's types, LINEAR, and has no tactics.

    :param plugin_id: the id of a registered plugin.
    :raises SignatureError: for parameters or hints that contradict those of `register`.
    """
    plugin = _find(plugin_id, "autotune")

    def decorate(function: F) -> F:
        taken = parse_function(plugin_id, "autotune", function, plugin.signature, ["outputs"])
        plugin.note("autotune", function, taken)
        plugin.set("autotune", lambda d: d.set_autotune(function, taken.attributes, taken.keywords))
        return function

    return decorate


def aot_impl(plugin_id: str, device: str | None = None) -> Callable[[F], F]:
    """Defines the kernel that is compiled into engines: ``(tensors..., attributes..., outputs,
    tactic) -> (kernel name, code, KernelLaunchParams, SymExprs)``.

    The build calls the function for each combination of types, formats and tactics that it
    compares. The kernel's parameters are a pointer for each input, the extra arguments, and a
    pointer for each output. `opwright.aot` makes name and code.

    :param plugin_id: the id of a registered plugin.
    :param device: ``"cpu"``, ``"cuda"``, or None for both.
    :raises SignatureError: for parameters or hints that contradict those of `register`.
    """
    plugin = _find(plugin_id, "aot_impl")
    _check_device("aot_impl", device)

    def decorate(function: F) -> F:
        taken = parse_function(
            plugin_id, "aot_impl", function, plugin.signature, ["outputs", "tactic"]
        )
        plugin.note("aot_impl", function, taken)
        plugin.set(
            f"aot_impl {device}",
            lambda d: d.set_aot_impl(
                _DEVICES[device], function, taken.attributes, taken.keywords, fingerprint(function)
            ),
        )
        return function

    return decorate


def reference(plugin_id: str) -> Callable[[F], F]:
    """Defines the right results: ``(tensors..., attributes..., outputs, stream)``, as `impl`.

    The build calls the function, in the network's types and LINEAR. It compares each combination
    and tactic with its outputs. A combination that differs by more than its types allow is dropped
    with a warning, or ends a build with ``verify="strict"``. Without a reference, compiled kernels
    are compared with `impl`, and combinations with the first one.

    :param plugin_id: the id of a registered plugin.
    :raises SignatureError: for parameters or hints that contradict those of `register`.
    """
    plugin = _find(plugin_id, "reference")

    def decorate(function: F) -> F:
        signature = plugin.signature
        taken = parse_function(plugin_id, "reference", function, signature, ["outputs", "stream"])
        right = Definition(
            *_split(plugin_id),
            signature.parameters,
            signature.num_outputs,
            signature.text,
            plugin.written["register"].function,
            signature.enums,
        )
        right.set_impl(
            None, function, taken.attributes, False, taken.keywords, fingerprint(function)
        )
        plugin.note("reference", function, taken)
        plugin.set("reference", lambda d: d.set_reference(right))
        return function

    return decorate


def pointwise_impl(plugin_id: str) -> Callable[[F], F]:
    """Defines a plugin by an expression of single elements: ``(tensors..., attributes...) ->
    Element``, written with operators and the functions of `opwright.plugin.elements`.

    The build calls the function and turns the expression into layers. They become one kernel with
    other element-wise layers, and on a GPU a part of the convolution or matrix product before them.
    Tensors have one floating type and broadcast to each other. The expression is computed in FP32.
    It runs on every device, without Python.

    :param plugin_id: the id of a registered plugin with one output.
    :raises SignatureError: for parameters or hints that contradict those of `register`.
    """
    plugin = _find(plugin_id, "pointwise_impl")

    def decorate(function: F) -> F:
        taken = parse_function(plugin_id, "pointwise_impl", function, plugin.signature, [])
        plugin.note("pointwise_impl", function, taken)
        traced = trace(function, len(plugin.signature.tensors))
        plugin.set(
            "pointwise_impl",
            lambda d: d.set_pointwise_impl(traced, taken.attributes, taken.keywords),
        )
        return function

    return decorate
