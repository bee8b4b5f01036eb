"""PyTorch: modules become engines, and ``torch.compile`` runs graphs by engines.

``opwright.build(module, args)`` exports a module. ``torch.compile(module, backend="opwright")`` finds
`backend` here by PyTorch's entry point, whether or not opwright was imported.
"""

from __future__ import annotations

from ._backend import backend

__all__ = ["backend"]
