"""Calls that are submitted: futures, the bounded queue, cancellation, ends of engines and of the process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import opwright
import opwright.plugin as trtp

TIMEOUT = 60

MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[n, 4] x, float[n, 4] y) => (float[n, 4] sum, float[n, 4] product) {
    sum = Add (x, y)
    product = Mul (x, y)
}
"""


class Gate:
    """Calls of `test_submit::gated` that have begun, and whether they may go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.order: list[float] = []
        self.within = self.most = 0

    def wait_for_begin(self) -> None:
        assert self.begun.acquire(timeout=TIMEOUT)

    def pass_through(self, value: float) -> None:
        with self.lock:
            self.order.append(value)
            self.within += 1
            self.most = max(self.most, self.within)
        self.begun.release()
        assert self.open.acquire(timeout=TIMEOUT)
        with self.lock:
            self.within -= 1


gate = Gate()


@trtp.register("test_submit::gated")
def gated_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("test_submit::gated")
def gated(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    values = np.asarray(x)
    gate.pass_through(float(values[0]))
    np.copyto(np.asarray(outputs[0]), values + 1)


@trtp.register("test_submit::picky")
def picky_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


class TooLargeError(Exception):
    """Raised by a plugin."""


@trtp.impl("test_submit::picky")
def picky(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    values = np.asarray(x)
    if values.max() > 100:
        raise TooLargeError(float(values.max()))
    np.copyto(np.asarray(outputs[0]), values * 2)


@trtp.register("test_submit::increment_")
def increment_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.aliased()


@trtp.impl("test_submit::increment_")
def increment(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.asarray(outputs[0])[...] += 1


@trtp.register("test_submit::positive")
def positive_desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
    size = trtp.size_tensor(x.shape_expr[0] // 2, x.shape_expr[0])
    found = x.like()
    found.shape_expr[0] = size.expr()
    return found, size


@trtp.impl("test_submit::positive")
def positive(x: trtp.Tensor, outputs: tuple[trtp.Tensor, ...], stream: int) -> None:
    values = np.asarray(x)
    found = values[values > 0]
    np.asarray(outputs[0]).reshape(-1)[: found.size] = found
    np.asarray(outputs[1])[...] = found.size


def plugin_engine(name: str, extents: str = "2") -> opwright.Engine:
    results = (
        "(float[k] y, int32 size) { y, size" if name == "positive" else f"(float[{extents}] y) {{ y"
    )
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 17, "test_submit" : 1]>
        net (float[{extents}] x) => {results} = test_submit.{name} (x) }}
    """)
    shapes = {"x": ((1,), (4,), (4096,))} if extents == "n" else None
    return opwright.build(model, shapes=shapes, timing=False)


@pytest.fixture(scope="module")
def pair() -> opwright.Engine:
    shape = ((1, 4), (2, 4), (256, 4))
    model = onnx.parser.parse_model(MODEL)
    return opwright.build(model, shapes={"x": shape, "y": shape}, timing=False)


@pytest.fixture(scope="module")
def picky_engine() -> opwright.Engine:
    return plugin_engine("picky", "n")


@pytest.fixture(scope="module")
def built_gated() -> opwright.Engine:
    return plugin_engine("gated")


@pytest.fixture
def gated_engine(built_gated):
    """An engine whose calls wait at a new gate, with one worker and two places to wait."""
    global gate
    gate = Gate()
    engine = opwright.Engine(built_gated.engine)
    engine.configure_submit(workers=1, queue=2)
    yield engine
    gate.open.release(1000)


def vector(value: float) -> np.ndarray:
    return np.full(2, value, np.float32)


