"""Engines over several ranks, called as one engine is."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ._ranks import Array, RankEngine
from ._shards import Port, Shards


class _Process:
    """The process of a rank other than 0."""

    def __init__(self, rank: int, timeout: float):
        """:param timeout: seconds that a message may wait for the process to read."""
        mine, theirs = socket.socketpair()
        limit = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        package = str(Path(_core.__file__).absolute().parents[1])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from opwright.sharding._ranks import main; main()",
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"},
            )
        self.rank, self.connection = rank, Connection(mine.detach())

    def send(self, message: object) -> None:
        try:
            self.connection.send(message)
        except BlockingIOError:
            raise _core.Error(
                f"rank {self.rank} (process {self.process.pid}) reads nothing"
            ) from None
        except OSError:
            raise self.ended() from None

    def receive(self, end: float | None = None) -> Any:
        """The next message.

        :param end: the time by which it must have come.
        :raises Error: the process has ended, or the time is over.
        """
        try:
            if not self.connection.poll(None if end is None else max(end - time.monotonic(), 0)):
                raise _core.Error(f"rank {self.rank} (process {self.process.pid}) does not answer")
            return self.connection.recv()
        except (EOFError, OSError):
            raise self.ended() from None

    def ended(self) -> _core.Error:
        try:
            status = self.process.wait(1)
        except subprocess.TimeoutExpired:
            status = None
        how = "has closed its connection" if status is None else f"has ended with status {status}"
        if status is not None and status < 0:
            how = f"was ended by signal {-status}"
        return _core.Error(f"rank {self.rank} (process {self.process.pid}) {how}")

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill_if_silent(self) -> None:
        if not self.connection.poll():
            self.process.kill()

    def close(self) -> None:
        """Lets the process end, as it does when its connection does."""
        self.connection.close()

    def wait(self, end: float) -> None:
        """Waits for the process, and kills it at that time."""
        try:
            self.process.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _end(processes: Sequence[_Process], own: Sequence[RankEngine]) -> None:
    """Ends the processes: each ends when its connection does, or is killed. All ranks leave their
    communicator together."""
    for each in processes:
        each.close()
    for engine in own:
        with contextlib.suppress(_core.Error):  # it still runs
            engine.leave()
    end = time.monotonic() + 2
    for each in processes:
        each.wait(end)


_RUNS_BEFORE = 3  # with unchanged shapes, before a graph pays


def _kill_silent(processes: Sequence[_Process]) -> None:
    for each in processes:
        each.kill_if_silent()


def _devices(shards: Shards, given: Sequence[int | str] | None) -> list[str]:
    """The device of each rank."""
    if shards.device == "cpu":
        if given is not None:
            raise _core.Error(
                f"'{shards.manifest}' has engines for the CPU; devices are for engines on GPUs, which "
                'build(device="cuda") makes'
            )
        return ["cpu"] * shards.ranks
    names = [
        f"cuda:{each}" if isinstance(each, int) else each
        for each in (range(shards.ranks) if given is None else given)
    ]
    if len(names) != shards.ranks:
        raise _core.Error(f"there are {shards.ranks} ranks, and devices has {len(names)}: {names}")
    count = _core._gpu_count()
    for rank, name in enumerate(names):
        gpu = _core._parse_device(name)
        if gpu.type != _core.DeviceType.GPU or gpu.ordinal < 0:
            raise _core.Error(f"the device of rank {rank} is '{name}'; expected a GPU, 'cuda:1'")
        if gpu.ordinal >= count:
            raise _core.Error(
                f"rank {rank} needs GPU {gpu.ordinal}, and there {'is' if count == 1 else 'are'} "
                f'{count}; engines for the CPU need none: build(device="cpu")'
            )
    return names


class ShardedEngine:
    """A model over several ranks, called as an engine is: ``y = engine(x)``, ``engine({"x": x})``.

    This process is rank 0. It starts a process for each other rank, hands each call's inputs to
    them, and returns the whole outputs. Calls of several threads run one after the other. The
    processes end with ``close()``, the ``with`` block, the object or this process. If one ends
    earlier, the running call and all later ones raise ``Error`` that names it.
    """

    def __init__(
        self,
        shards: Shards | str | os.PathLike[str],
        *,
        devices: Sequence[int | str] | None = None,
        cuda_graphs: bool = False,
        timeout: float = 60.0,
        plugins: Sequence[str] = (),
        verify: bool = True,
        **load: Any,
    ):
        """:param shards: what ``opwright.shard(...).build(...)`` returned, or the path of the manifest.
        :param devices: for engines on GPUs: the GPU of each rank, such as ``[0, 1]`` or
            ``["cuda:0", "cuda:1"]``; by default rank r has GPU r.
        :param cuda_graphs: for engines on GPUs: all ranks capture a whole run, with its collectives,
            once shapes have stayed for three runs, and launch it as one CUDA graph.
        :param timeout: seconds after which a rank that does not come fails a run.
        :param plugins: files of plugins that each rank loads first.
        :param verify: whether to compare the engine files with the manifest's digests.
        :param load: arguments of ``opwright.load``, such as ``allow_host_code=True``. Engines for
            GPUs that another process built need ``allow_device_code=True``.
        :raises Error: naming the rank that cannot start.
        """
        self.shards = shards if isinstance(shards, Shards) else Shards.open(shards)
        if not self.shards.engines:
            raise _core.Error(
                f"'{self.shards.manifest}' has no engines yet: "
                "opwright.sharding.Shards.open(path).build(shapes=...) builds them"
            )
        if verify:
            self.shards.check(self.shards.engines)
        self._timeout, self._lock, self._failure = timeout, threading.Lock(), ""
        ranks = self.shards.ranks
        names = self._place(devices)
        meeting = self._meeting()
        self._may_capture = cuda_graphs and self.shards.device != "cpu"
        self._has_graph, self._runs = False, 0
        if self.shards._is_own and verify:
            load.setdefault("allow_device_code", True)
        threads = max(1, _core.max_threads() // ranks)
        options = {
            "load": load,
            "plugins": [os.path.abspath(p) for p in plugins],
            "threads": threads,
        }
        paths = [str((self.shards.folder / each).resolve()) for each in self.shards.engines]
        name = f"opwright shards {secrets.token_hex(8)}"
        self._split_outputs = [port.name for port in self.shards.outputs if port.axis is not None]
        self._others: list[Any] = []
        own: list[RankEngine] = []
        self._finalizer = weakref.finalize(self, _end, self._others, own)
        try:
            for rank in range(1, ranks):
                process = self._start(rank, timeout)
                self._others.append(process)
                config = {"path": paths[rank], "rank": rank, "ranks": ranks, "name": name}
                config["device"] = names[rank]
                config |= {"timeout": timeout, "options": options, "outputs": self._split_outputs}
                config["meeting"] = meeting
                process.send(config)
            self._own = RankEngine(paths[0], 0, names[0], options)
            own.append(self._own)
            self._await("cannot load its engine")
            for process in self._others:
                process.send(None)
            self._own.join(name, ranks, timeout, meeting)
            self._await("cannot join the others", time.monotonic() + timeout)
        except BaseException:
            self.close()
            raise

    def _place(self, devices: Sequence[int | str] | None) -> list[str]:
        """The device of each rank."""
        return _devices(self.shards, devices)

    def _meeting(self) -> dict[str, str]:
        """Where ranks of several hosts meet."""
        return {}

    def _start(self, rank: int, timeout: float) -> Any:
        """Starts the process of another rank."""
        return _Process(rank, timeout)

    def _await(self, what: str, end: float | None = None) -> list[Any]:
        """The answers of all other ranks, a text being an error."""
        answers = [process.receive(end) for process in self._others]
        for process, answer in zip(self._others, answers):
            if isinstance(answer, str):
                raise _core.Error(f"rank {process.rank} {what}: {answer}")
        return answers

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        return [port.name for port in self.shards.inputs]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [port.name for port in self.shards.outputs]

    @property
    def engine(self) -> _core.ICudaEngine:
        """Rank 0's engine."""
        return self._own.engine.engine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs all ranks.

        :param args: arrays in the order of the inputs, or a dict of arrays by name.
        :param kwargs: arrays by the inputs' names.
        :returns: the array of the output, or a dict where there are several.
        :raises Error: naming the input that does not fit, or the rank that has failed. After the
            latter the engine cannot be used again.
        """
        parts = self._parts(args, kwargs)
        with self._lock:
            if self._failure:
                raise _core.Error(
                    f"this engine cannot run any more: {self._failure}; make another one"
                )
            results = self._own.prepare(parts[0])
            try:
                others = self._run(parts, results)
            except BaseException as error:
                self._failure = str(error) or type(error).__name__
                self.close()
                raise
        for port in self.shards.outputs:
            if port.axis is not None:
                pieces = [results[port.name], *(each[port.name] for each in others)]
                results[port.name] = np.concatenate(pieces, port.axis)
        ordered = {name: results[name] for name in self.outputs}
        return ordered if len(ordered) > 1 else ordered[self.outputs[0]]

    def _run(self, parts: Sequence[Mapping[str, Array]], results: Mapping[str, Array]) -> list[Any]:
        replay = self._wants_graph()
        for process, inputs in zip(self._others, parts[1:]):
            process.send((inputs, replay))
        try:
            with self._limit():
                self._own.run(results, replay)
        except _core.Error as error:
            raise self._who(error) from error
        return self._await("has failed", time.monotonic() + self._timeout)

    def _wants_graph(self) -> bool:
        """Whether this run is a graph's. Lets all ranks capture it if it is time: NCCL wants all of them to do so in
        the same run."""
        if self._own.is_moved:
            self._has_graph, self._runs = False, 0
        self._runs += 1
        if self._has_graph or not self._may_capture or self._runs <= _RUNS_BEFORE:
            return self._has_graph
        for process in self._others:
            process.send(None)
        with self._limit():
            captured = [self._own.capture()]
        captured += self._await("cannot capture its run", time.monotonic() + self._timeout)
        self._has_graph = self._may_capture = all(captured)
        return self._has_graph

    @contextlib.contextmanager
    def _limit(self) -> Iterator[None]:
        """On GPUs: kills ranks that have not answered in time. NCCL waits for ever for one that has
        stopped, but not for one that has ended."""
        if self.shards.device == "cpu":
            yield
            return
        timer = threading.Timer(self._timeout, _kill_silent, [self._others])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _who(self, error: _core.Error) -> _core.Error:
        """What rank 0 has seen, and the ranks that have ended."""
        end = time.monotonic() + 1
        while time.monotonic() < end and not any(p.has_ended() for p in self._others):
            time.sleep(0.01)
        dead = [str(p.ended()) for p in self._others if p.has_ended()]
        return _core.Error(f"{'; '.join(dead)}: {error}" if dead else f"rank 0 has failed: {error}")

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Raises ``Error`` if a call with these arguments would be refused.

        :param args: as for a call.
        :param kwargs: as for a call.
        """
        parts = self._parts(args, kwargs)
        with self._lock:
            self._own.prepare(parts[0])

    def _parts(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[dict[str, Array]]:
        """The inputs of each rank."""
        names = self.inputs
        if len(args) == 1 and isinstance(args[0], Mapping):
            kwargs, args = {**args[0], **kwargs}, []
        if len(args) > len(names):
            raise _core.Error(f"{len(args)} arrays were given; the inputs are {names}")
        given = {**dict(zip(names, args)), **kwargs}
        if len(given) != len(args) + len(kwargs) or set(given) != set(names):
            wrong = sorted(set(given) ^ set(names)) or sorted(set(names[: len(args)]) & set(kwargs))
            raise _core.Error(f"the inputs are {names}; missing, unknown or given twice: {wrong}")
        parts: list[dict[str, Array]] = [{} for _ in range(self.shards.ranks)]
        for port in self.shards.inputs:
            array = _on_host(given[port.name])
            for part, piece in zip(parts, _pieces(array, port, self.shards.ranks)):
                part[port.name] = np.require(piece, requirements=["C", "A"])
        return parts

    def close(self) -> None:
        """Ends the processes of the other ranks."""
        self._failure = self._failure or "it was closed"
        self._finalizer()

    def __enter__(self) -> ShardedEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ShardedEngine of {self.shards.ranks} ranks: {self.inputs} -> {self.outputs}>"


def _on_host(array: Any) -> Array:
    """Arrays of NumPy and what it takes, and tensors of PyTorch on a GPU."""
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "cpu"):
        array = array.detach().cpu().numpy()
    return np.asarray(array)


def _pieces(array: Array, port: Port, ranks: int) -> list[Array]:
    if port.axis is None:
        return [array] * ranks
    if array.ndim <= port.axis or array.shape[port.axis] % ranks:
        raise _core.Error(
            f"input '{port.name}' has the shape {list(array.shape)}; expected a multiple of {ranks} along "
            f"axis {port.axis}, a part for each rank"
        )
    return np.split(array, ranks, port.axis)
