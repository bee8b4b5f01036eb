"""Checks plugins, which are functions or classes: ``python -m opwright check my_ops.py``.

::

    import opwright.testing

    opwright.testing.example("example::shrink", inputs=[np.ones((4, 64), np.float32)], limit=0.5)

in the plugin's file sets the inputs and attributes of the checks. ``opwright.testing.check`` checks
a plugin in a test.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from ._check.checker import Checker
from ._check.classes import ClassPlugin, LibraryPlugin, id_of
from ._check.functions import FunctionPlugin
from ._check.report import Report, Row
from ._check.subject import Example, Subject
from ._core import DeviceType
from ._core._plugin import FunctionCreator
from ._plugins.classes import IPluginCreatorInterface, LibraryCreatorBase
from ._plugins.files import NotPythonError, run
from ._plugins.library_v2 import LibraryCreatorV2
from .plugin._decorators import plugins
from .plugin._op import PluginOp

__all__ = ["CheckError", "NothingToCheckError", "Report", "Row", "check", "check_file", "example"]

_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")

# Examples by the plugin's source: a creator, or the id of a function plugin.
_examples: dict[Any, list[Example]] = {}


class CheckError(AssertionError):
    """A plugin failed a check. `report` has all rows."""

    def __init__(self, report: Report):
        super().__init__(str(report))
        self.report = report


class NothingToCheckError(ValueError):
    """A file has no plugin, or not the requested one."""


def _creators() -> list[Any]:
    return list(_core.get_plugin_registry().all_creators)


def _source(plugin: str | PluginOp | IPluginCreatorInterface) -> Any:
    """The plugin's source: a creator, or the id of a function plugin."""
    if isinstance(plugin, IPluginCreatorInterface):
        return plugin
    if isinstance(plugin, FunctionCreator):
        return id_of(plugin)
    plugin_id = plugin.id if isinstance(plugin, PluginOp) else plugin
    if plugin_id in plugins:
        return plugin_id
    named = [c for c in _creators() if plugin_id in (id_of(c), c.name)]
    if len(named) == 1:
        return named[0]
    known = ", ".join(sorted({*plugins, *map(id_of, _creators())})) or "none"
    if not named:
        raise ValueError(f"no plugin '{plugin_id}' is registered; registered are: {known}")
    versions = ", ".join(f"{id_of(c)} version {c.plugin_version}" for c in named)
    raise ValueError(f"'{plugin_id}' can be {versions}; pass the creator itself")


def usable_device(device: str | DeviceType) -> DeviceType:
    """The device, checked to be usable.

    :raises Error: if there is none.
    """
    chosen = _core._parse_device(device)
    if chosen.ordinal >= 0:
        raise ValueError(
            f"device={device!r}: plugins are checked on the GPU that is chosen with CUDA; set "
            f"CUDA_VISIBLE_DEVICES={chosen.ordinal}, and say device='cuda'"
        )
    if chosen.type == DeviceType.GPU:
        _core._to_device(b"")
    return chosen.type


def _subject(source: Any, device: DeviceType, library: str = "") -> Subject:
    """The subject of the checks. `library` is the file that the plugin comes from."""
    if isinstance(source, str):
        return FunctionPlugin(plugins[source], device)
    is_library = isinstance(source, (LibraryCreatorBase, LibraryCreatorV2))
    subject = LibraryPlugin(source, library) if is_library else ClassPlugin(source)
    subject.device = device
    return subject


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
    """Sets inputs and attributes for the checks of a plugin, when ``python -m opwright check`` runs
    the file.

    Several examples with the same attributes, types and ranks make a profile of their shapes.

    :param plugin: ``"namespace::name"``, ``opwright.plugin.op.namespace.name``, or a creator.
    :param inputs: an array for each tensor of the plugin; None for an absent one.
    :param shape_inputs: for a class, the second list of ``add_plugin_v3``.
    :param rtol: the allowed difference between combinations of types, formats and tactics, relative
        to the largest element. The default follows the lowest type: 1e-5 FP32, 5e-3 FP16, 4e-2
        BF16.
    :param attributes: of the plugin, as in a call of ``op``; the fields of a creator.
    """
    made = _example(inputs, shape_inputs, rtol, attributes)
    _examples.setdefault(_source(plugin), []).append(made)


