"""Collective layers between processes: all operations against NumPy, and ranks that are late, dead or disagree.

On the GPU the emulated NCCL of tests/emulation stands in for NVIDIA's."""

from __future__ import annotations

import ctypes
import os
import signal
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
from collective_layers import (
    MOVES,
    REDUCTIONS,
    ROOTED,
    Op,
    Reduce,
    Runner,
    all_reduce,
    chain,
    chain_of,
    collective,
    data,
    engine_of,
    expected,
    run,
)
from cuda_driver import Stream, driver
from gpu_engines import Log
from rank_processes import in_ranks, meeting_place

both_devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=emulated_gpu.emulated_only)]
)


@pytest.mark.parametrize(
    "device, ranks, with_sockets",
    [
        ("cpu", 2, False),
        ("cpu", 3, False),
        ("cpu", 8, False),
        ("cpu", 2, True),
        ("cpu", 5, True),
        pytest.param("cuda", 2, False, marks=emulated_gpu.emulated_only),
        pytest.param("cuda", 3, False, marks=emulated_gpu.emulated_only),
    ],
)
def test_all_operations_and_types(device: str, ranks: int, with_sockets: bool) -> None:
    """One engine has every operation of a type, so that their order is tested, too."""
    cases = REDUCTIONS + MOVES
    root = ranks - 1
    dtypes = [trt.float32, trt.float16, trt.int8, trt.uint8, trt.int32, trt.int64, trt.bool]
    shape = (2 * ranks, 3)
    engines = []
    for dtype in dtypes:
        fitting = [
            (op, each)
            for op, each in cases
            if dtype != trt.bool or each not in (Reduce.SUM, Reduce.AVG)
        ]

        def add(network, x, fitting=fitting):
            return [
                collective(network, x, op, each, root if op in ROOTED else None, ranks=ranks)
                for op, each in fitting
            ]

        engine = engine_of(add, {"x": (dtype, shape)}, device=device)
        engines.append((trt.nptype(dtype), fitting, engine))

    def work(rank, communicator):
        return [
            run(engine, communicator, {"x": data(dtype, shape, rank)}, device)
            for dtype, _, engine in engines
        ]

    meeting = meeting_place() if with_sockets else None
    results = in_ranks(ranks, work, device=device, meeting=meeting)
    for rank, result in enumerate(results):
        assert isinstance(result, list), result
        for (dtype, fitting, _), outputs in zip(engines, result, strict=True):
            parts = [data(dtype, shape, each) for each in range(ranks)]
            for (op, each), y in zip(fitting, outputs, strict=True):
                want = expected(op, each, root, parts, rank)
                np.testing.assert_array_equal(y, want, f"rank {rank}: {op} {each} {dtype}")


@pytest.mark.parametrize(
    "device, with_sockets",
    [("cpu", False), ("cpu", True), pytest.param("cuda", False, marks=emulated_gpu.emulated_only)],
)
def test_chunks_groups_and_dynamic_shapes(device: str, with_sockets: bool) -> None:
    """Tensors of many chunks and of none; two groups at once, one of them out of order, and ranks beside them."""
    ranks, groups = 5, ([3, 0], [1, 4, 2])
    width = 50_001 if device == "cpu" else 5_001

    def add(network, x):
        return [
            collective(network, x, Op.ALL_REDUCE, Reduce.SUM, groups=group) for group in groups
        ] + [
            collective(network, x, Op.ALL_GATHER, groups=groups[1]),
            collective(network, x, Op.GATHER, root=4, groups=groups[1], ranks=3),
            collective(network, x, Op.REDUCE_SCATTER, Reduce.MAX, groups=groups[0]),
            collective(network, x, Op.ALL_REDUCE, Reduce.SUM, ranks=ranks),
            collective(network, x, Op.REDUCE, Reduce.AVG, root=2, groups=groups[1]),
        ]

    engine = engine_of(add, {"x": (trt.float32, (2, width))}, dynamic=True, device=device)
    rows = (2, 6, 0, 8)

    def work(rank, communicator):
        return [
            run(engine, communicator, {"x": data(np.float32, (n, width), rank)}, device)
            for n in rows
        ]

    meeting = meeting_place() if with_sockets else None
    for rank, result in enumerate(in_ranks(ranks, work, device=device, meeting=meeting)):
        assert isinstance(result, list), result
        for n, outputs in zip(rows, result, strict=True):
            parts = [data(np.float32, (n, width), each) for each in range(ranks)]
            in_group = [[parts[i] for i in group] for group in groups]

            def want(op, each, root, which, rank=rank, in_group=in_group):
                if rank in groups[which]:
                    return expected(op, each, root, in_group[which], groups[which].index(rank))
                shape = expected(op, each, root, in_group[which], 0).shape
                return np.zeros(shape, np.float32)

            for y, wanted in zip(
                outputs,
                [
                    want(Op.ALL_REDUCE, Reduce.SUM, 0, 0),
                    want(Op.ALL_REDUCE, Reduce.SUM, 0, 1),
                    want(Op.ALL_GATHER, None, 0, 1),
                    want(Op.GATHER, None, 1, 1),
                    want(Op.REDUCE_SCATTER, Reduce.MAX, 0, 0),
                    expected(Op.ALL_REDUCE, Reduce.SUM, 0, parts, rank),
                    want(Op.REDUCE, Reduce.AVG, 2, 1),
                ],
                strict=True,
            ):
                np.testing.assert_allclose(y, wanted, rtol=1e-6, err_msg=f"{rank}, {n} rows")


