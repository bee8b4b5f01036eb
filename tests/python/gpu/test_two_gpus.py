"""Ranks on two GPUs, a process for each: collective layers over NCCL, communicators that ranks make and lose, and
models that are cut for ranks.

On the emulated GPU, with two devices and the emulated NCCL, what needs a framework or is large is left out.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import collective_layers
import emulated_gpu
import nccl
import opwright as trt
import opwright.plugin as trtp
import sharded_models as models
from collective_layers import MOVES, REDUCTIONS, ROOTED, Op, Reduce, collective, data, expected
from cuda_driver import Stream, driver
from gpu_ranks import Rank, Ranks, obstacle
from paths import ROOT
from rank_processes import meeting_place

RANKS = 2
large = pytest.mark.skipif(emulated_gpu.IS_EMULATED, reason="is slow on an emulated GPU")


@pytest.fixture(scope="module", autouse=True)
def two_gpus() -> Iterator[None]:
    if reason := obstacle(RANKS):
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPWRIGHT_EMULATED_DEVICES", "2")  # of processes that start from here on
        yield


@pytest.fixture(scope="module")
def ranks(two_gpus) -> Iterator[Ranks]:
    made = Ranks()
    yield made
    made.close()


def plan_of(add: Callable, inputs: dict[str, tuple], **options) -> bytes:
    return bytes(collective_layers.engine_of(add, inputs, device="cuda", **options).serialize())


def run_all(rank: Rank, plans: list[tuple]) -> list[list[np.ndarray]]:
    return [
        rank.run(plan, {"x": data(dtype, shape, rank.number)}) for plan, dtype, shape, *_ in plans
    ]


def with_bfloat16(network, x, add: Callable) -> list:
    """The same in BF16 between inputs and outputs of FP32."""
    inner = network.add_cast(x, trt.bfloat16).get_output(0)
    return [network.add_cast(y, trt.float32).get_output(0) for y in add(network, inner)]


@pytest.mark.parametrize("group", [None, (1, 0)], ids=["all", "group"])
def test_all_operations_and_types(ranks: Ranks, group: tuple[int, ...] | None) -> None:
    """A group lists the ranks in another order. What it reduces, Opwright's own kernel reduces."""
    order, root, shape = group or (0, 1), 1, (6, 5)
    dtypes = [trt.float32, trt.float16, trt.bfloat16, trt.int8, trt.uint8, trt.int32, trt.int64]
    dtypes.append(trt.bool)
    if emulated_gpu.IS_EMULATED and group is not None:
        dtypes = [trt.float16, trt.int32]  # each kernel is compiled for a second
    every = [] if emulated_gpu.IS_EMULATED else [trt.bfloat16, trt.int32]  # of a group
    plans = []
    for dtype in dtypes:
        cases = [
            (op, each)
            for op, each in REDUCTIONS + MOVES
            if (dtype != trt.bool or each not in (Reduce.SUM, Reduce.AVG))
            and (group is None or dtype in every or each in (None, Reduce.SUM, Reduce.MAX))
        ]

        def add(network, x, cases=cases):
            return [
                collective(network, x, op, each, root if op in ROOTED else None, group, RANKS)
                for op, each in cases
            ]

        if dtype == trt.bfloat16:
            plan = plan_of(
                lambda network, x, add=add: with_bfloat16(network, x, add),
                {"x": (trt.float32, shape)},
            )
            plans.append((plan, np.float32, shape, cases))
        else:
            plans.append((plan_of(add, {"x": (dtype, shape)}), trt.nptype(dtype), shape, cases))
    for number, result in enumerate(ranks.call(run_all, [each[:3] for each in plans])):
        for (_, dtype, _, cases), outputs in zip(plans, result, strict=True):
            parts = [data(dtype, shape, each) for each in order]
            for (op, each), y in zip(cases, outputs, strict=True):
                want = expected(op, each, order.index(root), parts, order.index(number))
                np.testing.assert_array_equal(y, want, f"rank {number}: {op} {each} {dtype}")


@trtp.register("ranks::total")
def total_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("ranks::total", device="cuda")
def total(x, outputs, stream, comm: trtp.Comm):
    assert comm.communicator.rank == comm.rank and comm.num_ranks == RANKS
    nccl.all_reduce(x.data_ptr, outputs[0].data_ptr, 15, comm.address, stream)


