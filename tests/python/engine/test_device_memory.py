"""Working memory of execution contexts: the program's own, or taken for one profile or all."""

from __future__ import annotations

import numpy as np
import pytest

import cuda_driver
import emulated_gpu
import opwright as trt
from cuda_driver import DeviceArray

LOGGER = trt.Logger(trt.Logger.ERROR)
Strategy = trt.ExecutionContextAllocationStrategy


def _engine(device: trt.DeviceType, extents=((16, 16, 16),)) -> trt.ICudaEngine:
    """y = reduced sum of e^x over rows, twice, so that a tensor of the size of x lies between."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 64))
    soft = network.add_softmax(x)
    soft.axes = 1 << 1
    again = network.add_softmax(soft.get_output(0))
    again.axes = 1 << 0
    y = again.get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.default_device_type = device
    config.timing = False
    for rows in extents:
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *((n, 64) for n in rows))
        config.add_optimization_profile(profile)
    return builder.build_engine_with_config(network, config)


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _expected(x: np.ndarray) -> np.ndarray:
    return _softmax(_softmax(x.astype(np.float64), 1), 0)


def _aligned(size: int, offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What keeps it, and `size` bytes of 0x5A at 64 bytes plus an offset."""
    raw = np.full(size + 128, 0x5A, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw, raw[start : start + size]


@pytest.fixture(scope="module")
def engine() -> trt.ICudaEngine:
    return _engine(trt.DeviceType.CPU)


def _run(context: trt.IExecutionContext, rows: int = 16) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(rows).standard_normal((rows, 64), np.float32)
    y = np.zeros_like(x)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    return x, y


def test_the_given_memory_is_used(engine):
    size = engine.device_memory_size_v2
    assert size >= 16 * 64 * 4  # what lies between the two layers
    assert engine.get_device_memory_size_for_profile_v2(0) == size
    context = engine.create_execution_context(Strategy.USER_MANAGED)
    assert context.device_memory == 0
    raw, memory = _aligned(size)
    context.set_device_memory(memory.ctypes.data, size)
    assert context.device_memory == memory.ctypes.data
    x, y = _run(context)
    np.testing.assert_allclose(y, _expected(x), rtol=1e-5)
    # The rows' softmax lies in it, as float32.
    between = memory[: 16 * 64 * 4].view(np.float32).reshape(16, 64)
    np.testing.assert_allclose(between, _softmax(x.astype(np.float64), 1), rtol=1e-5)
    start = memory.ctypes.data - raw.ctypes.data
    assert (raw[:start] == 0x5A).all() and (raw[start + size :] == 0x5A).all()

    others, other = _aligned(size)  # other memory from the next run on
    context.device_memory = other.ctypes.data
    memory[:] = 0x5A
    x, y = _run(context)
    np.testing.assert_allclose(y, _expected(x), rtol=1e-5)
    assert (memory == 0x5A).all() and not (other == 0x5A).all()
    del others


def test_memory_that_does_not_do(engine):
    size = engine.device_memory_size_v2
    context = engine.create_execution_context(Strategy.USER_MANAGED)
    _, memory = _aligned(size)
    with pytest.raises(trt.Error, match=r"USER_MANAGED, so it needs memory.*set_device_memory"):
        _run(context)
    with pytest.raises(trt.Error, match=f"has {size - 1} bytes, profile 0 needs {size}"):
        context.set_device_memory(memory.ctypes.data, size - 1)
    _, crooked = _aligned(size, offset=4)
    with pytest.raises(trt.Error, match="not aligned to 64 bytes"):
        context.set_device_memory(crooked.ctypes.data, size)
    with pytest.raises(trt.Error, match="USER_MANAGED"):  # none of these was taken
        _run(context)
    context.set_device_memory(memory.ctypes.data, size)
    _run(context)
    context.set_device_memory(0, 0)
    with pytest.raises(trt.Error, match="USER_MANAGED"):
        _run(context)


def test_memory_for_each_profile():
    engine = _engine(trt.DeviceType.CPU, extents=[(1, 4, 8), (9, 32, 64)])
    small = engine.get_device_memory_size_for_profile_v2(0)
    large = engine.get_device_memory_size_for_profile_v2(1)
    assert small < large == engine.device_memory_size_v2
    with pytest.raises(trt.Error, match="profile 2 does not exist: the engine has 2"):
        engine.get_device_memory_size_for_profile_v2(2)
    context = engine.create_execution_context(Strategy.USER_MANAGED)
    _, memory = _aligned(small)
    context.set_device_memory(memory.ctypes.data, small)
    x, y = _run(context, 8)
    np.testing.assert_allclose(y, _expected(x), rtol=1e-5)
    assert context.update_device_memory_size_for_shapes() == small
    context.set_optimization_profile_async(1)
    with pytest.raises(trt.Error, match="set first"):
        context.update_device_memory_size_for_shapes()
    with pytest.raises(trt.Error, match=f"has {small} bytes, profile 1 needs {large}"):
        _run(context, 64)


@pytest.mark.parametrize("strategy", [Strategy.STATIC, Strategy.ON_PROFILE_CHANGE])
def test_contexts_with_memory_of_their_own(strategy):
    engine = _engine(trt.DeviceType.CPU, extents=[(1, 4, 8), (9, 32, 64)])
    config = engine.create_runtime_config()
    assert config.get_execution_context_allocation_strategy() == Strategy.STATIC
    config.set_execution_context_allocation_strategy(strategy)
    context = engine.create_execution_context(config)
    given = context.get_runtime_config().get_execution_context_allocation_strategy()
    assert given == strategy
    for profile, rows in [(0, 8), (1, 64), (0, 3), (1, 9)]:
        context.set_optimization_profile_async(profile)
        x, y = _run(context, rows)
        np.testing.assert_allclose(y, _expected(x), rtol=1e-5)


class Allocator(trt.IGpuAllocator):
    """Notes what is asked for. Memory is the emulated device's."""

    def __init__(self):
        super().__init__()
        self.blocks: dict[int, DeviceArray] = {}
        self.sizes: list[int] = []
        self.given_back: list[int] = []

    def allocate(self, size, alignment, flags):
        array = DeviceArray(np.zeros(size, np.uint8))
        self.blocks[array.ptr] = array
        self.sizes.append(size)
        return array.ptr

    def deallocate(self, memory):
        self.given_back.append(self.blocks.pop(memory).nbytes)
        return True


@emulated_gpu.required
class TestOnAGpu:
    def test_the_given_memory_is_used(self):
        engine = _engine(trt.DeviceType.GPU)
        size = engine.device_memory_size_v2
        context = engine.create_execution_context(Strategy.USER_MANAGED)
        x = np.random.default_rng(1).standard_normal((16, 64), np.float32)
        inputs, outputs = DeviceArray(x), DeviceArray(np.zeros_like(x))
        memory = DeviceArray(np.full(size, 0x5A, np.uint8))
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", inputs.ptr)
        context.set_tensor_address("y", outputs.ptr)
        with pytest.raises(trt.Error, match="USER_MANAGED"):
            context.execute_async_v3(0)
        host = np.zeros(size + 64, np.uint8)
        with pytest.raises(trt.Error, match="memory given to the context"):
            context.set_device_memory(host.ctypes.data + -host.ctypes.data % 64, size)
        context.set_device_memory(memory.ptr, size)
        context.execute_async_v3(0)
        cuda_driver.driver().synchronize()
        np.testing.assert_allclose(outputs.numpy(), _expected(x), rtol=1e-5)
        between = memory.numpy()[: x.nbytes].view(np.float32).reshape(x.shape)
        np.testing.assert_allclose(between, _softmax(x.astype(np.float64), 1), rtol=1e-5)

    @pytest.mark.parametrize("strategy", [Strategy.STATIC, Strategy.ON_PROFILE_CHANGE])
    def test_what_is_taken_for_a_profile(self, strategy):
        builder_engine = _engine(trt.DeviceType.GPU, extents=[(1, 4, 8), (9, 32, 64)])
        runtime = trt.Runtime(LOGGER)
        allocator = Allocator()
        runtime.gpu_allocator = allocator
        engine = runtime.deserialize_cuda_engine(builder_engine.serialize())
        context = engine.create_execution_context(strategy)
        small = 8 * 64 * 4
        allocator.sizes.clear()
        x = DeviceArray(np.zeros((8, 64), np.float32))
        y = DeviceArray(np.zeros((8, 64), np.float32))
        context.set_input_shape("x", (8, 64))
        context.set_tensor_address("x", x.ptr)
        context.set_tensor_address("y", y.ptr)
        context.execute_async_v3(0)
        largest = max(allocator.sizes)
        if strategy == Strategy.STATIC:
            assert largest >= 64 * 64 * 4
        else:
            assert small <= largest < 2 * small
        context.set_optimization_profile_async(1)
        x = DeviceArray(np.zeros((64, 64), np.float32))
        y = DeviceArray(np.zeros((64, 64), np.float32))
        context.set_input_shape("x", (64, 64))
        context.set_tensor_address("x", x.ptr)
        context.set_tensor_address("y", y.ptr)
        context.execute_async_v3(0)
        cuda_driver.driver().synchronize()
        np.testing.assert_allclose(y.numpy(), np.full((64, 64), 1 / 64), rtol=1e-6)
        # What was taken for the first profile was given back, where it was not for both.
        assert sum(size > 2 * small for size in allocator.sizes) == 1
        assert (largest in allocator.given_back) == (strategy == Strategy.ON_PROFILE_CHANGE)
