"""Plugins that are classes, in Python or in a C++ library, for the checks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import _core
from .._core import PluginCapabilityType, PluginFieldType
from .._plugins.classes import LibraryCreatorBase
from .._plugins.classes_quick import IPluginCreatorV3Quick, IPluginV3QuickAOTBuild
from .._plugins.classes_v2 import IPluginCreator
from .._plugins.library_v2 import LibraryCreatorV2
from .report import place_of
from .subject import AddLayer, Call, Example, Subject, Watch, data_type
from .watched import WatchedPluginV2, WatchedPluginV3, other, stand_in_for, stored

_Request = _core.QuickPluginCreationRequest

_ELEMENTS: dict[PluginFieldType, Any] = {
    PluginFieldType.FLOAT16: np.float16,
    PluginFieldType.FLOAT32: np.float32,
    PluginFieldType.FLOAT64: np.float64,
    PluginFieldType.INT8: np.int8,
    PluginFieldType.INT16: np.int16,
    PluginFieldType.INT32: np.int32,
    PluginFieldType.INT64: np.int64,
}

# Methods by the fact that they tell, with their names in all families.
_METHODS = {
    "shapes": ("get_output_shapes", "get_output_dimensions"),
    "types": ("supports_format_combination", "get_supported_format_combinations"),
    "call": ("enqueue",),
    "kernel": ("get_kernel",),
    "clone": ("clone",),
    "create": ("create_plugin",),
    "store": ("get_fields_to_serialize", "serialize"),
}


def id_of(creator: Any) -> str:
    """``namespace::name``, or only the name if there is no namespace."""
    namespace = creator.plugin_namespace
    return f"{namespace}::{creator.name}" if namespace else creator.name


def _field(known: Any, value: Any) -> Any:
    if known.type in _ELEMENTS:
        array = np.atleast_1d(np.asarray(value))
        if array.dtype.kind not in "fiub":
            raise TypeError(f"attribute '{known.name}' cannot be {value!r}; it is {known.type}")
        return _core.PluginField(known.name, array.astype(_ELEMENTS[known.type]), known.type)
    if known.type == PluginFieldType.CHAR and isinstance(value, str):
        value = value.encode()
    return _core.PluginField(known.name, value, known.type)


class ClassPlugin(Subject):
    """A plugin of a creator that Python implements."""

    checks: tuple[str, ...] = (
        "example",
        "runs",
        "bounds",
        "inputs",
        "fields",
        "clone",
        "determinism",
        "written",
        "uninitialized",
        "combinations",
        "shapes",
        "profile",
        "reload",
        "threads",
    )

    def __init__(self, creator: Any):
        self._creator = creator
        self._is_v2 = isinstance(creator, IPluginCreator)
        self._classes: list[type] = [type(creator)]
        self.id = id_of(creator)
        self.call_name, self.kernel_name, self.missing = "enqueue", "", ""
        self.says_shapes = _METHODS["shapes"][int(self._is_v2)]
        if isinstance(creator, IPluginCreatorV3Quick):
            self.checks = (*self.checks, "aot")
            self.kernel_name = "get_kernel"

    # How plugins are made ------------------------------------------------------------------------

    def attributes(self) -> list[str]:
        return [field.name for field in self._creator.field_names or ()]

    def call(self, example: Example) -> Call:
        arrays = [x for x in (*example.inputs, *example.shape_inputs) if x is not None]
        if len(arrays) != len(example.inputs) + len(example.shape_inputs):
            raise TypeError("an input is None; a class has no inputs that may be absent")
        for x in arrays:
            data_type(x.dtype)
        known = {field.name: field for field in self._creator.field_names or ()}
        for name in example.attributes:
            if name not in known:
                names = ", ".join(known) or "none"
                raise TypeError(f"the plugin has no field '{name}'; its field_names are: {names}")
        fields = [_field(known[name], value) for name, value in example.attributes.items()]
        count = len(example.inputs)
        call = Call(
            arrays,
            [f"input {i}" for i in range(len(arrays))],
            _core.PluginFieldCollection(fields),
            list(range(count)),
            frozenset(range(count, len(arrays))),
        )
        if isinstance(self._creator, IPluginCreatorV3Quick):
            self.call_name = "enqueue" if self._is_there(call, False) else ""
            self.kernel_name = "get_kernel" if self._is_there(call, True) else ""
            if self.call_name or self.kernel_name:
                return call
        self._create(call, False)
        return call

    def _is_there(self, call: Call, aot: bool) -> bool:
        with contextlib.suppress(_core.Error, TypeError):
            part = self._part(self._create(call, aot), PluginCapabilityType.BUILD)
            return isinstance(part, IPluginV3QuickAOTBuild) == aot
        return False

    def _create(self, call: Call, aot: bool) -> Any:
        creator, fields, phase = self._creator, call.fields, _core.TensorRTPhase.BUILD
        if self._is_v2:
            plugin = creator.create_plugin(creator.name, fields)
        elif isinstance(creator, IPluginCreatorV3Quick):
            request = _Request.STRICT_AOT if aot else _Request.STRICT_JIT
            namespace = creator.plugin_namespace
            plugin = creator.create_plugin(creator.name or "", namespace, fields, phase, request)
        else:
            plugin = creator.create_plugin(creator.name, fields, phase)
        if plugin is None:
            names = ", ".join(field.name for field in fields) or "none"
            raise TypeError(f"create_plugin refused the fields that came: {names}")
        parts = [plugin] if self._is_v2 else [self._part(plugin, t) for t in PluginCapabilityType]
        self._classes = [type(part) for part in [*parts, plugin, creator] if part is not None]
        return plugin

    @staticmethod
    def _part(plugin: Any, type: PluginCapabilityType) -> Any:
        return plugin.get_capability_interface(type)

    def nothing_to_compare(self) -> str:
        kind = "a compiled kernel" if self.call_name else "something to call"
        return f"the creator makes no plugin with {kind} to compare with"

    def stored_again(self, call: Call) -> str:
        creator, phase = self._creator, _core.TensorRTPhase.RUNTIME
        plugin = self._create(call, not self.call_name)
        if self._is_v2:
            again = creator.deserialize_plugin(creator.name, plugin.serialize())
        elif isinstance(creator, IPluginCreatorV3Quick):
            return ""  # the engine stores the fields of the runtime part, which are loaded and run
        else:
            fields = self._part(plugin, PluginCapabilityType.RUNTIME).get_fields_to_serialize()
            again = creator.create_plugin(creator.name, fields, phase)
        return "" if again is None else other(self._state(plugin), self._state(again))

    def lost_by_clone(self, watch: Watch) -> str:
        return other(watch.stored, stored(watch.part))

    @contextlib.contextmanager
    def installed(
        self, watch: Watch, call: Call, registry: _core.IPluginRegistry
    ) -> Iterator[AddLayer]:
        watched = WatchedPluginV2 if self._is_v2 else WatchedPluginV3

        def add_layer(network: Any, inputs: list[Any], aot: bool) -> Any:
            plugin = self._create(call, aot)
            watch.stored = self._state(plugin)
            # This plugin itself or its clones run. A plugin made of its fields is for `load`.
            stand_in = stand_in_for(self._creator, lambda: watched(plugin, watch).clone())
            registry.register_creator(stand_in, self._creator.plugin_namespace)
            if self._is_v2:
                return network.add_plugin_v2(inputs, watched(plugin, watch))
            data = [inputs[i] for i in call.ports]
            shapes = [inputs[i] for i in sorted(call.shape_inputs)]
            return network.add_plugin_v3(data, shapes, watched(plugin, watch))

        yield add_layer

    def _state(self, plugin: Any) -> dict[str, bytes]:
        part = plugin if self._is_v2 else self._part(plugin, PluginCapabilityType.RUNTIME)
        return stored(part)

    # Places in the source ------------------------------------------------------------------------

    def functions(self) -> list[Callable[..., Any]]:
        return [
            member
            for made in self._classes
            for base in made.__mro__
            if not base.__module__.startswith("opwright.")
            for member in vars(base).values()
            if hasattr(member, "__code__")
        ]

    def place(self, what: str) -> str:
        for made in self._classes:
            for method in _METHODS[what]:
                for base in made.__mro__:
                    if method in vars(base) and not base.__module__.startswith("opwright."):
                        return place_of(vars(base)[method])
        return place_of(self._classes[0])


class LibraryPlugin(ClassPlugin):
    """A plugin of a creator that a C++ library implements."""

    is_machine_code = True

    def __init__(self, creator: LibraryCreatorBase | LibraryCreatorV2, library: str = ""):
        super().__init__(creator)
        self._library = library or "a C++ library"

    def runs_unattached(self) -> bool:
        return self._is_v2  # its engine attaches the plugin itself

    @property
    def advice(self) -> str:
        call = self.example_call()
        return f"write {call} to a file, and check that with --plugins {self._library}"

    def functions(self) -> list[Callable[..., Any]]:
        return []

    def place(self, what: str) -> str:
        names = [n for n in _METHODS[what] if any(hasattr(made, n) for made in self._classes)]
        return f"{self._library} ({names[0]} of {self.id})"
