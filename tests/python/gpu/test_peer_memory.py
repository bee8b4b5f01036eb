"""Memory that the GPUs of ranks share: small all-reduces in it in place of a call of NCCL, and plugins that use it.

The limits of sizes are those of docs/multi-gpu.md.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator

import numpy as np
import pytest

import collective_layers
import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from collective_layers import Reduce, collective
from cuda_driver import DeviceArray, Stream, driver
from gpu_ranks import Rank, Ranks, obstacle
from paths import SAMPLES

sys.path.insert(0, str(SAMPLES / "peer_memory"))
import all_reduce_rms_norm as sample  # noqa: E402

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


def plan_of(
    ranks: int, dtype: trt.DataType = trt.float32, *reductions: Reduce, most: int = 400_000
) -> bytes:
    """All-reduces of vectors with up to so many elements."""

    def add(network, x):
        return [
            collective(network, x, trt.CollectiveOperation.ALL_REDUCE, each, ranks=ranks)
            for each in reductions or (Reduce.SUM,)
        ]

    inputs = {"x": (dtype, (most // 4,))}
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


# Plugins.

EPSILON = 1e-5


def normalized(total: np.ndarray, scale: np.ndarray) -> np.ndarray:
    total = total.astype(np.float64)
    return total / np.sqrt(np.mean(total * total, 1, keepdims=True) + EPSILON) * scale


def scale_of(columns: int) -> np.ndarray:
    return np.linspace(0.5, 1.5, columns).astype(np.float16)


def plan_between_layers(ranks: int, columns: int) -> bytes:
    """The sample's plugin behind an all-reduce of Opwright's own, and another one behind that."""

    def add(network, x):
        scale = network.add_constant((1, columns), scale_of(columns).reshape(1, -1)).get_output(0)
        first = collective(network, x, trt.CollectiveOperation.ALL_REDUCE, Reduce.MAX, ranks=ranks)
        second = sample.write_fused(network, first, scale, EPSILON)
        third = sample.write_fused(network, x, scale, EPSILON)
        summed = collective(
            network, second, trt.CollectiveOperation.ALL_REDUCE, Reduce.SUM, ranks=ranks
        )
        return [first, second, third, summed]

    inputs = {"x": (trt.float16, (5, columns))}
    return bytes(collective_layers.engine_of(add, inputs, dynamic=True, device="cuda").serialize())


def runs_of_the_plugin(rank: Rank, plan: bytes, columns: int, sizes: list[int]) -> list[str]:
    wrong = []
    runner, scale = rank.runner(plan), scale_of(columns)
    for run, rows in enumerate(sizes):
        parts = [
            values(each, run, rows * columns, np.float16).reshape(rows, columns)
            for each in range(rank.ranks)
        ]
        runner.place({"x": parts[rank.number]})
        first, second, third, summed = runner.run()
        most = np.maximum.reduce(parts)
        wanted = normalized(most.astype(np.float64) * rank.ranks, scale)
        both = normalized(sum(part.astype(np.float64) for part in parts), scale)
        for what, found, want in (
            ("first", first, most),
            ("second", second, wanted),
            ("third", third, both),
            ("sum", summed, wanted * rank.ranks),
        ):
            if not np.allclose(found, want, rtol=4e-3, atol=4e-3):
                wrong.append(f"run {run}, {what}: {np.abs(found - want).max()}")
    return wrong


def test_a_plugin_between_all_reduces(two: Ranks) -> None:
    results = two.call(
        runs_of_the_plugin, plan_between_layers(2, 514), 514, [1, 20, 3, 1, 1, 7, 20]
    )
    assert results == [[], []]


@emulated_gpu.emulated_only
def test_a_plugin_of_four_ranks() -> None:
    ranks = Ranks(4)
    try:
        results = ranks.call(runs_of_the_plugin, plan_between_layers(4, 66), 66, [2, 1, 3, 2])
        assert results == 4 * [[]]
    finally:
        ranks.close()


class Rows(Vectors):
    """A context of the sample's plugin."""

    def __init__(self, rank: Rank, plan: bytes, columns: int):
        super().__init__(rank, plan, np.float16)
        self.columns = columns

    def place(self, count: int, run: int) -> list[DeviceArray]:
        shape = (count, self.columns)
        if count not in self.arrays:
            self.arrays[count] = [
                DeviceArray(np.zeros(shape, np.float16), self.rank.number) for _ in self.names
            ]
        x, *outputs = self.arrays[count]
        x.write(values(self.rank.number, run, count * self.columns, np.float16))
        self.context.set_input_shape("x", shape)
        for name, array in zip(self.names, self.arrays[count], strict=True):
            self.context.set_tensor_address(name, array.ptr)
        return outputs

    def is_right(self, output: DeviceArray, count: int, run: int) -> bool:
        total = sum(
            values(each, run, count * self.columns, np.float16).astype(np.float64)
            for each in range(self.rank.ranks)
        ).reshape(count, self.columns)
        want = normalized(total, scale_of(self.columns))
        return np.allclose(output.numpy(), want, rtol=2e-3, atol=2e-3)


