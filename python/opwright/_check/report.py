"""The results of checking a plugin, as rows."""

from __future__ import annotations

import inspect
import json
import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .subject import Subject

_MOST_NOTES = 3
_NOT_REACHED = "what it needs failed"

# In the order of the table.
CHECKS = (
    "example",
    "runs",
    "bounds",
    "inputs",
    "attributes",
    "fields",
    "clone",
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
    """The result of one check: ``"ok"``, ``"FAIL"``, ``"skip"``, or ``"ask"`` if the check needs an
    example from the user."""

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
    failures: tuple[Row, ...] = ()
    """All failures; `rows` has the first one of each check."""

    @property
    def ok(self) -> bool:
        """Whether no check failed, and none lacks an example."""
        return not self.failed and not self.needs_example

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [row.check for row in self.rows if row.result == "FAIL"]

    @property
    def needs_example(self) -> bool:
        """Whether nothing could be checked without an example from the user."""
        return any(row.result == "ask" for row in self.rows)

    def __str__(self) -> str:
        return self.table()

    def table(self, verbose: bool = False) -> str:
        """The rows as text; verbose: with all failures of each check."""
        width = max(len(name) for name in CHECKS)
        lines = [self.plugin]
        rows = list(self.rows)
        if verbose:
            rows = [
                shown
                for row in rows
                for shown in ([f for f in self.failures if f.check == row.check] or [row])
            ]
        for row in rows:
            if row.detail == _NOT_REACHED:
                continue
            detail = row.detail.replace("\n", f"\n  {'':<{width}}        ")
            lines.append(f"  {row.check:<{width}}  {row.result:<4}  {detail}".rstrip())
            if row.where:
                lines.append(f"  {'':<{width}}        at {row.where}")
        left = ", ".join(row.check for row in rows if row.detail == _NOT_REACHED)
        if left:
            why = "without an example" if self.needs_example else "since what they need failed"
            lines.append(f"  not reached, {why}: {left}")
        return "\n".join(lines)


class Findings:
    """Collects the findings of one plugin's checks."""

    def __init__(self, subject: Subject):
        self._subject = subject
        self._failures: dict[str, list[Row]] = {}
        self._passed: set[str] = set()
        self._notes: dict[str, list[str]] = {}
        self._asked: dict[str, Row] = {}

    def fail(self, check: str, detail: str, where: str) -> None:
        """Adds a failure at a place in the user's source."""
        self._failures.setdefault(check, []).append(Row(check, "FAIL", detail, where))

    def raised(self, check: str, error: Exception, what: str, default: str) -> None:
        """Adds an exception at its innermost line in the user's files, or else at the default
        place."""
        where = place_of_error(error, self._subject.functions()) or default
        self.fail(check, f"{what}: {type(error).__name__}: {error}", where)

    def ask(self, check: str, error: Exception, what: str, default: str) -> None:
        """Adds something that only the user can give, with the exception that says so."""
        where = place_of_error(error, self._subject.functions()) or default
        detail = f"{what}: {type(error).__name__}: {error}"
        self._asked[check] = Row(check, "ask", detail, where)

    def passed(self, check: str) -> None:
        """Adds a check that passed."""
        self._passed.add(check)

    def note(self, check: str, note: str) -> None:
        """Adds a note that the table prints beside "ok" and "skip"."""
        notes = self._notes.setdefault(check, [])
        if note not in notes:
            notes.append(note)

    def _row(self, check: str) -> Row:
        failures, notes = self._failures.get(check, []), self._notes.get(check, [])
        if len(notes) > _MOST_NOTES:
            notes = [*notes[:_MOST_NOTES], f"and {len(notes) - _MOST_NOTES} more"]
        if failures:
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            return Row(check, "FAIL", failures[0].detail + more, failures[0].where)
        if check in self._asked:
            return self._asked[check]
        if check in self._passed:
            return Row(check, "ok", "; ".join(notes), "")
        if (
            check == "aot"
            and not notes
            and bool(self._subject.call_name) != bool(self._subject.kernel_name)
        ):
            return Row(check, "skip", self._subject.nothing_to_compare(), "")
        return Row(check, "skip", "; ".join(notes) or _NOT_REACHED, "")

    def report(self) -> Report:
        """The report of the findings so far."""
        rows = tuple(self._row(check) for check in CHECKS if check in self._subject.checks)
        failures = tuple(row for rows in self._failures.values() for row in rows)
        return Report(self._subject.id, rows, failures)


def to_json(reports: Iterable[Report]) -> str:
    """The reports as a JSON list."""
    entries = [
        {"plugin": r.plugin, "ok": r.ok, "rows": [asdict(x) for x in r.rows]} for r in reports
    ]
    return json.dumps(entries, indent=2)


def _place(file: str, line: int, name: str) -> str:
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    name = name.rpartition("<locals>.")[2]
    return f"{file if relative.startswith('..') else relative}:{line} ({name})"


def place_of(function: Callable[..., Any]) -> str:
    """The place where a function, or the first method of a class, is defined."""
    function = inspect.unwrap(function)
    members = vars(function).values() if isinstance(function, type) else [function]
    codes = [m.__code__ for m in members if hasattr(m, "__code__")]
    if not codes:
        return repr(function)
    code = codes[0]
    return _place(code.co_filename, code.co_firstlineno, function.__qualname__)


def place_of_error(error: BaseException, functions: Iterable[Callable[..., Any]]) -> str:
    """The innermost line of an error that lies in a file of these functions; empty if none does."""
    codes = (getattr(inspect.unwrap(f), "__code__", None) for f in functions)
    files = {getattr(code, "co_filename", None) for code in codes}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            return _place(frame.filename, frame.lineno or 0, frame.name)
    return ""
