"""Shared code of the tests of tactic sources: engines that use a library wherever it can
compute."""

from __future__ import annotations

from typing import Any

import opwright as trt

#: The first tactics of the libraries.
CUBLAS_LT, CUDNN = 1000000, 2000000


class Listener(trt.ILogger):
    """Keeps its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        self.messages.append(message)


def favour(builder: Any, network: Any, config: Any, first: int) -> bool:
    """Gives the build a timing cache in which the tactics from `first` on are the fastest, in their
    order. Returns whether the build that lists them succeeded."""
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    built = builder.build_serialized_network(network, config) is not None
    for key in cache.queryKeys():
        value = cache.query(key)
        value.timingMSec = (
            1e-4 * (value.tacticHash - first + 1) if value.tacticHash >= first else 1e3
        )
        assert cache.update(key, value)
    return built


def tactics(engine: trt.Engine) -> list[str]:
    """The tactics of the layers, without reformats."""
    return [layer["TacticName"] for layer in engine.layers if layer["LayerType"] != "Reformat"]
