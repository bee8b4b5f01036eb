"""Plugins that a C++ library implements, with all methods of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._plugin_classes import (
    APILanguage,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
)


class LibraryPluginBase(IPluginV3):
    """A plugin of either family, One or Quick, with what its core part says."""

    api_language = APILanguage.CPP

    def __init__(self, handle: Any):
        self._handle = handle
        self.plugin_name = handle.name
        self.plugin_version = handle.version
        self.plugin_namespace = handle.namespace

    def clone(self) -> Any:
        return type(self)(self._handle.clone())


class LibraryPart:
    """A part of a plugin; keeps it alive."""

    api_language = APILanguage.CPP

    def __init__(self, plugin: Any):
        self._plugin = plugin


class LibraryPlugin(LibraryPluginBase, IPluginV3OneCore):
    """The plugin itself and its core part."""

    def get_capability_interface(self, type: _core.PluginCapabilityType) -> Any:
        if type == _core.PluginCapabilityType.CORE:
            return self
        if type == _core.PluginCapabilityType.RUNTIME:
            return LibraryRuntime(self)
        if not self._handle.has_build:
            return None
        return LibraryBuildV2(self) if self._handle.build_version >= 2 else LibraryBuild(self)


class LibraryBuild(LibraryPart, IPluginV3OneBuild):
    """The build part."""

    def __init__(self, plugin: LibraryPlugin):
        super().__init__(plugin)
        handle = plugin._handle
        self.num_outputs = handle.num_outputs
        self.format_combination_limit = handle.format_combination_limit
        self.metadata_string = handle.metadata_string
        self.timing_cache_id = handle.timing_cache_id

    def configure_plugin(
        self,
        in_: Sequence[_core.DynamicPluginTensorDesc],
        out: Sequence[_core.DynamicPluginTensorDesc],
    ) -> None:
        self._plugin._handle.configure_plugin(in_, out)

    def get_output_data_types(self, input_types: Sequence[_core.DataType]) -> list[_core.DataType]:
        return self._plugin._handle.get_output_data_types(input_types)

    def get_output_shapes(
        self,
        inputs: Sequence[_core.DimsExprs],
        shape_inputs: Sequence[_core.DimsExprs],
        expr_builder: _core.IExprBuilder,
    ) -> list[_core.DimsExprs]:
        return self._plugin._handle.get_output_shapes(inputs, shape_inputs, expr_builder)

    def get_workspace_size(
        self,
        in_: Sequence[_core.DynamicPluginTensorDesc],
        out: Sequence[_core.DynamicPluginTensorDesc],
    ) -> int:
        return self._plugin._handle.get_workspace_size(in_, out)

    def supports_format_combination(
        self, pos: int, in_out: Sequence[_core.DynamicPluginTensorDesc], num_inputs: int
    ) -> bool:
        return self._plugin._handle.supports_format_combination(pos, in_out, num_inputs)

    def get_valid_tactics(self) -> list[int]:
        return self._plugin._handle.get_valid_tactics()


class LibraryBuildV2(LibraryBuild, IPluginV3OneBuildV2):
    """The build part of a plugin whose outputs may be aliased to inputs."""

    def get_aliased_input(self, output_index: int) -> int:
        return self._plugin._handle.get_aliased_input(output_index)


class LibraryRuntime(LibraryPart, IPluginV3OneRuntime):
    """The runtime part."""

    def set_tactic(self, tactic: int) -> None:
        self._plugin._handle.set_tactic(tactic)

    def on_shape_change(
        self, in_: Sequence[_core.PluginTensorDesc], out: Sequence[_core.PluginTensorDesc]
    ) -> None:
        self._plugin._handle.on_shape_change(in_, out)

    def enqueue(
        self,
        input_desc: Sequence[_core.PluginTensorDesc],
        output_desc: Sequence[_core.PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        self._plugin._handle.enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)

    def get_fields_to_serialize(self) -> _core.PluginFieldCollection:
        return self._plugin._handle.get_fields_to_serialize()

    def attach_to_context(self, resource_context: _core.IPluginResourceContext) -> LibraryPlugin:
        attached = self._plugin._handle.attach_to_context(resource_context)
        return LibraryPlugin(attached) if attached is not None else self._plugin
