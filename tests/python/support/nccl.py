"""NCCL by ctypes: communicators of ranks that share one host. The library is the one that OPWRIGHT_NCCL names."""

from __future__ import annotations

import ctypes
import os


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def _call(name: str, *arguments) -> None:
    library = ctypes.CDLL(os.environ.get("OPWRIGHT_NCCL", "libnccl.so.2"))
    result = getattr(library, name)(*arguments)
    assert result == 0, f"{name}: {result}"


def unique_id() -> bytes:
    """The name by which the ranks of a communicator find each other."""
    made = UniqueId()
    _call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)


def communicator(name: bytes, rank: int, ranks: int) -> int:
    """The address of an ncclComm_t on the thread's current GPU. Waits until all ranks have come."""
    made = ctypes.c_void_p()
    _call(
        "ncclCommInitRank",
        ctypes.byref(made),
        ranks,
        UniqueId.from_buffer_copy(name),
        rank,
    )
    return made.value or 0


def destroy(communicator: int) -> None:
    _call("ncclCommDestroy", ctypes.c_void_p(communicator))


def all_reduce(source: int, target: int, count: int, communicator: int, stream: int) -> None:
    """The sum of FP32 numbers."""
    numbers, total = 7, 0
    _call(
        "ncclAllReduce",
        ctypes.c_void_p(source),
        ctypes.c_void_p(target),
        ctypes.c_size_t(count),
        numbers,
        total,
        ctypes.c_void_p(communicator),
        ctypes.c_void_p(stream),
    )
