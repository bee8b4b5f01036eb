"""Plugins that exchange data with the same plugin in other processes."""

from __future__ import annotations

import os
from multiprocessing.connection import Client, Listener

import numpy as np
import pytest

import emulated_gpu
import nccl
import opwright as trt
import opwright.plugin as trtp
from collective_layers import data, engine_of, run
from rank_processes import in_ranks

SHAPE = (3, 5)


def sum_of_ranks(comm: trtp.Comm, mine: np.ndarray) -> np.ndarray:
    """All ranks' arrays, through sockets named after the communicator: rank 0 adds and answers."""
    address = f"\0plugin {comm.name}"
    if comm.rank == 0:
        with Listener(address) as listener:
            others = [listener.accept() for _ in range(comm.num_ranks - 1)]
            total = sum((other.recv() for other in others), mine)
            for other in others:
                other.send(total)
                other.close()
        return total
    while True:
        try:
            with Client(address) as first:
                first.send(mine)
                return first.recv()
        except ConnectionRefusedError:
            continue  # rank 0 is not there yet


class Sum(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """The sum over the ranks, plus ten times this process's rank."""

    plugin_name, plugin_version, plugin_namespace = "sum", "1", "ranks"
    communicates = True
    num_outputs = 1
    context = None

    def clone(self):
        return type(self)()

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.type == trt.float32 and desc.format == trt.TensorFormat.LINEAR

    def attach_to_context(self, context):
        made = self.clone()
        made.context = context
        return made

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        comm = self.context.communicator
        x = np.array(trtp.Tensor(input_desc[0], inputs[0]))
        y = np.asarray(trtp.Tensor(output_desc[0], outputs[0]))
        y[...] = sum_of_ranks(comm, x) + 10 * comm.rank


class Silent(Sum):
    plugin_name = "silent"
    communicates = False


class Creator(trt.IPluginCreatorV3One):
    plugin_version, plugin_namespace = "1", "ranks"
    field_names = trt.PluginFieldCollection([])

    def __init__(self, made):
        super().__init__()
        self.name, self.made = made.plugin_name, made

    def create_plugin(self, name, field_collection, phase):
        return self.made()


@pytest.fixture(autouse=True)
def creators():
    registry = trt.get_plugin_registry()
    made = [Creator(each) for each in (Sum, Silent)]
    for creator in made:
        registry.register_creator(creator, "ranks")
    yield
    for creator in made:
        registry.deregister_creator(creator)


def engine_of_class(made: type) -> trt.ICudaEngine:
    def add(network, x):
        layer = network.add_plugin_v3([x], [], made())
        layer.name = "the sum"
        return [layer.get_output(0)]

    return engine_of(add, {"x": (trt.float32, SHAPE)})


def parts(ranks: int) -> list[np.ndarray]:
    return [data(np.float32, SHAPE, rank) for rank in range(ranks)]


def check(engine: trt.ICudaEngine, ranks: int, device: str = "cpu") -> None:
    def work(rank, communicator):
        return run(engine, communicator, {"x": parts(ranks)[rank]}, device)[0]

    for rank, result in enumerate(in_ranks(ranks, work, device=device)):
        assert isinstance(result, np.ndarray), result
        np.testing.assert_array_equal(result, sum(parts(ranks)) + 10 * rank)


def test_a_class_plugin_asks_its_context() -> None:
    check(engine_of_class(Sum), 3)


def test_a_class_plugin_is_told_each_communicator(monkeypatch) -> None:
    seen: list[trtp.Comm] = []
    monkeypatch.setattr(Sum, "enqueue", lambda self, *_: seen.append(self.context.communicator))
    engine = engine_of_class(Sum)
    context = engine.create_execution_context()
    x, y = parts(1)[0], np.empty(SHAPE, np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y0", y.ctypes.data)
    with pytest.raises(trt.Error, match="Layer 'the sum'.*has none.*set_communicator"):
        context.execute_async_v3(0)
    for name in ("one", "two"):
        communicator = trt.Communicator(f"{name} {os.getpid()}", 0, 1)
        context.set_communicator(communicator)
        context.execute_async_v3(0)
        comm = seen[-1]
        assert (comm.rank, comm.num_ranks, comm.address) == (0, 1, 0)
        assert comm.name == communicator.name and comm.communicator is communicator
        assert repr(comm) == f"<Comm: rank 0 of 1, '{communicator.name}'>"


def test_a_class_that_does_not_say_so_fails_in_a_build() -> None:
    with pytest.raises(trt.Error, match="Layer 'the sum'.*communicates = True"):
        engine_of_class(Silent)


def plugin_of(impl, device: str | None = None):
    """A plugin with this implementation, as a network's layer."""
    plugin_id = "ranks::added"
    trtp.register(plugin_id)(_describe)
    trtp.impl(plugin_id, device)(impl)
    return trtp.op.ranks.added


def _describe(x: trtp.TensorDesc, rank_factor: float) -> trtp.TensorDesc:
    return x.like()


def behind_tensors(x, comm: trtp.Comm, rank_factor, outputs, stream):
    y = sum_of_ranks(comm, np.array(x)) + rank_factor * comm.rank
    np.asarray(outputs[0])[...] = y


def at_the_end(x, rank_factor, outputs, stream, comm: trtp.Comm):
    behind_tensors(x, comm, rank_factor, outputs, stream)


def between(x, outputs, comm: trtp.Comm, stream, tactic):
    behind_tensors(x, comm, 10.0, outputs, stream)


def by_keyword(x, rank_factor, *, comm: trtp.Comm, outputs, stream):
    behind_tensors(x, comm, rank_factor, outputs, stream)


def engine_of_function(impl, device: str = "cpu") -> trt.ICudaEngine:
    op = plugin_of(impl, device)

    def add(network, x):
        layer = network.add_plugin(op(x, rank_factor=10.0), aot=False)
        layer.name = "the sum"
        return [layer.get_output(0)]

    return engine_of(add, {"x": (trt.float32, SHAPE)}, device=device)


@pytest.mark.parametrize("impl", [behind_tensors, at_the_end, between, by_keyword])
def test_a_function_gets_its_comm(impl) -> None:
    check(engine_of_function(impl), 2)


def with_peer_memory(x, rank_factor, outputs, stream, comm: trtp.Comm):
    assert comm.peer_memory("memory", 100) is None
    with pytest.raises(trt.Error, match="size is 0; expected bytes of a buffer"):
        comm.peer_memory("memory", 0)
    behind_tensors(x, comm, rank_factor, outputs, stream)


def test_there_is_no_peer_memory_on_the_cpu() -> None:
    check(engine_of_function(with_peer_memory), 2)


def with_nccl(x, rank_factor, outputs, stream, comm: trtp.Comm):
    """NCCL's own all-reduce on the run's stream."""
    nccl.all_reduce(x.data_ptr, outputs[0].data_ptr, np.prod(SHAPE), comm.address, stream)
    assert comm.communicator is None and comm.name == ""
    assert comm.peer_memory("memory", 100) is None


@emulated_gpu.emulated_only
def test_a_function_calls_nccl() -> None:
    engine = engine_of_function(with_nccl, "cuda")

    def work(rank, communicator):
        return run(engine, communicator, {"x": parts(2)[rank]}, "cuda")[0]

    for result in in_ranks(2, work, device="cuda"):
        assert isinstance(result, np.ndarray), result
        np.testing.assert_array_equal(result, sum(parts(2)))


def test_a_function_without_a_communicator() -> None:
    engine = engine_of_function(behind_tensors)
    with pytest.raises(trt.Error, match="Layer 'the sum'.*has none.*set_communicator"):
        run(engine, None, {"x": parts(1)[0]})


def of_aot(x, rank_factor, outputs, tactic, comm: trtp.Comm): ...


def before_tensors(comm: trtp.Comm, x, rank_factor, outputs, stream): ...


def twice(x, comm: trtp.Comm, other: trtp.Comm, outputs, stream): ...


@pytest.mark.parametrize(
    "decorator, function, message",
    [
        (trtp.aot_impl, of_aot, "'comm' is a Comm, which only impl gets"),
        (trtp.impl, before_tensors, "'comm' is a Comm; it comes behind the tensors"),
        (trtp.impl, twice, "'comm' and 'other' are both a Comm"),
    ],
)
def test_where_a_comm_may_not_be(decorator, function, message) -> None:
    trtp.register("ranks::added")(_describe)
    with pytest.raises(trtp.SignatureError, match=message):
        decorator("ranks::added")(function)
