"""The engines of a session, which are built for the shapes of its runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import _api, _core

_GROWTH = 2  # factor by which the range of an extent grows when an engine is too small
_MOST = 16  # the most engines of one session
_HOPELESS = {
    _core.ErrorCode.UNSUPPORTED_NODE,
    _core.ErrorCode.MODEL_DESERIALIZE_FAILED,
    _core.ErrorCode.MEM_ALLOC_FAILED,
}

Shape = tuple[int, ...]
Extents = Sequence[Any]


class Engines:
    """Engines of a model whose inputs have open extents.

    The first engine is built for the first run: for extents from 1 to twice the run's, tuned for
    the run's. A larger extent makes another engine with a larger range. A model that cannot be
    built for a range gets an engine for each shape. If values of inputs decide shapes, there is an
    engine for each set of values.
    """

    def __init__(
        self,
        model: bytes | str,
        inputs: Mapping[str, Extents],
        device: str,
        options: Mapping[str, Any],
        threads: int,
    ) -> None:
        self._model, self._inputs, self._device = model, inputs, device
        self._options, self._threads = dict(options), threads
        self._most: dict[str, Shape] = {}
        self._takes_ranges = True
        self._constants: set[str] = set()
        self._engines: OrderedDict[Any, _core.Engine] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def is_fixed(self) -> bool:
        """Whether all extents of the inputs are known."""
        return all(isinstance(e, int) for extents in self._inputs.values() for e in extents)

    def check(self) -> None:
        """Reads the model and reports its errors.

        :raises Error: for an error that no shapes and values of inputs would mend.
        """
        try:
            self._definition(self._fixed_shapes(), {}, {})
        except _api.ParseError as error:
            if self.is_fixed and not self._needed(error) or error.codes & _HOPELESS:
                raise

    def _fixed_shapes(self) -> dict[str, Shape]:
        return {
            name: tuple(extents)
            for name, extents in self._inputs.items()
            if all(isinstance(e, int) for e in extents)
        }

    def find(self, feed: Mapping[str, Any]) -> _core.Engine:
        """The engine for arrays of these shapes, built if there is none."""
        with self._lock:
            for key in reversed(self._engines):
                if self._fits(key, self._engines[key], feed):
                    self._engines.move_to_end(key)
                    return self._engines[key]
            return self._add(feed)

    def _constant_key(self, feed: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(
            (name, np.shape(feed[name]), np.asarray(feed[name]).tobytes())
            for name in sorted(self._constants)
            if name in feed
        )

    def _fits(self, key: Any, engine: _core.Engine, feed: Mapping[str, Any]) -> bool:
        if key[0] != self._constant_key(feed):
            return False
        for name, tensor in engine.inputs.items():
            shape = np.shape(feed[name])
            low, _, high = tensor.range or ((), (), ())
            if len(shape) != len(low) or any(
                not a <= extent <= b for a, extent, b in zip(low, shape, high)
            ):
                return False
            if tensor.values is not None:
                low, _, high = tensor.values
                held = np.asarray(feed[name]).ravel().tolist()
                if any(not a <= value <= b for a, value, b in zip(low, held, high)):
                    return False
        return True

    def _ranges(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """The shapes of the next engine for each input with open extents."""
        ranges: dict[str, Any] = {}
        for name, extents in self._inputs.items():
            shape = np.shape(feed[name])
            if len(extents) != len(shape) or all(isinstance(e, int) for e in extents):
                continue
            before = self._most.get(name, (0,) * len(shape))
            most = tuple(
                extent
                if isinstance(e, int)
                else max(extent * _GROWTH, 1)
                if extent > b
                else max(b, 1)
                for e, extent, b in zip(extents, shape, before)
            )
            self._most[name] = most
            low = [
                extent if isinstance(e, int) else min(1, extent)
                for e, extent in zip(extents, shape)
            ]
            ranges[name] = (low, shape, most)
        return ranges

    def _definition(
        self, shapes: Mapping[str, Any], example: Mapping[str, Any], constants: Mapping[str, Any]
    ) -> Any:
        return _api.definition(
            self._model,
            example=example,
            shapes=shapes,
            constants=constants,
            device=self._device,
            **{k: v for k, v in self._options.items() if k != "timing_cache"},
        )

    def _build(self, feed: Mapping[str, Any], shapes: Mapping[str, Any]) -> _core.Engine:
        constants = {name: feed[name] for name in self._constants if name in feed}
        ranges = {name: shape for name, shape in shapes.items() if name not in constants}
        builder, network, config = self._definition(ranges, feed, constants)
        if self._threads > 0:
            builder.max_threads = self._threads
        path = self._options.get("timing_cache")
        cache = None
        if path:
            cache = _api.open_timing_cache(path, config)
            config.set_timing_cache(cache, False)
        try:
            return _api.run_build(builder, network, config, False)
        finally:
            if path and cache is not None:
                cache.save(path)

    def _needed(self, error: _core.Error) -> set[str]:
        """Inputs that an operator needs as constants, and that are not constants yet."""
        if not isinstance(error, _api.ParseError):
            return set()
        return (error.needed_constants & set(self._inputs)) - self._constants

    def _add(self, feed: Mapping[str, Any]) -> _core.Engine:
        ranges = self._ranges(feed) if self._takes_ranges else {}
        while True:
            try:
                engine = self._build(feed, ranges)
                break
            except _core.Error as error:
                needed = self._needed(error)
                if needed:
                    self._constants |= needed
                elif ranges:
                    ranges, self._takes_ranges = {}, False
                else:
                    raise
        key = (self._constant_key(feed), len(self._engines), id(engine))
        self._engines[key] = engine
        while len(self._engines) > _MOST:
            self._engines.popitem(last=False)
        return engine


class OneEngine:
    """The interface of `Engines` for a single existing engine."""

    def __init__(self, engine: _core.Engine) -> None:
        self._engine = engine

    def find(self, feed: Mapping[str, Any]) -> _core.Engine:
        """The engine."""
        return self._engine