def plugin_on_two_streams(rank: Rank, plan: bytes, columns: int) -> list[bool]:
    """Two contexts share the memory; the ranks wait for their streams in different orders."""
    both = [Rows(rank, plan, columns), Rows(rank, plan, columns)]
    right = []
    for run in range(4):
        outputs = [each.place(2 + i, run)[0] for i, each in enumerate(both)]
        for _ in range(3):
            for each in both:
                each.enqueue()
        for each in both if rank.number == 0 else reversed(both):
            each.stream.synchronize()
        right += [
            each.is_right(output, 2 + i, run)
            for i, (each, output) in enumerate(zip(both, outputs, strict=True))
        ]
    return right


def test_a_plugin_in_contexts_of_two_streams(two: Ranks) -> None:
    plan = sample.build(2, scale_of(130), True)
    assert two.call(plugin_on_two_streams, plan, 130) == 2 * [8 * [True]]


def graph_of_the_plugin(rank: Rank, plan: bytes, columns: int) -> list[bool]:
    rows = Rows(rank, plan, columns)
    (output,) = rows.place(3, 0)
    rows.enqueue()
    rows.stream.synchronize()
    right = [rows.is_right(output, 3, 0)]
    gpu, handle = driver(), ctypes.c_void_p(rows.stream.handle)
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call_here("cuStreamBeginCapture_v2", handle, 1)
    for _ in range(2):
        rows.enqueue()
    gpu.call_here("cuStreamEndCapture", handle, ctypes.byref(graph))
    gpu.call_here(
        "cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0)
    )
    for run in range(1, 5):
        rows.place(3, run)
        gpu.call_here("cuGraphLaunch", executable, handle)
        rows.stream.synchronize()
        right.append(rows.is_right(output, 3, run))
    gpu.call_here("cuGraphExecDestroy", executable)
    gpu.call_here("cuGraphDestroy", graph)
    return right


def test_a_plugin_in_a_graph(two: Ranks) -> None:
    plan = sample.build(2, scale_of(130), True)
    assert two.call(graph_of_the_plugin, plan, 130) == 2 * [5 * [True]]


def test_the_layers_of_the_sample_give_the_same(two: Ranks) -> None:
    plan = sample.build(2, scale_of(130), False)
    assert two.call(plugin_on_two_streams, plan, 130) == 2 * [8 * [True]]


def error_of_a_run(rank: Rank, plan: bytes, columns: int) -> str:
    rows = Rows(rank, plan, columns)
    rows.place(1, 0)
    try:
        rows.enqueue()
        rows.stream.synchronize()
    except (trt.Error, RuntimeError) as error:
        return str(error)
    return "no error"


@emulated_gpu.emulated_only
def test_a_plugin_gets_none_where_gpus_do_not_reach_each_other() -> None:
    ranks = Ranks(2, environment=[{}, {"NCCL_P2P_DISABLE": "1"}])
    try:
        texts = ranks.call(error_of_a_run, sample.build(2, scale_of(66), True), 66)
    finally:
        ranks.close()
    for text in texts:
        assert "the ranks' GPUs do not reach each other's memory" in text


@trtp.register("peers::asks")
def asks_desc(x: trtp.TensorDesc, size: int, name: str) -> trtp.TensorDesc:
    return x.like()


seen: list[trtp.PeerMemory] = []
kept: list[trtp.Comm] = []


@trtp.impl("peers::asks", device="cuda")
def asks(x, size, name, outputs, stream, comm: trtp.Comm):
    """By rank: a % in the name becomes the rank, and negative sizes differ."""
    kept.append(comm)
    size = size if size > 0 else -size + comm.rank
    seen.append(comm.peer_memory(name.replace("%", str(comm.rank)), size))


def asking_plan(*wishes: tuple[str, int]) -> bytes:
    def add(network, x):
        for name, size in wishes:
            plugin = trtp.op.peers.asks(x, size=size, name=name)
            x = network.add_plugin(plugin, aot=False).get_output(0)
        return [x]

    inputs = {"x": (trt.float32, (1,))}
    return bytes(collective_layers.engine_of(add, inputs, device="cuda").serialize())


