"""Small all-reduces of ranks on GPUs, which write into each other's memory in place of a call of NCCL.

The limits of sizes are those of docs/multi-gpu.md.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Iterator

import numpy as np
import pytest

import collective_layers
import emulated_gpu
import opwright as trt
from collective_layers import Reduce, collective
from cuda_driver import DeviceArray, Stream, driver
from gpu_ranks import Rank, Ranks, obstacle

#: Most bytes of one tensor, and most bytes that a rank sends to all others.
MOST, MOST_SENT = 512 << 10, 1 << 20
REDUCTIONS = (Reduce.SUM, Reduce.PROD, Reduce.MAX, Reduce.MIN, Reduce.AVG)


@pytest.fixture(scope="module", autouse=True)
def gpus() -> Iterator[None]:
    if reason := obstacle(2):
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPWRIGHT_EMULATED_DEVICES", "4")  # of processes that start from here on
        yield


@pytest.fixture(scope="module")
def two(gpus) -> Iterator[Ranks]:
    made = Ranks(2)
    yield made
    made.close()


def plan_of(ranks: int, dtype: trt.DataType = trt.float32, *reductions: Reduce) -> bytes:
    """All-reduces of vectors with up to 400000 elements."""

    def add(network, x):
        return [
            collective(network, x, trt.CollectiveOperation.ALL_REDUCE, each, ranks=ranks)
            for each in reductions or (Reduce.SUM,)
        ]

    inputs = {"x": (dtype, (100_000,))}
    return bytes(collective_layers.engine_of(add, inputs, dynamic=True, device="cuda").serialize())


def values(rank: int, run: int, count: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng((run, rank)).normal(size=count).astype(dtype)


def reduced(parts: list[np.ndarray], reduction: Reduce = Reduce.SUM) -> np.ndarray:
    """In FP32, in the order of the ranks, rounded once."""
    combine = {Reduce.PROD: np.multiply, Reduce.MAX: np.maximum, Reduce.MIN: np.minimum}
    total = parts[0].astype(np.float32)
    for part in parts[1:]:
        total = combine.get(reduction, np.add)(total, part.astype(np.float32))
    if reduction == Reduce.AVG:
        total = total / np.float32(len(parts))
    return total.astype(parts[0].dtype)


class Vectors:
    """A context of one of the plans, with arrays of several sizes."""

    def __init__(self, rank: Rank, plan: bytes, dtype: type = np.float32):
        self.rank, self.dtype, self.stream = rank, dtype, Stream(rank.number)
        self.runner = rank.runner(plan)
        self.context, self.names = self.runner.context, list(self.runner.engine)
        self.arrays: dict[int, list[DeviceArray]] = {}

    def place(self, count: int, run: int) -> list[DeviceArray]:
        """Writes the input of a run, and gives its outputs."""
        if count not in self.arrays:
            self.arrays[count] = [
                DeviceArray(np.full(count, 77, self.dtype), self.rank.number) for _ in self.names
            ]
        arrays = self.arrays[count]
        arrays[0].write(values(self.rank.number, run, count, self.dtype))
        self.context.set_input_shape("x", (count,))
        for name, array in zip(self.names, arrays, strict=True):
            self.context.set_tensor_address(name, array.ptr)
        return arrays[1:]

    def enqueue(self) -> None:
        self.context.execute_async_v3(self.stream.handle)

    def run(self, count: int, run: int) -> list[np.ndarray]:
        outputs = self.place(count, run)
        self.enqueue()
        self.stream.synchronize()
        return [output.numpy() for output in outputs]

    def wanted(self, count: int, run: int, reduction: Reduce = Reduce.SUM) -> np.ndarray:
        parts = [values(each, run, count, self.dtype) for each in range(self.rank.ranks)]
        return reduced(parts, reduction)


def launches() -> int:
    """Kernels of Opwright's own so far; -1: not known."""
    return driver().calls("cuLaunchKernelEx") if emulated_gpu.IS_EMULATED else -1


