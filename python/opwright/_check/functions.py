"""Function plugins, for the checks."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _core
from .._core import DeviceType
from .._core._plugin import AutoTuneCombination, Definition, ParameterKind, TensorDesc
from ..plugin._decorators import Plugin
from ..plugin._op import fields_of
from .compare import same
from .report import place_of
from .subject import AddLayer, Call, Example, Layout, Subject, Watch, data_type

_VARIADIC = 2  # tensors for a parameter that takes any number, in made examples


@dataclass
class Function:
    """One of the user's functions."""

    call: Callable[..., Any]
    attributes: list[int] = field(default_factory=list)
    """The indices of the plugin's attributes that it takes."""
    wants_tactic: bool = False
    keywords: list[str] = field(default_factory=list)
    """The names of its last parameters, which are passed by keyword."""
    fingerprint: str = ""


class _Capture:
    """Stands in for a definition, to record the decorated functions."""

    def __init__(self, plugin: Plugin, device: DeviceType):
        self._device = device
        self.impl: Function | None = None
        self.autotune: Function | None = None
        self.aot: Function | None = None
        self.has_exchange = False
        """Whether the implementation exchanges data with other ranks. A check has none."""
        for apply in plugin.functions.values():
            apply(self)  # type: ignore[arg-type]

    def set_impl(self, device: Any, *function: Any) -> None:
        if device in (None, self._device):
            *of_any_device, communicator, _capturable = function
            self.has_exchange = communicator >= 0
            self.impl = None if self.has_exchange else Function(*of_any_device)

    def set_autotune(self, call: Any, attributes: list[int], keywords: list[str]) -> None:
        self.autotune = Function(call, attributes, False, keywords)

    def set_pointwise_impl(self, call: Any, attributes: list[int], keywords: list[str]) -> None:
        """Ignores an expression: it becomes the engine's own layers, so there is no user code to
        check."""

    def set_reference(self, reference: Definition) -> None:
        """Ignores the reference, with which builds compare. It is not checked itself."""

    def set_aot_impl(
        self, device: Any, call: Any, attributes: list[int], keywords: list[str], fingerprint: str
    ) -> None:
        if device in (None, self._device):
            self.aot = Function(call, attributes, False, keywords, fingerprint)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two values of an attribute have the same type and are equal to the bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and same([a], [b])
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a == b or (a != a and b != b)