GROUPED = [trt.float16, trt.bfloat16, trt.int8, trt.uint8, trt.int32, trt.int64, trt.bool]
#: Each takes a kernel, which the emulated GPU compiles for seconds.
GROUPED_ON_GPUS = {
    trt.float16: [Reduce.MAX],
    trt.bfloat16: [Reduce.SUM, Reduce.AVG],
    trt.int8: [Reduce.PROD, Reduce.AVG],
    trt.bool: [Reduce.MIN],
}


@both_devices
def test_all_operations_and_types_of_a_group(device: str) -> None:
    """Ranks 2 and 0 of three exchange, in this order, and rank 1 gets zeros. The reduced parts differ in length."""
    ranks, group, shape = 3, [2, 0], (2, 3)
    engines = []
    for dtype in GROUPED if device == "cpu" else GROUPED_ON_GPUS:
        cases = [
            (op, each)
            for op, each in REDUCTIONS + MOVES
            if (dtype != trt.bool or each not in (Reduce.SUM, Reduce.AVG))
            and (device == "cpu" or each is None or each in GROUPED_ON_GPUS[dtype])
        ]

        def add(network, x, cases=cases, dtype=dtype):
            if dtype == trt.bfloat16:
                x = network.add_cast(x, dtype).get_output(0)
            made = [
                collective(network, x, op, each, 0 if op in ROOTED else None, groups=group)
                for op, each in cases
            ]
            if dtype != trt.bfloat16:
                return made
            return [network.add_cast(y, trt.float32).get_output(0) for y in made]

        outside = trt.float32 if dtype == trt.bfloat16 else dtype
        engine = engine_of(add, {"x": (outside, shape)}, device=device)
        engines.append((trt.nptype(outside), cases, engine))

    def work(rank, communicator):
        return [
            run(engine, communicator, {"x": data(dtype, shape, rank)}, device)
            for dtype, _, engine in engines
        ]

    for rank, result in enumerate(in_ranks(ranks, work, device=device)):
        assert isinstance(result, list), result
        for (dtype, cases, _), outputs in zip(engines, result, strict=True):
            parts = [data(dtype, shape, each) for each in group]
            for (op, each), y in zip(cases, outputs, strict=True):
                place = group.index(rank) if rank in group else 0
                want = expected(op, each, 1, parts, place)
                if rank not in group:
                    want = np.zeros_like(want)
                np.testing.assert_array_equal(y, want, f"rank {rank}: {op} {each} {dtype}")


