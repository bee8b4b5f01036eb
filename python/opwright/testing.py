"""Checks plugins that are written as functions: ``python -m opwright check my_ops.py``.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._check import Checker, Example
from ._check_report import Report, Row
from .plugin._decorators import plugins
from .plugin._op import PluginOp

__all__ = ["CheckError", "NothingToCheckError", "Report", "Row", "check", "check_file", "example"]

_examples: dict[str, list[Example]] = {}


class CheckError(AssertionError):
    """A plugin failed a check. `report` has all rows."""

    def __init__(self, report: Report):
        super().__init__(str(report))
        self.report = report


class NothingToCheckError(ValueError):
    """A file has no plugin, or not the one that is asked for."""


def _id_of(op: str | PluginOp) -> str:
    plugin_id = op.id if isinstance(op, PluginOp) else op
    if plugin_id not in plugins:
        known = ", ".join(sorted(plugins)) or "none"
        raise ValueError(f"no plugin '{plugin_id}' is registered; registered are: {known}")
    return plugin_id


def example(
    op: str | PluginOp, /, inputs: Sequence[Any], *, rtol: float | None = None, **attributes: Any
) -> None:
    """Says what a plugin is to be checked with, where ``python -m opwright check`` runs the file.

    Several examples with the same attributes, types and ranks make a profile of their shapes.

    :param op: ``"namespace::name"`` or ``opwright.plugin.op.namespace.name``.
    :param inputs: an array for each tensor of the plugin.
    :param rtol: how much combinations of types, formats and tactics may differ, relative to the
        largest element; by default by the lowest type: 1e-5 FP32, 5e-3 FP16, 4e-2 BF16.
    :param attributes: of the plugin, as in a call of ``op``.
    """
    arrays = [np.asarray(x) for x in inputs]
    _examples.setdefault(_id_of(op), []).append(Example(arrays, attributes, rtol))


def check(
    op: str | PluginOp, /, inputs: Sequence[Any], *, rtol: float | None = None, **attributes: Any
) -> Report:
    """Checks a plugin with these inputs and attributes; the parameters are those of `example`.

    :returns: the table of checks, none of which failed.
    :raises CheckError: with the table, if one failed.
    """
    arrays = [np.asarray(x) for x in inputs]
    report = Checker(plugins[_id_of(op)]).check([Example(arrays, attributes, rtol)])
    if not report.ok:
        raise CheckError(report)
    return report


def check_file(path: str | os.PathLike[str], only: str | None = None) -> list[Report]:
    """Runs a Python file and checks the plugins that it registers, with its examples.

    :param path: of the file.
    :param only: the id of the one plugin to check.
    :raises NothingToCheckError: if there is no such plugin, or none. What the file raises passes.
    """
    file = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise NothingToCheckError(f"'{path}' is no Python file")
    before = dict(plugins)
    _examples.clear()
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    found = [i for i, plugin in plugins.items() if before.get(i) is not plugin]
    if only is not None and only not in found:
        raise NothingToCheckError(
            f"'{path}' registers no plugin '{only}'; it has {', '.join(found) or 'none'}"
        )
    if not found:
        raise NothingToCheckError(
            f"'{path}' registers no plugin with opwright.plugin.register; plugin classes are not "
            "checked"
        )
    ids = found if only is None else [only]
    return [Checker(plugins[i]).check(_examples.get(i, [])) for i in ids]
