"""Networks of collective layers, how to run them, and what NumPy says that ranks get."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

import opwright as trt
from cuda_driver import DeviceArray

Op, Reduce = trt.CollectiveOperation, trt.ReduceOperation


def engine_of(
    add: Callable,
    inputs: dict[str, tuple],
    dynamic: bool = False,
    device: str = "cpu",
    logger: trt.ILogger | None = None,
) -> trt.ICudaEngine:
    """An engine; `add(network, *inputs)` returns the outputs. The first extent may be dynamic."""
    builder = trt.Builder(trt.Logger())
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU if device == "cpu" else trt.DeviceType.GPU
    tensors = []
    profile = builder.create_optimization_profile()
    for name, (dtype, shape) in inputs.items():
        tensors.append(network.add_input(name, dtype, (-1, *shape[1:]) if dynamic else shape))
        if dynamic:
            profile.set_shape(name, (0, *shape[1:]), shape, (4 * shape[0], *shape[1:]))
    if dynamic:
        config.add_optimization_profile(profile)
    for i, tensor in enumerate(add(network, *tensors)):
        tensor.name = f"y{i}"
        network.mark_output(tensor)
    plan = builder.build_serialized_network(network, config)
    return trt.Runtime(logger or trt.Logger()).deserialize_cuda_engine(plan)


class HostArray:
    """What DeviceArray is to a GPU."""

    def __init__(self, values: np.ndarray):
        self.values = np.ascontiguousarray(values)
        self.ptr = self.values.ctypes.data

    def numpy(self) -> np.ndarray:
        return self.values


class Runner:
    """A context with arrays on its engine's device."""

    def __init__(self, engine: trt.ICudaEngine, communicator, device: str = "cpu"):
        """:param device: ``"cpu"``, or the GPU, ``"cuda:1"``."""
        self.engine, self.context = engine, engine.create_execution_context()
        gpu = int(device.partition(":")[2] or 0)
        self.array = HostArray if device == "cpu" else functools.partial(DeviceArray, device=gpu)
        if communicator is not None:
            self.context.set_communicator(communicator)

    def place(self, inputs: dict[str, np.ndarray]) -> None:
        """Puts the inputs and the outputs into new arrays."""
        self.inputs, self.outputs = [], []
        for name, array in inputs.items():
            self.context.set_input_shape(name, array.shape)
            self.inputs.append(self.array(array))
            self.context.set_tensor_address(name, self.inputs[-1].ptr)
        for name in self.engine:
            if self.engine.get_tensor_mode(name) != trt.TensorIOMode.OUTPUT:
                continue
            dtype = trt.nptype(self.engine.get_tensor_dtype(name))
            self.outputs.append(self.array(np.full(self.context.get_tensor_shape(name), 77, dtype)))
            self.context.set_tensor_address(name, self.outputs[-1].ptr)

    def run(self, stream: int = 0) -> list[np.ndarray]:
        self.context.execute_async_v3(stream)
        return [output.numpy() for output in self.outputs]


def run(
    engine: trt.ICudaEngine, communicator, inputs: dict[str, np.ndarray], device: str = "cpu"
) -> list[np.ndarray]:
    runner = Runner(engine, communicator, device)
    runner.place(inputs)
    return runner.run()


def collective(network, x, op, reduce_op=None, root=None, groups=None, ranks=1):
    layer = network.add_dist_collective(
        x,
        op,
        Reduce.NONE if reduce_op is None else reduce_op,
        -1 if root is None else root,
        groups or [],
    )
    layer.num_ranks = ranks
    return layer.get_output(0)


def expected(op, reduce_op, root: int, parts: list[np.ndarray], rank: int) -> np.ndarray:
    """What the rank at this place of the group gets of the group's arrays."""
    n, mine = len(parts), parts[rank]
    if op in (Op.ALL_REDUCE, Op.REDUCE, Op.REDUCE_SCATTER):
        wide = np.stack(parts).astype(np.int64 if mine.dtype.kind in "iub" else np.float64)
        total = {
            Reduce.SUM: lambda: wide.sum(0),
            Reduce.PROD: lambda: wide.prod(0),
            Reduce.MAX: lambda: wide.max(0),
            Reduce.MIN: lambda: wide.min(0),
            Reduce.AVG: lambda: (
                np.trunc(wide.sum(0) / n) if wide.dtype == np.int64 else wide.mean(0)
            ),
        }[reduce_op]().astype(mine.dtype)
        if op == Op.REDUCE_SCATTER:
            return np.split(total, n)[rank]
        return total if op == Op.ALL_REDUCE or rank == root else np.zeros_like(mine)
    if op == Op.BROADCAST:
        return parts[root]
    if op == Op.SCATTER:
        return np.split(parts[root], n)[rank]
    if op == Op.ALL_TO_ALL:
        return np.concatenate([np.split(part, n)[rank] for part in parts])
    whole = np.concatenate(parts)
    return whole if op == Op.ALL_GATHER or rank == root else np.zeros_like(whole)


def data(dtype, shape: tuple[int, ...], rank: int) -> np.ndarray:
    random = np.random.default_rng(100 + rank)
    if np.dtype(dtype) == np.bool_:
        return random.integers(0, 2, shape).astype(dtype)
    # Sums and products of small integers are exact in every type.
    return random.integers(1 if np.dtype(dtype).kind == "u" else -2, 3, shape).astype(dtype)


REDUCTIONS = [
    (op, each)
    for op in (Op.ALL_REDUCE, Op.REDUCE, Op.REDUCE_SCATTER)
    for each in (Reduce.SUM, Reduce.PROD, Reduce.MAX, Reduce.MIN, Reduce.AVG)
]
MOVES = [(op, None) for op in (Op.ALL_GATHER, Op.BROADCAST, Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER)]
ROOTED = (Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER)


def all_reduce(ranks: int, shape=(4,), device: str = "cpu") -> trt.ICudaEngine:
    return engine_of(
        lambda network, x: [collective(network, x, Op.ALL_REDUCE, Reduce.SUM, ranks=ranks)],
        {"x": (trt.float32, shape)},
        device=device,
    )


def chain(network, x):
    """Kernels before and after collectives, which may compute in the memory of what they read."""
    relu = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    total = collective(network, relu, Op.ALL_REDUCE, Reduce.SUM, ranks=2)
    one = network.add_constant((1,), trt.Weights(np.ones(1, np.float32))).get_output(0)
    less = network.add_elementwise(total, one, trt.ElementWiseOperation.SUB).get_output(0)
    absolute = network.add_unary(x, trt.UnaryOperation.ABS).get_output(0)
    in_group = collective(network, absolute, Op.ALL_REDUCE, Reduce.SUM, groups=[1, 0])
    return [
        less,
        network.add_unary(in_group, trt.UnaryOperation.NEG).get_output(0),
        collective(network, x, Op.ALL_REDUCE, Reduce.MAX, ranks=2),
    ]


def chain_of(parts: list[np.ndarray]) -> list[np.ndarray]:
    return [
        sum(np.maximum(part, 0) for part in parts) - 1,
        -sum(np.abs(part) for part in parts),
        np.maximum(*parts),
    ]