def num_threads() -> int:
    """The threads of queues."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return names.count("opwright-run")


def settled_threads() -> int:
    """The same once those of engines that are gone have ended."""
    gc.collect()
    counts = [num_threads()]
    while len(counts) < 4 or len(set(counts[-4:])) > 1:
        time.sleep(0.05)
        counts.append(num_threads())
    return counts[-1]


def wait_until(holds) -> None:
    end = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def run_program(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT,
    )


# Results.


def test_results_are_those_of_a_call(pair):
    rng = np.random.default_rng(0)
    futures, expected = [], []
    for n in rng.integers(1, 257, 60):  # shapes change in flight
        x, y = rng.random((2, n, 4), np.float32)
        futures.append(pair.submit(x, y=y))
        expected.append((x, y))
    for future, (x, y) in zip(futures, expected, strict=True):
        assert isinstance(future, concurrent.futures.Future)
        result = future.result(TIMEOUT)
        assert list(result) == ["sum", "product"]
        np.testing.assert_array_equal(result["sum"], x + y)
        np.testing.assert_array_equal(result["product"], x * y)
        plain = pair(x, y)
        for name in plain:
            np.testing.assert_array_equal(result[name], plain[name])


def test_one_output_comes_as_an_array(picky_engine):
    future = picky_engine.submit(x=[1, 2, 3])
    np.testing.assert_array_equal(future.result(TIMEOUT), [2, 4, 6])
    assert future.done()
    assert future.exception() is None


def test_results_are_trimmed():
    engine = plugin_engine("positive", "n")
    rng = np.random.default_rng(1)
    given = [rng.normal(shift, 1, 50).astype(np.float32) for shift in np.linspace(-5, 5, 12)]
    for x, future in [(x, engine.submit(x)) for x in given]:
        np.testing.assert_array_equal(future.result(TIMEOUT)["y"], x[x > 0])


def test_an_in_place_output_leaves_the_argument_alone():
    engine = plugin_engine("increment_")
    x = vector(3)
    for future in [engine.submit(x) for _ in range(4)]:
        np.testing.assert_array_equal(future.result(TIMEOUT), vector(4))
    np.testing.assert_array_equal(x, vector(3))


def test_torch_tensors_come_back_as_torch_tensors(picky_engine):
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32)
    result = picky_engine.submit(x).result(TIMEOUT)
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, x * 2)


def test_arguments_live_as_long_as_their_call(gated_engine):
    futures = [gated_engine.submit(vector(i)) for i in range(3)]
    gc.collect()
    gate.open.release(3)
    for i, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(TIMEOUT), vector(i + 1))


# Errors.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 4)),) * 2, "input 'x' is FP32; float64 was given"),
        ((np.zeros((300, 4), np.float32),) * 2, "300x4 of input 'x' is outside of profile 0"),
        ((np.zeros(4, np.float32),) * 2, "input 'x' has rank 2"),
        ((np.zeros((2, 4), np.float32),), "input 'y' .*is missing"),
        ((np.zeros((2, 4), np.float32),) * 3, "3 were given"),
        ((np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32)), "must be equal"),
    ],
)
def test_wrong_arguments_raise_at_once(pair, arguments, message):
    with pytest.raises(opwright.Error, match=message) as called:
        pair(*arguments)
    with pytest.raises(opwright.Error, match=message) as submitted:
        pair.submit(*arguments)
    assert str(called.value) == str(submitted.value)
    assert pair.waiting == 0
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(pair.submit(x, x).result(TIMEOUT)["sum"], x + x)


def test_what_a_plugin_raises_is_the_futures_exception(picky_engine):
    futures = [picky_engine.submit(np.full(3, v, np.float32)) for v in (1, 101, 2, 102)]
    for future, largest in [(futures[1], 101), (futures[3], 102)]:
        error = future.exception(TIMEOUT)
        assert type(error) is TooLargeError
        assert error.args == (largest,)
        assert traceback.extract_tb(error.__traceback__)[-1].name == "picky"
        with pytest.raises(TooLargeError):
            future.result()
        with pytest.raises(TooLargeError) as called:
            picky_engine(np.full(3, largest, np.float32))
        assert error.__notes__ == called.value.__notes__
    np.testing.assert_array_equal(futures[0].result(TIMEOUT), [2] * 3)
    np.testing.assert_array_equal(futures[2].result(TIMEOUT), [4] * 3)


def test_errors_of_the_engine_are_the_futures_exception_and_recorded():
    class Recorder(opwright.IErrorRecorder):
        def __init__(self):
            super().__init__()
            self.reported = []

        def report_error(self, code, text):
            self.reported.append(text)
            return False

        def num_errors(self):
            return len(self.reported)

        def get_error_code(self, i):
            return opwright.ErrorCodeTRT.UNSPECIFIED_ERROR

        def get_error_desc(self, i):
            return self.reported[i]

        def has_overflowed(self):
            return False

        def clear(self):
            self.reported.clear()

    plan = plugin_engine("late_view").engine.serialize()
    runtime = opwright.Runtime(opwright.Logger(opwright.Logger.INTERNAL_ERROR))
    engine = opwright.Engine(runtime.deserialize_cuda_engine(plan))
    recorder = Recorder()
    engine.engine.error_recorder = recorder
    error = engine.submit(vector(1)).exception(TIMEOUT)
    assert type(error) is opwright.Error
    assert "view" in str(error)
    assert len(recorder.reported) == 1
    kept.clear()


kept: list[np.ndarray] = []


@trtp.register("test_submit::late_view")
def late_view_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("test_submit::late_view")
def late_view(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    kept.append(memoryview(outputs[0]))  # which no call may leave


# The queue.


def test_a_full_queue_is_an_error_at_once(gated_engine):
    futures = [gated_engine.submit(vector(i)) for i in range(3)]  # one runs, two wait
    gate.wait_for_begin()
    assert gated_engine.waiting == 2
    begin = time.monotonic()
    with pytest.raises(opwright.QueueFullError) as raised:
        gated_engine.submit(vector(9))
    assert time.monotonic() - begin < 5
    assert isinstance(raised.value, opwright.Error)
    assert (raised.value.waiting, raised.value.limit) == (2, 2)
    assert "2 wait, of at most 2" in str(raised.value)
    assert "configure_submit(queue=...)" in str(raised.value)
    gated_engine.configure_submit(workers=1, queue=3)
    futures.append(gated_engine.submit(vector(3)))
    with pytest.raises(opwright.QueueFullError):
        gated_engine.submit(vector(9))
    gate.open.release(4)
    for i, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(TIMEOUT), vector(i + 1))
    assert gate.order == [0, 1, 2, 3]
    assert gated_engine.waiting == 0


def test_as_many_calls_run_at_once_as_there_are_workers(gated_engine):
    gated_engine.configure_submit(workers=3, queue=20)
    futures = [gated_engine.submit(vector(i)) for i in range(12)]
    for _ in range(3):
        gate.wait_for_begin()
    gate.open.release(12)
    concurrent.futures.wait(futures, TIMEOUT)
    assert gate.most == 3
    assert sorted(float(f.result()[0]) for f in futures) == list(range(1, 13))


def test_the_default_is_a_worker_for_each_core(built_gated):
    global gate
    gate = Gate()
    engine = opwright.Engine(built_gated.engine)
    cores = int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0))))
    futures = [engine.submit(vector(i)) for i in range(cores + 256)]
    for _ in range(cores):
        gate.wait_for_begin()
    assert engine.waiting == 256
    with pytest.raises(opwright.QueueFullError, match="256 wait"):
        engine.submit(vector(0))
    gate.open.release(cores + 256)
    assert len(concurrent.futures.wait(futures, TIMEOUT).done) == cores + 256
    assert gate.most == cores


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers is 0; expected 1 or more"),
        ({"workers": 100000}, "must be 1 to 4096"),
        ({"queue": -1}, "must be 0 or more, not -1"),
    ],
)
def test_limits_are_checked(pair, arguments, message):
    with pytest.raises(opwright.Error, match=message):
        pair.configure_submit(**arguments)


def test_plain_calls_go_on_while_the_queue_is_full(gated_engine):
    futures = [gated_engine.submit(vector(i)) for i in range(3)]
    gate.wait_for_begin()
    threading.Thread(target=lambda: (gate.begun.acquire(), gate.open.release(4))).start()
    np.testing.assert_array_equal(gated_engine(vector(7)), vector(8))
    assert len(concurrent.futures.wait(futures, TIMEOUT).done) == 3


# Cancellation.


def test_cancelling_frees_the_place_at_once(gated_engine):
    running, first, second = [gated_engine.submit(vector(i)) for i in range(3)]
    gate.wait_for_begin()
    assert not running.cancel()
    assert first.cancel()
    assert first.cancel()
    assert first.cancelled()
    assert gated_engine.waiting == 1
    third = gated_engine.submit(vector(3))
    # Who waits for it hears of it.
    assert first in concurrent.futures.wait([first], TIMEOUT).done
    assert list(concurrent.futures.as_completed([first], TIMEOUT)) == [first]
    with pytest.raises(concurrent.futures.CancelledError):
        first.result(TIMEOUT)
    gate.open.release(3)
    np.testing.assert_array_equal(third.result(TIMEOUT), vector(4))
    assert running.done()
    assert second.done()
    assert gate.order == [0, 2, 3]
    assert not third.cancel()


def test_cancelling_wakes_who_waits_already(gated_engine):
    running, waiting = gated_engine.submit(vector(0)), gated_engine.submit(vector(1))
    gate.wait_for_begin()
    done = []
    thread = threading.Thread(
        target=lambda: done.extend(concurrent.futures.wait([waiting], TIMEOUT).done)
    )
    thread.start()
    time.sleep(0.05)
    assert waiting.cancel()
    thread.join(TIMEOUT)
    assert done == [waiting]
    gate.open.release(1)
    running.result(TIMEOUT)


def test_cancelled_calls_let_their_arguments_go(gated_engine):
    running = gated_engine.submit(vector(0))
    gate.wait_for_begin()
    x = vector(1)
    before = sys.getrefcount(x)
    future = gated_engine.submit(x)
    assert sys.getrefcount(x) > before
    future.cancel()
    assert sys.getrefcount(x) == before
    gate.open.release(1)
    running.result(TIMEOUT)


def test_calls_that_ended_let_their_arguments_go(picky_engine):
    x, bad = np.ones(4, np.float32), np.full(4, 500, np.float32)
    before = sys.getrefcount(x), sys.getrefcount(bad)
    futures = [picky_engine.submit(x), picky_engine.submit(bad)]
    concurrent.futures.wait(futures, TIMEOUT)
    # The thread tells the future first.
    wait_until(lambda: sys.getrefcount(x) == before[0])
    del futures
    gc.collect()
    wait_until(lambda: (sys.getrefcount(x), sys.getrefcount(bad)) == before)


# asyncio.


def test_asyncio(picky_engine):
    async def call(value: float) -> np.ndarray:
        return await asyncio.wrap_future(picky_engine.submit(np.full(3, value, np.float32)))

    async def main() -> list:
        return await asyncio.gather(*map(call, [1, 2, 300, 4]), return_exceptions=True)

    results = asyncio.run(main())
    assert type(results[2]) is TooLargeError
    for value in (1, 2, 4):
        np.testing.assert_array_equal(results[value - 1], [2 * value] * 3)


def test_asyncio_cancels(gated_engine):
    async def main() -> None:
        running = asyncio.wrap_future(gated_engine.submit(vector(0)))
        await asyncio.to_thread(gate.wait_for_begin)
        waiting = asyncio.wrap_future(gated_engine.submit(vector(1)))
        assert gated_engine.waiting == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        while gated_engine.waiting:
            await asyncio.sleep(0.001)
        gate.open.release(1)
        np.testing.assert_array_equal(await running, vector(1))

    asyncio.run(asyncio.wait_for(main(), TIMEOUT))


# Threads.


def test_many_threads_submit(picky_engine, pair):
    """Callbacks take the interpreter's lock, which submitters hold."""
    engine = opwright.Engine(picky_engine.engine)
    engine.configure_submit(workers=3, queue=8)
    wrong, full = [], []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        futures = []
        for i in range(150):
            x = rng.random(int(rng.integers(1, 4096)), np.float32)
            try:
                futures.append((x, engine.submit(x)))
            except opwright.QueueFullError:
                full.append(seed)
                if futures:
                    concurrent.futures.wait([futures[-1][1]], TIMEOUT)
            if i % 7 == 0 and futures:
                futures[-1][1].cancel()
            if i % 10 == 0 and not np.array_equal(engine(x), x * 2):
                wrong.append(seed)
        for x, future in futures:
            try:
                if not np.array_equal(future.result(TIMEOUT), x * 2):
                    wrong.append(seed)
            except concurrent.futures.CancelledError:
                pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT)
        assert not thread.is_alive()
    assert not wrong
    assert engine.waiting == 0