def ask(rank: Rank, plan: bytes) -> str:
    seen.clear()
    try:
        rank.run(plan, {"x": np.zeros(1, np.float32)})
    except trt.Error as error:
        return str(error)
    return "no error"


def what_was_seen(rank: Rank, plan: bytes) -> list:
    text = ask(rank, plan)
    found = [
        (each.rank, each.num_ranks, each.size, len(set(each.pointers)), each.pointers[rank.number])
        for each in seen
    ]
    counters = driver().read(seen[0].counters, (1024,), np.uint32, rank.number)
    buffer = driver().read(seen[0].pointers[rank.number], (100,), np.uint8, rank.number)
    table = driver().read(seen[0].table, (2,), np.uint64, rank.number)
    around = [seen[0].pointers[(rank.number + i) % 2] for i in range(2)]
    is_fresh = not counters.any() and not buffer.any() and table.tolist() == around
    try:
        kept[-1].peer_memory("one", 100)
        late = "no error"
    except trt.Error as error:
        late = str(error)
    return [text, found, is_fresh, late]


def test_what_a_plugin_gets(two: Ranks) -> None:
    name = uuid.uuid4().hex
    plan = asking_plan((name, 100), (f"{name}b", 3 << 20), (name, 100))
    for rank, (text, found, is_fresh, late) in enumerate(two.call(what_was_seen, plan)):
        assert text == "no error" and is_fresh
        assert [each[:4] for each in found] == [(rank, 2, size, 2) for size in (100, 3 << 20, 100)]
        assert found[0] == found[2] and found[0][4] != found[1][4]
        assert "gone" in late or "outside of enqueue" in late
    for text in two.call(ask, asking_plan((name, 101))):
        assert "has 100 bytes, and 101 are asked for" in text


@pytest.mark.parametrize(
    "wish, words",
    [
        (("%", 8), ["'0' of 8 bytes", "'1'"]),
        (("sizes", -8), ["of 8 bytes", "of 9 bytes", "in the same order"]),
        (("", 8), ["1 to 119 characters"]),
        (("a" * 120, 8), ["1 to 119 characters"]),
        (("huge", 1 << 45), [f"do not have {1 << 45} bytes"]),
    ],
    ids=["names", "sizes", "empty", "long", "huge"],
)
def test_what_ranks_must_agree_on(two: Ranks, wish: tuple, words: list[str]) -> None:
    for text in two.call(ask, asking_plan(wish)):
        assert all(word in text for word in words), text
    assert two.call(ask, asking_plan((uuid.uuid4().hex, 8))) == 2 * ["no error"]


def memory_of_a_plugin(rank: Rank, plan: bytes) -> list[int]:
    before = free_memory(rank)
    communicator = trt.Communicator("a plugin's memory", rank.number, rank.ranks, 20, rank.device)
    without = free_memory(rank)
    context = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan).create_execution_context()
    context.set_communicator(communicator)
    array = DeviceArray(np.zeros(1, np.float32), rank.number)
    for name in ("x", "y0"):
        context.set_tensor_address(name, array.ptr)
    context.execute_async_v3(0)
    driver().synchronize(rank.number)
    within = free_memory(rank)
    seen.clear()
    del context, communicator
    array.free()
    return [without - within, before - free_memory(rank)]


@emulated_gpu.emulated_only
def test_a_plugins_memory_is_given_back(two: Ranks) -> None:
    for taken, left in two.call(memory_of_a_plugin, asking_plan(("memory", 3 << 20))):
        assert taken >= 4 << 20 and left == 0


def lose_in_the_plugin(rank: Rank, plan: bytes, columns: int) -> list:
    rows = Rows(rank, plan, columns)
    rows.place(1, 0)
    rows.enqueue()
    rows.stream.synchronize()
    if rank.number == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    rows.enqueue()
    rows.stream.synchronize()
    try:
        rank.communicator.check()
        text = "no error"
    except trt.Error as error:
        text = str(error)
    return [text, time.monotonic() - start]


def test_a_rank_that_dies_ends_the_plugins_kernel() -> None:
    ranks = Ranks(2)
    try:
        plan = sample.build(2, scale_of(66), True)
        (text, seconds), ended = ranks.call(lose_in_the_plugin, plan, 66)
    finally:
        ranks.close()
    assert ended == "ended" and seconds < 15 and "rank 1 has ended" in text


# Graphs that contexts capture.

SMALL = 8000


