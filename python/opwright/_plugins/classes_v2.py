"""Base classes of V2 plugins and their creators that Python implements.

They list the methods to define and hold no state, as for V3 plugins. The engine calls a plugin's
methods by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core
from .._runtime_classes import IGpuAllocator
from .classes import InterfaceInfo, IPluginCreatorInterface, _missing

__all__ = [
    "IPluginCreator",
    "IPluginV2",
    "IPluginV2DynamicExt",
    "IPluginV2DynamicExtBase",
    "IPluginV2Ext",
]


class IPluginV2:
    """The base of all V2 plugins. Python plugins are an :class:`IPluginV2DynamicExt`; C++ also has
    :class:`IPluginV2Ext` for fixed shapes.

    Set ``num_outputs``, ``plugin_type`` and the rest in the constructor or as class attributes.
    """

    #: -1: not set.
    num_outputs: int = -1
    plugin_type: str = ""
    plugin_version: str = "1"
    plugin_namespace: str = ""

    @property
    def tensorrt_version(self) -> int:
        """The API level of the plugin, as TensorRT counts it."""
        return _core._TENSORRT_VERSION

    def get_output_shape(self, index: int, input_shapes: Sequence[Any]) -> tuple[int, ...]:
        """The extents of output ``index`` for inputs of these shapes."""
        _missing(self, "get_output_shape(self, index, input_shapes)")

    def supports_format(self, dtype: _core.DataType, format: _core.TensorFormat) -> bool:
        """Whether all inputs and outputs can have the type and format."""
        _missing(self, "supports_format(self, dtype, format)")

    def configure_with_format(
        self,
        input_shapes: Sequence[Any],
        output_shapes: Sequence[Any],
        dtype: _core.DataType,
        format: _core.TensorFormat,
        max_batch_size: int,
    ) -> None:
        """Called with shapes, type and format."""

    def get_workspace_size(self, max_batch_size: int) -> int:
        """Bytes of workspace."""
        return 0

    def execute_async(
        self,
        batch_size: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream_handle: int,
    ) -> int:
        """Compute; 0 is success."""
        _missing(self, "execute_async(self, batch_size, inputs, outputs, workspace, stream_handle)")

    def initialize(self) -> int | None:
        """Called once when an engine is made or loaded. A status other than None or 0 is a
        failure."""
        return None

    def terminate(self) -> None:
        """Undo :meth:`initialize`."""

    @property
    def serialization_size(self) -> int:
        """The number of bytes that :meth:`serialize` returns."""
        return len(self.serialize())

    def serialize(self) -> bytes:
        """The bytes from which the creator's ``deserialize_plugin`` makes the plugin."""
        _missing(self, "serialize(self)")

    def destroy(self) -> None:
        """Called when the network, builder or engine that owned the plugin ends."""

    def clone(self) -> Any:
        """A plugin with the same state; initialized if this one is."""
        _missing(self, "clone(self)")


class IPluginV2Ext(IPluginV2):
    """Adds output types and attachment to a context."""

    def get_output_data_type(
        self, index: int, input_types: Sequence[_core.DataType]
    ) -> _core.DataType:
        """The type of output ``index``."""
        _missing(self, "get_output_data_type(self, index, input_types)")

    def configure_plugin(
        self,
        input_shapes: Sequence[Any],
        output_shapes: Sequence[Any],
        input_types: Sequence[_core.DataType],
        output_types: Sequence[_core.DataType],
        input_is_broadcasted: Sequence[bool],
        output_is_broacasted: Sequence[bool],
        format: _core.TensorFormat,
        max_batch_size: int,
    ) -> None:
        """Called with shapes, types and format."""

    def attach_to_context(self, cudnn: int, cublas: int, allocator: IGpuAllocator | None) -> None:
        """Hear that an execution context takes the plugin into use.

        The handles are addresses; 0 where cuDNN or cuBLAS is not installed, and on the CPU. They
        are the context's, on the default stream, until :meth:`detach_from_context`; so is what
        ``allocator`` gives, memory of the device.
        """

    def detach_from_context(self) -> None:
        """Undo :meth:`attach_to_context`."""