def test_a_done_callback_may_submit(picky_engine):
    last: concurrent.futures.Future = concurrent.futures.Future()

    def go_on(future) -> None:
        values = future.result()
        if values[0] >= 64:
            last.set_result(values)
        else:
            picky_engine.submit(values).add_done_callback(go_on)

    picky_engine.submit(vector(1)).add_done_callback(go_on)
    np.testing.assert_array_equal(last.result(TIMEOUT), vector(64))


def test_threads_start_when_they_are_needed_and_end_with_the_engine(built_gated):
    before = settled_threads()
    engine = opwright.Engine(built_gated.engine)
    engine.configure_submit(workers=4)
    gate.open.release(1000)
    engine(vector(0))
    assert num_threads() == before
    engine.submit(vector(0)).result(TIMEOUT)
    assert num_threads() == before + 1
    concurrent.futures.wait([engine.submit(vector(i)) for i in range(40)], TIMEOUT)
    assert before < num_threads() <= before + 4
    del engine
    wait_until(lambda: num_threads() == before)


# Ends.


def test_what_waits_is_computed_when_the_engine_goes(gated_engine, built_gated):
    before = settled_threads()
    engine = opwright.Engine(built_gated.engine)
    engine.configure_submit(workers=1)
    futures = [engine.submit(vector(i)) for i in range(4)]
    del engine
    gc.collect()
    gate.open.release(4)
    for i, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(TIMEOUT), vector(i + 1))
    wait_until(lambda: num_threads() == before)


