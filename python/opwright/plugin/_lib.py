"""Names that programs which generate plugins look up in ``tensorrt.plugin._lib``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# Imports use full names, since this module is loaded again as `tensorrt.plugin._lib`.
from opwright.plugin import aot_impl, autotune, impl, op, register
from opwright.plugin._decorators import plugins
from opwright.plugin._op import PluginOp as PluginDef

__all__ = ["QDP_REGISTRY", "PluginDef", "aot_impl", "autotune", "impl", "op", "register"]


class _Plugins(Mapping[str, PluginDef]):
    """All plugins by their ids, as they are registered."""

    def __getitem__(self, plugin_id: str) -> PluginDef:
        if plugin_id not in plugins:
            raise KeyError(plugin_id)
        return PluginDef(plugin_id)

    def __iter__(self) -> Iterator[str]:
        return iter(list(plugins))

    def __len__(self) -> int:
        return len(plugins)


QDP_REGISTRY = _Plugins()
"""All function plugins: ``"namespace::name"`` to the same objects as in `op`."""