@both_devices
@pytest.mark.parametrize("dtype", [trt.fp8, trt.e8m0], ids=str)
def test_bytes_without_a_type_of_numpy_are_moved(device: str, dtype: trt.DataType) -> None:
    engine = engine_of(
        lambda network, x: [
            collective(network, x, Op.ALL_GATHER, ranks=2),
            collective(network, x, Op.ALL_TO_ALL, groups=[1, 0]),
        ],
        {"x": (dtype, (6,))},
        device=device,
    )
    parts = [np.arange(6, dtype=np.uint8) + 100 * rank for rank in range(2)]

    def work(rank, communicator):
        runner = Runner(engine, communicator, device)
        arrays = [runner.array(each) for each in (parts[rank], np.zeros(12, np.uint8), parts[0])]
        for name, array in zip(engine, arrays, strict=True):
            runner.context.set_tensor_address(name, array.ptr)
        runner.context.execute_async_v3(0)
        return [array.numpy() for array in arrays[1:]]

    for rank, result in enumerate(in_ranks(2, work, device=device)):
        assert isinstance(result, list), result
        np.testing.assert_array_equal(result[0], np.concatenate(parts))
        own = slice(3 * (1 - rank), 3 * (1 - rank) + 3)  # the group's first is rank 1
        np.testing.assert_array_equal(result[1], np.concatenate([parts[1][own], parts[0][own]]))


def test_sums_of_fp16_round_once_and_are_the_same_on_all_ranks() -> None:
    engine = engine_of(
        lambda network, x: [collective(network, x, Op.ALL_REDUCE, Reduce.SUM, ranks=4)],
        {"x": (trt.float16, (999,))},
    )
    parts = [np.random.default_rng(i).normal(size=999).astype(np.float16) for i in range(4)]
    results = in_ranks(4, lambda rank, made: run(engine, made, {"x": parts[rank]})[0])
    want = sum((part.astype(np.float32) for part in parts[1:]), parts[0].astype(np.float32))
    for y in results:
        np.testing.assert_array_equal(y, want.astype(np.float16))


def test_a_late_rank_ends_the_communicator_for_all() -> None:
    engine = all_reduce(3)

    def work(rank, communicator):
        if rank == 1:
            time.sleep(1.2)
        return run(engine, communicator, {"x": np.ones(4, np.float32)})

    for text in in_ranks(3, work, timeout=0.5):
        assert "waited 0.5 s for rank 1, which did not come" in str(text)


def test_a_rank_that_dies_ends_the_communicator_at_once() -> None:
    engine = all_reduce(3)

    def work(rank, communicator):
        x = {"x": np.ones(4, np.float32)}
        run(engine, communicator, x)
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        try:
            return run(engine, communicator, x)
        except trt.Error as error:
            return str(error), time.monotonic() - start

    *others, dead = in_ranks(3, work, timeout=30)
    assert dead is None
    for text, seconds in others:
        assert "rank 2 has ended" in text and seconds < 10


def test_ranks_that_disagree_are_both_named() -> None:
    first, second = all_reduce(2), all_reduce(2, (2, 2))
    engines = [first, second]
    x = [np.ones(4, np.float32), np.ones((2, 2), np.float32)]
    for text in in_ranks(2, lambda rank, made: run(engines[rank], made, {"x": x[rank]})):
        assert "ranks run different steps" in text
        assert "ALL_REDUCE(SUM) of FP32 [4]" in text and "ALL_REDUCE(SUM) of FP32 [2, 2]" in text


def test_missing_and_surplus_ranks() -> None:
    name = uuid.uuid4().hex
    with pytest.raises(trt.Error, match="waited 0.2 s for ranks 0, 2"):
        trt.Communicator(name, 1, 3, timeout=0.2)
    for arguments, text in [
        (("x", 2, 2), "the rank is 2; expected 0 to 1"),
        (("x", -1, 2), "the rank is -1"),
        (("x", 0, 0), "there are 0 ranks"),
        (("x", 0, 65), "expected 1 to 64"),
        (("", 0, 1), "the name has 0 characters"),
        (("n" * 65, 0, 1), "the name has 65 characters"),
        (("x", 0, 1, 0.0), "time limit"),
    ]:
        with pytest.raises(trt.Error, match=text):
            trt.Communicator(*arguments)


