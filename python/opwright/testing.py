"""Checks plugins, which are functions or classes: ``python -m opwright check my_ops.py``.

::

    import opwright.testing

    opwright.testing.example("example::shrink", inputs=[np.ones((4, 64), np.float32)], limit=0.5)

in the file that defines the plugin says what to check it with, and ``opwright.testing.check``
does it in a test.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from ._check import Checker
from ._check_classes import ClassPlugin, LibraryPlugin, id_of
from ._check_functions import FunctionPlugin
from ._check_report import Report, Row
from ._check_subject import Example, Subject
from ._library_plugins_v2 import LibraryCreatorV2
from ._plugin_classes import IPluginCreatorInterface, LibraryCreatorBase
from .plugin._decorators import plugins
from .plugin._op import PluginOp

__all__ = ["CheckError", "NothingToCheckError", "Report", "Row", "check", "check_file", "example"]

_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")

# By the plugin's id, what it is: a registered function or a creator.
_examples: dict[str, list[Example]] = {}


class CheckError(AssertionError):
    """A plugin failed a check. `report` has all rows."""

    def __init__(self, report: Report):
        super().__init__(str(report))
        self.report = report


class NothingToCheckError(ValueError):
    """A file has no plugin, or not the one that is asked for."""


def _creators() -> list[Any]:
    return list(_core.get_plugin_registry().all_creators)


def _subject(
    plugin: str | PluginOp | IPluginCreatorInterface, libraries: dict[str, str] | None = None
) -> Subject:
    """What is to be checked, by a name or an object."""
    if isinstance(plugin, IPluginCreatorInterface):
        if isinstance(plugin, (LibraryCreatorBase, LibraryCreatorV2)):
            return LibraryPlugin(plugin, (libraries or {}).get(id_of(plugin), ""))
        return ClassPlugin(plugin)
    plugin_id = plugin.id if isinstance(plugin, PluginOp) else plugin
    if plugin_id in plugins:
        return FunctionPlugin(plugins[plugin_id])
    named = [c for c in _creators() if plugin_id in (id_of(c), c.name)]
    if len(named) == 1:
        return _subject(named[0], libraries)
    known = ", ".join(sorted({*plugins, *map(id_of, _creators())})) or "none"
    if not named:
        raise ValueError(f"no plugin '{plugin_id}' is registered; registered are: {known}")
    versions = ", ".join(f"{id_of(c)} version {c.plugin_version}" for c in named)
    raise ValueError(f"'{plugin_id}' can be {versions}; pass the creator itself")


def _example(
    inputs: Sequence[Any],
    shape_inputs: Sequence[Any],
    rtol: float | None,
    attributes: dict[str, Any],
) -> Example:
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    return Example(arrays, attributes, rtol, [np.asarray(x) for x in shape_inputs])


def example(
    plugin: str | PluginOp | IPluginCreatorInterface,
    /,
    inputs: Sequence[Any],
    *,
    shape_inputs: Sequence[Any] = (),
    rtol: float | None = None,
    **attributes: Any,
) -> None:
    """Says what a plugin is to be checked with, where ``python -m opwright check`` runs the file.

    Several examples with the same attributes, types and ranks make a profile of their shapes.

    :param plugin: ``"namespace::name"``, ``opwright.plugin.op.namespace.name``, or a creator.
    :param inputs: an array for each tensor of the plugin; None for one that is absent.
    :param shape_inputs: of a class, what ``add_plugin_v3`` takes as its second list.
    :param rtol: how much combinations of types, formats and tactics may differ, relative to the
        largest element; by default by the lowest type: 1e-5 FP32, 5e-3 FP16, 4e-2 BF16.
    :param attributes: of the plugin, as in a call of ``op``; the fields of a creator.
    """
    plugin_id = _subject(plugin).id
    made = _example(inputs, shape_inputs, rtol, attributes)
    _examples.setdefault(plugin_id, []).append(made)


def check(
    plugin: str | PluginOp | IPluginCreatorInterface,
    /,
    inputs: Sequence[Any],
    *,
    shape_inputs: Sequence[Any] = (),
    rtol: float | None = None,
    **attributes: Any,
) -> Report:
    """Checks a plugin with these inputs and attributes; the parameters are those of `example`.

    A creator must be registered, since engines are saved and loaded.

    :returns: the table of checks, none of which failed.
    :raises CheckError: with the table, if one failed.
    """
    made = _example(inputs, shape_inputs, rtol, attributes)
    report = Checker(_subject(plugin)).check([made])
    if not report.ok:
        raise CheckError(report)
    return report


def _run(file: Path) -> None:
    """Runs a Python file as a module of its name, beside which others are found."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise NothingToCheckError(f"'{file}' is neither a Python file nor a library")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)


def check_file(
    path: str | os.PathLike[str],
    only: str | None = None,
    *,
    libraries: Sequence[str | os.PathLike[str]] = (),
    progress: Callable[[str], None] | None = None,
) -> list[Report]:
    """Runs a Python file, or loads a C++ library, and checks the plugins that it registers: those
    of functions, and those of creators in the process's registry. The file has the examples.

    :param path: of the file.
    :param only: the id of the one plugin to check.
    :param libraries: C++ libraries to load first; their plugins are checked too.
    :param progress: called with a few words on what is done next.
    :raises NothingToCheckError: if there is no such plugin, or none. What the file raises passes.
    """
    file = Path(path)
    if not file.is_file():
        raise NothingToCheckError(f"there is no file '{path}'")
    functions, creators = dict(plugins), _creators()
    _examples.clear()
    origins: dict[str, str] = {}
    is_library = file.suffix in _LIBRARY_SUFFIXES
    for library in [*libraries, *([file] if is_library else [])]:
        before = _creators()
        _core.get_plugin_registry().load_library(library)
        origins |= {id_of(c): os.fspath(library) for c in _creators() if c not in before}
    if not is_library:
        _run(file.resolve())
    found: list[Any] = [i for i, plugin in plugins.items() if functions.get(i) is not plugin]
    found += [c for c in _creators() if c not in creators]
    subjects = [_subject(plugin, origins) for plugin in found]
    names = ", ".join(subject.id for subject in subjects) or "none"
    if only is not None:
        subjects = [subject for subject in subjects if subject.id == only]
        if not subjects:
            raise NothingToCheckError(f"'{path}' registers no plugin '{only}'; it has {names}")
    if not subjects:
        raise NothingToCheckError(
            f"'{path}' registers no plugin, neither by opwright.plugin.register nor by "
            "register_creator of opwright.get_plugin_registry()"
        )

    def report(subject: Subject) -> Report:
        def tell(what: str) -> None:
            if progress is not None:
                progress(f"{subject.id}: {what}")

        return Checker(subject, tell).check(_examples.get(subject.id, []))

    return [report(subject) for subject in subjects]