def chain_plan(has_graphs: bool = True) -> bytes:
    """All-reduces between other kernels, all of them small."""
    builder = trt.Builder(trt.Logger())
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.cuda_graphs = has_graphs
    x = network.add_input("x", trt.float32, (-1,))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1,), (100,), (SMALL,))
    config.add_optimization_profile(profile)
    y = network.add_unary(x, trt.UnaryOperation.ABS).get_output(0)
    for _ in range(2):
        y = collective(network, y, trt.CollectiveOperation.ALL_REDUCE, Reduce.SUM, ranks=2)
        y = network.add_unary(y, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return bytes(builder.build_serialized_network(network, config))


def chained(count: int, run: int) -> np.ndarray:
    return 2 * reduced([np.abs(values(rank, run, count)) for rank in range(2)])


def graph_launches() -> int:
    return driver().calls("cuGraphLaunch") if emulated_gpu.IS_EMULATED else -1


def runs_with_own_graphs(rank: Rank, plans: list[bytes], sizes: list[int]) -> tuple[list[str], int]:
    vectors, wrong, before = Vectors(rank, plans[rank.number]), [], graph_launches()
    for run, count in enumerate(sizes):
        (output,) = vectors.run(count, run)
        if not np.array_equal(output, chained(count, run)):
            wrong.append(f"run {run}")
    return wrong, graph_launches() - before


def test_contexts_capture_small_all_reduces(two: Ranks) -> None:
    """A rank need not know what the others do: one of them has no graphs."""
    plans = [chain_plan(), chain_plan(has_graphs=False)]
    results = two.call(runs_with_own_graphs, plans, 8 * [1000] + 6 * [3] + 6 * [1000])
    assert [wrong for wrong, _ in results] == [[], []]
    if emulated_gpu.IS_EMULATED:
        assert [count for _, count in results] == [5 + 3 + 3, 0]


def own_graphs_of_two_streams(rank: Rank, plan: bytes) -> tuple[list[str], int]:
    """Graphs and plain runs of contexts that share the communicator."""
    both, wrong, before = [Vectors(rank, plan), Vectors(rank, plan)], [], graph_launches()
    for run in range(8):
        counts = [700, 1500 if run < 6 else 1501]  # the second one's last runs are plain
        outputs = [each.place(count, run)[0] for each, count in zip(both, counts, strict=True)]
        for _ in range(3):
            for each in both:
                each.enqueue()
        for each in both if rank.number == 0 else reversed(both):
            each.stream.synchronize()
        for count, output in zip(counts, outputs, strict=True):
            if not np.array_equal(output.numpy(), chained(count, run)):
                wrong.append(f"{count} elements, run {run}")
    return wrong, graph_launches() - before


def test_graphs_of_contexts_on_two_streams(two: Ranks) -> None:
    for wrong, count in two.call(own_graphs_of_two_streams, chain_plan()):
        assert not wrong
        assert count > 20 if emulated_gpu.IS_EMULATED else True


def own_graphs_with_other_communicators(rank: Rank, plan: bytes, names: list[str]) -> list:
    vectors, found = Vectors(rank, plan), []
    made = [trt.Communicator(name, rank.number, 2, 20, rank.device) for name in names]
    for communicator in (*made, None):
        vectors.context.set_communicator(communicator or rank.communicator)
        before = graph_launches()
        right = [np.array_equal(vectors.run(50, run)[0], chained(50, run)) for run in range(6)]
        found.append((all(right), graph_launches() - before))
    vectors.context.set_communicator(rank.communicator)
    return found


def test_another_communicator_begins_new_graphs(two: Ranks) -> None:
    names = [uuid.uuid4().hex for _ in range(2)]
    count = 3 if emulated_gpu.IS_EMULATED else 0
    for found in two.call(own_graphs_with_other_communicators, chain_plan(), names):
        assert found == 3 * [(True, count)]


@emulated_gpu.emulated_only
def test_nccls_all_reduces_stay_outside_of_graphs() -> None:
    ranks = Ranks(2, environment=2 * [{"NCCL_P2P_DISABLE": "1"}])
    try:
        results = ranks.call(runs_with_own_graphs, 2 * [chain_plan()], 6 * [100])
    finally:
        ranks.close()
    assert results == 2 * [([], 0)]


def lose_in_a_graph(rank: Rank, plan: bytes) -> list:
    vectors = Vectors(rank, plan)
    for run in range(6):
        vectors.run(100, run)
    if rank.number == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    vectors.enqueue()
    vectors.stream.synchronize()
    texts = []
    for call in (rank.communicator.check, vectors.enqueue):
        try:
            call()
            texts.append("no error")
        except trt.Error as error:
            texts.append(str(error))
    return texts


def test_a_rank_that_dies_ends_the_graph() -> None:
    ranks = Ranks(2)
    try:
        texts, ended = ranks.call(lose_in_a_graph, chain_plan())
    finally:
        ranks.close()
    assert ended == "ended"
    for text in texts:
        assert "rank 1 has ended" in text