@both_devices
def test_communicators_of_other_ranks(device: str) -> None:
    def add(network, x):
        return [collective(network, x, Op.ALL_REDUCE, Reduce.SUM, groups=[0, 2])]

    x = {"x": np.ones(4, np.float32)}
    engines = [
        all_reduce(3, device=device),
        engine_of(add, {"x": (trt.float32, (4,))}, device=device),
    ]

    def work(rank, communicator):
        texts = []
        for engine in engines:
            with pytest.raises(trt.Error) as error:
                run(engine, communicator, x, device)
            texts.append(str(error.value))
        return texts

    for whole, group in in_ranks(2, work, device=device):
        assert "works with 3 ranks, and the communicator" in whole
        assert "works with groups with other ranks, and the communicator" in group


@both_devices
def test_without_a_communicator(device: str) -> None:
    x = np.arange(4, dtype=np.float32)
    alone = all_reduce(1, device=device)
    np.testing.assert_array_equal(run(alone, None, {"x": x}, device)[0], x)
    one = in_ranks(1, lambda rank, made: run(alone, made, {"x": x}, device)[0], device=device)
    np.testing.assert_array_equal(one[0], x)
    several = all_reduce(2, device=device)
    with pytest.raises(
        trt.Error, match=r"ALL_REDUCE\(SUM\) works with 2 ranks.* has no communicator"
    ):
        run(several, None, {"x": x}, device)
    context = several.create_execution_context()
    with pytest.raises(TypeError, match="set_communicator takes"):
        context.set_communicator(object())
    own = trt.Communicator(uuid.uuid4().hex, 0, 1)
    if device == "cpu":
        with pytest.raises(trt.Error, match="runs on the CPU and takes a Communicator"):
            context.set_communicator(4096)
    else:
        with pytest.raises(trt.Error, match="runs on a GPU, and .* is one of the CPU; make"):
            context.set_communicator(own)


def test_nothing_is_left_behind() -> None:
    before = set(os.listdir("/dev/shm"))
    descriptors = set(os.listdir("/proc/self/fd"))
    made = trt.Communicator(uuid.uuid4().hex, 0, 1)
    assert (made.rank, made.num_ranks, made.timeout) == (0, 1, 60.0)
    del made
    assert set(os.listdir("/dev/shm")) <= before
    assert set(os.listdir("/proc/self/fd")) <= descriptors


@both_devices
def test_layers_in_a_loop_use_the_communicator(device: str) -> None:
    def add(network, x):
        loop = network.add_loop()
        count = network.add_constant((), trt.Weights(np.array(3, np.int32))).get_output(0)
        loop.add_trip_limit(count, trt.TripLimit.COUNT)
        state = loop.add_recurrence(x)
        state.set_input(
            1, collective(network, state.get_output(0), Op.ALL_REDUCE, Reduce.SUM, ranks=2)
        )
        return [loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0)]

    engine = engine_of(add, {"x": (trt.float32, (4,))}, device=device)

    def work(rank, communicator):
        return run(engine, communicator, {"x": np.full(4, rank + 1, np.float32)}, device)[0]

    results = in_ranks(2, work, device=device)
    for y in results:
        np.testing.assert_array_equal(y, np.full(4, 12, np.float32))


@both_devices
def test_inspector_and_serialized_engine(device: str) -> None:
    engine = engine_of(
        lambda network, x: [collective(network, x, Op.ALL_GATHER, groups=[1, 0], ranks=2)],
        {"x": (trt.float32, (4,))},
        device=device,
    )
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    assert "DistCollective" in text
    assert ("groups" if device == "cpu" else "ALL_GATHER of ranks 1 0") in text
    again = trt.Runtime(trt.Logger()).deserialize_cuda_engine(engine.serialize())
    assert tuple(again.get_tensor_shape("y0")) == (8,)


