"""Base classes of plugins of the Quick family, for layers of decorators.

A plugin derives from IPluginV3 and IPluginV3QuickCore. If the engine calls it, it also derives from
IPluginV3QuickBuild and IPluginV3QuickRuntime. If it has a compiled kernel, it derives from
IPluginV3QuickAOTBuild instead. A creator makes plugins of the requested kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core
from .classes import (
    PARTS,
    InterfaceInfo,
    IPluginCapability,
    IPluginCreatorInterface,
    IPluginV3,
    LibraryCreatorBase,
    _missing,
)

__all__ = [
    "IPluginCreatorV3Quick",
    "IPluginV3QuickAOTBuild",
    "IPluginV3QuickBuild",
    "IPluginV3QuickCore",
    "IPluginV3QuickRuntime",
    "ISymExpr",
]


class IPluginV3QuickCore(IPluginCapability):
    """Identity of a plugin, the same as its creator's."""

    interface_info = InterfaceInfo("PLUGIN_V3QUICK_CORE", 1, 0)

    plugin_name: str = ""
    plugin_version: str = "1"
    plugin_namespace: str = ""


class IPluginV3QuickBuild(IPluginCapability):
    """The build part. Set ``num_outputs``, or define ``get_num_outputs``."""

    interface_info = InterfaceInfo("PLUGIN_V3QUICK_BUILD", 1, 0)

    num_outputs: int

    def get_num_outputs(self) -> int:
        """The number of outputs."""
        return self.num_outputs

    def get_output_data_types(
        self, input_types: Sequence[_core.DataType], ranks: Sequence[int]
    ) -> list[_core.DataType]:
        """The type of each output, for inputs of these types and numbers of axes."""
        _missing(self, "get_output_data_types(self, input_types, ranks)")

    def get_output_shapes(
        self,
        inputs: Sequence[_core.DimsExprs],
        shape_inputs: Sequence[_core.DimsExprs],
        exprBuilder: _core.IExprBuilder,
    ) -> list[_core.DimsExprs]:
        """The extents of each output as expressions."""
        _missing(self, "get_output_shapes(self, inputs, shape_inputs, exprBuilder)")

    def configure_plugin(
        self,
        inputs: Sequence[_core.DynamicPluginTensorDesc],
        outputs: Sequence[_core.DynamicPluginTensorDesc],
    ) -> None:
        """Called with the types and formats of a candidate and the ranges of shapes."""

    def get_supported_format_combinations(
        self, in_out: Sequence[_core.DynamicPluginTensorDesc], num_inputs: int
    ) -> list[_core.PluginTensorDesc]:
        """All combinations of types and formats in one list, a descriptor for each input and output
        of the first combination, then of the second, and so on. Only ``type`` and ``format`` of a
        descriptor count."""
        _missing(self, "get_supported_format_combinations(self, in_out, num_inputs)")

    def get_aliased_input(self, output_index: int) -> int:
        """The input whose memory the output shares; -1 for none."""
        return -1

    def get_valid_tactics(self) -> list[int]:
        """The tactics for the last configuration, as positive numbers; each is timed."""
        return []

    def get_timing_cache_id(self) -> str | None:
        """The same text for plugins that take the same time on the same shapes, types and formats;
        None to be timed each time."""
        return None

    def get_metadata_string(self) -> str | None:
        """Text about the plugin for people."""
        return None


