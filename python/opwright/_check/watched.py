"""Plugin classes with watched methods. The engine gets them in place of the user's objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core
from .._core import PluginCapabilityType
from .._plugins.classes import IPluginCreatorV3One
from .._plugins.classes_quick import (
    IPluginCreatorV3Quick,
    IPluginV3QuickAOTBuild,
    IPluginV3QuickBuild,
    IPluginV3QuickCore,
    IPluginV3QuickRuntime,
)
from .._plugins.classes_v2 import IPluginCreator
from .memory import PaddedMemory
from .subject import Combination, Watch


def _port(desc: Any) -> tuple[_core.DataType, _core.TensorFormat]:
    """Type and format of a descriptor, whether it has ranges of shapes or not."""
    desc = getattr(desc, "desc", desc)
    return desc.type, desc.format


def _ports(combination: Combination) -> list[tuple[_core.DataType, _core.TensorFormat]]:
    return list(zip(combination.types, combination.formats))


def stored(part: Any) -> dict[str, bytes]:
    """The data that an engine would store for a V2 plugin or for another plugin's runtime part, by
    name."""
    if hasattr(part, "serialize"):
        return {"serialize()": part.serialize()}
    if not hasattr(part, "get_fields_to_serialize"):
        return {}
    return {f.name: np.asarray(f.data).tobytes() for f in part.get_fields_to_serialize()}


def other(before: dict[str, bytes], now: dict[str, bytes]) -> str:
    """A message on the first field that has changed; empty if none has."""
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            return f"field '{name}' to be stored is not what it was"
    return ""


class _Watched:
    """Wraps an object of the user. Attributes that it does not watch are the object's own."""

    watched: tuple[str, ...] = ()

    def __init__(self, inner: Any, watch: Watch, owner: Any = None):
        self._inner, self._watch, self._owner = inner, watch, owner

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        if name in ("_inner", "_watch", "_owner", "_output_type", "__class__"):
            return own(self, name)
        if name == "_handle":  # through it the engine would take a library's plugin itself
            raise AttributeError(name)
        inner = own(self, "_inner")
        if name in type(self).watched and hasattr(inner, name):
            return own(self, name)
        return getattr(inner, name)


class _Build(_Watched):
    """A build part of any family. It answers for only the chosen combination."""

    def get_aliased_input(self, output_index: int) -> int:
        source = self._inner.get_aliased_input(output_index)
        if source >= 0:
            self._watch.aliased[output_index] = source
        return source

    def get_valid_tactics(self) -> list[int]:
        tactics = self._inner.get_valid_tactics()
        chosen = self._watch.chosen
        return [t for t in tactics if t == chosen.tactic] if chosen is not None else list(tactics)

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        size = self._inner.get_workspace_size(inputs, outputs)
        self._watch.workspace = max(self._watch.workspace, size)
        return size

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        chosen = self._watch.chosen
        if chosen is not None and _port(in_out[pos]) != _ports(chosen)[pos]:
            return False
        return self._inner.supports_format_combination(pos, in_out, num_inputs)

    def get_output_data_types(self, input_types: Any, *ranks: Any) -> Any:
        # The combination's types, so that the engine converts no output and the plugin writes to
        # the network's own outputs.
        types = self._inner.get_output_data_types(input_types, *ranks)
        chosen = self._watch.chosen
        return list(chosen.types[-len(types) :]) if chosen is not None and types else types


class _OneBuild(_Build):
    watched: tuple[str, ...] = (
        "get_aliased_input",
        "get_output_data_types",
        "get_valid_tactics",
        "get_workspace_size",
        "supports_format_combination",
    )


class _QuickBuild(_Build, IPluginV3QuickBuild):
    watched: tuple[str, ...] = (
        "get_aliased_input",
        "get_output_data_types",
        "get_supported_format_combinations",
        "get_valid_tactics",
    )

    def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> list[Any]:
        listed = list(self._inner.get_supported_format_combinations(in_out, num_inputs))
        chosen, count = self._watch.chosen, len(in_out)
        if chosen is None:
            return listed
        groups = [listed[i : i + count] for i in range(0, len(listed), count)]
        return next((g for g in groups if [_port(d) for d in g] == _ports(chosen)), [])


class _QuickAOTBuild(_QuickBuild, IPluginV3QuickAOTBuild):
    watched: tuple[str, ...] = (*_QuickBuild.watched, "get_kernel", "set_tactic")

    def set_tactic(self, tactic: int) -> None:
        self._owner.tactic = tactic
        self._inner.set_tactic(tactic)

    def get_kernel(self, inputs: Any, outputs: Any) -> Any:
        self._watch.saw([_port(d) for d in [*inputs, *outputs]], self._owner.tactic)
        return self._inner.get_kernel(inputs, outputs)


