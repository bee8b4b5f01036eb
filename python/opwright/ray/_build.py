"""Builds whose candidates are timed on many machines."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import Any

from .. import _api, _core
from ._schedule import Portion, Schedule

_log = logging.getLogger("opwright.ray")
# A portion during which this many workers died is left to the building machine.
_DEATHS = 2


class TimingWorker:
    """A process that times candidates; Ray makes an actor of it."""

    def __init__(self, model: Any, options: dict[str, Any], threads: int):
        # In OMP_NUM_THREADS Ray limits its workers to the CPUs that they requested, mostly one. The
        # build is for the threads of the building machine, if there are as many cores here.
        _core.set_max_threads(min(threads, len(os.sched_getaffinity(0))))
        self._builder, self._network, self._config = _api.definition(model, **options)

    def identity(self) -> str:
        """The identity of the device. Times hold only on devices with the same identity."""
        return str(self._config.create_timing_cache(b"").device_identity)

    def time(self, keys: Portion) -> bytes:
        """A timing cache with these keys, without those whose kernels fail."""
        wanted = set(keys)
        cache = self._config.create_timing_cache(b"")
        self._config.set_timing_cache(cache, False)
        self._builder._time_candidates(
            self._network, self._config, lambda layer, key: key in wanted
        )
        return bytes(cache.serialize())


def untimed(
    builder: _core.Builder, network: _core.INetworkDefinition, config: _core.IBuilderConfig
) -> list[tuple[str, str]]:
    """Layers and keys of the candidates that a build would time, in its order."""
    found: dict[str, str] = {}

    def note(layer: str, key: str) -> bool:
        found.setdefault(key, layer)
        return False

    builder._time_candidates(network, config, note)
    return [(layer, key) for key, layer in found.items()]


def build(
    model: Any,
    *,
    workers: int | None = None,
    timing_cache: str | os.PathLike[str] | None = None,
    worker_options: dict[str, Any] | None = None,
    start_seconds: float = 120.0,
    **options: Any,
) -> _core.Engine:
    """Build an engine as ``opwright.build`` does, with the candidates timed by workers of Ray.

    The engine is the one that this machine would build from the same times. Workers with another
    device than this machine's are left out, since their times do not hold here. If a worker dies,
    others, or in the end this machine, time its candidates.

    :param model: as for ``opwright.build``, except a network. All machines must be able to read a
        path.
    :param workers: the number of workers; by default one for each GPU of the cluster, or, for the
        CPU, one for each machine. Two on the processors of one machine disturb each other's times.
    :param timing_cache: as for ``opwright.build``, a file of this machine.
    :param worker_options: Ray's options of a worker's actor, as ``{"num_cpus": 1}``; by default
        as many CPUs as this machine has for the engine, or one CPU and one GPU for an engine on a
        GPU.
    :param start_seconds: workers that have not started by then are left out.
    :param options: all other arguments of ``opwright.build``.
    :raises Error: as ``opwright.build``. Also for a network, which cannot be sent.
    """
    import ray

    if isinstance(model, _core.INetworkDefinition):
        raise _core.Error(
            "opwright.ray.build cannot send an INetworkDefinition to workers; give it an ONNX model: "
            "a path, bytes, or a ModelProto"
        )
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    progress = options.pop("progress", False)
    builder, network, config = _api.definition(model, **options)
    if timing_cache is None:
        cache = config.create_timing_cache(b"")
    else:
        cache = _api.open_timing_cache(timing_cache, config)
    config.set_timing_cache(cache, False)
    if config.timing and (candidates := untimed(builder, network, config)):
        on_gpu = config.default_device_type == _core.DeviceType.GPU
        if workers is None:
            alive = sum(node["Alive"] for node in ray.nodes())
            workers = int(ray.cluster_resources().get("GPU", 0)) if on_gpu else alive
        actor_options = {
            "num_cpus": 1 if on_gpu else _core.max_threads(),
            "num_gpus": int(on_gpu),
            "scheduling_strategy": "SPREAD",
            **(worker_options or {}),
        }
        # Messages stay on this machine.
        sent = {k: v for k, v in options.items() if k != "logger"}
        actors = _start(
            ray.remote(**actor_options)(TimingWorker),
            (ray.put(model), sent, _core.max_threads()),
            workers,
            cache.device_identity,
            start_seconds,
        )
        _time(actors, Schedule(candidates, max(1, len(actors))), config, cache)
    engine = _api.run_build(builder, network, config, progress)
    if timing_cache is not None:
        cache.save(os.fspath(timing_cache))
    return engine


def _start(
    actor: Any, arguments: tuple[Any, ...], count: int, identity: str, seconds: float
) -> list[Any]:
    """The workers that have started and have the same device."""
    import ray

    asked = {}
    for _ in range(count):
        worker = actor.remote(*arguments)
        asked[worker.identity.remote()] = worker
    ready, late = (
        ray.wait(list(asked), num_returns=len(asked), timeout=seconds) if asked else ([], [])
    )
    usable = []
    for reference in ready:
        try:
            its = ray.get(reference)
        except ray.exceptions.RayError as error:
            _log.warning("a worker is left out, since it did not start: %s", error)
            continue
        if its == identity:
            usable.append(asked[reference])
        else:
            ray.kill(asked[reference])
            _log.warning("a worker is left out: its device is '%s', here it is '%s'", its, identity)
    for reference in late:
        ray.kill(asked[reference])
        _log.warning("a worker is left out, since it had not started after %g s", seconds)
    return usable


def _time(
    actors: list[Any], schedule: Schedule, config: _core.IBuilderConfig, cache: _core.ITimingCache
) -> None:
    """Lets the workers time all portions, and adds their times to the cache."""
    import ray

    busy: dict[Any, tuple[Any, Portion]] = {}
    idle = list(actors)
    deaths: Counter[str] = Counter()
    try:
        while True:
            while idle and (portion := schedule.take()):
                worker = idle.pop()
                busy[worker.time.remote(portion)] = (worker, portion)
            if not busy:
                return
            done, _ = ray.wait(list(busy), num_returns=1)
            worker, portion = busy.pop(done[0])
            try:
                times = config.create_timing_cache(ray.get(done[0]))
            except ray.exceptions.ActorDiedError as error:
                deaths[portion[0]] += 1
                again = deaths[portion[0]] < _DEATHS
                _log.warning(
                    "a worker was lost over %d candidates, which %s: %s",
                    len(portion),
                    "another one times" if again else "are left to this machine",
                    error,
                )
                if again:
                    schedule.give_back(portion)
                continue
            cache.combine(times, False)
            idle.append(worker)
    finally:
        for worker in actors:
            ray.kill(worker)