def test_a_plugin_between_collective_layers(ranks: Ranks) -> None:
    """It uses NCCL's communicator of Opwright's, as the layers do."""

    def add(network, x):
        first = collective(network, x, Op.ALL_REDUCE, Reduce.SUM, ranks=RANKS)
        second = network.add_plugin(trtp.op.ranks.total(first)).get_output(0)
        return [collective(network, second, Op.ALL_REDUCE, Reduce.SUM, ranks=RANKS)]

    plan = plan_of(add, {"x": (trt.float32, (3, 5))})
    want = 4 * sum(data(np.float32, (3, 5), rank) for rank in range(RANKS))
    for results in ranks.call(run_all, 2 * [(plan, np.float32, (3, 5))]):
        for (y,) in results:
            np.testing.assert_array_equal(y, want)


def attend(rank: Rank, plan: bytes, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    mine = slice(rank.number * 12, rank.number * 12 + 12)
    return rank.run(plan, {"q": q, "k": k[:, :, mine], "v": v[:, :, mine]})[0]


def test_attention_over_both(ranks: Ranks) -> None:
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=(1, 4, n, 16)).astype(np.float16) for n in (5, 24, 24))

    def add(network, *inputs):
        attention = network.add_attention(*inputs, trt.AttentionNormalizationOp.SOFTMAX, False)
        attention.num_ranks = RANKS
        return [attention.get_output(0)]

    shapes = {"q": (1, 4, 5, 16), "k": (1, 4, 12, 16), "v": (1, 4, 12, 16)}
    plan = plan_of(add, {name: (trt.float16, shape) for name, shape in shapes.items()})
    scores = np.exp(q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3))
    want = scores / scores.sum(-1, keepdims=True) @ v
    first, second = ranks.call(attend, plan, q, k, v)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, want, rtol=0, atol=5e-3)


def values(rank: int, number: int, count: int = 5001) -> np.ndarray:
    return np.random.default_rng(10 * number + rank).normal(size=count).astype(np.float32)


def check_chain(results: list, runs: int) -> None:
    for found in results:
        for number in range(runs):
            want = collective_layers.chain_of([values(rank, number) for rank in range(RANKS)])
            for y, wanted in zip(found[number], want, strict=True):
                np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def runs_with_changing_addresses(rank: Rank, plan: bytes, runs: int) -> list:
    runner, stream = rank.runner(plan), Stream(rank.number)
    kept, found = [], []
    for number in range(runs):
        if number == 0 or (rank.number == 1 and number % 2 == 0):
            runner.place({"x": values(rank.number, number)})
            kept.append((runner.inputs, runner.outputs))
        runner.inputs[0].write(values(rank.number, number))
        runner.context.execute_async_v3(stream.handle)
        stream.synchronize()
        found.append([output.numpy() for output in runner.outputs])
    return found