class IPluginV2DynamicExtBase(IPluginV2):
    """The methods of fixed shapes, which dynamic ones replace; they answer as in TensorRT."""

    def get_output_shape(self, index: int, input_shapes: Sequence[Any]) -> tuple[int, ...]:
        """The extents of output ``index`` for inputs of these shapes."""
        return _core._plugin_v2_output_shape(self, index, input_shapes)

    def supports_format(self, dtype: _core.DataType, format: _core.TensorFormat) -> bool:
        """False: :meth:`IPluginV2DynamicExt.supports_format_combination` replaces this method."""
        return False

    def execute_async(
        self,
        batch_size: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream_handle: int,
    ) -> int:
        """1, a failure: :meth:`IPluginV2DynamicExt.enqueue` computes."""
        return 1


class IPluginV2DynamicExt(IPluginV2DynamicExtBase):
    """A plugin with dynamic shapes."""

    FORMAT_COMBINATION_LIMIT = 100

    def get_output_datatype(
        self, index: int, input_types: Sequence[_core.DataType]
    ) -> _core.DataType:
        """The type of output ``index``; ``get_output_data_type`` may be defined instead."""
        _missing(self, "get_output_datatype(self, index, input_types)")

    def get_output_dimensions(
        self,
        output_index: int,
        inputs: Sequence[_core.DimsExprs],
        expr_builder: _core.IExprBuilder,
    ) -> _core.DimsExprs:
        """The extents of output ``output_index`` as expressions."""
        _missing(self, "get_output_dimensions(self, output_index, inputs, expr_builder)")

    def supports_format_combination(
        self, pos: int, in_out: Sequence[_core.PluginTensorDesc], num_inputs: int
    ) -> bool:
        """Whether the plugin supports ``in_out[pos]`` together with the entries before it."""
        _missing(self, "supports_format_combination(self, pos, in_out, num_inputs)")

    def configure_plugin(
        self,
        in_: Sequence[_core.DynamicPluginTensorDesc],
        out: Sequence[_core.DynamicPluginTensorDesc],
    ) -> None:
        """Called with types, formats and shapes: during a build with the profile's, before a run
        with the run's."""

    def get_workspace_size(  # type: ignore[override]
        self, in_: Sequence[_core.PluginTensorDesc], out: Sequence[_core.PluginTensorDesc]
    ) -> int:
        """Bytes of workspace that suffice for these shapes and all smaller ones."""
        return 0

    def enqueue(
        self,
        input_desc: Sequence[_core.PluginTensorDesc],
        output_desc: Sequence[_core.PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        """Compute. Pointers are integers. On the CPU the work is done on return, and stream is
        0."""
        _missing(self, "enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream)")

    def get_serialization_size(self) -> int:
        """The number of bytes that :meth:`serialize` returns."""
        return len(self.serialize())

    def attach_to_context(self, cudnn: int, cublas: int, allocator: IGpuAllocator | None) -> None:
        """Hear that an execution context takes the plugin into use.

        The handles are addresses; 0 where cuDNN or cuBLAS is not installed, and on the CPU. They
        are the context's, on the default stream, until :meth:`detach_from_context`; so is what
        ``allocator`` gives, memory of the device.
        """

    def detach_from_context(self) -> None:
        """Undo :meth:`attach_to_context`."""


class IPluginCreator(IPluginCreatorInterface):
    """Makes V2 plugins; register an instance with ``get_plugin_registry().register_creator``."""

    interface_info = InterfaceInfo("PLUGIN CREATOR_V1", 1, 0)

    #: None: not set.
    name: str | None = None
    plugin_version: str = "1"
    plugin_namespace: str = ""
    field_names: Any = None

    def create_plugin(
        self, name: str, field_collection: _core.PluginFieldCollection
    ) -> IPluginV2 | None:
        """A plugin from the fields that the user gave; None refuses."""
        _missing(self, "create_plugin(self, name, field_collection)")

    def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> IPluginV2 | None:
        """A plugin from the bytes that its ``serialize`` returned; None refuses."""
        _missing(self, "deserialize_plugin(self, name, serialized_plugin)")