class IPluginV3QuickAOTBuild(IPluginV3QuickBuild):
    """The build part of a plugin with a compiled kernel.

    The kernel's parameters are a pointer for each input, the extra arguments, a pointer for each
    output. Engines store the kernel and run without the plugin.
    """

    interface_info = InterfaceInfo("PLUGIN_V3QUICKAOT_BUILD", 1, 0)

    def set_tactic(self, tactic: int) -> None:
        """Called with the tactic for the methods below; 0 if the plugin has none."""

    def get_launch_params(
        self,
        inDimsExprs: Sequence[_core.DimsExprs],
        in_out: Sequence[_core.DynamicPluginTensorDesc],
        num_inputs: int,
        launchParams: _core.KernelLaunchParams,
        symExprSetter: _core.ISymExprs,
        exprBuilder: _core.IExprBuilder,
    ) -> None:
        """Set the seven properties of ``launchParams`` and the extra arguments, each an ISymExpr
        over the extents of the inputs. ``symExprSetter.nbSymExprs`` is the number of the extra
        arguments, ``symExprSetter[i]`` an argument."""
        _missing(
            self,
            "get_launch_params(self, inDimsExprs, in_out, num_inputs, launchParams, symExprSetter, "
            "exprBuilder)",
        )

    def get_kernel(
        self,
        inputDesc: Sequence[_core.PluginTensorDesc],
        outputDesc: Sequence[_core.PluginTensorDesc],
    ) -> tuple[str, bytes]:
        """Name and code of the kernel."""
        _missing(self, "get_kernel(self, inputDesc, outputDesc)")


class IPluginV3QuickRuntime(IPluginCapability):
    """The runtime part of a plugin that the engine calls."""

    interface_info = InterfaceInfo("PLUGIN_V3QUICK_RUNTIME", 1, 0)

    def set_tactic(self, tactic: int) -> None:
        """Called with the tactic for ``enqueue``; 0 if the plugin has none."""

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
        """Compute. Pointers are integers, strides are in elements; on the CPU the work is done on
        return and stream is 0."""
        _missing(
            self,
            "enqueue(self, input_desc, output_desc, inputs, outputs, in_strides, out_strides, "
            "stream)",
        )

    def get_fields_to_serialize(self) -> _core.PluginFieldCollection:
        """The fields from which the creator makes the plugin when an engine is loaded."""
        return _core.PluginFieldCollection()


PARTS[_core.PluginCapabilityType.CORE] += (IPluginV3QuickCore,)
PARTS[_core.PluginCapabilityType.BUILD] += (IPluginV3QuickBuild,)
PARTS[_core.PluginCapabilityType.RUNTIME] += (IPluginV3QuickRuntime,)


class IPluginCreatorV3Quick(IPluginCreatorInterface):
    """Makes plugins of the Quick family; register an instance with
    ``get_plugin_registry().register_creator``."""

    interface_info = InterfaceInfo("PLUGIN CREATOR_V3QUICK", 1, 0)

    #: None: not set.
    name: str | None = None
    plugin_version: str = "1"
    plugin_namespace: str = ""
    field_names: Any = None

    def create_plugin(
        self,
        name: str,
        namespace: str,
        field_collection: _core.PluginFieldCollection,
        phase: _core.TensorRTPhase,
        quickPluginType: _core.QuickPluginCreationRequest,
    ) -> IPluginV3 | None:
        """A plugin from the user's or an engine's fields; None refuses.

        ``name`` and ``namespace`` are the plugin's, so one class can make many plugins.
        """
        _missing(
            self, "create_plugin(self, name, namespace, field_collection, phase, quickPluginType)"
        )


class ISymExpr:
    """A scalar of a compiled kernel's launch: ``expr`` is the IDimensionExpr, ``dtype`` its size as
    an argument."""

    type: _core.PluginArgType = _core.PluginArgType.INT
    dtype: _core.PluginArgDataType = _core.PluginArgDataType.INT32
    #: None: not set.
    expr: _core.IDimensionExpr | None = None


class LibraryCreatorV3Quick(LibraryCreatorBase, IPluginCreatorV3Quick):
    """A creator of plugins of the Quick family that a C++ library implements."""

    def create_plugin(
        self,
        name: str,
        namespace: str,
        field_collection: _core.PluginFieldCollection,
        phase: _core.TensorRTPhase,
        quickPluginType: _core.QuickPluginCreationRequest = (
            _core.QuickPluginCreationRequest.UNKNOWN
        ),
    ) -> IPluginV3:
        return self._handle.create_plugin(name, field_collection, phase, namespace, quickPluginType)
