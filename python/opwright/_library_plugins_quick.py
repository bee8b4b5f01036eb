"""Plugins of the Quick family that a C++ library implements, with all methods of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._library_plugins import LibraryPart, LibraryPluginBase
from ._plugin_classes_quick import (
    IPluginV3QuickAOTBuild,
    IPluginV3QuickBuild,
    IPluginV3QuickCore,
    IPluginV3QuickRuntime,
)


class LibraryPluginV3Quick(LibraryPluginBase, IPluginV3QuickCore):
    """The plugin itself and its core part."""

    def get_capability_interface(self, type: _core.PluginCapabilityType) -> Any:
        if type == _core.PluginCapabilityType.CORE:
            return self
        if type == _core.PluginCapabilityType.RUNTIME:
            return LibraryQuickRuntime(self) if self._handle.has_runtime else None
        if self._handle.has_kernel:
            return LibraryQuickAOTBuild(self)
        return LibraryQuickBuild(self) if self._handle.has_build else None


class LibraryQuickBuild(LibraryPart, IPluginV3QuickBuild):
    """The build part."""

    def get_num_outputs(self) -> int:
        return self._plugin._handle.num_outputs

    def get_output_data_types(
        self, input_types: Sequence[_core.DataType], ranks: Sequence[int]
    ) -> list[_core.DataType]:
        return self._plugin._handle.get_output_data_types_of_ranks(input_types, ranks)

    def get_output_shapes(
        self,
        inputs: Sequence[_core.DimsExprs],
        shape_inputs: Sequence[_core.DimsExprs],
        exprBuilder: _core.IExprBuilder,
    ) -> list[_core.DimsExprs]:
        return self._plugin._handle.get_output_shapes(inputs, shape_inputs, exprBuilder)

    def configure_plugin(
        self,
        inputs: Sequence[_core.DynamicPluginTensorDesc],
        outputs: Sequence[_core.DynamicPluginTensorDesc],
    ) -> None:
        self._plugin._handle.configure_plugin(inputs, outputs)

    def get_supported_format_combinations(
        self, in_out: Sequence[_core.DynamicPluginTensorDesc], num_inputs: int
    ) -> list[_core.PluginTensorDesc]:
        return self._plugin._handle.get_supported_format_combinations(in_out, num_inputs)

    def get_aliased_input(self, output_index: int) -> int:
        return self._plugin._handle.get_aliased_input(output_index)

    def get_valid_tactics(self) -> list[int]:
        return self._plugin._handle.get_valid_tactics()

    def get_timing_cache_id(self) -> str | None:
        return self._plugin._handle.timing_cache_id

    def get_metadata_string(self) -> str | None:
        return self._plugin._handle.metadata_string


class LibraryQuickAOTBuild(LibraryQuickBuild, IPluginV3QuickAOTBuild):
    """The build part of a plugin that brings a compiled kernel."""

    def set_tactic(self, tactic: int) -> None:
        self._plugin._handle.set_build_tactic(tactic)

    def get_launch_params(
        self,
        inDimsExprs: Sequence[_core.DimsExprs],
        in_out: Sequence[_core.DynamicPluginTensorDesc],
        num_inputs: int,
        launchParams: _core.KernelLaunchParams,
        symExprSetter: _core.ISymExprs,
        exprBuilder: _core.IExprBuilder,
    ) -> None:
        self._plugin._handle.get_launch_params(
            inDimsExprs, in_out, num_inputs, launchParams, symExprSetter, exprBuilder
        )

    def get_kernel(
        self,
        inputDesc: Sequence[_core.PluginTensorDesc],
        outputDesc: Sequence[_core.PluginTensorDesc],
    ) -> tuple[str, bytes]:
        return self._plugin._handle.get_kernel(inputDesc, outputDesc)


class LibraryQuickRuntime(LibraryPart, IPluginV3QuickRuntime):
    """The runtime part."""

    def set_tactic(self, tactic: int) -> None:
        self._plugin._handle.set_quick_tactic(tactic)

    def enqueue(
        self,
        input_desc: Sequence[_core.PluginTensorDesc],
        output_desc: Sequence[_core.PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        in_strides: Sequence[_core.Dims],
        out_strides: Sequence[_core.Dims],
        stream: int,
    ) -> None:
        self._plugin._handle.enqueue_quick(
            input_desc, output_desc, inputs, outputs, in_strides, out_strides, stream
        )

    def get_fields_to_serialize(self) -> _core.PluginFieldCollection:
        return self._plugin._handle.get_fields_to_serialize()
