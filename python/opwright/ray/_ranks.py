"""Engines over ranks on several machines: rank 0 is this process, the others are Ray's actors."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .. import _core, sharding
from ..sharding._ranks import ServedRank
from ..sharding._shards import Shards


class _Actor:
    """A rank other than 0, with the methods of a rank's process."""

    def __init__(self, rank: int, actor: Any):
        self.rank, self._actor, self._answers = rank, actor, list[Any]()

    def send(self, message: object) -> None:
        self._answers.append(self._actor.answer.remote(message))

    def receive(self, end: float | None = None) -> Any:
        left = None if end is None else max(end - time.monotonic(), 0)
        try:
            return ray.get(self._answers.pop(0), timeout=left)
        except GetTimeoutError:
            raise _core.Error(f"rank {self.rank} (an actor) does not answer") from None
        except (ActorDiedError, ActorUnavailableError):
            raise self.ended() from None
        except RayError as error:
            raise _core.Error(f"rank {self.rank} (an actor) has failed: {error}") from error

    def ended(self) -> _core.Error:
        return _core.Error(f"rank {self.rank} (an actor) has ended")

    def has_ended(self) -> bool:
        try:
            ray.get(self._actor.__ray_ready__.remote(), timeout=0.2)
        except GetTimeoutError:
            return False
        except RayError:
            return True
        return False

    def kill_if_silent(self) -> None:
        if self._answers and not ray.wait(self._answers[:1], timeout=0)[0]:
            ray.kill(self._actor)

    def close(self) -> None:
        if ray.is_initialized():
            ray.kill(self._actor)

    def wait(self, end: float) -> None:
        """Ray waits for its actors."""


class ShardedEngine(sharding.ShardedEngine):
    """``opwright.sharding.ShardedEngine`` whose ranks may run on several machines.

    This process is rank 0. Each other rank is an actor of Ray. Ranks exchange tensors over TCP, on GPUs with NCCL.
    """

    def __init__(
        self,
        shards: Shards | str | os.PathLike[str],
        *,
        strategy: str = "SPREAD",
        resources: Mapping[str, float] | None = None,
        device: int | str = 0,
        timeout: float = 60.0,
        **options: Any,
    ):
        """:param shards: as for ``opwright.sharding.ShardedEngine``; all machines read the files.
        :param strategy: Ray's strategy of placing the actors: ``"SPREAD"``, ``"PACK"``, ``"STRICT_SPREAD"`` or
            ``"STRICT_PACK"``.
        :param resources: what each actor takes; by default a CPU, and with engines for GPUs a GPU.
        :param device: with engines for GPUs: rank 0's GPU.
        :param timeout: seconds after which a rank that does not come fails a run, and a cluster without room for the
            actors fails the start.
        :param options: the other arguments of ``opwright.sharding.ShardedEngine``, but ``devices``.
        """
        opened = shards if isinstance(shards, Shards) else Shards.open(shards)
        needs = dict(resources or ({"CPU": 1} if opened.device == "cpu" else {"CPU": 1, "GPU": 1}))
        self._needs, self._device = needs, device
        self._group = placement_group([needs] * max(opened.ranks - 1, 1), strategy=strategy)
        try:
            if not self._group.wait(timeout):
                raise _core.Error(
                    f"the cluster has no room for {opened.ranks - 1} actors of {needs} with the strategy {strategy}"
                )
            super().__init__(opened, timeout=timeout, **options)
        except BaseException:
            remove_placement_group(self._group)
            raise

    def _place(self, devices: Sequence[int | str] | None) -> list[str]:
        if devices is not None:
            raise _core.Error("Ray chooses the GPUs of the actors; device is rank 0's")
        if self.shards.device == "cpu":
            return ["cpu"] * self.shards.ranks
        own = f"cuda:{self._device}" if isinstance(self._device, int) else self._device
        return [own] + ["cuda:0"] * (self.shards.ranks - 1)  # an actor sees its own GPU only

    def _meeting(self) -> dict[str, str]:
        host = ray.util.get_node_ip_address()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as free:
            free.bind((host, 0))
            port = free.getsockname()[1]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return {"address": address, "token": secrets.token_hex(24)}

    def _start(self, rank: int, timeout: float) -> Any:
        others = {name: n for name, n in self._needs.items() if name not in ("CPU", "GPU")}
        actor = (
            ray.remote(ServedRank)
            .options(
                num_cpus=self._needs.get("CPU", 0),
                num_gpus=self._needs.get("GPU", 0),
                resources=others,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._group, placement_group_bundle_index=rank - 1
                ),
            )
            .remote()
        )
        return _Actor(rank, actor)

    def close(self) -> None:
        """Ends the actors."""
        super().close()
        if ray.is_initialized():
            remove_placement_group(self._group)
