"""The current streams of PyTorch, CuPy and Numba, by stand-ins of them: those of calls of an engine, and those of
callbacks on a GPU. Each test is a process of its own, since libraries are looked for once."""

from __future__ import annotations

import pytest

import emulated_gpu
from emulated_gpu import run_program

pytestmark = emulated_gpu.emulated_only

START = """
import numpy as np
import stand_in_libraries as libraries
import opwright as trt, opwright.plugin as trtp
from cuda_driver import DeviceArray, Stream, driver
from test_gpu_python import X, context_of, engine_of, identity
from stand_in_libraries import calls
"""


def run(source: str) -> None:
    done = run_program(START + source + "\nprint('done')")
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr


@pytest.mark.parametrize("private", [True, False])
def test_torch_in_callbacks(private):
    run(f"""
torch = libraries.install_torch(private={private})
seen = []
engine = engine_of(identity(lambda x, y, s: seen.append((s, torch.cuda.current_stream(0).ptr))))
x, y = DeviceArray(X), DeviceArray(X * 0)
context, stream = context_of(engine, x, y), Stream().handle
calls(), seen.clear()
context.execute_async_v3(stream)
assert seen == [(stream, stream)], seen
assert calls() == [f"torch {{stream}}", "torch 0"]
np.testing.assert_array_equal(y.numpy(), X)
# Nothing is done where it is the current one already.
torch.cuda.set_stream(libraries.Stream(stream))
calls(), seen.clear()
context.execute_async_v3(stream)
assert seen == [(stream, stream)] and calls() == []
# And the default one can be what is wanted.
context.execute_async_v3(0)
assert seen[-1] == (0, 0) and calls() == ["torch 0", f"torch {{stream}}"]
""")


def test_cupy_and_torch_after_an_exception():
    run("""
torch, cupy = libraries.install_torch(), libraries.install_cupy()
failing = []
def body(x, y, stream):
    assert cupy.cuda.get_current_stream().ptr == torch.cuda.current_stream(0).ptr == stream
    if failing: raise KeyError("no")
engine = engine_of(identity(body))
x, y = DeviceArray(X), DeviceArray(X * 0)
context, stream = context_of(engine, x, y), Stream().handle
calls(), failing.append(True)
try:
    context.execute_async_v3(stream)
except KeyError:
    pass
else:
    raise AssertionError
assert calls() == [f"torch {stream}", f"cupy {stream}", "cupy 0", "torch 0"]
failing.clear()
context.execute_async_v3(stream)
np.testing.assert_array_equal(y.numpy(), X)
""")


def test_runs_within_runs():
    run("""
torch = libraries.install_torch()
streams = [Stream().handle, Stream().handle]
seen = []
inner = engine_of(identity(lambda x, y, s: seen.append(torch.cuda.current_stream(0).ptr)))
context = context_of(inner, DeviceArray(X), DeviceArray(X * 0))
keep = [DeviceArray(X), DeviceArray(X * 0)]
context = context_of(inner, *keep)
def body(x, y, stream):
    seen.append(torch.cuda.current_stream(0).ptr)
    context.execute_async_v3(streams[1])
    seen.append(torch.cuda.current_stream(0).ptr)
outer_arrays = [DeviceArray(X), DeviceArray(X * 0)]
outer = context_of(engine_of(identity(body)), *outer_arrays)
seen.clear()
outer.execute_async_v3(streams[0])
assert seen == [streams[0], streams[1], streams[0]], seen
assert torch.cuda.current_stream(0).ptr == 0
""")


@pytest.mark.parametrize("dispatcher", ["CUDADispatcher", "BuiltInCUDADispatcher"])
def test_numba_launches_go_to_the_engines_stream(dispatcher):
    run(
        f"kernel = libraries.install_numba({dispatcher!r})"
        + """
own = Stream().handle
def body(x, y, stream):
    kernel[1, 32]("default")
    kernel[1, 32, libraries.Stream(own)]("own")
engine = engine_of(identity(body))
x, y = DeviceArray(X), DeviceArray(X * 0)
context, stream = context_of(engine, x, y), Stream().handle
kernel.launches.clear()
context.execute_async_v3(stream)
assert kernel.launches == [(("default",), stream), (("own",), own)], kernel.launches
kernel[1, 32]("outside")
assert kernel.launches[-1] == (("outside",), 0)
"""
    )


def test_a_library_that_a_callback_imports():
    run("""
def body(x, y, stream):
    import sys
    if "torch" not in sys.modules:
        libraries.install_torch()
        before.append(driver().calls("cuStreamSynchronize"))
before = []
engine = engine_of(identity(body), timing=False)
x, y = DeviceArray(X), DeviceArray(X * 0)
context, stream = context_of(engine, x, y), Stream().handle
context.execute_async_v3(stream)
# It has worked on its own default stream.
assert driver().calls("cuStreamSynchronize") > before[0]
calls()
context.execute_async_v3(stream)
assert calls() == [f"torch {stream}", "torch 0"]
""")


def test_torch_without_cuda_is_left_alone():
    run("""
torch = libraries.install_torch()
torch.cuda.is_available = lambda: False
engine = engine_of(identity())
np.testing.assert_array_equal(engine(X), X)
assert calls() == []
""")


def test_calls_with_torchs_tensors():
    run("""
torch = libraries.install_torch()
streams = []
engine = engine_of(identity(lambda x, y, s: streams.append(s)))
stream = Stream().handle
torch.cuda.set_stream(libraries.Stream(stream))
x = torch.Tensor(X)
calls(), streams.clear()
y = engine(x)
assert type(y) is torch.Tensor and y.shape == X.shape
assert streams == [stream] and calls() == []
assert not driver().is_done(stream), "the call has waited"
np.testing.assert_array_equal(y.numpy(), X)
np.testing.assert_array_equal(engine(torch.Tensor(X, order="F")).numpy(), X)
try:
    engine(torch.Tensor(X.astype(np.int32)))
except trt.Error as error:
    assert "'x0'" in str(error) and "int32" in str(error), error
else:
    raise AssertionError
x.device.index = 3
try:
    engine(x)
except trt.Error as error:
    assert "lies on GPU 3, the engine runs on GPU 0: x.to('cuda:0')" in str(error), error
else:
    raise AssertionError
""")


def test_calls_on_several_streams():
    run("""
torch = libraries.install_torch()
engine = engine_of(identity())
streams = [Stream().handle for _ in range(6)]
results = []
for round in range(3):
    for number, stream in enumerate(streams):
        torch.cuda.set_stream(libraries.Stream(stream))
        x = torch.Tensor(X + number)
        results.append((x, engine(x), X + number))
assert not driver().is_done(streams[-1])
for x, y, expected in results:
    np.testing.assert_array_equal(y.numpy(), expected)
""")


def test_calls_with_cupys_arrays():
    run("""
cupy = libraries.install_cupy()
streams = []
engine = engine_of(identity(lambda x, y, s: streams.append(s)))
stream = Stream().handle
libraries.Stream(stream).use()
calls(), streams.clear()
x = cupy.ndarray(X)
y = engine(x)
assert type(y) is cupy.ndarray
assert streams == [stream] and calls() == []
assert not driver().is_done(stream), "the call has waited"
np.testing.assert_array_equal(y.numpy(), X)
# PyTorch's come before CuPy's, CuPy's before those of others.
torch = libraries.install_torch()
net_engine = engine_of(identity())
assert type(net_engine(cupy.ndarray(X))) is cupy.ndarray
""")
