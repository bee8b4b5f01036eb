"""Shows the progress of a build to people."""

from __future__ import annotations

import sys
from typing import Any

from . import _core
from ._runtime_classes import IProgressMonitor


class _Page:
    """The progress as an HTML element of a notebook."""

    def __init__(self, html: str, text: str) -> None:
        self._html, self._text = html, text

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


def _notebook_display() -> Any:
    """IPython's `display` within a notebook, None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


class BuildProgress(IProgressMonitor):
    """Shows the progress of a build: its phase, a bar, and the time that the phase will take at
    this speed. ``opwright.build(..., progress=True)`` uses one. For a builder, assign it to
    ``IBuilderConfig.progress_monitor``.

    In a notebook it is an element of the cell. On a terminal it is one line of stderr, which is
    rewritten and disappears. Elsewhere it prints a line for each phase, and one every ten seconds.
    """

    def __init__(self) -> None:
        IProgressMonitor.__init__(self)
        self._display: Any = None
        self._handle: Any = None
        self._show: Any = None
        self._steps = 0

    def _open(self) -> Any:
        self._show = _notebook_display()
        if self._show is not None:
            return _core._ProgressDisplay.html(self._write_html)
        if sys.stderr is sys.__stderr__:
            return _core._ProgressDisplay.on_stderr()
        return _core._ProgressDisplay.lines(lambda line: print(line, file=sys.stderr))

    def _write_html(self, html: str) -> None:
        page = _Page(html, self._display.text)
        if self._handle is None:
            self._handle = self._show(page, display_id=True)
        else:
            self._handle.update(page)

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """A phase of ``num_steps`` steps begins."""
        if self._display is None:
            self._display = self._open()
        self._steps = num_steps

    def step_complete(self, phase_name: str, step: int) -> bool:
        """``step`` steps of a phase are done. The build goes on."""
        self._display.step(phase_name, step, self._steps)
        return True

    def phase_finish(self, phase_name: str) -> None:
        """A phase has ended; after the last one the display is closed."""
        if phase_name == "done":
            self.close(True)

    def close(self, succeeded: bool) -> None:
        """End the display, as after the last phase. Another build begins another one."""
        if self._display is not None:
            self._display.finish(succeeded)
        self._display = self._handle = None
