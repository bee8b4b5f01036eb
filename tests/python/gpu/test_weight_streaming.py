"""Weights that stay in the host's memory and are copied to a GPU in each run, as the budget says."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import opwright as trt
from cuda_driver import DeviceArray, Stream, driver

LOGGER = trt.Logger(trt.Logger.ERROR)
LAYERS, SIZE = 5, 16
RANDOM = np.random.default_rng(5)
WEIGHTS = [RANDOM.normal(size=(SIZE, SIZE)).astype(np.float32) / 4 for _ in range(LAYERS)]
X = RANDOM.normal(size=(3, SIZE)).astype(np.float32)


def expected(x, weights=None):
    for matrix in WEIGHTS if weights is None else weights:
        x = np.tanh(x @ matrix)
    return x


def build(*flags, device=trt.DeviceType.GPU):
    """Products with matrices, and an output that is a weight."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    y = network.add_input("x", trt.float32, X.shape)
    none = trt.MatrixOperation.NONE
    for i, matrix in enumerate(WEIGHTS):
        constant = network.add_constant(matrix.shape, matrix)
        constant.get_output(0).name = f"w{i}"
        y = network.add_matrix_multiply(y, none, constant.get_output(0), none).get_output(0)
        y = network.add_activation(y, trt.ActivationType.TANH).get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.timing = False
    config.default_device_type = device
    for flag in flags:
        config.set_flag(flag)
    return bytes(builder.build_serialized_network(network, config))


@pytest.fixture(scope="module")
def plan():
    return build(trt.BuilderFlag.WEIGHT_STREAMING)


def load(plan):
    runtime = trt.Runtime(LOGGER)
    runtime.engine_device_code_allowed = True
    return runtime.deserialize_cuda_engine(plan)


class Run:
    """A context with memory of its own."""

    def __init__(self, engine):
        self.context = engine.create_execution_context()
        self.y = DeviceArray(np.zeros_like(X))

    def __call__(self, x, stream=0):
        self.x = DeviceArray(x)
        for name, array in (("x", self.x), ("y", self.y)):
            self.context.set_tensor_address(name, array.ptr)
        assert self.context.execute_async_v3(stream)
        return self

    def result(self):
        return self.y.numpy()


def check(run, x=X, weights=None):
    np.testing.assert_allclose(run(x).result(), expected(x, weights), rtol=1e-5, atol=1e-6)


def test_all_weights_lie_on_the_device_at_first(plan):
    engine = load(plan)
    size = engine.streamable_weights_size
    assert size >= sum(matrix.nbytes for matrix in WEIGHTS)
    assert engine.weight_streaming_budget_v2 == size
    assert engine.weight_streaming_scratch_memory_size == 0
    assert engine.minimum_weight_streaming_budget == 0
    assert 0 <= engine.get_weight_streaming_automatic_budget() <= size
    check(Run(engine))


@pytest.mark.parametrize("part", [0, 0.3, 0.6, 1])
def test_results_are_those_of_weights_on_the_device(plan, part):
    engine = load(plan)
    size = engine.streamable_weights_size
    engine.weight_streaming_budget_v2 = int(part * size)
    assert engine.weight_streaming_budget_v2 == int(part * size)
    # What two steps read: one runs while the other's weights come.
    largest = WEIGHTS[0].nbytes
    assert engine.weight_streaming_scratch_memory_size == (0 if part == 1 else 2 * largest)
    run = Run(engine)
    for factor in (1, 2, -1):
        check(run, np.float32(factor) * X)


def test_a_budget_beyond_all_is_all(plan):
    engine = load(plan)
    engine.weight_streaming_budget_v2 = 1 << 40
    assert engine.weight_streaming_budget_v2 == engine.streamable_weights_size
    check(Run(engine))


