"""The models of a server by name, with loading, reloading and unloading during service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ._metrics import ModelMetrics, prometheus_text
from ._model import Model, ModelOptions


class UnknownModelError(KeyError):
    """There is no such model, or it is not loaded."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass
class _Entry:
    path: str
    metrics: ModelMetrics = field(default_factory=ModelMetrics)
    model: Model | None = None
    reason: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Repository:
    """Engines by name. The set of names and files is fixed. The loaded engines may change."""

    def __init__(self, paths: Mapping[str, str | os.PathLike[str]], options: ModelOptions):
        """Loads all engines.

        :param paths: the engines' files by name.
        :param options: options of serving them.
        :raises Error: for a file that cannot be loaded.
        """
        self.options = options
        self._entries = {name: _Entry(os.fspath(path)) for name, path in paths.items()}
        for entry in self._entries.values():
            entry.model = Model(entry.path, options, entry.metrics)

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded."""
        return all(entry.model is not None for entry in self._entries.values())

    def model(self, name: str) -> Model:
        """The model of that name.

        :raises UnknownModelError: it is not loaded.
        """
        model = self._entry(name).model
        if model is None:
            raise UnknownModelError(
                f"model '{name}' is not loaded; POST /v2/repository/models/{name}/load loads it"
            )
        return model

    async def load(self, name: str) -> None:
        """Loads a model's file anew. Accepted requests finish with the old engine.

        :raises Error: loading fails. The old engine goes on serving.
        """
        entry = self._entry(name)
        async with entry.lock:
            try:
                new = await asyncio.to_thread(Model, entry.path, self.options, entry.metrics)
            except Exception as error:  # a plugin may raise anything
                entry.reason = f"the last load failed: {error}"
                raise
            old, entry.model, entry.reason = entry.model, new, ""
            if old is not None:
                old.close()

    async def unload(self, name: str) -> None:
        """Takes a model out of service. Accepted requests are answered."""
        entry = self._entry(name)
        async with entry.lock:
            old, entry.model = entry.model, None
            if old is not None:
                entry.reason = "unloaded"
                old.close()

    async def reload(self) -> dict[str, str]:
        """Loads all models anew. Returns an error message for each name that failed."""
        failed = {}
        for name in self._entries:
            try:
                await self.load(name)
            except Exception as error:  # a plugin may raise anything
                failed[name] = str(error)
        return failed

    def index(self) -> list[dict[str, str]]:
        """The models in the form of the protocol's list."""
        return [
            {
                "name": name,
                "version": "1",
                "state": "READY" if entry.model else "UNAVAILABLE",
                "reason": entry.reason,
            }
            for name, entry in self._entries.items()
        ]

    def metrics_text(self) -> str:
        """The page of metrics."""
        return prometheus_text(
            {
                name: (entry.metrics, entry.model.queued if entry.model else 0)
                for name, entry in self._entries.items()
            }
        )

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise UnknownModelError(
                f"there is no model '{name[:100]}'; there are {list(self._entries)}"
            )
        return self._entries[name]
