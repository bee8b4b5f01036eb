"""Plugins of the Quick family that a C++ library implements, with all methods of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core
from .classes_quick import (
    IPluginV3QuickAOTBuild,
    IPluginV3QuickBuild,
    IPluginV3QuickCore,
    IPluginV3QuickRuntime,
)
from .forwarding import forwards
from .library import LibraryPart, LibraryPluginBase


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


@forwards(IPluginV3QuickBuild)
class LibraryQuickBuild(LibraryPart, IPluginV3QuickBuild):
    """The build part."""

    def get_num_outputs(self) -> int:
        return self._handle.num_outputs

    def get_output_data_types(
        self, input_types: Sequence[_core.DataType], ranks: Sequence[int]
    ) -> list[_core.DataType]:
        return self._handle.get_output_data_types_of_ranks(input_types, ranks)

    def get_timing_cache_id(self) -> str | None:
        return self._handle.timing_cache_id

    def get_metadata_string(self) -> str | None:
        return self._handle.metadata_string


@forwards(IPluginV3QuickAOTBuild)
class LibraryQuickAOTBuild(LibraryQuickBuild, IPluginV3QuickAOTBuild):
    """The build part of a plugin with a compiled kernel."""

    def set_tactic(self, tactic: int) -> None:
        self._handle.set_build_tactic(tactic)


@forwards(IPluginV3QuickRuntime)
class LibraryQuickRuntime(LibraryPart, IPluginV3QuickRuntime):
    """The runtime part."""

    def set_tactic(self, tactic: int) -> None:
        self._handle.set_quick_tactic(tactic)

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
        self._handle.enqueue_quick(
            input_desc, output_desc, inputs, outputs, in_strides, out_strides, stream
        )
