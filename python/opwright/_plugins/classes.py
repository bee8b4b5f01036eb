"""Base classes of plugins and creators that Python implements.

They list the methods to define and hold no state. So one class may derive from several of them, as
in plugins for TensorRT. The engine calls a plugin's methods by name.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from .. import _core
from .forwarding import forwards

__all__ = [
    "APILanguage",
    "IPluginCapability",
    "IPluginCreatorInterface",
    "IPluginCreatorV3One",
    "IPluginV3",
    "IPluginV3OneBuild",
    "IPluginV3OneBuildV2",
    "IPluginV3OneCore",
    "IPluginV3OneRuntime",
    "IVersionedInterface",
    "InterfaceInfo",
]


def _missing(self: object, method: str) -> NoReturn:
    raise NotImplementedError(f"plugin class {type(self).__name__} must define {method}")


class APILanguage(enum.IntEnum):
    """The language in which an interface is implemented."""

    CPP = 0
    PYTHON = 1


class InterfaceInfo(NamedTuple):
    """The interface that a class implements, and its version."""

    kind: str
    major: int
    minor: int


class IVersionedInterface:
    """Base of all classes below. A class with several bases has the first one's interface."""

    api_language = APILanguage.PYTHON
    interface_info = InterfaceInfo("", 1, 0)


class IPluginCapability(IVersionedInterface):
    """Base of a plugin's parts."""


class IPluginV3(IVersionedInterface):
    """A plugin made of parts: core, build and runtime, often all one class.

    A class that is all parts inherits ``get_capability_interface`` unchanged.
    """

    interface_info = InterfaceInfo("PLUGIN", 1, 0)

    def get_capability_interface(self, type: _core.PluginCapabilityType) -> Any:
        """The requested part; None if the plugin lacks it."""
        return self if isinstance(self, PARTS[type]) else None

    def clone(self) -> IPluginV3:
        """A plugin with the same state."""
        _missing(self, "clone(self)")

    def destroy(self) -> None:
        """Nothing: Python frees the plugin."""


class IPluginV3OneCore(IPluginCapability):
    """Identity of a plugin, the same as its creator's."""

    interface_info = InterfaceInfo("PLUGIN_V3ONE_CORE", 1, 0)

    plugin_name: str = ""
    plugin_version: str = "1"
    plugin_namespace: str = ""


class IPluginV3OneBuild(IPluginCapability):
    """The build part. Set ``num_outputs`` in the constructor or as a class attribute.

    ``timing_cache_id`` is the same for two plugins that take the same time on the same shapes,
    types and formats; None to be timed each time.
    """

    interface_info = InterfaceInfo("PLUGIN_V3ONE_BUILD", 1, 0)

    DEFAULT_FORMAT_COMBINATION_LIMIT = 100
    #: -1: not set.
    num_outputs: int = -1
    format_combination_limit: int = DEFAULT_FORMAT_COMBINATION_LIMIT
    metadata_string: str | None = None
    timing_cache_id: str | None = None

    def configure_plugin(
        self,
        in_: Sequence[_core.DynamicPluginTensorDesc],
        out: Sequence[_core.DynamicPluginTensorDesc],
    ) -> None:
        """Called with the types and formats of a candidate and the ranges of shapes."""

    def get_output_data_types(self, input_types: Sequence[_core.DataType]) -> list[_core.DataType]:
        """The type of each output."""
        _missing(self, "get_output_data_types(self, input_types)")

    def get_output_shapes(
        self,
        inputs: Sequence[_core.DimsExprs],
        shape_inputs: Sequence[_core.DimsExprs],
        expr_builder: _core.IExprBuilder,
    ) -> list[_core.DimsExprs]:
        """The extents of each output as expressions."""
        _missing(self, "get_output_shapes(self, inputs, shape_inputs, expr_builder)")

    def get_workspace_size(
        self,
        in_: Sequence[_core.DynamicPluginTensorDesc],
        out: Sequence[_core.DynamicPluginTensorDesc],
    ) -> int:
        """Bytes of workspace that suffice for all shapes up to the descriptors' maximum."""
        return 0

    def supports_format_combination(
        self, pos: int, in_out: Sequence[_core.DynamicPluginTensorDesc], num_inputs: int
    ) -> bool:
        """Whether the plugin supports ``in_out[pos].desc`` together with the entries before it."""
        _missing(self, "supports_format_combination(self, pos, in_out, num_inputs)")

    def get_valid_tactics(self) -> list[int]:
        """The tactics for the last configuration, as positive numbers; each is timed."""
        return []


