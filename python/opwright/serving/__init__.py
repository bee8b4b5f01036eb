"""A server of engines: the KServe v2 protocol over HTTP, with dynamic batching and bounded queues.

``opwright serve model.engine`` is the command; :func:`create_app` gives the same as an ASGI
application. Needs ``pip install opwright[serve]``.
"""

from __future__ import annotations

try:
    from ._app import create_app
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"opwright.serving needs '{error.name}': pip install 'opwright[serve]'", name=error.name
    ) from error
from ._model import ModelOptions
from ._repository import Repository

__all__ = ["ModelOptions", "Repository", "create_app"]