def test_several_contexts_run_at_once(plan):
    engine = load(plan)
    engine.weight_streaming_budget_v2 = 0
    runs = [Run(engine) for _ in range(3)]
    streams = [Stream().handle for _ in runs]
    inputs = [np.float32(i + 1) * X for i in range(3)]
    for _ in range(3):
        for run, x, stream in zip(runs, inputs, streams):
            run(x, stream)
    for run, x in zip(runs, inputs):
        np.testing.assert_allclose(run.result(), expected(x), rtol=1e-5, atol=1e-6)
    failed = []

    def work(run, x):
        try:
            for _ in range(3):
                check(run, x)
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(runs, inputs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_budget_stays_while_there_are_contexts(plan):
    engine = load(plan)
    engine.weight_streaming_budget_v2 = 0
    run = Run(engine)
    check(run)
    with pytest.raises(trt.Error, match="while it has execution contexts, and there are 1"):
        engine.weight_streaming_budget_v2 = 1 << 20
    check(run)
    del run
    engine.weight_streaming_budget_v2 = 1 << 20
    check(Run(engine))


def test_refused(plan):
    engine = load(plan)
    with pytest.raises(trt.Error, match="budget is -1; expected 0 or more"):
        engine.weight_streaming_budget_v2 = -1
    plain = load(build())
    assert plain.streamable_weights_size == plain.weight_streaming_budget_v2 == 0
    with pytest.raises(trt.Error, match="was not built with BuilderFlag.WEIGHT_STREAMING"):
        plain.weight_streaming_budget_v2 = 1


def test_refitted_weights_are_streamed():
    engine = load(build(trt.BuilderFlag.WEIGHT_STREAMING, trt.BuilderFlag.REFIT))
    engine.weight_streaming_budget_v2 = 0
    run = Run(engine)
    check(run)
    refitter = trt.Refitter(engine, LOGGER)
    changed = [WEIGHTS[0], 2 * WEIGHTS[1], *WEIGHTS[2:]]
    refitter.set_named_weights("w1", changed[1])
    assert refitter.refit_cuda_engine()
    check(run, weights=changed)
    assert engine.weight_streaming_budget_v2 == 0


def test_layers_can_be_timed_and_stored_again(plan):
    engine = load(bytes(load(plan).serialize()))
    engine.weight_streaming_budget_v2 = 0

    class Profiler(trt.IProfiler):
        def __init__(self):
            trt.IProfiler.__init__(self)
            self.layers = set()

        def report_layer_time(self, layer_name, ms):
            self.layers.add(layer_name)

    run = Run(engine)
    run.context.profiler = Profiler()
    check(run)
    assert len(run.context.profiler.layers) >= LAYERS


def test_a_run_can_be_captured(plan):
    engine = load(plan)
    engine.weight_streaming_budget_v2 = 0
    run = Run(engine)
    check(run)
    run.y = DeviceArray(np.zeros_like(X))
    stream = ctypes.c_void_p(Stream().handle)
    run(X, stream.value)  # addresses are known from here on
    driver().synchronize()
    graph, launchable = ctypes.c_void_p(), ctypes.c_void_p()
    driver().call("cuStreamBeginCapture_v2", stream, 1)
    assert run.context.execute_async_v3(stream.value)
    driver().call("cuStreamEndCapture", stream, ctypes.byref(graph))
    driver().call(
        "cuGraphInstantiateWithFlags", ctypes.byref(launchable), graph, ctypes.c_uint64(0)
    )
    for factor in (3, -2):
        driver().write(run.x.ptr, np.float32(factor) * X)
        driver().call("cuGraphLaunch", launchable, stream)
        np.testing.assert_allclose(
            run.result(), expected(np.float32(factor) * X), rtol=1e-5, atol=1e-6
        )


def test_on_the_cpu_a_budget_has_no_effect():
    engine = load(build(trt.BuilderFlag.WEIGHT_STREAMING, device=trt.DeviceType.CPU))
    engine.weight_streaming_budget_v2 = 0
    assert engine.weight_streaming_scratch_memory_size == 0
    y = np.zeros_like(X)
    engine.create_execution_context().execute_v2([X.ctypes.data, y.ctypes.data])
    np.testing.assert_allclose(y, expected(X), rtol=1e-5, atol=1e-6)
