"""CUDA graphs that contexts capture by themselves, and engines within the user's own captures."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from cuda_driver import DeviceArray, Stream, driver
from gpu_engines import Log, Runner, build, new_id, op_of, strongly_typed

pytestmark = pytest.mark.usefixtures("on_gpu")

RUNS = 8  # more than the runs after which a context captures itself
ADD = """
__device__ void add_one(const float* x, int64_t n, float* y) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
"""


def add_one() -> str:
    """A compiled plugin y = x + 1."""
    name = new_id("add_one")

    @trtp.kernel(
        name,
        ADD,
        "add_one",
        grid=lambda x: trtp.cdiv(x.shape_expr.numel(), 256),
        block=256,
        extra=lambda x: [x.shape_expr.numel()],
    )
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    return name


def chain(*names: str, shape=(1000,), **options) -> trt.Engine:
    """The plugins one after another."""
    net = strongly_typed()
    tensor = net.add_input("x0", trt.float32, shape)
    for name in names:
        tensor = net.add_plugin(op_of(name)(tensor)).get_output(0)
    return build(net, tensor, **options)


def callback(capturable: bool) -> tuple[str, list[int]]:
    """A Python plugin that copies with the driver, and the list of the streams that it was called with."""

    name, streams = new_id("copy"), []
    library = driver().library

    @trtp.register(name)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(name, device="cuda", capturable=capturable)
    def copy(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        streams.append(stream)
        size = ctypes.c_size_t(4 * x.numel())
        to, source = ctypes.c_uint64(outputs[0].data_ptr), ctypes.c_uint64(x.data_ptr)
        assert library.cuMemcpyDtoDAsync_v2(to, source, size, ctypes.c_void_p(stream)) == 0

    return name, streams


def check_runs(runner, stream, rng, added, runs=RUNS):
    for _ in range(runs):
        x = rng.random(runner.inputs[0].shape, np.float32)
        runner.inputs[0].write(x)
        np.testing.assert_allclose(runner.run(stream)[0], x + added, rtol=1e-6)


def test_replays_compute_from_new_values(gpu, stream, rng):
    runner = Runner(chain(*[add_one()] * 10), rng.random(1000, np.float32))
    check_runs(runner, stream, rng, 10, 2 * RUNS)


def test_the_default_stream(gpu, rng):
    runner = Runner(chain(*[add_one()] * 3), rng.random(1000, np.float32))
    check_runs(runner, None, rng, 3)


def test_addresses_that_change_between_replays(gpu, stream, rng):
    runner = Runner(chain(*[add_one()] * 4), rng.random(1000, np.float32))
    check_runs(runner, stream, rng, 4)
    for _ in range(RUNS):
        x = rng.random(1000, np.float32)
        source, target = DeviceArray(x), DeviceArray(np.zeros(1000, np.float32))
        assert runner.context.set_tensor_address("x0", source.ptr)
        assert runner.context.set_tensor_address("y0", target.ptr)
        runner.enqueue(stream)
        stream.synchronize()
        np.testing.assert_allclose(target.numpy(wait=False), x + 4, rtol=1e-6)
        source.free()  # a graph that still had the old address would fault
        target.free()


def test_views_of_inputs_and_outputs_move_with_them(gpu, stream, rng):
    net = strongly_typed()
    rows = net.add_shuffle(net.add_input("x0", trt.float32, (1000,)))
    rows.reshape_dims = (50, 20)
    made = net.add_plugin(op_of(add_one())(rows.get_output(0))).get_output(0)
    view = net.add_shuffle(made)
    view.reshape_dims = (10, 100)
    more = net.add_plugin(op_of(add_one())(made)).get_output(0)
    engine = build(net, view.get_output(0), more)
    assert "memory: 0 B for tensors" in engine.inspect()
    runner = Runner(engine, rng.random(1000, np.float32))
    for run in range(2 * RUNS):
        x = rng.random(1000, np.float32)
        runner.inputs[0].write(x)
        if run >= RUNS:
            # Only as aligned as an element.
            whole = DeviceArray(np.zeros(1001, np.float32))
            assert runner.context.set_tensor_address("y0", whole.ptr + 4)
        first, second = runner.run(stream)
        if run >= RUNS:
            first = whole.numpy(wait=False)[1:].reshape(10, 100)
            whole.free()
        np.testing.assert_allclose(first, x.reshape(10, 100) + 1, rtol=1e-6)
        np.testing.assert_allclose(second, x.reshape(50, 20) + 2, rtol=1e-6)


def test_shapes_that_change_between_replays(gpu, stream, rng):
    shapes = {"x0": ((1,), (1000,), (5000,))}
    engine = chain(*[add_one()] * 4, shape=(-1,), shapes=shapes)
    runner = Runner(engine, rng.random(1000, np.float32))
    check_runs(runner, stream, rng, 4)
    for count in (5000, 7, 1000):
        x = rng.random(count, np.float32)
        source, target = DeviceArray(x), DeviceArray(np.zeros(count, np.float32))
        assert runner.context.set_input_shape("x0", (count,))
        assert runner.context.set_tensor_address("x0", source.ptr)
        assert runner.context.set_tensor_address("y0", target.ptr)
        for _ in range(RUNS):
            runner.enqueue(stream)
        stream.synchronize()
        np.testing.assert_allclose(target.numpy(wait=False), x + 4, rtol=1e-6)


def test_several_streams_take_turns(gpu, rng):
    runner = Runner(chain(*[add_one()] * 4), rng.random(1000, np.float32))
    streams = [Stream() for _ in range(2)]
    for _ in range(RUNS):
        for stream in streams:
            check_runs(runner, stream, rng, 4, runs=1)
    for stream in streams:
        stream.destroy()


def test_a_callback_is_called_each_time(gpu, stream, rng):
    name, streams = callback(capturable=False)
    one = add_one()
    runner = Runner(chain(one, one, name, one, one), rng.random(1000, np.float32))
    streams.clear()
    check_runs(runner, stream, rng, 4)
    assert streams == [stream.handle] * RUNS


def test_a_capturable_callback_is_not_called_on_replay(gpu, stream, rng):
    name, streams = callback(capturable=True)
    one = add_one()
    runner = Runner(chain(one, name, one), rng.random(1000, np.float32))
    check_runs(runner, stream, rng, 2)
    calls = len(streams)
    check_runs(runner, stream, rng, 2)
    assert len(streams) == calls, "Python was called although the graph was replayed"


def test_a_callback_that_breaks_a_capture(gpu, stream, rng):
    # It says that it may be captured and waits for the device, which no capture allows.
    name = new_id("waits")
    calls = []

    @trtp.register(name)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    library = driver().library

    @trtp.impl(name, device="cuda", capturable=True)
    def waits(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        calls.append(stream)
        size = ctypes.c_size_t(4 * x.numel())
        to, source = ctypes.c_uint64(outputs[0].data_ptr), ctypes.c_uint64(x.data_ptr)
        library.cuMemcpyDtoDAsync_v2(to, source, size, ctypes.c_void_p(stream))
        library.cuStreamSynchronize(ctypes.c_void_p(stream))

    log = Log()
    one = add_one()
    runner = Runner(chain(one, name, one, logger=log), rng.random(1000, np.float32))
    check_runs(runner, stream, rng, 2)  # goes on without the graph
    assert calls and name in log.text


def test_graphs_can_be_turned_off(gpu, stream, rng):
    net = strongly_typed()
    name, streams = callback(capturable=True)
    tensor = net.add_plugin(op_of(name)(net.add_input("x0", trt.float32, (1000,)))).get_output(0)
    tensor.name = "y0"
    net.mark_output(tensor)
    builder = trt.Builder(trt.Logger())
    config = builder.create_builder_config()
    assert config.cuda_graphs
    config.cuda_graphs = False
    config.default_device_type = trt.DeviceType.GPU
    engine = trt.Engine(builder.build_engine_with_config(net, config))
    runner = Runner(engine, rng.random(1000, np.float32))
    streams.clear()
    check_runs(runner, stream, rng, 0)
    assert len(streams) == RUNS


def test_the_log_and_the_inspector_say_what_was_captured(gpu, stream, rng):
    log = Log()
    name, _ = callback(capturable=False)
    engine = chain(*[add_one()] * 3, name, logger=log)
    check_runs(Runner(engine, rng.random(1000, np.float32)), stream, rng, 3)
    assert "graph" in log.text.lower()
    assert "capturable" in log.text, "the log says why the plugin was not captured"


@pytest.mark.parametrize("callbacks", [False, True], ids=["kernels", "with a callback"])
def test_an_engine_in_the_callers_own_graph(torch, rng, callbacks):
    names = [add_one()] * 3
    if callbacks:
        names.insert(1, callback(capturable=True)[0])
    engine = chain(*names)
    context = engine.engine.create_execution_context()
    x, y = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    assert context.set_tensor_address("x0", x.data_ptr())
    assert context.set_tensor_address("y0", y.data_ptr())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):  # what is done once only
            assert context.execute_async_v3(side.cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert context.execute_async_v3(torch.cuda.current_stream().cuda_stream)
    for value in (3.0, -7.5):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, torch.full_like(y, value + 3))


def test_engines_run_while_another_thread_captures(gpu, stream, rng):
    """In the global mode, PyTorch's, the driver refuses all threads what may wait for the captured stream."""
    net = strongly_typed()
    x = net.add_input("x0", trt.float32, (50, 1000))
    total = net.add_reduce(x, trt.ReduceOperation.SUM, 1 << 1, False).get_output(0)
    engine = build(net, total, net.add_non_zero(x).get_output(0))  # whose size the host waits for
    values = np.where(rng.random((50, 1000)) < 0.5, 0, rng.random((50, 1000))).astype(np.float32)
    handle, graph, results = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), []
    gpu.call_here("cuStreamBeginCapture_v2", handle, 0)
    thread = threading.Thread(target=lambda: results.extend(engine(values).values()))
    thread.start()
    thread.join()
    gpu.call_here(
        "cuStreamEndCapture", handle, ctypes.byref(graph)
    )  # fails if something has broken it
    gpu.call_here("cuGraphDestroy", graph)
    np.testing.assert_allclose(results[0], values.sum(1, dtype=np.float64), rtol=1e-5)
    np.testing.assert_array_equal(results[1], np.stack(values.nonzero()))
