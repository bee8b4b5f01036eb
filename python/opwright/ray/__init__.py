"""Opwright on several machines, with Ray: ``pip install opwright[ray]``.

:func:`build` spreads the timing of a build over workers, :class:`Predictor` runs an engine over a
``ray.data.Dataset``, :func:`deployment` serves engines with Ray Serve, :class:`ShardedEngine` runs
an engine over ranks of several machines.
"""

from __future__ import annotations

try:
    import ray as _ray  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"opwright.ray needs '{error.name}': pip install 'opwright[ray]'", name=error.name
    ) from error

from ._build import build
from ._data import Predictor
from ._ranks import ShardedEngine
from ._serve import deployment

__all__ = ["Predictor", "ShardedEngine", "build", "deployment"]
