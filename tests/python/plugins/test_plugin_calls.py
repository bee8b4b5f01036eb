"""What happens around the call of a plugin's function: tensors that are kept, the interpreter's lock,
engines within engines, interrupts, exceptions."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import build, network, new_id, one_plugin, op_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def define(function, name="call"):
    """A plugin of one tensor whose impl is function(x, y)."""
    plugin_id = new_id(name)

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def impl(x, outputs, stream):
        return function(x, outputs[0])

    return plugin_id


def engine_of(function, x=X, **options) -> trt.Engine:
    net, layer = one_plugin(define(function), x)
    return build(net, layer.get_output(0), **{"timing": False, **options})


def copy(x, y):
    np.copyto(np.asarray(y), np.asarray(x))


def double(x, y):
    np.multiply(np.asarray(x), 2, out=np.asarray(y))


def chain(function, length, x=X, **options) -> trt.Engine:
    """An engine that is a row of one plugin."""
    plugin_id = define(function)
    net = network()
    tensor = net.add_input("x", trt.float32, x.shape)
    for _ in range(length):
        tensor = net.add_plugin(op_of(plugin_id)(tensor)).get_output(0)
    return build(net, tensor, **{"timing": False, **options})


def context_of(engine: trt.Engine, x: np.ndarray, y: np.ndarray) -> trt.IExecutionContext:
    context = engine.engine.create_execution_context()
    context.set_tensor_address(engine.inputs[0], x.ctypes.data)
    context.set_tensor_address(engine.outputs[0], y.ctypes.data)
    return context


# Tensors and arrays that outlive their call ---------------------------------------------------


def from_dlpack(t):
    return np.from_dlpack(t)


def torch_tensor(t):
    return pytest.importorskip("torch").from_dlpack(t)


def as_torch_tensor(t):
    return pytest.importorskip("torch").as_tensor(t)


def own_torch_tensor(t):
    pytest.importorskip("torch")
    return t.torch()


VIEWS = [np.asarray, memoryview, from_dlpack, torch_tensor, as_torch_tensor, own_torch_tensor]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("which", ["input 0", "output 0"])
def test_a_view_that_is_kept_is_an_error_that_names_it(view, which):
    kept = []

    def keep(x, y):
        copy(x, y)
        kept.append(view(x if which == "input 0" else y))

    engine = engine_of(keep)
    with pytest.raises(trt.Error, match=rf"layer '.*plugin '.*::call'.* view of {which}, .*copy"):
        engine(X.copy())
    gc.collect()
    np.testing.assert_array_equal(np.asarray(kept.pop()), X)
    with pytest.raises(trt.Error, match="view of"):
        engine(X)
    assert len(kept) == 1


def test_views_of_views_and_capsules_count():
    def run(keep):
        kept = []

        def impl(x, y):
            copy(x, y)
            kept.append(keep(x))

        with pytest.raises(trt.Error, match="view of input 0"):
            engine_of(impl)(X)

    run(lambda x: np.asarray(x)[1:, ::2].T)
    run(lambda x: np.asarray(x.aliased((6,))))
    run(lambda x: x.__dlpack__())
    run(lambda x: x.__dlpack__(max_version=(1, 0)))


def test_extended_types_count():
    pytest.importorskip("ml_dtypes")
    kept = []

    def keep(x, y):
        if x.dtype == trt.bfloat16:
            kept.append(np.asarray(x))

    plugin_id = define(keep)
    net = network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = net.add_input("x", trt.bfloat16, (4,))
    engine = build(net, net.add_plugin(op_of(plugin_id)(x)).get_output(0), timing=False)
    data = np.ones(4, np.float32).astype("bfloat16")
    with pytest.raises(trt.Error, match="view of input 0"):
        engine(data)
    np.testing.assert_array_equal(kept[0], data)


def test_arrays_of_garbage_cycles_are_no_error():
    def cycle(x, y):
        copy(x, y)
        ring = [np.asarray(x)]
        ring.append(ring)

    engine = engine_of(cycle)
    gc.disable()
    try:
        for _ in range(3):
            np.testing.assert_array_equal(engine(X), X)
    finally:
        gc.enable()


def test_a_kept_tensor_stays_ended_and_the_next_call_has_another():
    kept = []

    def keep(x, y):
        if kept:
            assert x is not kept[0]
            with pytest.raises(trt.Error, match="used after its call"):
                np.asarray(kept[0])
        copy(x, y)
        kept.append(x)

    engine = engine_of(keep)
    np.testing.assert_array_equal(engine(X), X)
    np.testing.assert_array_equal(engine(X), X)
    assert kept[0].shape == X.shape and kept[0] is not kept[1]


def test_tensors_are_made_once():
    seen = set()

    def look(x, y):
        seen.add((id(x), id(y)))
        copy(x, y)

    engine = engine_of(look)
    for _ in range(5):
        engine(X)
    assert len(seen) == 1


def test_memory_of_a_kept_array_stays():
    """Between two plugins lies the engine's own memory."""
    kept = []
    big = np.random.default_rng(0).random((256, 1024), np.float32)

    def keep(x, y):
        np.copyto(np.asarray(y), np.asarray(x) + 1)
        kept.append(np.asarray(y))

    engine = chain(keep, 2, big)
    with pytest.raises(trt.Error, match="view of output 0"):
        engine(big)
    del engine
    gc.collect()
    others = [np.full_like(big, 7) for _ in range(20)]  # would take freed memory
    np.testing.assert_array_equal(kept[0], big + 1)
    del others