class FunctionPlugin(Subject):
    """A plugin made with `register`. The checks wrap its functions."""

    checks = (
        "example",
        "runs",
        "bounds",
        "inputs",
        "attributes",
        "determinism",
        "written",
        "uninitialized",
        "combinations",
        "aot",
        "shapes",
        "profile",
        "reload",
        "threads",
    )

    def __init__(self, plugin: Plugin, device: DeviceType = DeviceType.CPU):
        captured = _Capture(plugin, device)
        self.device = device
        self._plugin = plugin
        self._signature = plugin.signature
        self._register = plugin.sources["register"]
        self._impl, self._autotune, self._aot = captured.impl, captured.autotune, captured.aot
        self.id, self.says_shapes = plugin.id, "register"
        self.call_name = "impl" if self._impl is not None else ""
        self.kernel_name = "aot_impl" if self._aot is not None else ""
        self.missing = (
            f"the plugin has no implementation for the {device.name}; add @impl('{plugin.id}') or "
            "@aot_impl"
        )
        if captured.has_exchange:
            self.missing = (
                "its impl exchanges data with other ranks, which a check has not; compare its "
                "results in engines of all ranks"
            )

    # Examples ------------------------------------------------------------------------------------

    def layouts(self) -> list[list[Layout]]:
        kinds = list(self._signature.tensors.values())

        def layout(optional: bool) -> Layout:
            made: list[bool] = []
            for kind in kinds:
                if kind is ParameterKind.TENSORS:
                    made += [True] * (_VARIADIC if optional or kinds == [kind] else 0)
                else:
                    made.append(optional or kind is not ParameterKind.OPTIONAL_TENSOR)
            return tuple(made)

        return [list(dict.fromkeys([layout(False), layout(True)]))]

    def _names(self, count: int) -> list[str]:
        """The parameter of each of `count` tensors. Parameters left out at the end are absent."""
        names: list[str] = []
        for name, kind in self._signature.tensors.items():
            if kind is ParameterKind.TENSORS:
                names += [f"{name}[{i}]" for i in range(count - len(names))]
            else:
                names.append(name)
        return names

    def attributes(self) -> list[str]:
        empty = inspect.Parameter.empty
        return [a.name for a in self._signature.attributes if a.default is empty]

    def call(self, example: Example) -> Call:
        kinds = self._signature.tensors
        names = self._names(len(example.inputs))
        inputs = [*example.inputs, *[None] * (len(names) - len(example.inputs))]
        optional = {n for n, k in kinds.items() if k is ParameterKind.OPTIONAL_TENSOR}
        absent = [n for n, x in zip(names, inputs) if x is None and n not in optional]
        if len(inputs) > len(names) or absent or example.shape_inputs:
            shown = ", ".join(
                f"*{n}" if k is ParameterKind.TENSORS else n for n, k in kinds.items()
            )
            count = len(example.inputs) + len(example.shape_inputs)
            raise TypeError(f"{count} inputs; the plugin takes {shown}")
        arrays: list[np.ndarray] = []
        slots: list[int | None] = []
        for x in inputs:
            slots.append(None if x is None else len(arrays))
            if x is not None:
                data_type(x.dtype)
                arrays.append(x)
        there = [n for n, x in zip(names, inputs) if x is not None]
        shape_inputs = frozenset(
            i for i, n in enumerate(there) if kinds.get(n) is ParameterKind.SHAPE_INPUT
        )
        fields = fields_of(self._plugin, example.attributes)
        return Call(arrays, there, fields, slots, shape_inputs)

    # Places in the source ------------------------------------------------------------------------

    def functions(self) -> list[Callable[..., Any]]:
        others = [f.call for f in (self._impl, self._autotune, self._aot) if f is not None]
        return [self._register, *others]

    def place(self, what: str) -> str:
        computes = self._impl or self._aot
        functions = {
            "call": self._impl,
            "kernel": self._aot,
            "store": computes,
            "types": self._autotune,
        }
        function = functions.get(what)
        return place_of(self._register if function is None else function.call)

    # Engines -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def installed(self, watch: Watch, call: Call, registry: Any) -> Iterator[AddLayer]:
        definition = self._define(watch, call)
        definition.register()

        def add_layer(network: Any, inputs: list[Any], aot: bool) -> Any:
            tensors = [None if slot is None else inputs[slot] for slot in call.slots]
            made = definition.call(tensors, call.fields)
            return network.add_plugin(made, aot=aot and not watch.pretends)

        try:
            yield add_layer
        finally:
            if self._plugin.registered:
                self._plugin.definition.register()
            else:
                definition.deregister()

    def load(self, data: Any, watch: Watch, call: Call) -> _core.ICudaEngine:
        with self.installed(watch, call, None):
            return super().load(data, watch, call)

    def _define(self, watch: Watch, call: Call) -> Definition:
        signature = self._signature
        namespace, name = self.id.split("::")
        definition = Definition(
            namespace,
            name,
            signature.parameters,
            signature.num_outputs,
            signature.text,
            lambda *given, **named: self._watched_register(watch, call, *given, **named),
            signature.enums,
        )
        impl = self._impl
        if watch.pretends or impl is None:
            impl = Function(lambda: None, list(range(len(signature.attributes))), True)
        if self._impl is not None or watch.pretends:
            definition.set_impl(
                None,
                lambda *given, **named: self._watched_impl(watch, call, impl, given, named),
                impl.attributes,
                impl.wants_tactic,
                impl.keywords,
            )
        tune = self._autotune
        if tune is not None and watch.chosen is not None:
            chosen = self._entries(watch, call)
            tune = Function(lambda *_: [chosen])
        if tune is not None:
            definition.set_autotune(tune.call, tune.attributes, tune.keywords)
        if self._aot is not None:
            definition.set_aot_impl(None, self._aot.call, self._aot.attributes, self._aot.keywords)
        return definition

    def _entries(self, watch: Watch, call: Call) -> AutoTuneCombination:
        """The chosen combination as `autotune` returns it. Absent tensors have an entry too."""
        assert watch.chosen is not None
        types, formats = [], []
        ports = iter(zip(watch.chosen.types, watch.chosen.formats))
        for slot in [*call.slots, *range(self._signature.num_outputs)]:
            dtype, format = next(ports) if slot is not None else (None, None)
            types.append(dtype.name if dtype is not None else "FP32")
            formats.append(format.name if format is not None else "LINEAR")
        tactics = [watch.chosen.tactic] if watch.chosen.tactic else None
        return AutoTuneCombination(", ".join(types), ", ".join(formats), tactics)

    def _watched_register(self, watch: Watch, call: Call, *given: Any, **named: Any) -> Any:
        """The result of `register` with the combination's types. So the engine converts no output,
        and the plugin writes to the network's own outputs."""
        made = self._register(*given, **named)
        descs = made if isinstance(made, (tuple, list)) else [made]
        count = self._signature.num_outputs
        for o, desc in enumerate(descs[:count]):
            if getattr(desc, "is_aliased", False):
                source = desc.get_aliased()
                slot = next(s for s, x in zip(call.slots, given) if x is source)
                assert slot is not None
                watch.aliased[o] = slot
            elif watch.chosen is not None and isinstance(desc, TensorDesc):
                desc.dtype = watch.chosen.types[o - count]
        return made

    def _watched_impl(
        self,
        watch: Watch,
        call: Call,
        impl: Function,
        given: Sequence[Any],
        named: dict[str, Any],
    ) -> Any:
        attributes = [self._signature.attributes[i].name for i in impl.attributes]
        count = len(call.slots)
        names = [*attributes, "outputs", "stream", "tactic"]
        values = dict(zip(names, given[count:])) | named
        outputs = values["outputs"]
        ports = [*(x for x in given[:count] if x is not None), *outputs]
        addresses, shapes = [p.data_ptr for p in ports], [p.shape for p in ports]
        watch.saw([(p.dtype, p.format) for p in ports], values.get("tactic", 0), addresses, shapes)
        if watch.pretends:
            watch.set_to_zero(
                [(p.shape, p.dtype, p.format, p.data_ptr) for p in outputs], values["stream"]
            )
            return None
        before = copy.deepcopy({name: values[name] for name in attributes})
        watch.meet()
        result = impl.call(*given, **named)
        for attribute in self._signature.attributes:
            name = attribute.name
            if name in before and not _is_same(values[name], before[name]):
                watch.changed = (
                    f"attribute {attribute} is {values[name]!r} after the call, but was "
                    f"{before[name]!r}; impl must not change it: its arrays are used again in the "
                    "next call"
                )
        return result
