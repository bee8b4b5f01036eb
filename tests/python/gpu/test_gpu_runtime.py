"""Contexts on the GPU: streams, addresses, allocators, threads, times. Kernels are built-in layers'."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import opwright as trt
from cuda_driver import DeviceArray, Stream
from gpu_engines import Runner, build, network

pytestmark = pytest.mark.usefixtures("on_gpu")


def negation(shape=(1000,), **options) -> trt.Engine:
    """y0 = -x0, by a kernel."""
    net = network()
    x = net.add_input("x0", trt.float32, shape)
    return build(net, net.add_unary(x, trt.UnaryOperation.NEG).get_output(0), **options)


def test_the_engine_is_for_the_gpu():
    engine = negation()
    assert "sm_" in engine.inspect()


@pytest.mark.parametrize("own_stream", [False, True], ids=["default stream", "own stream"])
def test_addresses_and_streams(gpu, rng, own_stream):
    x = rng.random(1000, np.float32)
    runner = Runner(negation(), x)
    stream = Stream() if own_stream else None
    for _ in range(6):
        (y,) = runner.run(stream)
        np.testing.assert_array_equal(y, -x)
        x = rng.random(1000, np.float32)
        runner.inputs[0].write(x)


def test_work_is_in_the_order_of_the_stream(gpu, stream, rng):
    # y0 of one engine is x0 of the next: nothing waits but the last.
    count, engine = 20, negation((1 << 20,))
    x = rng.random(1 << 20, np.float32)
    runners = [Runner(engine, x)]
    for _ in range(count - 1):
        runner = Runner(engine, np.zeros_like(x))
        assert runner.context.set_tensor_address("x0", runners[-1].outputs[0].ptr)
        runners.append(runner)
    for _ in range(5):
        for runner in runners:
            runner.enqueue(stream)
    stream.synchronize()
    expected = x if count % 2 == 0 else -x
    np.testing.assert_array_equal(runners[-1].outputs[0].numpy(wait=False), expected)


def test_addresses_that_change(gpu, stream, rng):
    runner = Runner(negation(), np.zeros(1000, np.float32))
    for _ in range(12):
        x = rng.random(1000, np.float32)
        source, target = DeviceArray(x), DeviceArray(np.zeros(1000, np.float32))
        assert runner.context.set_tensor_address("x0", source.ptr)
        assert runner.context.set_tensor_address("y0", target.ptr)
        runner.enqueue(stream)
        stream.synchronize()
        np.testing.assert_array_equal(target.numpy(wait=False), -x)


def test_execute_v2_waits(gpu, rng):
    x = rng.random(1000, np.float32)
    runner = Runner(negation(), x)
    assert runner.context.execute_v2([runner.inputs[0].ptr, runner.outputs[0].ptr])
    np.testing.assert_array_equal(runner.outputs[0].numpy(wait=False), -x)


def test_contexts_in_threads(gpu, rng):
    engine = negation((-1,), shapes={"x0": ((1,), (1000,), (5000,))})
    failures = []

    def work(seed: int) -> None:
        try:
            generator = np.random.default_rng(seed)
            stream = Stream()
            for _ in range(15):
                x = generator.random(int(generator.integers(1, 5000)), np.float32)
                (y,) = Runner(engine, x).run(stream)
                np.testing.assert_array_equal(y, -x)
            stream.destroy()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_the_short_api_in_threads(rng):
    engine = negation((64, 64))
    failures = []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(20):
            x = generator.random((64, 64), np.float32)
            if not np.array_equal(engine(x), -x):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class OutputAllocator(trt.IOutputAllocator):
    def __init__(self):
        trt.IOutputAllocator.__init__(self)
        self.buffer, self.shape, self.streams = None, None, []

    def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
        self.streams.append(stream)
        if self.buffer is None or self.buffer.nbytes < size:
            self.buffer = DeviceArray(np.zeros(max(size, 1), np.uint8))
        assert self.buffer.ptr % alignment == 0
        return self.buffer.ptr

    def notify_shape(self, tensor_name, shape):
        self.shape = tuple(shape)


def test_output_allocator(gpu, stream, rng):
    engine = negation((-1,), shapes={"x0": ((1,), (100,), (500,))})
    context = engine.engine.create_execution_context()
    allocator = OutputAllocator()
    assert context.set_output_allocator("y0", allocator)
    for count in (100, 500, 3):
        x = rng.random(count, np.float32)
        source = DeviceArray(x)
        assert context.set_input_shape("x0", (count,))
        assert context.set_tensor_address("x0", source.ptr)
        assert context.execute_async_v3(stream.handle)
        stream.synchronize()
        assert allocator.shape == (count,)
        y = allocator.buffer.numpy(wait=False).view(np.float32)[:count]
        np.testing.assert_array_equal(y, -x)
    assert set(allocator.streams) == {stream.handle}


class Profiler(trt.IProfiler):
    def __init__(self):
        trt.IProfiler.__init__(self)
        self.times: dict[str, list[float]] = {}

    def report_layer_time(self, layer_name, ms):
        self.times.setdefault(layer_name, []).append(ms)


def test_times_of_layers(gpu, stream, rng):
    net = network()
    x = net.add_input("x0", trt.float32, (1 << 22,))
    small = net.add_slice(x, (0,), (64,), (1,)).get_output(0)
    large = net.add_slice(x, (1,), (1 << 21,), (2,))
    large.name = "large"
    runner = Runner(build(net, small, large.get_output(0)), rng.random(1 << 22, np.float32))
    profiler = Profiler()
    runner.context.profiler = profiler
    for _ in range(3):
        runner.run(stream)
    assert all(len(times) == 3 for times in profiler.times.values()) and profiler.times
    assert all(0 <= ms < 1000 for times in profiler.times.values() for ms in times)


class Allocator(trt.IGpuAllocator):
    """The driver's memory, counted."""

    def __init__(self):
        trt.IGpuAllocator.__init__(self)
        self.blocks, self.total = {}, 0

    def allocate(self, size, alignment, flags):
        block = DeviceArray(np.zeros(size, np.uint8))
        self.blocks[block.ptr] = block
        self.total += size
        return block.ptr

    def deallocate(self, memory):
        return self.blocks.pop(memory, None) is not None