def test_arrays_can_be_looked_at_after_an_exception():
    """A debugger does, in the frames of the traceback."""

    def fail(x, y):
        inner = np.asarray(x)
        outer = np.asarray(y)
        np.copyto(outer, inner + 1)
        raise ArithmeticError("look at me")

    engine = chain(fail, 2, np.zeros((256, 1024), np.float32))
    given = np.random.default_rng(1).random((256, 1024), np.float32)
    expected = given + 1
    with pytest.raises(ArithmeticError) as caught:
        engine(given.copy())
    del engine
    gc.collect()
    others = [np.full_like(given, 7) for _ in range(20)]
    frame = traceback.walk_tb(caught.value.__traceback__)
    values = [f.f_locals for f, _ in frame if f.f_code.co_name == "fail"][0]
    np.testing.assert_array_equal(values["inner"], given)
    np.testing.assert_array_equal(values["outer"], expected)
    with pytest.raises(trt.Error, match="used after its call"):
        np.asarray(values["x"])
    del others


def test_arrays_of_a_failed_build_can_be_looked_at():
    big = np.zeros((256, 1024), np.float32)
    seen = []

    def fail(x, y):
        inner = np.asarray(x)
        seen.append(inner.copy())
        raise ArithmeticError("in the tuner")

    with pytest.raises(ArithmeticError) as caught:
        engine_of(fail, big, timing=True)
    gc.collect()
    others = [np.full_like(big, 7) for _ in range(20)]
    frame = traceback.walk_tb(caught.value.__traceback__)
    values = [f.f_locals for f, _ in frame if f.f_code.co_name == "fail"][0]
    np.testing.assert_array_equal(values["inner"], seen[0])
    del others


def test_nothing_is_kept_that_nobody_holds():
    alive = []

    def look(x, y):
        copy(x, y)
        alive.append(weakref.ref(np.asarray(x)))

    engine = engine_of(look)
    x = X.copy()
    before = sys.getrefcount(x)
    engine(x)
    assert alive[0]() is None and sys.getrefcount(x) == before

    def fail(x, y):
        array = np.asarray(x)
        raise ArithmeticError(array.sum())

    engine = engine_of(fail)
    for _ in range(3):
        with pytest.raises(ArithmeticError):
            engine(x)
    gc.collect()
    assert sys.getrefcount(x) == before


def test_an_array_cannot_be_resized():
    def resize(x, y):
        with pytest.raises(ValueError):
            np.asarray(y).resize(100)
        with pytest.raises(ValueError):
            np.asarray(x).resize(1)
        copy(x, y)

    np.testing.assert_array_equal(engine_of(resize)(X), X)


def test_a_tensor_of_torch_cannot_be_resized():
    torch = pytest.importorskip("torch")

    def resize(x, y):
        with pytest.raises(RuntimeError, match="not resizable"):
            torch.from_dlpack(y).resize_(1000)
        copy(x, y)

    np.testing.assert_array_equal(engine_of(resize)(X), X)


def test_deleting_arguments_does_no_harm():
    def drop(x, y):
        copy(x, y)
        del x, y
        gc.collect()

    engine = engine_of(drop)
    for _ in range(3):
        np.testing.assert_array_equal(engine(X), X)


# The interpreter's lock -------------------------------------------------------------------------


def test_an_engine_without_python_plugins_runs_while_another_thread_has_the_interpreter():
    """Nothing else can run Python while this thread does not let go, with such a switch interval."""
    net = network()
    x = net.add_input("x", trt.float32, (64, 256))
    for _ in range(30):
        x = net.add_activation(x, trt.ActivationType.RELU).get_output(0)
        x = net.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    engine = build(net, x, timing=False)
    given = [np.full((64, 256), -1.0 - i, np.float32) for i in range(2)]
    results = [np.full((64, 256), np.nan, np.float32) for _ in range(2)]
    contexts = [context_of(engine, a, y) for a, y in zip(given, results)]
    ready = [threading.Event(), threading.Event()]

    def run(i):
        ready[i].set()
        contexts[i].execute_async_v3(0)  # lets go of the interpreter at once

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        for i, thread in enumerate(threads):
            thread.start()
            ready[i].wait()
        deadline = time.monotonic() + 30
        while any(np.isnan(y).any() for y in results):
            assert time.monotonic() < deadline, "the runs wait for the interpreter"
    finally:
        sys.setswitchinterval(usual)
        for thread in threads:
            thread.join()
    for y in results:
        np.testing.assert_array_equal(np.abs(y), 0)


