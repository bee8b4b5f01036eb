"""Calls that are submitted to engines on a GPU, an emulated one; streams by stand-ins of PyTorch and CuPy."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
from cuda_driver import DeviceArray, Stream
from emulated_gpu import run_program
from test_gpu_python import X, engine_of, identity, write_on

pytestmark = emulated_gpu.emulated_only

TIMEOUT = 60


def test_arrays_of_the_host():
    engine = engine_of(identity())
    futures = [engine.submit(X + i) for i in range(20)]
    for i, future in enumerate(futures):
        y = future.result(TIMEOUT)
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, X + i)


def test_arrays_in_gpu_memory():
    engine = engine_of(identity())
    futures = [engine.submit(x0=DeviceArray(X + i)) for i in range(20)]
    for i, future in enumerate(futures):
        y = future.result(TIMEOUT)
        assert isinstance(y, trt.DeviceArray)
        np.testing.assert_array_equal(y.numpy(), X + i)


def test_wrong_arguments_raise_at_once():
    engine = engine_of(identity())
    with pytest.raises(trt.Error, match="input 'x0' is FP32; int32"):
        engine.submit(DeviceArray(X.astype(np.int32)))
    with pytest.raises(trt.Error, match="x0.*shape|shape.*x0"):
        engine.submit(X[:2])
    with pytest.raises(trt.Error, match="'x0' .*is missing"):
        engine.submit()


def test_what_a_plugin_raises_is_the_futures_exception():
    class NoError(Exception):
        pass

    failing = []

    def body(x, y, stream):
        if failing:
            raise NoError

    engine = engine_of(identity(body))
    failing.append(True)
    assert type(engine.submit(X).exception(TIMEOUT)) is NoError
    assert type(engine.submit(DeviceArray(X)).exception(TIMEOUT)) is NoError
    failing.clear()
    np.testing.assert_array_equal(engine.submit(X).result(TIMEOUT), X)


def test_the_queue_is_bounded_and_calls_are_cancelled():
    engine = engine_of(identity())
    engine.configure_submit(workers=1, queue=1)
    accepted, refused = [], 0
    for _ in range(200):
        try:
            accepted.append(engine.submit(X))
        except trt.QueueFullError:
            refused += 1
    accepted[-1].cancel()
    concurrent.futures.wait(accepted, TIMEOUT)
    for future in accepted:
        assert future.cancelled() or np.array_equal(future.result(), X)
    assert len(accepted) + refused == 200


START = """
import threading
import numpy as np
import stand_in_libraries as libraries
import opwright as trt, opwright.plugin as trtp
from cuda_driver import DeviceArray, Stream, driver
from test_gpu_python import X, engine_of, identity
"""


def run(source: str) -> None:
    done = run_program(START + source + "\nprint('done')")
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr


@pytest.mark.parametrize("private", [True, False])
def test_torch_calls_are_on_the_submitters_stream(private):
    run(f"""
torch = libraries.install_torch(private={private})
seen = []
engine = engine_of(identity(lambda x, y, s: seen.append((s, threading.get_ident()))))
allocated = []
empty = torch.empty
def noting_empty(*args, **options):
    allocated.append(torch.cuda.current_stream(0).ptr)
    return empty(*args, **options)
torch.empty = noting_empty
stream = Stream().handle
torch.cuda.set_stream(libraries.Stream(stream))
seen.clear()
future = engine.submit(libraries.Tensor(X))
torch.cuda.set_stream(libraries.Stream(0))
y = future.result(30)
assert isinstance(y, libraries.Tensor)
assert [s for s, _ in seen] == [stream] and seen[0][1] != threading.get_ident(), seen
assert allocated == [stream], allocated
assert driver().is_done(stream), "the future is done when the work is"
np.testing.assert_array_equal(y.numpy(), X)
""")


def test_cupy_calls_are_on_the_submitters_stream():
    run("""
cupy = libraries.install_cupy()
seen, allocated = [], []
engine = engine_of(identity(lambda x, y, s: seen.append(s)))
empty = cupy.empty
def noting_empty(*args):
    allocated.append(cupy.cuda.get_current_stream().ptr)
    return empty(*args)
cupy.empty = noting_empty
stream = Stream().handle
libraries.Stream(stream).use()
seen.clear()
future = engine.submit(libraries.ndarray(X))
libraries.Stream(0).use()
y = future.result(30)
assert isinstance(y, libraries.ndarray)
assert seen == allocated == [stream], (seen, allocated)
assert driver().is_done(stream)
np.testing.assert_array_equal(y.numpy(), X)
""")


def test_a_call_cannot_be_part_of_a_capture():
    run("""
import ctypes
torch = libraries.install_torch()
engine = engine_of(identity())
stream = Stream().handle
torch.cuda.set_stream(libraries.Stream(stream))
x = libraries.Tensor(X)
engine(x)
driver().call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_int(2))
try:
    engine.submit(x)
except trt.Error as error:
    assert "being captured" in str(error)
else:
    raise AssertionError
graph = ctypes.c_void_p()
driver().call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
np.testing.assert_array_equal(engine.submit(x).result(30).numpy(), X)
""")


def test_the_process_ends_with_calls_in_flight():
    done = run_program(
        START
        + """
import time
engine = engine_of(identity(lambda x, y, s: time.sleep(0.01)))
engine.configure_submit(workers=3, queue=500)
futures = [engine.submit(X + i) for i in range(100)]
del engine
print("ended")
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_on_a_stream_of_its_own_work_is_in_order():
    """A plugin that works on the stream reads what the array's producer writes there before."""
    stream = Stream().handle
    x = DeviceArray(np.zeros_like(X), stream=stream)
    write_on(stream, x.ptr, X)
    np.testing.assert_array_equal(engine_of(identity()).submit(x).result(TIMEOUT).numpy(), X)
