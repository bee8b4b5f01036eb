"""Ranks on GPUs: a process for each, which runs functions of tests."""

from __future__ import annotations

import multiprocessing
import os
import traceback
import uuid
from collections.abc import Callable, Sequence

import numpy as np

import emulated_gpu
import opwright as trt
from collective_layers import Runner
from cuda_driver import driver

SPAWN = multiprocessing.get_context("spawn")  # CUDA does not survive a fork


def obstacle(ranks: int) -> str:
    """Why this machine has no ranks on GPUs; empty: it has."""
    if emulated_gpu.IS_EMULATED:
        return "" if emulated_gpu.NCCL else "there is no emulated NCCL"
    if trt._core._gpu_count() < ranks:
        return f"needs {ranks} GPUs; there are {trt._core._gpu_count()}"
    try:
        trt.Communicator(uuid.uuid4().hex, 0, 1, device="cuda:0")
    except trt.Error as error:
        return str(error)
    return ""


class Rank:
    """What a rank's process has."""

    def __init__(self, rank: int, ranks: int, name: str, timeout: float, meeting: dict[str, str]):
        driver().make_current(rank)
        self.number, self.ranks, self.device = rank, ranks, f"cuda:{rank}"
        self.communicator = trt.Communicator(
            name, rank, ranks, timeout, device=self.device, **meeting
        )

    def runner(self, plan: bytes) -> Runner:
        runtime = trt.Runtime(trt.Logger())
        runtime.engine_host_code_allowed = True
        return Runner(runtime.deserialize_cuda_engine(plan), self.communicator, self.device)

    def run(self, plan: bytes, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        runner = self.runner(plan)
        runner.place(inputs)
        return runner.run()


def work(
    pipe,
    rank: int,
    ranks: int,
    name: str,
    timeout: float,
    environment: dict[str, str],
    meeting: dict[str, str],
) -> None:
    try:
        os.environ.update(environment)
        made = Rank(rank, ranks, name, timeout, meeting)
        pipe.send(None)
        while True:
            function, arguments = pipe.recv()
            try:
                pipe.send(function(made, *arguments))
            except BaseException:
                pipe.send(RuntimeError(traceback.format_exc()))
    except EOFError:
        pass
    except BaseException:
        pipe.send(RuntimeError(traceback.format_exc()))


class Ranks:
    """Processes that run functions, each with a GPU and a communicator."""

    def __init__(
        self,
        ranks: int = 2,
        timeout: float = 60.0,
        environment: Sequence[dict[str, str]] | None = None,
        meeting: dict[str, str] | None = None,
    ):
        """:param environment: Additional variables of each rank's process.
        :param meeting: where the ranks meet over sockets.
        """
        name = uuid.uuid4().hex
        self.processes, self.pipes = [], []
        for rank in range(ranks):
            mine, theirs = SPAWN.Pipe()
            arguments = (
                theirs,
                rank,
                ranks,
                name,
                timeout,
                environment[rank] if environment else {},
                meeting or {},
            )
            process = SPAWN.Process(target=work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(mine)
        self.answers()

    def answers(self) -> list:
        results = []
        for rank, pipe in enumerate(self.pipes):
            assert pipe.poll(100), f"rank {rank} does not answer"
            try:
                results.append(pipe.recv())
            except EOFError:
                results.append("ended")
        for result in results:
            if isinstance(result, RuntimeError):
                raise result
        return results

    def call(self, function: Callable, *arguments) -> list:
        """The results of function(rank, *arguments) of all ranks."""
        for pipe in self.pipes:
            pipe.send((function, arguments))
        return self.answers()

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)
            process.kill()