def test_consecutive_plugins_are_called_in_one_go():
    """A thread that waits for the interpreter gets it before or after the run, not in between."""
    calls, others = [], []

    def note(x, y):
        copy(x, y)
        calls.append(len(others))

    engine = chain(note, 200)
    context = context_of(engine, X.copy(), np.empty_like(X))
    go = threading.Event()

    def other():
        go.wait()
        for _ in range(20):
            others.append(len(calls))
            time.sleep(0)

    thread = threading.Thread(target=other)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread.start()
        go.set()
        for _ in range(10):
            context.execute_async_v3(0)
    finally:
        sys.setswitchinterval(usual)
        thread.join()
    assert len(calls) == 2000
    assert all(n % 200 == 0 for n in others), others


def test_threads_with_contexts_of_their_own_run_python_plugins_at_once():
    def work(x, y):
        time.sleep(0)  # lets others in
        double(x, y)

    engine = chain(work, 3)
    wrong = []

    def run(seed):
        x, y = np.full_like(X, seed), np.empty_like(X)
        context = context_of(engine, x, y)
        for _ in range(50):
            y[...] = 0
            context.execute_async_v3(0)
            if not np.array_equal(y, 8 * x):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Engines within engines ---------------------------------------------------------------------------


def test_the_same_context_within_itself_is_an_error():
    state = {}

    def again(x, y):
        copy(x, y)
        if state.get("recurse"):
            state["context"].execute_async_v3(0)
        if state.get("move"):
            state["context"].set_tensor_address("x0", 0)

    engine = engine_of(again)
    y = np.empty_like(X)
    state["context"] = context = context_of(engine, X.copy(), y)
    for what, message in (("recurse", "run again"), ("move", "given another address")):
        state[what] = True
        with pytest.raises(
            trt.Error, match=f"is running and cannot be {message}.*of their own"
        ) as e:
            context.execute_async_v3(0)
        assert "again" in [frame.name for frame in traceback.extract_tb(e.value.__traceback__)]
        state[what] = False
        y[...] = 0
        context.execute_async_v3(0)
        np.testing.assert_array_equal(y, X)


def test_a_context_that_two_threads_share_is_an_error_for_the_second():
    inside, go_on = threading.Event(), threading.Event()

    def wait(x, y):
        inside.set()
        go_on.wait()
        copy(x, y)

    y = np.empty_like(X)
    x = X.copy()
    context = context_of(engine_of(wait), x, y)
    thread = threading.Thread(target=context.execute_async_v3, args=(0,))
    thread.start()
    inside.wait()
    with pytest.raises(trt.Error, match="is running and cannot be run again"):
        context.execute_async_v3(0)
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(y, X)


def test_another_context_of_the_engine_may_run_within():
    depth = [0]
    engines = []

    def recurse(x, y):
        depth[0] += 1
        a, b = np.asarray(x), np.asarray(y)
        b[...] = a + 1 if depth[0] == 5 else engines[0](a.copy()) + 1

    engines.append(engine_of(recurse))
    np.testing.assert_array_equal(engines[0](X), X + 5)


def test_endless_recursion_is_an_error():
    engines = []

    def recurse(x, y):
        engines[0](X)

    engines.append(engine_of(recurse))
    with pytest.raises(RecursionError):
        engines[0](X)


def test_a_context_may_be_dropped_within_its_run():
    held = {}

    def drop(x, y):
        held.clear()
        gc.collect()
        copy(x, y)

    y = np.empty_like(X)
    x = X.copy()
    held["context"] = context_of(engine_of(drop), x, y)
    held["context"].execute_async_v3(0)
    assert not held
    np.testing.assert_array_equal(y, X)