def runs_of_sizes(
    rank: Rank, plan: bytes, dtype: type, sizes: list[int], runs: int, reductions: list[Reduce]
) -> tuple[list[str], int]:
    """What is wrong, and how many kernels have run."""
    vectors, wrong, before = Vectors(rank, plan, dtype), [], launches()
    for run in range(runs):
        count = sizes[run % len(sizes)]
        outputs = vectors.run(count, run)
        for reduction, output in zip(reductions, outputs, strict=True):
            want = vectors.wanted(count, run, reduction)
            is_small = want.nbytes <= min(MOST, MOST_SENT // (rank.ranks - 1))
            if not (
                np.array_equal(output, want) if is_small else np.allclose(output, want, rtol=1e-3)
            ):
                wrong.append(f"run {run}: {reduction} of {count} elements")
    return wrong, launches() - before


def check_runs(results: list, kernels: int) -> None:
    for rank, (wrong, count) in enumerate(results):
        assert not wrong, (rank, wrong)
        assert count == (kernels if emulated_gpu.IS_EMULATED else 0), (rank, count)


def test_sizes_by_turns(two: Ranks) -> None:
    sizes = [1, 2, 3, 5001, 511, 512, 4, 513, 2048, 1]
    plan = plan_of(2)
    check_runs(two.call(runs_of_sizes, plan, np.float32, sizes, 300, [Reduce.SUM]), 300)
    # The largest ones go over NCCL.
    sizes = [MOST // 4, 7, MOST // 4 + 1, MOST // 4 - 1, 400_000, MOST // 4]
    check_runs(two.call(runs_of_sizes, plan, np.float32, sizes, 12, [Reduce.SUM]), 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_all_reductions(two: Ranks, dtype: type) -> None:
    """test_two_gpus.py has BF16."""
    reductions = list(REDUCTIONS if dtype == np.float32 else (Reduce.SUM, Reduce.MAX))
    plan = plan_of(2, trt.float32 if dtype == np.float32 else trt.float16, *reductions)
    sizes = [1, 3, 1026, 4095, 33]
    kernels = 20 * len(reductions)
    check_runs(two.call(runs_of_sizes, plan, dtype, sizes, 20, reductions), kernels)


@emulated_gpu.emulated_only
def test_four_ranks() -> None:
    ranks = Ranks(4)
    most = MOST_SENT // 3 // 8 * 4  # elements
    sizes = [1000, 3, most, most + 1, 4097]
    try:
        plan = plan_of(4, trt.float16)
        check_runs(ranks.call(runs_of_sizes, plan, np.float16, sizes, 20, [Reduce.SUM]), 16)
    finally:
        ranks.close()


def runs_with_graphs(rank: Rank, plan: bytes) -> list[str]:
    """A graph with three calls, between runs of another size."""
    captured, direct = Vectors(rank, plan), Vectors(rank, plan)
    direct.stream = captured.stream
    (output,) = captured.place(1500, 0)
    captured.enqueue()
    captured.stream.synchronize()
    gpu, handle = driver(), ctypes.c_void_p(captured.stream.handle)
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call_here("cuStreamBeginCapture_v2", handle, 1)
    for _ in range(3):
        captured.enqueue()
    gpu.call_here("cuStreamEndCapture", handle, ctypes.byref(graph))
    options = ctypes.c_uint64(0)
    gpu.call_here("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, options)
    wrong = []
    for run in range(1, 13):
        captured.place(1500, run)
        gpu.call_here("cuGraphLaunch", executable, handle)
        captured.stream.synchronize()
        if not np.array_equal(output.numpy(), captured.wanted(1500, run)):
            wrong.append(f"the graph's launch {run}")
        if run % 3 and not np.array_equal(direct.run(3000, run)[0], direct.wanted(3000, run)):
            wrong.append(f"run {run}")
    gpu.call_here("cuGraphExecDestroy", executable)
    gpu.call_here("cuGraphDestroy", graph)
    return wrong


def test_graphs_between_runs(two: Ranks) -> None:
    assert two.call(runs_with_graphs, plan_of(2)) == [[], []]


def runs_of_two_streams(rank: Rank, plan: bytes) -> list[str]:
    """The ranks wait for their streams in different orders."""
    both = [Vectors(rank, plan), Vectors(rank, plan)]
    wrong = []
    for run in range(6):
        outputs = [each.place(800 * (i + 1), run)[0] for i, each in enumerate(both)]
        for _ in range(3):
            for each in both:
                each.enqueue()
        for each in both if rank.number == 0 else reversed(both):
            each.stream.synchronize()
        for i, output in enumerate(outputs):
            if not np.array_equal(output.numpy(), both[i].wanted(800 * (i + 1), run)):
                wrong.append(f"stream {i}, run {run}")
    return wrong


def test_contexts_of_two_streams(two: Ranks) -> None:
    assert two.call(runs_of_two_streams, plan_of(2)) == [[], []]


def free_memory(rank: Rank) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    arguments = (ctypes.byref(free), ctypes.byref(total))
    driver().call("cuMemGetInfo_v2", *arguments, device=rank.number)
    return free.value


def makes_and_leaves(rank: Rank, names: list[str]) -> list[int]:
    found = []
    for name in names:
        before = free_memory(rank)
        made = trt.Communicator(name, rank.number, rank.ranks, 20, device=rank.device)
        within = free_memory(rank)
        del made
        found.append(before - within if within < before else -1)
        found.append(before - free_memory(rank))
    return found


@emulated_gpu.emulated_only  # NCCL keeps memory of its own, too
def test_memory_is_given_back(two: Ranks) -> None:
    names = [uuid.uuid4().hex for _ in range(3)]
    for found in two.call(makes_and_leaves, names):
        assert all(taken >= 2 << 20 for taken in found[0::2]), found
        assert found[1::2] == [0, 0, 0]


@emulated_gpu.emulated_only
@pytest.mark.parametrize(
    "environment",
    [
        {"OPWRIGHT_EMULATED_FAULT": "cuIpcOpenMemHandle=217"},  # no access to that GPU
        {"NCCL_P2P_DISABLE": "1"},
    ],
    ids=["open", "off"],
)
def test_without_access_of_one_rank_all_use_nccl(environment: dict[str, str]) -> None:
    ranks = Ranks(2, environment=[{}, environment])
    try:
        check_runs(ranks.call(runs_of_sizes, plan_of(2), np.float32, [100, 3], 4, [Reduce.SUM]), 0)
    finally:
        ranks.close()
