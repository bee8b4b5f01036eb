"""`op.namespace.name(tensors..., attribute=value...)`: plugins with their inputs and attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .._core import ITensor
from .._core._plugin import ParameterKind, PluginCall
from ._attributes import listing
from ._decorators import Plugin, plugins


def fields_of(plugin: Plugin, attributes: dict[str, Any]) -> list[Any]:
    """The fields that the engine stores for these attributes and the default values of the
    others."""
    registered = plugin.signature.attributes
    known = listing(registered)
    for name in attributes:
        if name not in [attribute.name for attribute in registered]:
            raise TypeError(
                f"plugin '{plugin.id}' has no attribute '{name}'; its attributes are: {known}"
            )
    fields = []
    for attribute in registered:
        value = attributes.get(attribute.name, attribute.default)
        if value is inspect.Parameter.empty:
            raise TypeError(
                f"plugin '{plugin.id}': attribute '{attribute.name}' is missing; its attributes "
                f"are: {known}"
            )
        fields.append(attribute.field(plugin.id, value))
    return fields


def _tensors(
    plugin: Plugin, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[list[ITensor | None], tuple[Any, ...]]:
    """The tensors, with None for absent ones, and the positional arguments behind them. Removes
    tensors given by keyword from `keywords`."""
    came = [type(value).__name__ for value in args]
    came += [
        f"{n}: {type(keywords[n]).__name__}" for n in plugin.signature.tensors if n in keywords
    ]
    tensors: list[ITensor | None] = []
    rest = args
    for name, kind in plugin.signature.tensors.items():
        if kind is ParameterKind.TENSORS:
            given, rest = rest, ()
        elif rest:
            if name in keywords:
                raise TypeError(f"plugin '{plugin.id}': tensor '{name}' was given twice")
            given, rest = rest[:1], rest[1:]
        elif name in keywords:
            given = (keywords.pop(name),)
        else:
            given = (None,)
        may_be_absent = kind is ParameterKind.OPTIONAL_TENSOR
        if not all(isinstance(t, ITensor) or (t is None and may_be_absent) for t in given):
            listed = ", ".join(_shown(*entry) for entry in plugin.signature.tensors.items())
            raise TypeError(
                f"plugin '{plugin.id}' takes {len(plugin.signature.tensors)} network tensors "
                f"({listed}) first; {', '.join(came) or 'nothing'} came"
            )
        tensors.extend(given)
    return tensors, rest


def _shown(tensor: str, kind: ParameterKind) -> str:
    if kind is ParameterKind.OPTIONAL_TENSOR:
        return f"{tensor}=None"
    return f"*{tensor}" if kind is ParameterKind.TENSORS else tensor


class PluginOp:
    """One plugin. Calling it gives the argument of ``network.add_plugin``. Its parts have
    TensorRT's names, for programs that generate plugins."""

    def __init__(self, plugin_id: str):
        self._id = plugin_id

    @property
    def id(self) -> str:
        """``"namespace::name"``"""
        return self._id

    @property
    def plugin_id(self) -> str:
        """The same as `id`."""
        return self._id

    @property
    def input_tensor_names(self) -> list[str]:
        """The names of the tensors, in order."""
        return list(plugins[self._id].signature.tensors)

    @property
    def input_attrs(self) -> dict[str, Any]:
        """The attributes' names, in order, with the hints that `register` saw."""
        return {a.name: a.hint for a in plugins[self._id].signature.attributes}

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return plugins[self._id].signature.num_outputs

    @property
    def register_func(self) -> Callable[..., Any] | None:
        """The function that `register` decorated."""
        return self._function("register")

    @property
    def impl_func(self) -> Callable[..., Any] | None:
        """The function that `impl` decorated last, or None."""
        return self._function("impl")

    @property
    def aot_impl_func(self) -> Callable[..., Any] | None:
        """The function that `aot_impl` decorated last, or None."""
        return self._function("aot_impl")

    @property
    def autotune_func(self) -> Callable[..., Any] | None:
        """The function that `autotune` decorated, or None."""
        return self._function("autotune")

    @property
    def impl_attr_names(self) -> list[str] | None:
        """The attributes that `impl_func` takes; None without such a function."""
        return self._attributes("impl")

    @property
    def aot_impl_attr_names(self) -> list[str] | None:
        """The attributes that `aot_impl_func` takes; None without such a function."""
        return self._attributes("aot_impl")

    @property
    def autotune_attr_names(self) -> list[str] | None:
        """The attributes that `autotune_func` takes; None without such a function."""
        return self._attributes("autotune")

    @property
    def expects_tactic(self) -> bool | None:
        """Whether `impl_func` takes a tactic; None without such a function."""
        written = plugins[self._id].written.get("impl")
        return None if written is None else written.wants_tactic

    def _function(self, kind: str) -> Callable[..., Any] | None:
        written = plugins[self._id].written.get(kind)
        return None if written is None else written.function

    def _attributes(self, kind: str) -> list[str] | None:
        written = plugins[self._id].written.get(kind)
        return None if written is None else written.attributes

    def __call__(self, *args: Any, **attributes: Any) -> PluginCall:
        # Looks the plugin up at each call, so that a repeated registration counts.
        plugin = plugins[self._id]
        signature = plugin.signature
        tensors, positional = _tensors(plugin, args, attributes)
        names = [a.name for a in signature.attributes if not a.is_keyword_only]
        if len(positional) > len(names):
            known = listing(signature.attributes)
            raise TypeError(
                f"plugin '{self._id}' takes {len(signature.tensors)} tensors and the attributes: "
                f"{known}; {len(args)} positional arguments came, of which at most "
                f"{len(signature.tensors) + len(names)} are expected"
            )
        for name, value in zip(names, positional):
            if name in attributes:
                raise TypeError(f"plugin '{self._id}': attribute '{name}' was given twice")
            attributes[name] = value
        fields = fields_of(plugin, attributes)
        plugin.make_findable()
        return plugin.definition.call(tensors, fields)

    def __repr__(self) -> str:
        return f"<plugin '{self._id}'>"


class Namespace:
    """The plugins of one namespace."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> PluginOp:
        plugin_id = f"{self._name}::{name}"
        if plugin_id not in plugins:
            raise AttributeError(f"plugin '{plugin_id}' is not registered; {_listing()}")
        return PluginOp(plugin_id)

    def __dir__(self) -> list[str]:
        prefix = f"{self._name}::"
        return [i.removeprefix(prefix) for i in plugins if i.startswith(prefix)]


class Op:
    """All plugins: ``op.namespace.name``."""

    def __getattr__(self, namespace: str) -> Namespace:
        if not any(i.startswith(f"{namespace}::") for i in plugins):
            raise AttributeError(
                f"no plugin is registered in the namespace '{namespace}'; {_listing()}"
            )
        return Namespace(namespace)

    def __dir__(self) -> list[str]:
        return sorted({i.split("::")[0] for i in plugins})


def _listing() -> str:
    return f"registered are: {', '.join(sorted(plugins)) or 'none'}"


op = Op()
"""All plugins: `op.NAMESPACE.NAME(tensors..., attributes...)` gives what `network.add_plugin` takes."""