def test_onnx_nodes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node(
        "DistCollective",
        ["x"],
        ["y"],
        collective_operation="all_gather",
        reduce_op="sum",
        root=0,
        group_size=2,
    )
    node.attribute.append(
        onnx.helper.make_attribute("groups", [], attr_type=onnx.AttributeProto.INTS)
    )
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [value("x", onnx.TensorProto.FLOAT, [4])],
        [value("y", onnx.TensorProto.FLOAT, [8])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    builder = trt.Builder(trt.Logger())
    network = builder.create_network()
    parser = trt.OnnxParser(network, trt.Logger())
    assert parser.parse(model.SerializeToString()), parser.get_error(0)
    layer = network.get_layer(0)
    assert layer.type == trt.LayerType.DIST_COLLECTIVE and layer.num_ranks == 2
    assert tuple(network.get_output(0).shape) == (8,)
    node.attribute[0].s = b"all_nonsense"
    model.graph.node[0].CopyFrom(node)
    parser = trt.OnnxParser(builder.create_network(), trt.Logger())
    assert not parser.parse(model.SerializeToString())
    assert "collective_operation is 'all_nonsense'" in parser.get_error(0).desc()


def test_num_ranks_of_layers() -> None:
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (4,))
    layer = network.add_dist_collective(x, Op.ALL_REDUCE, Reduce.SUM, -1, [])
    assert isinstance(layer, trt.IDistCollectiveLayer) and layer.num_ranks == 1
    layer.num_ranks = 4
    assert layer.num_ranks == 4
    relu = network.add_activation(x, trt.ActivationType.RELU)
    relu.num_ranks = 1
    with pytest.raises(trt.Error, match="works with 1 rank, not 2"):
        relu.num_ranks = 2
    with pytest.raises(trt.Error, match="ALL_REDUCE reduces"):
        network.add_dist_collective(x, Op.ALL_REDUCE, None, None, None)
    with pytest.raises(trt.Error, match="BROADCAST needs a root"):
        network.add_dist_collective(x, Op.BROADCAST, Reduce.NONE, None, None)


@both_devices
def test_reductions_in_place(device: str) -> None:
    """The memory of what lies between two kernels is that of one tensor; results are tested with `chain`."""

    def add(network, x):
        relu = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
        total = collective(network, relu, Op.ALL_REDUCE, Reduce.SUM, ranks=2)
        return [network.add_softmax(total).get_output(0)]

    engine = engine_of(add, {"x": (trt.float32, (64, 4096))}, device=device)
    scratch = 300 << 10  # of reductions on the CPU
    assert engine.device_memory_size_v2 <= 4 * 64 * 4096 + 2 * scratch


@emulated_gpu.emulated_only
def test_graphs_of_the_engine_leave_collectives_out() -> None:
    """Only one rank's addresses change, which must not make it run another collective than the others."""
    log = Log()
    engine = engine_of(chain, {"x": (trt.float32, (1001,))}, device="cuda", logger=log)
    runs = 9

    def values(rank, number):
        return np.random.default_rng(10 * number + rank).normal(size=1001).astype(np.float32)

    def work(rank, communicator):
        runner, stream = Runner(engine, communicator, "cuda"), Stream()
        kept, found = [], []
        for number in range(runs):
            if number == 0 or (rank == 1 and number % 2 == 0):
                runner.place({"x": values(rank, number)})
                kept.append((runner.inputs, runner.outputs))
            runner.inputs[0].write(values(rank, number))
            runner.context.execute_async_v3(stream.handle)
            stream.synchronize()
            found.append([output.numpy() for output in runner.outputs])
        return found, log.text

    for result in in_ranks(2, work, device="cuda"):
        assert isinstance(result, tuple), result
        found, text = result
        assert "is not captured: NCCL wants all ranks" in text, text
        for number, outputs in enumerate(found):
            want = chain_of([values(rank, number) for rank in range(2)])
            for y, wanted in zip(outputs, want, strict=True):
                np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


@emulated_gpu.emulated_only
def test_runs_are_captured_in_graphs_of_the_users_own() -> None:
    engine = engine_of(chain, {"x": (trt.float32, (1001,))}, device="cuda")

    def values(rank, number):
        return np.random.default_rng(10 * number + rank).normal(size=1001).astype(np.float32)

    def work(rank, communicator):
        runner, stream, found = Runner(engine, communicator, "cuda"), Stream(), []
        runner.place({"x": values(rank, 0)})
        runner.context.execute_async_v3(
            stream.handle
        )  # what the first run prepares is not captured
        stream.synchronize()
        gpu, handle = driver(), ctypes.c_void_p(stream.handle)
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        gpu.call_here("cuStreamBeginCapture_v2", handle, 1)
        runner.context.execute_async_v3(stream.handle)
        gpu.call_here("cuStreamEndCapture", handle, ctypes.byref(graph))
        gpu.call_here(
            "cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_uint64(0)
        )
        for number in range(1, 4):
            runner.inputs[0].write(values(rank, number))
            gpu.call_here("cuGraphLaunch", executable, handle)
            stream.synchronize()
            found.append([output.numpy() for output in runner.outputs])
        return found

    for result in in_ranks(2, work, device="cuda"):
        assert isinstance(result, list), result
        for number, outputs in enumerate(result, 1):
            want = chain_of([values(rank, number) for rank in range(2)])
            for y, wanted in zip(outputs, want, strict=True):
                np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