def test_a_thread_of_the_queue_may_drop_the_engine(built_gated):
    """Again and again, while others of its threads are free or about to be."""
    gate.open.release(1000)
    before = settled_threads()
    for _ in range(30):
        holder = [opwright.Engine(built_gated.engine)]
        holder[0].configure_submit(workers=3)
        futures = [holder[0].submit(vector(i)) for i in range(4)]
        done = threading.Event()

        def drop(future, holder=holder, done=done) -> None:
            holder.clear()
            done.set()

        futures[-1].add_done_callback(drop)
        assert done.wait(TIMEOUT)
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(TIMEOUT), vector(i + 1))
    wait_until(lambda: num_threads() == before)


def test_cancelling_may_drop_the_engine(gated_engine, built_gated):
    engine = opwright.Engine(built_gated.engine)
    engine.configure_submit(workers=1)
    running, waiting = engine.submit(vector(0)), engine.submit(vector(1))
    gate.wait_for_begin()
    del engine
    assert waiting.cancel()
    gate.open.release(1)
    np.testing.assert_array_equal(running.result(TIMEOUT), vector(1))


PROGRAM = """
    import os, sys, threading, time
    import numpy as np
    import opwright
    import opwright.plugin as trtp

    @trtp.register("test_submit_program::slow")
    def slow_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("test_submit_program::slow")
    def slow(x, outputs, stream):
        begun.set()
        time.sleep(delay)
        np.copyto(np.asarray(outputs[0]), np.asarray(x) + 1)

    begun, delay = threading.Event(), 0.3
    network = opwright.Builder(opwright.Logger()).create_network()
    x = network.add_input("x", opwright.float32, (2,))
    network.mark_output(network.add_plugin(trtp.op.test_submit_program.slow(x)).get_output(0))
    engine = opwright.build(network, timing=False, device="cpu")

    def vector(value):
        return np.full(2, value, np.float32)

    def tell(future):
        # In one piece: other threads print, too.
        text = "cancelled" if future.cancelled() else str(future.result()[0])
        os.write(1, (text + "\\n").encode())
"""


