"""An engine that serves, with its queue and dynamic batching."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _api, _core
from ..sharding import ShardedEngine
from ..sharding._program import open_for
from ._metrics import ModelMetrics
from ._signature import BadRequestError, Signature
from ._tracing import RequestTrace, current_trace

Arrays = Mapping[str, np.ndarray[Any, Any]]
_log = logging.getLogger("opwright.serving")


class OverloadedError(RuntimeError):
    """There are as many accepted requests as the queue holds."""


@dataclass(frozen=True)
class ModelOptions:
    """Options of serving an engine."""

    max_queue: int = 256
    """The largest number of accepted requests without an answer; each keeps its body."""
    delay: float = 0.0
    """The longest time in seconds that a request waits for others of its batch."""
    instances: int = 1
    """The number of batches that run at once, each in its own context."""
    max_batch: int = 0
    """The largest number of rows in a batch; 1: requests run one by one; 0: the profiles'
    largest."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``opwright.load``, such as ``allow_host_code``."""
    ranks: int = 1
    """The number of ranks; from 2 on, models are manifests of ``opwright.shard``."""
    plugins: tuple[str, ...] = ()
    """Files of plugins that the processes of ranks load. This process has them already."""
    sharded: Callable[..., ShardedEngine] = ShardedEngine
    """What starts the ranks."""

    def __post_init__(self) -> None:
        for name, least in (
            ("max_queue", 1),
            ("delay", 0),
            ("instances", 1),
            ("max_batch", 0),
            ("ranks", 1),
        ):
            if getattr(self, name) < least:
                raise ValueError(
                    f"ModelOptions: {name} is {getattr(self, name)}; expected {least} or more"
                )


@dataclass
class _Pending:
    inputs: Arrays
    rows: int
    key: tuple[Any, ...]
    max_rows: int
    since: float
    future: asyncio.Future[dict[str, np.ndarray[Any, Any]]]
    trace: RequestTrace | None
    queued: int = 0
    """The arrival of a traced request, by ``time.time_ns()``."""