@emulated_gpu.emulated_only
def test_what_nccl_reports_later_fails_runs() -> None:
    """NCCL reports a missing rank, as NVIDIA's does where it notices one, while the kernel runs."""
    engine = all_reduce(2, device="cuda")

    def work(rank, communicator):
        if rank == 1:
            time.sleep(1)
            return "late"
        runner, texts = Runner(engine, communicator, "cuda"), []
        runner.place({"x": np.ones(4, np.float32)})
        with pytest.raises(trt.Error) as error:  # it waits for the run
            runner.context.execute_v2([runner.inputs[0].ptr, runner.outputs[0].ptr])
        texts.append(str(error.value))
        with pytest.raises(trt.Error) as error:
            runner.context.execute_async_v3(0)
        return [*texts, str(error.value)]

    waited, later = in_ranks(2, work, timeout=0.5, device="cuda")[0]
    assert "work with the execution context's communicator failed on rank 0 of 2" in waited
    assert "on rank 0 of 2: NCCL 2.28.9" in later and "ALL_REDUCE(SUM)" in later
    for text in (waited, later):
        assert "remote process exited" in text and "another rank does not come" in text


@emulated_gpu.emulated_only
def test_without_nccl_the_error_says_what_to_install() -> None:
    source = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
import test_collectives as tests
engine = tests.all_reduce(2, device="cuda")
for variable, value in [
    ("OPWRIGHT_NCCL", "/nowhere/libnccl.so.2"), ("OPWRIGHT_EMULATED_NCCL_VERSION", "2804")
]:
    process = os.fork()  # a process looks for the library once
    if process == 0:
        os.environ[variable] = value
        try:
            tests.run(engine, 4096, {{"x": np.ones(4, np.float32)}}, "cuda")
        except tests.trt.Error as error:
            print(error, flush=True)
        try:
            tests.trt.Communicator("none", 0, 2, device="cuda")  # waits for no rank
        except tests.trt.Error as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(process, 0)
"""
    done = emulated_gpu.run_program(source)
    *missing, of_run, of_communicator = done.stdout.splitlines()
    assert len(missing) == 2, done.stderr
    for text in missing:
        assert "cannot be loaded (/nowhere/libnccl.so.2" in text
        assert "pip install nvidia-nccl-cu13" in text and "OPWRIGHT_NCCL" in text
    for text in (of_run, of_communicator):
        assert "its version is 2.8.4; 2.10.3 or newer is needed" in text


@emulated_gpu.emulated_only
def test_nccl_of_a_package_is_found(tmp_path: Path) -> None:
    """In a process that loads an engine and builds none."""
    try:
        ctypes.CDLL("libnccl.so.2")
    except OSError:
        pass
    else:
        pytest.skip("the system has an NCCL, which comes first")
    folder = tmp_path / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").symlink_to(os.environ["OPWRIGHT_NCCL"])
    plan = tmp_path / "plan"
    plan.write_bytes(bytes(all_reduce(1, device="cuda").serialize()))
    source = f"""
import os, sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(tmp_path)!r}]
import numpy as np
import nccl
import test_collectives as tests
tests.driver().make_current()
made = nccl.communicator(nccl.unique_id(), 0, 1)
del os.environ["OPWRIGHT_NCCL"]
engine = tests.trt.Runtime(tests.trt.Logger()).deserialize_cuda_engine(open({str(plan)!r}, "rb").read())
print(tests.run(engine, made, {{"x": np.ones(4, np.float32)}}, "cuda")[0].sum())
"""
    done = emulated_gpu.run_program(source)
    assert done.stdout == "4.0\n", done.stdout + done.stderr
