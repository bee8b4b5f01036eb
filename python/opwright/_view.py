"""Views of engines for people."""

from __future__ import annotations

import html
import os

from . import _core


class EngineView:
    """A page of HTML that shows an engine, or two; see `Engine.view`."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page as a single, self-contained file."""
        _core._write_file(os.fspath(path), self.html.encode())

    def _repr_html_(self) -> str:
        # A frame within the notebook's page: neither page sees the other's names and styles.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            'style="width:100%;height:720px;border:1px solid #888"></iframe>'
        )