def test_allocator_of_the_user(gpu, rng):
    engine = negation()
    runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
    allocator = Allocator()
    runtime.gpu_allocator = allocator
    loaded = runtime.deserialize_cuda_engine(engine.engine.serialize())
    x = rng.random(1000, np.float32)
    (y,) = Runner(trt.Engine(loaded), x).run()
    np.testing.assert_array_equal(y, -x)


def test_an_engine_is_saved_and_loaded(tmp_path, rng):
    negation().save(tmp_path / "negation.engine")
    x = rng.random(1000, np.float32)
    np.testing.assert_array_equal(trt.load(tmp_path / "negation.engine")(x), -x)


def test_numpy_goes_in_and_out(rng):
    engine = negation((-1, 3), shapes={"x0": ((1, 3), (4, 3), (4096, 3))})
    for rows in (1, 4096, 17):
        x = rng.random((rows, 3), np.float32)
        y = engine(x)
        assert isinstance(y, np.ndarray)
        np.testing.assert_array_equal(y, -x)
    x = rng.random((8, 6), np.float32)[::2, ::2]  # strided
    np.testing.assert_array_equal(engine(x), -x)


def test_the_current_context_stays(gpu, rng):
    import ctypes

    def current():
        context = ctypes.c_void_p()
        gpu.call_here("cuCtxGetCurrent", ctypes.byref(context))
        return context.value

    before = current()
    engine = negation()
    engine(rng.random(1000, np.float32))
    assert current() == before
    gpu.call_here("cuCtxSetCurrent", ctypes.c_void_p())  # a thread that has none
    engine(rng.random(1000, np.float32))
    assert current() is None
    gpu.make_current()


def test_a_context_of_the_caller_s_own(gpu, rng):
    """Not the primary one: engine, memory and streams are in it."""
    import ctypes

    own = ctypes.c_void_p()
    gpu.call_here("cuCtxCreate_v2", ctypes.byref(own), ctypes.c_uint(0), 0)
    try:
        x = rng.random(1000, np.float32)
        runner = Runner(negation(), x, device=None)
        stream = Stream(device=None)
        for _ in range(6):
            np.testing.assert_array_equal(runner.run(stream)[0], -x)
        stream.destroy()
        del runner, stream
    finally:
        gpu.make_current()
        gpu.call_here("cuCtxDestroy_v2", own)