class IPluginV3OneBuildV2(IPluginV3OneBuild):
    """Adds outputs that share the memory of an input."""

    interface_info = InterfaceInfo("PLUGIN_V3ONE_BUILD", 2, 0)

    def get_aliased_input(self, output_index: int) -> int:
        """The input whose memory the output shares; -1 for none."""
        return -1


class IPluginV3OneRuntime(IPluginCapability):
    """The runtime part."""

    interface_info = InterfaceInfo("PLUGIN_V3ONE_RUNTIME", 1, 0)

    def set_tactic(self, tactic: int) -> None:
        """Called with the tactic for ``enqueue``; 0 if the plugin has none."""

    def on_shape_change(
        self, in_: Sequence[_core.PluginTensorDesc], out: Sequence[_core.PluginTensorDesc]
    ) -> None:
        """Called with the shapes of the next runs."""

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

    def attach_to_context(self, resource_context: _core.IPluginResourceContext) -> Any:
        """A clone of the whole plugin for an execution context."""
        return self.clone()  # type: ignore[attr-defined]

    def get_fields_to_serialize(self) -> _core.PluginFieldCollection:
        """The fields from which the creator makes the plugin when an engine is loaded."""
        return _core.PluginFieldCollection()


# The classes that make up each part, of every family of V3 plugins.
PARTS: dict[_core.PluginCapabilityType, tuple[type, ...]] = {
    _core.PluginCapabilityType.CORE: (IPluginV3OneCore,),
    _core.PluginCapabilityType.BUILD: (IPluginV3OneBuild,),
    _core.PluginCapabilityType.RUNTIME: (IPluginV3OneRuntime,),
}


class IPluginCreatorInterface(IVersionedInterface):
    """Base of creators."""


class IPluginCreatorV3One(IPluginCreatorInterface):
    """Makes plugins; register an instance with ``get_plugin_registry().register_creator``."""

    interface_info = InterfaceInfo("PLUGIN CREATOR_V3ONE", 1, 0)

    #: None: not set.
    name: str | None = None
    plugin_version: str = "1"
    plugin_namespace: str = ""
    field_names: Any = None

    def create_plugin(
        self, name: str, field_collection: _core.PluginFieldCollection, phase: _core.TensorRTPhase
    ) -> IPluginV3 | None:
        """A plugin from the user's or an engine's fields; None refuses."""
        _missing(self, "create_plugin(self, name, field_collection, phase)")


class LibraryCreatorBase(IPluginCreatorInterface):
    """A creator that a C++ library implements."""

    api_language = APILanguage.CPP

    name: str | None
    plugin_version: str
    plugin_namespace: str

    def __init__(self, handle: _core._CreatorHandle | _core._V2CreatorHandle):
        self._handle = handle
        self.name = handle.name
        self.plugin_version = handle.version
        self.plugin_namespace = handle.namespace

    @property
    def field_names(self) -> _core.PluginFieldCollection:
        return self._handle.field_names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LibraryCreatorBase) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash((self.name, self.plugin_version, self.plugin_namespace))

    def __repr__(self) -> str:
        return (
            f"<plugin creator {self.plugin_namespace}::{self.name} version {self.plugin_version}>"
        )


@forwards(IPluginCreatorV3One)
class LibraryCreator(LibraryCreatorBase, IPluginCreatorV3One):
    """A creator of plugins of the One family that a C++ library implements."""