def test_threads_started_by_a_plugin_may_run_the_engine():
    engines, results = [], []

    def fan_out(x, y):
        copy(x, y)
        if np.asarray(x)[0, 0] < 0:
            return
        threads = [
            threading.Thread(target=lambda: results.append(engines[0](np.full_like(X, -1))))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    engines.append(engine_of(fan_out))
    np.testing.assert_array_equal(engines[0](X), X)
    assert len(results) == 3 and all((result == -1).all() for result in results)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_runs_python_plugins():
    engine = chain(double, 2)
    expected = engine(X)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(engine(X), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


# Interrupts ---------------------------------------------------------------------------------------


@pytest.fixture
def interrupts():
    """Interrupts do something also where the tests run in the background of a shell, which ignores them."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_ctrl_c_within_an_impl(interrupts):
    loops = [True]

    def endless(x, y):
        if loops[0]:
            signal.raise_signal(signal.SIGINT)
        while loops[0]:
            pass
        copy(x, y)

    engine = engine_of(endless)
    with pytest.raises(KeyboardInterrupt):
        engine(X)
    with pytest.raises(KeyboardInterrupt):  # and where the tuner runs it
        engine_of(endless, timing=True)
    loops[0] = False
    np.testing.assert_array_equal(engine(X), X)


def test_ctrl_c_between_plugins(interrupts):
    """The signal comes while no Python code runs: a function of C sets it off."""
    trip = ctypes.pythonapi.PyErr_SetInterrupt
    trip.restype = None
    calls = []

    def impl(x, y):
        calls.append(1)
        copy(x, y)

    plugin_id = define(impl)
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    for _ in range(100):
        x = net.add_plugin(op_of(plugin_id)(x)).get_output(0)
    engine = build(net, x, timing=False)

    class Allocator(trt.IOutputAllocator):
        """Called before the first layer."""

        reallocate_output = None

        def notify_shape(self, *args): ...

    y = np.empty_like(X)
    context = context_of(engine, X, y)
    allocator = Allocator()
    allocator.reallocate_output = lambda *args: (trip(), y.ctypes.data)[1]
    context.set_output_allocator("y0", allocator)
    with pytest.raises(KeyboardInterrupt):
        context.execute_async_v3(0)
    assert len(calls) < 100
    allocator.reallocate_output = lambda *args: y.ctypes.data
    context.execute_async_v3(0)
    np.testing.assert_array_equal(y, X)


def test_ctrl_c_during_a_build_without_python_plugins(interrupts):
    """It ends the build between two layers; the signal is set off by C code, as if Python did not run."""
    trip = ctypes.pythonapi.PyErr_SetInterrupt
    trip.restype = None

    class Monitor:
        phase_start = phase_finish = staticmethod("".format)
        step_complete = trip

    builder = trt.Builder(trt.Logger())
    net = builder.create_network()
    x = net.add_input("x", trt.float32, (4, 8, 8, 8))
    for size in range(2, 12):
        x = net.add_convolution_nd(x, size, (3, 3), np.ones((size, x.shape[1], 3, 3), np.float32))
        x.padding_nd = (1, 1)
        x = x.get_output(0)
    net.mark_output(x)
    config = builder.create_builder_config()
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    config.progress_monitor = Monitor()
    with pytest.raises(KeyboardInterrupt):
        builder.build_serialized_network(net, config)
    timed = len(cache)
    config.progress_monitor = None
    assert builder.build_serialized_network(net, config) is not None
    assert timed < len(cache)


def test_ctrl_c_in_a_logger_is_not_lost(interrupts):
    class Logger(trt.ILogger):
        armed = True

        def log(self, severity, message):
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt

    logger = Logger()
    builder = trt.Builder(logger)
    net = builder.create_network()
    x = net.add_input("x", trt.float32, (4,))
    for _ in range(3):
        x = net.add_activation(x, trt.ActivationType.RELU).get_output(0)
    net.mark_output(x)
    with pytest.raises(KeyboardInterrupt):
        builder.build_serialized_network(net, builder.create_builder_config())
    assert not logger.armed


# Exceptions ---------------------------------------------------------------------------------------


class OwnError(Exception):
    pass


@pytest.mark.parametrize("stage", ["inference", "shapes", "autotune", "aot_impl", "impl"])
def test_exceptions_say_where_they_come_from(stage):
    plugin_id = new_id("failing")
    now = [None]

    def fail():
        raise OwnError(stage)

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        if now[0] in ("inference", "shapes"):
            fail()
        return x.like()

    @trtp.impl(plugin_id)
    def impl(x, outputs, stream):
        if now[0] == "impl":
            fail()

    if stage in ("autotune", "shapes"):

        @trtp.autotune(plugin_id)
        def autotune(x, outputs):
            if now[0] == "autotune":
                fail()
            return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR")]

    if stage == "aot_impl":

        @trtp.aot_impl(plugin_id)
        def aot_impl(x, outputs, tactic):
            fail()

    now[0] = stage if stage in ("inference", "aot_impl") else None
    with pytest.raises(OwnError, match=stage) as caught:
        net, layer = one_plugin(plugin_id, X, aot=stage == "aot_impl")
        layer.name = "the layer"
        now[0] = stage
        build(net, layer.get_output(0))(X)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "fail"
    function = {"inference": "register", "shapes": "register"}.get(stage, stage)
    note = " ".join(caught.value.__notes__)
    assert f"{function} function of plugin '{plugin_id}'" in note
    if stage != "inference":
        assert "layer 'the layer'" in note