def runs_of_a_graph(rank: Rank, plan: bytes, runs: int) -> list:
    """The application's own graph."""
    runner, stream, found = rank.runner(plan), Stream(rank.number), []
    runner.place({"x": values(rank.number, 0)})
    runner.context.execute_async_v3(stream.handle)  # what the first run prepares is not captured
    stream.synchronize()
    gpu, handle = driver(), ctypes.c_void_p(stream.handle)
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    thread_local = 1
    gpu.call_here("cuStreamBeginCapture_v2", handle, thread_local)
    runner.context.execute_async_v3(stream.handle)
    gpu.call_here("cuStreamEndCapture", handle, ctypes.byref(graph))
    options = ctypes.c_uint64(0)
    gpu.call_here("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, options)
    for number in range(runs):
        runner.inputs[0].write(values(rank.number, number))
        gpu.call_here("cuGraphLaunch", executable, handle)
        stream.synchronize()
        found.append([output.numpy() for output in runner.outputs])
    gpu.call_here("cuGraphExecDestroy", executable)
    gpu.call_here("cuGraphDestroy", graph)
    return found


@pytest.mark.parametrize("function", [runs_with_changing_addresses, runs_of_a_graph])
def test_kernels_between_collectives(ranks: Ranks, function: Callable) -> None:
    """In place, with the graphs of the engine and of the application."""
    plan = plan_of(collective_layers.chain, {"x": (trt.float32, (5001,))})
    check_chain(ranks.call(function, plan, 9), 9)


def refusals(rank: Rank, plan: bytes, host_plan: bytes) -> list[str]:
    texts = []
    runtime = trt.Runtime(trt.Logger())
    runtime.engine_host_code_allowed = True
    driver().make_current(0)
    engines = [runtime.deserialize_cuda_engine(each) for each in (plan, host_plan)]
    driver().make_current(rank.number)
    of_host = trt.Communicator(f"host {uuid.uuid4().hex}", 0, 1)
    other = rank.communicator
    for engine, communicator in ((engines[0], of_host), (engines[1], other), (engines[0], other)):
        try:
            engine.create_execution_context().set_communicator(communicator)
            texts.append("")
        except trt.Error as error:
            texts.append(str(error))
    return [*texts, repr((other.device, other.rank, other.num_ranks)), of_host.device]


def test_communicators_of_other_devices(ranks: Ranks) -> None:
    plan = bytes(collective_layers.all_reduce(2, device="cuda").serialize())
    host_plan = bytes(collective_layers.all_reduce(2).serialize())
    first, second = ranks.call(refusals, plan, host_plan)
    for texts in (first, second):
        assert "runs on a GPU" in texts[0] and "is one of the CPU" in texts[0]
        assert "make one of the device 'cuda:0'" in texts[0]
        assert "runs on the CPU" in texts[1] and "is one of a GPU" in texts[1]
        assert texts[4] == "cpu"
    assert first[2] == "" and first[3] == "('cuda:0', 0, 2)"
    assert "runs on GPU 0" in second[2] and "is one of GPU 1" in second[2]
    assert second[3] == "('cuda:1', 1, 2)"


def test_ranks_that_do_not_come() -> None:
    with pytest.raises(trt.Error, match=r"waited 0\.3 s for rank 1, which did not come"):
        trt.Communicator(uuid.uuid4().hex, 0, 2, timeout=0.3, device="cuda:0")
    with pytest.raises(trt.Error, match="GPU 99 was asked for"):
        trt.Communicator(uuid.uuid4().hex, 0, 2, timeout=0.3, device="cuda:99")
    with pytest.raises(trt.Error, match="the device is 'gpu'; expected cpu, cuda or cuda:1"):
        trt.Communicator(uuid.uuid4().hex, 0, 2, device="gpu")


def lose(rank: Rank, plan: bytes, count: int) -> list:
    runner = rank.runner(plan)
    runner.place({"x": np.ones(count, np.float32)})
    runner.run()
    if rank.number == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    texts, start = [], time.monotonic()
    addresses = [runner.inputs[0].ptr, runner.outputs[0].ptr]
    for call in (
        lambda: runner.context.execute_v2(addresses),  # waits for the rank
        lambda: runner.context.execute_async_v3(0),
        rank.communicator.check,
    ):
        try:
            call()
            texts.append("no error")
        except trt.Error as error:
            texts.append(str(error))
    return [texts, time.monotonic() - start]


@pytest.mark.parametrize("count", [4, 200_000], ids=["peers", "nccl"])
def test_a_rank_that_dies_ends_the_run_that_waits(count: int) -> None:
    ranks = Ranks()
    try:
        plan = bytes(collective_layers.all_reduce(2, (count,), device="cuda").serialize())
        (texts, seconds), ended = ranks.call(lose, plan, count)
    finally:
        ranks.close()
    assert ended == "ended" and seconds < 15
    for text in texts:
        assert "on rank 0 of 2: rank 1 has ended" in text and "new communicator" in text
    assert "ALL_REDUCE(SUM)" in texts[1] and texts[2].startswith("Communicator '")


@pytest.mark.parametrize("count", [4, 200_000])
def test_ranks_that_met_over_sockets_reduce_with_nccl(two_gpus, count: int) -> None:
    ranks = Ranks(meeting=meeting_place())
    try:
        plan = bytes(collective_layers.all_reduce(2, (count,), device="cuda").serialize())
        results = ranks.call(run_all, [(plan, np.float32, (count,))])
        want = sum(data(np.float32, (count,), rank) for rank in range(2))
        for ((y,),) in results:
            np.testing.assert_array_equal(y, want)
        (texts, seconds), ended = ranks.call(lose, plan, count)
    finally:
        ranks.close()
    assert ended == "ended" and seconds < 15
    for text in texts:
        assert "on rank 0 of 2: rank 1 has ended" in text and "new communicator" in text


def give_up(rank: Rank) -> str:
    if rank.number == 1:
        rank.communicator = None
        return "left"
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            rank.communicator.check()
        except trt.Error as error:
            return str(error)
        time.sleep(0.05)
    return "no error"


@emulated_gpu.emulated_only  # NVIDIA's NCCL takes longer than this limit to start
def test_a_rank_that_gives_its_communicator_up_ends_it_after_the_limit() -> None:
    ranks = Ranks(timeout=1.5)
    try:
        text, _ = ranks.call(give_up)
    finally:
        ranks.close()
    assert "on rank 0 of 2: rank 1 has left it" in text


# Models.


def whole(model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime's results on the CPU."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))


@pytest.fixture(scope="module")
def mlp(tmp_path_factory) -> trt.sharding.Shards:
    plan = [("up*", "columns"), ("down*", "rows")]
    folder = tmp_path_factory.mktemp("mlp")
    shards = trt.shard(models.mlp(), ranks=2, plan=plan, folder=folder)
    shapes = {"x": ((1, 32), (4, 32), (8, 32))}
    return shards.build(shapes=shapes, timing=False, device="cuda")


@pytest.fixture
def on_two_gpus(monkeypatch):
    """ShardedEngine in a process with two GPUs; this one may have an emulated one only."""

    def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", source, *arguments],
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run


SHARDED = """
import signal
import sys
import numpy as np
import opwright
path, x, y = sys.argv[1:4]
given = np.load(x)
with opwright.ShardedEngine(path, allow_device_code=True, timeout=60) as engine:
    rows = [engine(given[:n]) for n in (2, 5, 8, 1, 5)]
    assert [each.shape[0] for each in rows] == [2, 5, 8, 1, 5]
    np.save(y, np.concatenate(rows))
    try:
        engine(given.astype(np.float64))
    except opwright.Error as error:
        print(error)
    print(engine(given[:3]).shape)
    for devices in ([0], [0, 99], ["cpu", "cuda:1"]):
        try:
            opwright.ShardedEngine(path, devices=devices, allow_device_code=True)
        except opwright.Error as error:
            print(error)
    try:
        opwright.ShardedEngine(path)
    except opwright.Error as error:
        print(error)
    engine._timeout = 1.5  # NCCL waits for ever for a rank that stops; the engine kills it
    engine._others[0].process.send_signal(signal.SIGSTOP)
    try:
        engine(given[:2])
    except opwright.Error as error:
        print(error)
"""


def test_an_engine_of_two_gpus(mlp, on_two_gpus, tmp_path) -> None:
    assert mlp.device == "cuda" and trt.sharding.Shards.open(mlp.folder) == mlp
    x = np.random.default_rng(1).normal(size=(8, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = on_two_gpus(SHARDED, str(mlp.folder), str(tmp_path / "x.npy"), str(tmp_path / "y.npy"))
    assert done.returncode == 0, done.stdout + done.stderr
    want = whole(models.mlp(), {"x": x})["y"]
    want = np.concatenate([want[:n] for n in (2, 5, 8, 1, 5)])
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-4, atol=1e-4)
    lines = done.stdout.splitlines()
    assert "of the type float64; expected float32" in lines[0]
    assert lines[1] == "(3, 32)"
    assert "there are 2 ranks, and devices has 1" in lines[2]
    assert "rank 1 needs GPU 99, and there are" in lines[3]
    assert "the device of rank 0 is 'cpu'; expected a GPU" in lines[4]
    assert "contains code for a GPU, which this process did not build" in lines[5]
    assert "allow_device_code" in "".join(lines[6:-1])
    assert "rank 1" in lines[-1] and "was ended by signal 9" in lines[-1]


GRAPHS = """
import sys
import numpy as np
import opwright
path, x, y = sys.argv[1:4]
given = np.load(x)
found, launched = [], 0
with opwright.ShardedEngine(path, allow_device_code=True, cuda_graphs=True) as engine:
    for rows in (2, 2, 2, 2, 2, 5, 2, 2, 2, 2, 2, 8, 8, 8, 8, 8):
        found.append(engine(given[:rows] + len(found)))
        launched += engine._has_graph
    print(launched)
    engine._own.capture = lambda: False  # a rank that cannot, so that none may
    for rows in (1, 1, 1, 1, 1):
        found.append(engine(given[:rows] + len(found)))
    print(engine._has_graph, engine._may_capture)
    np.save(y, np.concatenate(found))
"""


def test_graphs_of_all_ranks(mlp, on_two_gpus, tmp_path) -> None:
    x = np.random.default_rng(3).normal(size=(8, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = on_two_gpus(GRAPHS, str(mlp.folder), str(tmp_path / "x.npy"), str(tmp_path / "y.npy"))
    assert done.stdout == "6\nFalse False\n", done.stdout + done.stderr
    rows = (2, 2, 2, 2, 2, 5, 2, 2, 2, 2, 2, 8, 8, 8, 8, 8, 1, 1, 1, 1, 1)
    want = [whole(models.mlp(), {"x": x[:n] + i})["y"] for i, n in enumerate(rows)]
    np.testing.assert_allclose(
        np.load(tmp_path / "y.npy"), np.concatenate(want), rtol=1e-4, atol=1e-4
    )


def test_devices_are_for_engines_of_gpus(tmp_path) -> None:
    shards = trt.shard(
        models.mlp(), ranks=2, plan=[("up*", "columns"), ("down*", "rows")], folder=tmp_path
    ).build(shapes={"x": (2, 32)}, timing=False, device="cpu")
    with pytest.raises(trt.Error, match="devices are for engines on GPUs"):
        trt.ShardedEngine(shards, devices=[0, 1])


def test_the_program(mlp, tmp_path) -> None:
    x = np.random.default_rng(2).normal(size=(3, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-m", "opwright", "run", str(mlp.folder), "--ranks", "2"]
    command += ["--input", "x.npy", "--output", "y.npy"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=100
        )

    refused = run()
    assert refused.returncode == 1 and "--allow-device-code" in refused.stderr, refused.stderr
    done = run("--allow-device-code", "--devices", "cuda:1,cuda:0")
    assert (done.returncode, done.stdout) == (0, "y: float32 3x32\n"), done.stderr
    want = whole(models.mlp(), {"x": x})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-4, atol=1e-4)


@large
def test_a_decoder_of_llama(tmp_path) -> None:
    """Also called with tensors of PyTorch on a GPU."""
    model = models.llama(2, shared=2)
    shards = trt.shard(model, ranks=2, folder=tmp_path)
    shards = shards.build(shapes={"ids": ((1, 1), (2, 5), (3, 8))}, device="cuda", timing=False)
    torch = pytest.importorskip("torch")
    with trt.ShardedEngine(shards, timeout=60) as engine:
        for batch, length in ((2, 5), (1, 1), (3, 8), (2, 5)):
            ids = np.random.default_rng(batch).integers(0, 40, (batch, length))
            (want,) = whole(model, {"ids": ids}).values()
            np.testing.assert_allclose(engine(ids), want, rtol=1e-3, atol=1e-3)
            on_gpu = torch.from_numpy(ids).cuda()
            np.testing.assert_allclose(engine(on_gpu), want, rtol=1e-3, atol=1e-3)


@large
def test_the_example_of_the_documentation(tmp_path) -> None:
    pytest.importorskip("torch")
    page = (ROOT / "docs" / "multi-gpu.md").read_text()
    (source,) = re.findall(r"```python file=two_gpus.py\n(.*?)```", page, re.DOTALL)
    file = Path(tmp_path / "two_gpus.py")
    file.write_text(source)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@large
def test_the_sample_of_peer_memory() -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "run.py", "--rows", "3", "--columns", "514", "--time"],
        cwd=ROOT / "samples" / "peer_memory",
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed: ") == 2 and done.stdout.count(" us in a graph") == 2
