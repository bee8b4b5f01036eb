"""V2 plugins and creators that a C++ library implements, with all their methods."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _core
from .classes import LibraryCreatorBase
from .classes_v2 import IPluginCreator, IPluginV2, IPluginV2DynamicExt
from .forwarding import forwards


@forwards(IPluginV2, "destroy", "initialize", "serialize", "terminate")
@forwards(IPluginV2DynamicExt)
class LibraryPluginV2(IPluginV2DynamicExt):
    """A plugin that C++ implements; :meth:`destroy` ends it, else the garbage collector does."""

    def __init__(self, handle: _core._V2PluginHandle):
        self._handle = handle
        self.plugin_type = handle.plugin_type
        self.plugin_version = handle.plugin_version
        self.num_outputs = handle.num_outputs

    @property
    def plugin_namespace(self) -> str:  # type: ignore[override]
        return self._handle.plugin_namespace

    @plugin_namespace.setter
    def plugin_namespace(self, value: str) -> None:
        self._handle.plugin_namespace = value

    @property
    def tensorrt_version(self) -> int:
        return self._handle.tensorrt_version

    @property
    def serialization_size(self) -> int:
        return self._handle.serialization_size

    def get_serialization_size(self) -> int:
        return self._handle.serialization_size

    def clone(self) -> LibraryPluginV2:
        return LibraryPluginV2(self._handle.clone())

    def get_output_data_type(
        self, index: int, input_types: Sequence[_core.DataType]
    ) -> _core.DataType:
        return self.get_output_datatype(index, input_types)


@forwards(IPluginCreator)
class LibraryCreatorV2(LibraryCreatorBase, IPluginCreator):
    """A creator of V2 plugins that C++ implements."""