class Model:
    """An engine with a queue. All methods but `__init__` are called in one event loop."""

    def __init__(self, path: str | os.PathLike[str], options: ModelOptions, metrics: ModelMetrics):
        """Loads the engine, which takes time: call it from a thread.

        :raises Error: as ``opwright.load``, or if the protocol lacks a type of the engine.
        """
        self.options = options
        self.metrics = metrics
        self._engine = _load(path, options)
        self.signature = Signature.of(self._engine)
        self.is_batched = options.max_batch != 1 and _is_batchable(self._engine, self.signature)
        self._queue: collections.deque[_Pending] = collections.deque()
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self._threads = concurrent.futures.ThreadPoolExecutor(
            options.instances, thread_name_prefix="opwright-serve"
        )

    def check_ranks(self) -> None:
        """Raises ``Error`` where a rank has failed, so that no run can succeed."""
        if isinstance(self._engine, ShardedEngine) and self._engine._failure:
            raise _core.Error(self._engine._failure)

    @property
    def queued(self) -> int:
        """The number of requests that wait for a batch."""
        return len(self._queue)

    async def infer(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs for inputs that fit the signature.

        :raises OverloadedError: at once, if `max_queue` requests wait.
        """
        if len(self._queue) >= self.options.max_queue:
            raise OverloadedError(f"{len(self._queue)} requests wait, as many as may")
        shapes = {name: array.shape for name, array in inputs.items()}
        rows, max_rows = 1, 1
        key: tuple[Any, ...] = ()
        if self.is_batched:
            counts = {shape[0] for shape in shapes.values()}
            max_rows = min(self.signature.max_batch(shapes), self.options.max_batch or 2**31)
            if len(counts) == 1:
                rows = counts.pop()
                key = tuple((name, shapes[name][1:]) for name in self._engine.inputs)
            else:
                max_rows = 1
        future = asyncio.get_running_loop().create_future()
        trace = current_trace()
        pending = _Pending(inputs, rows, key, max_rows, time.monotonic(), future, trace)
        if trace is not None:
            pending.queued = time.time_ns()
        self._queue.append(pending)
        self._pump()
        return await future

    def close(self) -> None:
        """Ends the threads once all accepted requests are answered."""
        if self._queue or self._running:
            asyncio.get_running_loop().call_later(0.05, self.close)
        else:
            self._threads.shutdown(wait=False)
            if isinstance(self._engine, ShardedEngine):
                self._engine.close()

    def _pump(self) -> None:
        """Starts batches while an instance is idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._queue and self._running < self.options.instances:
            batch = self._next_batch()
            rows = sum(each.rows for each in batch)
            wait = batch[0].since + self.options.delay - time.monotonic()
            if wait > 0 and rows < batch[0].max_rows:
                self._timer = loop.call_later(wait, self._pump)
                return
            chosen = set(map(id, batch))
            self._queue = collections.deque(p for p in self._queue if id(p) not in chosen)
            self._running += 1
            self.metrics.batches.observe(rows)
            running = loop.run_in_executor(self._threads, self._run, batch)
            running.add_done_callback(functools.partial(self._finish, batch, time.time_ns()))

    def _next_batch(self) -> list[_Pending]:
        """The first request, and later requests that fit into the same run."""
        first = self._queue[0]
        batch, rows = [first], first.rows
        if first.rows < first.max_rows:
            for each in list(self._queue)[1:]:
                if each.key == first.key and each.max_rows > 1:
                    if rows + each.rows > first.max_rows:
                        break  # no request overtakes others of its kind
                    batch.append(each)
                    rows += each.rows
        return batch

    def _run(self, batch: Sequence[_Pending]) -> list[Any]:
        """Runs a batch in a thread. Returns the outputs or the exception of each request."""
        if len(batch) == 1:
            return [self._try(batch[0].inputs)]
        joined = {
            name: np.concatenate([each.inputs[name] for each in batch])
            for name in self._engine.inputs
        }
        results = self._try(joined)
        if isinstance(results, Exception):
            # One request may be at fault. The others must not fail because of it.
            return [self._try(each.inputs) for each in batch]
        ends = np.cumsum([each.rows for each in batch])
        return [
            {name: array[end - each.rows : end] for name, array in results.items()}
            for each, end in zip(batch, ends)
        ]

    def _try(self, inputs: Arrays) -> Any:
        try:
            return run(self._engine, inputs)
        except _core.Error as error:
            return BadRequestError(str(error)) if self._refuses(inputs) else error
        except Exception as error:  # a plugin may raise anything
            return error

    def _refuses(self, inputs: Arrays) -> bool:
        """Whether the engine refuses the inputs, for example because extents that must agree do
        not. `submit` checks that before a run."""
        try:
            if isinstance(self._engine, ShardedEngine):
                self._engine.check(**inputs)
            else:
                self._engine.submit(**inputs).cancel()
        except _core.QueueFullError:
            return False
        except _core.Error:
            return True
        return False

    def _finish(
        self, batch: Sequence[_Pending], begun: int, done: asyncio.Future[list[Any]]
    ) -> None:
        self._running -= 1
        _trace(batch, begun)
        error = done.exception()
        results = [error] * len(batch) if error else done.result()
        for each, result in zip(batch, results):
            if each.future.done():
                continue  # the client has gone
            if isinstance(result, BaseException):
                each.future.set_exception(result)
            else:
                each.future.set_result(result)
        self._pump()


def _load(path: str | os.PathLike[str], options: ModelOptions) -> _core.Engine | ShardedEngine:
    if options.ranks == 1:
        return _api.load(path, **options.load)
    shards = open_for(os.fspath(path), options.ranks)
    split = [port.name for port in (*shards.inputs, *shards.outputs) if port.axis is not None]
    if split:
        raise _core.Error(
            f"'{shards.manifest}' splits {split} over the ranks, and a server needs them whole; cut the model "
            "without rules 'split' for them"
        )
    return options.sharded(shards, plugins=options.plugins, **options.load)


def _trace(batch: Sequence[_Pending], begun: int) -> None:
    """Adds spans of a finished batch to its traced requests."""
    traced = [each for each in batch if each.trace is not None]
    if not traced:
        return
    ended = time.time_ns()
    rows = sum(each.rows for each in batch)
    for each in traced:
        assert each.trace is not None
        each.trace.add("queue", each.queued, begun, {})
        each.trace.add(
            "run",
            begun,
            ended,
            {"opwright.batch.rows": rows, "opwright.batch.requests": len(batch)},
        )


def run(engine: _core.Engine | ShardedEngine, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Runs the engine. A single output is also returned in a dict."""
    # Tensors in a body may be misaligned. Kernels need the alignment of their type.
    aligned = {name: np.require(array, requirements=["C", "A"]) for name, array in inputs.items()}
    results = engine(**aligned)
    return results if isinstance(results, dict) else {engine.outputs[0]: results}


def _is_batchable(engine: _core.Engine | ShardedEngine, signature: Signature) -> bool:
    """Whether requests can be batched: the first extent of every tensor varies, and a run of two
    different rows gives the same results as two runs."""
    specs = [*signature.inputs, *signature.outputs]
    if not all(spec.shape and spec.shape[0] == -1 for spec in specs):
        return False
    if any(engine.engine.is_shape_inference_io(spec.name) for spec in signature.inputs):
        return False
    for profile in signature.profiles:
        lows = {low[0] for low, _ in profile.values()}
        highs = {high[0] for _, high in profile.values()}
        if max(lows) > 1 or min(highs) < 2:
            continue
        random = np.random.default_rng(0)
        rows: list[dict[str, np.ndarray[Any, Any]]] = [{}, {}]
        for spec in signature.inputs:
            for row in rows:
                shape = (1, *profile[spec.name][0][1:])
                if spec.datatype[0] in "FB" and spec.datatype != "BOOL":
                    row[spec.name] = random.standard_normal(shape).astype(spec.numpy_type)
                else:
                    row[spec.name] = random.integers(0, 2, shape).astype(spec.numpy_type)
        try:
            single = [run(engine, row) for row in rows]
            both = run(engine, {name: np.concatenate([r[name] for r in rows]) for name in rows[0]})
        except Exception as error:  # a plugin may raise anything
            _log.warning("requests are not batched, since a run of made-up rows failed: %s", error)
            return False
        for name, result in both.items():
            parts = np.concatenate([np.atleast_1d(each[name]) for each in single])
            result = np.asarray(result, np.float64)
            parts = parts.astype(np.float64)
            scale = max(float(np.abs(parts).max(initial=0)), 1e-6)
            if parts.shape != result.shape or not np.allclose(
                parts / scale, result / scale, atol=0.02, rtol=0, equal_nan=True
            ):
                _log.warning(
                    "requests are not batched, since output '%s' of a row depends on the other "
                    "rows beside it",
                    name,
                )
                return False
        return True
    return False
