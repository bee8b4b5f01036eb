"""What checking a plugin found, as rows."""

from __future__ import annotations

import inspect
import json
import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

# In the order of the table.
CHECKS = (
    "example",
    "runs",
    "bounds",
    "inputs",
    "attributes",
    "determinism",
    "written",
    "uninitialized",
    "combinations",
    "aot",
    "shapes",
    "profile",
    "reload",
    "threads",
)


@dataclass(frozen=True)
class Row:
    """The result of one check: ``"ok"``, ``"FAIL"`` or ``"skip"``."""

    check: str
    result: str
    detail: str
    where: str
    """``file:line (function)`` of the user's function at fault."""


@dataclass(frozen=True)
class Report:
    """All checks of one plugin."""

    plugin: str
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [row.check for row in self.rows if row.result == "FAIL"]

    def __str__(self) -> str:
        width = max(len(name) for name in CHECKS)
        lines = [self.plugin]
        for row in self.rows:
            lines.append(f"  {row.check:<{width}}  {row.result:<4}  {row.detail}".rstrip())
            if row.where:
                lines.append(f"  {'':<{width}}        at {row.where}")
        return "\n".join(lines)


def to_json(reports: Iterable[Report]) -> str:
    """The reports as a JSON list."""
    return json.dumps([asdict(r) | {"ok": r.ok} for r in reports], indent=2)


def _place(file: str, line: int, name: str) -> str:
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return f"{file if relative.startswith('..') else relative}:{line} ({name})"


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is defined."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(function)
    return _place(code.co_filename, code.co_firstlineno, function.__name__)


def place_of_error(error: BaseException, functions: Iterable[Callable[..., Any]]) -> str:
    """The innermost line of an error that is in a file of these functions; empty: none is."""
    codes = (getattr(inspect.unwrap(f), "__code__", None) for f in functions)
    files = {getattr(code, "co_filename", None) for code in codes}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            return _place(frame.filename, frame.lineno or 0, frame.name)
    return ""