def test_at_the_interpreters_end_what_waits_is_cancelled():
    done = run_program(
        PROGRAM
        + """
    engine.configure_submit(workers=2, queue=50)
    for i in range(20):
        engine.submit(vector(i)).add_done_callback(tell)
    begun.wait()
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.split()
    assert lines.count("cancelled") >= 16
    assert 1 <= len(lines) - lines.count("cancelled") <= 4
    assert len(lines) == 20


def test_other_threads_may_wait_until_the_interpreters_end():
    """Threads that are no daemons are joined first, so what they wait for is computed."""
    done = run_program(
        PROGRAM
        + """
    delay = 0.05
    engine.configure_submit(workers=2, queue=50)
    futures = [engine.submit(vector(i)) for i in range(10)]
    threading.Thread(target=lambda: print([float(f.result()[0]) for f in futures])).start()
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([float(i + 1) for i in range(10)])


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(3)",
        "del engine; sys.exit(3)",
        "threading.Thread(target=submit_forever, daemon=True).start(); time.sleep(0.1); sys.exit(3)",
        "del engine; del futures; sys.exit(3)",
    ],
)
@pytest.mark.parametrize("delay", [0, 0.05])
def test_the_interpreter_ends_without_a_crash(ending, delay):
    done = run_program(
        PROGRAM
        + f"""
    delay = {delay}
    engine.configure_submit(workers=3, queue=500)

    def submit_forever(engine=engine):
        while True:
            try:
                engine.submit(vector(1))
            except opwright.QueueFullError:
                time.sleep(0.001)
            except opwright.Error:
                time.sleep(10)

    futures = [engine.submit(vector(i)) for i in range(100)]
    {ending}
    """
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""


def test_submitting_at_the_interpreters_end_is_an_error():
    done = run_program(
        """
    import atexit

    atexit.register(lambda: late())  # called after what opwright registers
    """
        + PROGRAM
        + """
    engine.submit(vector(0)).result()
    other = opwright.Engine(engine.engine)

    def late():
        for each in (engine, other):
            try:
                each.submit(vector(0))
                print("submitted")
            except opwright.Error as error:
                print(error)
        print(engine(vector(1)))
    """
    )
    assert done.returncode == 0, done.stderr
    first, second, called = done.stdout.splitlines()
    assert "takes no more runs" in first
    assert "the interpreter is ending" in second
    assert called == "[2. 2.]"


def test_a_forked_child_has_workers_of_its_own():
    done = run_program(
        PROGRAM
        + """
    engine.configure_submit(workers=1, queue=7)
    delay = 0.5
    futures = [engine.submit(vector(i)) for i in range(3)]
    begun.wait()
    child = os.fork()
    if child == 0:
        delay = 0
        assert engine.waiting == 0
        assert not futures[2].done()
        print("child", [float(f.result(30)[0]) for f in [engine.submit(vector(i)) for i in range(8)]], flush=True)
        print("child called", float(engine(vector(1))[0]), flush=True)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print("status", status)
    print("parent", [float(f.result(30)[0]) for f in futures])
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"child {[float(i + 1) for i in range(8)]}",
        "child called 2.0",
        "status 0",
        "parent [1.0, 2.0, 3.0]",
    ]


# Memory.


MEMORY = """
    import concurrent.futures, gc, os
    import numpy as np
    import onnx.parser
    import opwright

    def resident_bytes():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""


def test_memory_stays_flat():
    done = run_program(
        MEMORY
        + f"""
    shape = ((1, 4), (2, 4), (256, 4))
    model = onnx.parser.parse_model({MODEL!r})
    engine = opwright.build(model, shapes={{"x": shape, "y": shape}}, timing=False, device="cpu")
    engine.configure_submit(workers=2, queue=16)
    rng = np.random.default_rng(3)
    inputs = [rng.random((int(n), 4), np.float32) for n in rng.integers(1, 257, 50)]

    def burst(calls):
        pending = []
        for i in range(calls):
            if len(pending) == 16:
                pending.pop(0).result()
            pending.append(engine.submit(inputs[i % 50], inputs[i % 50]))
            if i % 9 == 0:
                pending.pop().cancel()
        concurrent.futures.wait(pending)
        gc.collect()
        return resident_bytes(), len(gc.get_objects())

    burst(6000)
    (bytes_before, objects_before), (bytes_after, objects_after) = burst(10), burst(9000)
    print(bytes_after - bytes_before, objects_after - objects_before)
    """
    )
    assert done.returncode == 0, done.stderr
    num_bytes, num_objects = map(int, done.stdout.split())
    # 100 bytes a call would be 900 KB.
    assert num_bytes < 600_000
    assert num_objects < 200


def test_failing_calls_leave_nothing():
    done = run_program(
        PROGRAM
        + MEMORY
        + """
    def fail(future):
        assert type(future.exception()) is TypeError

    delay = "not a number"  # for time.sleep
    def use(count):
        for _ in range(count):
            fail(engine.submit(vector(1)))
        gc.collect()
        return resident_bytes(), len(gc.get_objects())

    use(1000)
    (bytes_before, objects_before), (bytes_after, objects_after) = use(10), use(2000)
    print(bytes_after - bytes_before, objects_after - objects_before)
    """
    )
    assert done.returncode == 0, done.stderr
    num_bytes, num_objects = map(int, done.stdout.split())
    assert num_bytes < 600_000
    assert num_objects < 200


def test_engines_that_come_and_go_leave_nothing():
    done = run_program(
        PROGRAM
        + MEMORY
        + """
    delay = 0

    def use(count):
        for _ in range(count):
            other = opwright.Engine(engine.engine)
            other.configure_submit(workers=2)
            for future in [other.submit(vector(i)) for i in range(4)]:
                future.result()
            del other
        gc.collect()
        time.sleep(0.2)
        return resident_bytes(), len(os.listdir("/proc/self/task"))

    (bytes_before, threads_before), (bytes_after, threads_after) = use(100), use(400)
    print(bytes_after - bytes_before, threads_after - threads_before)
    """
    )
    assert done.returncode == 0, done.stderr
    num_bytes, num_threads = map(int, done.stdout.split())
    # 2 KB an engine would be 800 KB.
    assert num_bytes < 800_000
    assert num_threads == 0


DAEMONS = """
    network = opwright.Builder(opwright.Logger()).create_network()
    x = network.add_input("x", opwright.float32, (512, 512))
    softmax = network.add_softmax(x)
    softmax.axes = 2
    network.mark_output(softmax.get_output(0))
    plain = opwright.build(network, timing=False, device="cpu")
    x = np.ones((512, 512), np.float32)
    delay = 0.02

    @trtp.register("test_submit_program::endless")
    def endless_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("test_submit_program::endless")
    def endless_impl(x, outputs, stream):
        while True:
            sum(range(100))

    endless_network = opwright.Builder(opwright.Logger()).create_network()
    y = endless_network.add_input("x", opwright.float32, (2,))
    layer = endless_network.add_plugin(trtp.op.test_submit_program.endless(y))
    endless_network.mark_output(layer.get_output(0))

    class Logger(opwright.ILogger):
        def log(self, severity, message):
            time.sleep(1e-4)

    def build():
        opwright.build(network, device="cpu", logger=Logger())

    def run():
        while True:
            {what}

    for _ in range(3):
        threading.Thread(target=run, daemon=True).start()
    time.sleep(0.15)
    sys.exit(3)
"""


@pytest.mark.parametrize(
    "what",
    [
        "plain(x)",
        "engine(vector(1))",
        "build()",
        "opwright.build(endless_network, timing=False, device='cpu')(vector(1))",
    ],
    ids=["run", "plugin", "build", "endless"],
)
def test_the_interpreter_ends_while_daemon_threads_are_within_the_engine(what):
    """They ask for the interpreter's lock when it is too late: in C++, in a callback, in Python."""
    done = run_program(PROGRAM + DAEMONS.replace("{what}", what))
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