def check(
    plugin: str | PluginOp | IPluginCreatorInterface,
    /,
    inputs: Sequence[Any],
    *,
    shape_inputs: Sequence[Any] = (),
    rtol: float | None = None,
    device: str | DeviceType = "cpu",
    **attributes: Any,
) -> Report:
    """Checks a plugin with these inputs and attributes; the other parameters are those of `example`.

    A creator must be registered, since engines are saved and loaded.

    :param device: where it runs: ``"cpu"`` or ``"cuda"``.
    :returns: the table of checks, none of which failed.
    :raises CheckError: with the table, if one failed.
    :raises Error: if the device cannot be used.
    """
    made = _example(inputs, shape_inputs, rtol, attributes)
    report = Checker(_subject(_source(plugin), usable_device(device))).check([made])
    if not report.ok:
        raise CheckError(report)
    return report


def _run(file: Path) -> list[Any]:
    """Runs a Python file and returns the creators in its variables."""
    try:
        return list(run(file))
    except NotPythonError as error:
        raise NothingToCheckError(str(error)) from None


def _teller(
    subject: Subject, progress: Callable[[str], None] | None
) -> Callable[[str], None] | None:
    return None if progress is None else lambda what: progress(f"{subject.id}: {what}")


def check_file(
    path: str | os.PathLike[str],
    only: str | None = None,
    *,
    libraries: Sequence[str | os.PathLike[str]] = (),
    device: str | DeviceType = "cpu",
    progress: Callable[[str], None] | None = None,
) -> list[Report]:
    """Runs a Python file, or loads a C++ library, and checks the plugins that it registers: those
    of functions, and those of creators in the process's registry or in the file's variables. The
    file has the examples.

    :param path: of the file.
    :param only: the id of the one plugin to check.
    :param libraries: C++ libraries to load first; their plugins are checked too.
    :param device: where they run: ``"cpu"`` or ``"cuda"``.
    :param progress: called with a short text about the next step.
    :raises Error: if the device cannot be used.
    :raises NothingToCheckError: if there is no such plugin, or none. Exceptions of the file pass.
    """
    file = Path(path)
    if not file.is_file():
        raise NothingToCheckError(f"there is no file '{path}'")
    kind = usable_device(device)
    functions, creators = dict(plugins), _creators()
    registry = _core.get_plugin_registry()
    _examples.clear()
    origins: dict[Any, str] = {}
    is_library = file.suffix in _LIBRARY_SUFFIXES
    for library in [*libraries, *([file] if is_library else [])]:
        before = _creators()
        registry.load_library(library)
        origins |= {c: os.fspath(library) for c in _creators() if c not in before}
    with contextlib.ExitStack() as stack:
        for creator in [] if is_library else _run(file.resolve()):
            if creator not in _creators():
                registry.register_creator(creator, creator.plugin_namespace)
                stack.callback(registry.deregister_creator, creator)
        found: list[Any] = [i for i, p in plugins.items() if functions.get(i) is not p]
        found += [c for c in _creators() if c not in creators]
        subjects = {source: _subject(source, kind, origins.get(source, "")) for source in found}
        ids = [subject.id for subject in subjects.values()]
        if only is not None and only not in ids:
            names = ", ".join(ids) or "none"
            raise NothingToCheckError(f"'{path}' registers no plugin '{only}'; it has {names}")
        if not subjects:
            raise NothingToCheckError(
                f"'{path}' registers no plugin, neither by opwright.plugin.register nor by "
                "register_creator of opwright.get_plugin_registry(), and has no creator"
            )
        return [
            Checker(subject, _teller(subject, progress)).check(_examples.get(source, []))
            for source, subject in subjects.items()
            if only in (None, subject.id)
        ]
