"""Plugins that a C++ library implements, with all methods of their parts."""

from __future__ import annotations

from typing import Any

from .. import _core
from .classes import (
    APILanguage,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
)
from .forwarding import forwards


class LibraryPluginBase(IPluginV3):
    """A plugin of either family, One or Quick, with the attributes of its core part."""

    api_language = APILanguage.CPP

    def __init__(self, handle: Any):
        self._handle = handle
        self.plugin_name = handle.name
        self.plugin_version = handle.version
        self.plugin_namespace = handle.namespace

    def clone(self) -> Any:
        return type(self)(self._handle.clone())


class LibraryPart:
    """A part of a plugin. It keeps the plugin alive."""

    api_language = APILanguage.CPP

    def __init__(self, plugin: Any):
        self._plugin = plugin
        self._handle = plugin._handle


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


@forwards(IPluginV3OneBuild)
class LibraryBuild(LibraryPart, IPluginV3OneBuild):
    """The build part."""

    def __init__(self, plugin: LibraryPlugin):
        super().__init__(plugin)
        handle = plugin._handle
        self.num_outputs = handle.num_outputs
        self.format_combination_limit = handle.format_combination_limit
        self.metadata_string = handle.metadata_string
        self.timing_cache_id = handle.timing_cache_id


@forwards(IPluginV3OneBuildV2)
class LibraryBuildV2(LibraryBuild, IPluginV3OneBuildV2):
    """The build part of a plugin whose outputs may be aliased to inputs."""


@forwards(IPluginV3OneRuntime)
class LibraryRuntime(LibraryPart, IPluginV3OneRuntime):
    """The runtime part."""

    def attach_to_context(self, resource_context: _core.IPluginResourceContext) -> LibraryPlugin:
        attached = self._handle.attach_to_context(resource_context)
        return LibraryPlugin(attached) if attached is not None else self._plugin
