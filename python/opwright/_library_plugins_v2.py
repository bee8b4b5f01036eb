"""V2 plugins and creators that a C++ library implements, with all their methods."""

from __future__ import annotations

from collections.abc import Sequence

from . import _core
from ._plugin_classes import APILanguage
from ._plugin_classes_v2 import IPluginCreator, IPluginV2, IPluginV2DynamicExt
from ._runtime_classes import IGpuAllocator


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

    def serialize(self) -> bytes:
        return self._handle.serialize()

    def initialize(self) -> int:
        return self._handle.initialize()

    def terminate(self) -> None:
        self._handle.terminate()

    def destroy(self) -> None:
        self._handle.destroy()

    def clone(self) -> LibraryPluginV2:
        return LibraryPluginV2(self._handle.clone())

    def attach_to_context(self, cudnn: int, cublas: int, allocator: IGpuAllocator | None) -> None:
        self._handle.attach_to_context(cudnn, cublas, allocator)

    def detach_from_context(self) -> None:
        self._handle.detach_from_context()

    def get_output_datatype(
        self, index: int, input_types: Sequence[_core.DataType]
    ) -> _core.DataType:
        return self._handle.get_output_datatype(index, input_types)

    get_output_data_type = get_output_datatype

    def get_output_dimensions(
        self,
        output_index: int,
        inputs: Sequence[_core.DimsExprs],
        expr_builder: _core.IExprBuilder,
    ) -> _core.DimsExprs:
        return self._handle.get_output_dimensions(output_index, inputs, expr_builder)

    def supports_format_combination(
        self, pos: int, in_out: Sequence[_core.PluginTensorDesc], num_inputs: int
    ) -> bool:
        return self._handle.supports_format_combination(pos, in_out, num_inputs)

    def configure_plugin(
        self,
        in_: Sequence[_core.DynamicPluginTensorDesc],
        out: Sequence[_core.DynamicPluginTensorDesc],
    ) -> None:
        self._handle.configure_plugin(in_, out)

    def get_workspace_size(  # type: ignore[override]
        self, in_: Sequence[_core.PluginTensorDesc], out: Sequence[_core.PluginTensorDesc]
    ) -> int:
        return self._handle.get_workspace_size(in_, out)

    def enqueue(
        self,
        input_desc: Sequence[_core.PluginTensorDesc],
        output_desc: Sequence[_core.PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        self._handle.enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)


class LibraryCreatorV2(IPluginCreator):
    """A creator of V2 plugins that C++ implements."""

    api_language = APILanguage.CPP

    def __init__(self, handle: _core._V2CreatorHandle):
        self._handle = handle
        self.name = handle.name
        self.plugin_version = handle.version
        self.plugin_namespace = handle.namespace

    @property
    def field_names(self) -> _core.PluginFieldCollection:  # type: ignore[override]
        return self._handle.field_names

    def create_plugin(self, name: str, field_collection: _core.PluginFieldCollection) -> IPluginV2:
        return self._handle.create_plugin(name, field_collection)

    def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> IPluginV2:
        return self._handle.deserialize_plugin(name, serialized_plugin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LibraryCreatorV2) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash((self.name, self.plugin_version, self.plugin_namespace))

    def __repr__(self) -> str:
        return (
            f"<plugin creator {self.plugin_namespace}::{self.name} version {self.plugin_version}>"
        )
