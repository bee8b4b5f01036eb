"""Engines behind Ray Serve: the same HTTP application, with each engine in its own replicas."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ..serving._metrics import ModelMetrics, prometheus_text
from ..serving._model import Model, ModelOptions, OverloadedError
from ..serving._repository import UnknownModelError
from ..serving._signature import BadRequestError, Signature

_RETRIES = 5


class EngineReplica:
    """A process with one engine."""

    def __init__(self, path: str, options: ModelOptions):
        self._model = Model(path, options, ModelMetrics())

    def check_health(self) -> None:
        """Ray Serve replaces a replica that raises here."""
        self._model.check_ranks()

    async def describe(self) -> Signature:
        return self._model.signature

    async def infer(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._model.infer(inputs)


class _RemoteModel:
    """A model whose engines run in other replicas."""

    def __init__(self, name: str, handle: Any, options: ModelOptions, replicas: int):
        self.name = name
        self.metrics = ModelMetrics()
        # The sum of the replicas' queues.
        self.options = ModelOptions(options.max_queue * replicas)
        self._handle = handle
        self._signature: Signature | None = None

    @property
    def signature(self) -> Signature:
        if self._signature is None:
            raise UnknownModelError(f"model '{self.name}' is not ready yet; come back later")
        return self._signature

    @property
    def is_ready(self) -> bool:
        return self._signature is not None

    async def connect(self) -> None:
        self._signature = await self._call("describe")

    async def infer(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._call("infer", inputs)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Calls a replica, and another one if that one is lost. A run has no effect but its result,
        so it can be repeated."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError
        from ray.serve.exceptions import BackPressureError, ReplicaUnavailableError

        lost = (ActorDiedError, ActorUnavailableError, ReplicaUnavailableError)
        for attempt in range(_RETRIES + 1):
            try:
                return await getattr(self._handle, method).remote(*arguments)
            except lost as error:
                if attempt == _RETRIES:
                    raise RuntimeError(
                        f"model '{self.name}': {attempt + 1} replicas were lost while they ran this "
                        "request; the log of Ray Serve says why"
                    ) from error
                await asyncio.sleep(0.05 * 2**attempt)
            except BackPressureError as error:
                raise OverloadedError(str(error)) from None
            except RayTaskError as error:
                if isinstance(error.cause, OverloadedError):
                    raise OverloadedError(str(error.cause)) from None
                raise error.cause or error from None
        raise AssertionError


class _RemoteModels:
    """A ``ModelSource`` of remote models."""

    def __init__(self, models: Mapping[str, _RemoteModel]):
        self._models = models

    @property
    def is_ready(self) -> bool:
        return all(model.is_ready for model in self._models.values())

    def model(self, name: str) -> _RemoteModel:
        if name not in self._models:
            raise UnknownModelError(
                f"there is no model '{name[:100]}'; there are {list(self._models)}"
            )
        return self._models[name]

    async def load(self, name: str) -> None:
        self.model(name)
        raise BadRequestError(
            "with Ray, serve.run(opwright.ray.deployment(...)) loads engines anew"
        )

    unload = load

    def index(self) -> list[dict[str, str]]:
        return [
            {
                "name": name,
                "version": "1",
                "state": "READY" if model.is_ready else "UNAVAILABLE",
                "reason": "",
            }
            for name, model in self._models.items()
        ]

    def metrics_text(self) -> str:
        return prometheus_text({n: (m.metrics, 0) for n, m in self._models.items()})

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        await asyncio.gather(*(model.connect() for model in self._models.values()))
        yield


def deployment(
    engines: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    *,
    replicas: int = 1,
    front_replicas: int = 1,
    actor_options: Mapping[str, Any] | None = None,
    max_queue: int = 256,
    delay: float = 0.0,
    instances: int = 1,
    max_batch: int = 0,
    ranks: int = 1,
    strategy: str = "SPREAD",
    **load: Any,
) -> Any:
    """An application for ``ray.serve.run`` that answers the KServe v2 protocol.

    Front replicas speak HTTP; the replicas with the engines are behind them. If a replica with an
    engine dies, its requests run on another one. ``serve.run`` with a new application replaces the
    replicas one after the other, each when it has answered its requests.

    :param engines: the path of an engine file, which all machines read, or paths by name.
    :param replicas: the number of replicas of each engine.
    :param front_replicas: the number of replicas that speak HTTP.
    :param actor_options: Ray's options of an engine's replica, such as ``{"num_gpus": 1}``.
    :param max_queue: the most requests that a replica has accepted and not answered; further ones
        get 503.
    :param delay: seconds that a request waits at most for others to make a batch with.
    :param instances: the number of batches that a replica runs at once.
    :param max_batch: the most rows of a batch; 1: requests run one by one; 0: as the profiles say.
    :param ranks: the number of ranks; from 2 on, engines are manifests of ``opwright.shard``. A replica
        is rank 0 and has an actor for each other rank. A replica with a dead rank is replaced.
    :param strategy: how the actors are placed, as in ``ShardedEngine``.
    :param load: arguments of ``opwright.load``.
    """
    from ray import serve

    from ._ranks import ShardedEngine

    if not isinstance(engines, Mapping):
        engines = {os.path.splitext(os.path.basename(os.fspath(engines)))[0]: engines}
    sharded = functools.partial(ShardedEngine, strategy=strategy)
    options = ModelOptions(
        max_queue, delay, instances, max_batch, load, ranks=ranks, sharded=sharded
    )
    names = {name: f"engine-{name}" for name in engines}

    def build_app() -> Any:
        # Runs in the front replica's process, when it starts.
        from ..serving._app import create_app

        source = _RemoteModels(
            {
                name: _RemoteModel(name, serve.get_deployment_handle(target), options, replicas)
                for name, target in names.items()
            }
        )
        return create_app(source, lifespan=source.lifespan)

    parts = [
        serve.deployment(
            name=names[name],
            num_replicas=replicas,
            max_ongoing_requests=max_queue,
            ray_actor_options=dict(actor_options or {}),
        )(EngineReplica).bind(os.fspath(path), options)
        for name, path in engines.items()
    ]
    front = serve.deployment(
        name="opwright-http",
        num_replicas=front_replicas,
        max_ongoing_requests=2 * max_queue * replicas * len(names),
        ray_actor_options={"num_cpus": 0},
    )(serve.ingress(build_app)())
    return front.bind(*parts)