class _Runtime(_Watched):
    """A runtime part of any family."""

    watched: tuple[str, ...] = ("attach_to_context", "enqueue", "set_tactic")

    def set_tactic(self, tactic: int) -> None:
        self._owner.tactic = tactic
        self._inner.set_tactic(tactic)

    def attach_to_context(self, resource_context: Any) -> Any:
        if not self._watch.clones:
            return self._owner
        attached = self._inner.attach_to_context(resource_context)
        return self._owner.copied(attached, "attach_to_context")

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any
    ) -> Any:
        watch = self._watch
        descs = [*input_desc, *output_desc]
        shapes = [tuple(d.dims) for d in descs]
        watch.saw([_port(d) for d in descs], self._owner.tactic, [*inputs, *outputs], shapes)
        watch.part = self._inner
        if watch.pretends:
            ports = [(tuple(d.dims), *_port(d), a) for d, a in zip(output_desc, outputs)]
            watch.set_to_zero(ports, rest[-1])
            return None
        before = stored(self._inner)
        watch.meet()
        if watch.workspace:  # only some families have a workspace
            workspace = PaddedMemory(watch.workspace, watch.scratch, watch.outside, watch.device)
            rest = (workspace.address, *rest[1:])
        status = self._inner.enqueue(input_desc, output_desc, inputs, outputs, *rest)
        if watch.workspace:
            workspace.fetch()
        if watch.workspace and workspace.damage():
            watch.damage = f"the workspace: {workspace.damage()}"
        changed = other(before, stored(self._inner))
        if changed:
            advice = "an engine may be stored at any time: computing must not change it"
            watch.changed = f"{changed} after the call; {advice}"
        return status


class _QuickRuntime(_Runtime, IPluginV3QuickRuntime):
    watched: tuple[str, ...] = ("enqueue", "set_tactic")


class WatchedPluginV3:
    """An IPluginV3 of either family."""

    def __init__(self, plugin: Any, watch: Watch, tactic: int = 0):
        self.plugin, self.watch, self.tactic = plugin, watch, tactic

    def copied(self, copy: Any, method: str) -> Any:
        """Checks and wraps the result of a method that must return a clone."""
        if copy is self.plugin:
            self.watch.not_cloned = self.watch.not_cloned or (
                f"{method} returned the plugin itself, so that contexts share what it keeps; it "
                "must return a copy"
            )
        if not hasattr(copy, "get_capability_interface"):
            return copy  # the engine says what it expected
        return WatchedPluginV3(copy, self.watch, self.tactic)

    def clone(self) -> Any:
        if not self.watch.clones:
            return WatchedPluginV3(self.plugin, self.watch, self.tactic)
        return self.copied(self.plugin.clone(), "clone")

    def get_capability_interface(self, type: PluginCapabilityType) -> Any:
        part = self.plugin.get_capability_interface(type)
        if part is None or type == PluginCapabilityType.CORE:
            return part
        if type == PluginCapabilityType.BUILD:
            if isinstance(part, IPluginV3QuickAOTBuild):
                return _QuickAOTBuild(part, self.watch, self)
            quick = isinstance(part, IPluginV3QuickBuild)
            return (_QuickBuild if quick else _OneBuild)(part, self.watch, self)
        if isinstance(part, IPluginV3QuickRuntime):
            return _QuickRuntime(part, self.watch, self)
        if isinstance(part, (IPluginV3QuickCore, IPluginV3QuickBuild)):
            return part  # a plugin with a compiled kernel has no runtime part
        return _Runtime(part, self.watch, self)


class WatchedPluginV2(_Build, _Runtime):
    """An IPluginV2DynamicExt, which is both build and runtime part."""

    tactic = 0
    watched: tuple[str, ...] = (
        "clone",
        "destroy",
        "enqueue",
        "get_output_data_type",
        "get_output_datatype",
        "get_workspace_size",
        "supports_format_combination",
    )

    def __init__(self, plugin: Any, watch: Watch):
        super().__init__(plugin, watch, WatchedPluginV2)

    def clone(self) -> Any:
        if not self._watch.clones:
            return WatchedPluginV2(self._inner, self._watch)
        copy = self._inner.clone()
        if copy is self._inner:
            self._watch.not_cloned = "clone returned the plugin itself; it must return a copy"
        return WatchedPluginV2(copy, self._watch) if hasattr(copy, "enqueue") else copy

    def destroy(self) -> None:
        if self._watch.clones:  # otherwise one plugin stands for all clones
            self._inner.destroy()

    def _output_type(self, method: str, index: int, input_types: Any) -> Any:
        made = getattr(self._inner, method)(index, input_types)
        chosen = self._watch.chosen
        return made if chosen is None else chosen.types[len(input_types) + index]

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        return self._output_type("get_output_datatype", index, input_types)

    def get_output_data_type(self, index: int, input_types: Any) -> Any:
        return self._output_type("get_output_data_type", index, input_types)


class _CreatorV3One(IPluginCreatorV3One):
    def create_plugin(self, *arguments: Any) -> Any:
        return self.make()  # type: ignore[attr-defined]


class _CreatorV3Quick(IPluginCreatorV3Quick):
    def create_plugin(self, *arguments: Any) -> Any:
        return self.make()  # type: ignore[attr-defined]


class _CreatorV2(IPluginCreator):
    def deserialize_plugin(self, *arguments: Any) -> Any:
        return self.make()  # type: ignore[attr-defined]


def stand_in_for(creator: Any, make: Callable[[], Any]) -> Any:
    """A creator of the same name whose plugins `make` makes."""
    families = _CreatorV3One, _CreatorV3Quick, _CreatorV2
    made: Any = next(f for f in families if isinstance(creator, f.__bases__))()
    made.name, made.make = creator.name, make
    made.plugin_version = creator.plugin_version
    made.plugin_namespace = creator.plugin_namespace
    made.field_names = creator.field_names
    return made
