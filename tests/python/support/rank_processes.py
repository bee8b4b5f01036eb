"""A process for each rank, and what they compute."""

from __future__ import annotations

import multiprocessing as mp
import os
import socket
import time
import traceback
import uuid
from collections.abc import Callable

import nccl
import opwright as trt
from cuda_driver import driver

CONTEXT = mp.get_context("fork")


def meeting_place() -> dict[str, str]:
    """Where ranks meet over sockets of this host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return {"address": address, "token": uuid.uuid4().hex}


def in_ranks(
    ranks: int,
    function: Callable,
    timeout: float = 10.0,
    limit: float = 60.0,
    device: str = "cpu",
    meeting: dict[str, str] | None = None,
) -> list:
    """The results, or the texts of errors, of function(rank, communicator) in a process for each rank.

    :param meeting: where ranks on the CPU meet over sockets.
    """
    name = uuid.uuid4().hex if device == "cpu" else nccl.unique_id()

    def communicator(rank: int):
        if device == "cpu":
            return trt.Communicator(name, rank, ranks, timeout, **(meeting or {}))
        os.environ["OPWRIGHT_EMULATED_NCCL_TIMEOUT"] = str(timeout)
        driver().make_current()
        return nccl.communicator(name, rank, ranks)

    def work(rank: int, pipe) -> None:
        try:
            pipe.send(function(rank, communicator(rank)))
        except trt.Error as error:
            pipe.send(str(error))
        except BaseException:
            pipe.send(traceback.format_exc())

    processes = []
    for rank in range(ranks):
        mine, theirs = CONTEXT.Pipe(False)
        process = CONTEXT.Process(target=work, args=(rank, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append((process, mine))
    results = []
    end = time.monotonic() + limit
    for process, pipe in processes:
        try:
            results.append(pipe.recv() if pipe.poll(max(0, end - time.monotonic())) else "hangs")
        except EOFError:
            results.append(None)
        process.join(5)
        process.kill()
    return results
