"""What attach_to_context gives on a GPU: handles of cuBLAS and cuDNN, where those libraries are. Libraries that count
their handles stand for NVIDIA's."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import emulated_gpu

pytestmark = emulated_gpu.emulated_only

SOURCE = """
#include <stdlib.h>
#include <stdio.h>
static int live;
int %(library)s_live(void) { return live; }
int %(create)s(void** handle) {
  if (getenv("STAND_IN_FAILS")) return 7;
  ++live;
  *handle = malloc(16);
  return 0;
}
int %(destroy)s(void* handle) { --live; free(handle); return 0; }
int %(set_stream)s(void* handle, void* stream) {
  *(void**)handle = stream;
  return getenv("STAND_IN_REFUSES") ? 9 : 0;
}
void* %(library)s_stream(void* handle) { return *(void**)handle; }
"""

PROGRAM = """
import ctypes, gc, os
import numpy as np
import opwright as trt
import cuda_driver
from v2_plugins import Creator, Twice, registered

def live():
    names = {"cublas": "libcublas.so.13", "cudnn": "libcudnn.so.9"}
    folder = os.environ["OPWRIGHT_CUDA_PATH"].split(":")[0]
    if not all(os.path.exists(f"{folder}/{name}") for name in names.values()):
        return None
    return tuple(getattr(ctypes.CDLL(f"{folder}/{f}"), f"{n}_live")() for n, f in names.items())

class Log(trt.ILogger):
    text = ""
    def log(self, severity, message):
        self.text += message + "\\n"

class Plain(Twice):
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        pass

class Attached(Plain):
    given = []
    def attach_to_context(self, cudnn, cublas, allocator):
        self.given.append((cudnn, cublas))

class Streamed(Attached):
    seen = []
    def attach_to_context(self, cudnn, cublas, allocator):
        super().attach_to_context(cudnn, cublas, allocator)
        self.handles = {"cudnn": cudnn, "cublas": cublas}
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        for name, handle in self.handles.items():
            file = {"cublas": "libcublas.so.13", "cudnn": "libcudnn.so.9"}[name]
            folder = os.environ["OPWRIGHT_CUDA_PATH"].split(":")[0]
            of = getattr(ctypes.CDLL(f"{folder}/{file}"), f"{name}_stream")
            of.argtypes, of.restype = [ctypes.c_void_p], ctypes.c_void_p
            self.seen.append((of(handle) or 0) == stream)

def run(kind, device="cuda", count=2, streams=(0,)):
    net = trt.Builder(trt.Logger()).create_network()
    tensor = net.add_input("x", trt.float32, (4,))
    for _ in range(count):
        tensor = net.add_plugin_v2([tensor], kind()).get_output(0)
    net.mark_output(tensor)
    creator = Creator(kind.__name__, lambda given: kind())
    with registered(creator):
        made = trt.build(net, device=device, timing=False)  # enqueue() writes nothing
        runtime = trt.Runtime(trt.Logger())
        engine = runtime.deserialize_cuda_engine(made.engine.serialize())
        del made
        gc.collect()
        Attached.given.clear()
        memory = []
        contexts = [engine.create_execution_context() for _ in range(2)]
        for context in contexts:
            for name in ("x", net.get_output(0).name):
                zeros = np.zeros(4, np.float32)
                memory.append(cuda_driver.DeviceArray(zeros) if device == "cuda" else zeros)
                address = memory[-1].ptr if device == "cuda" else zeros.ctypes.data
                context.set_tensor_address(name, address)
            for stream in streams:
                assert context.execute_async_v3(stream)
    told = list(Attached.given)
    print(device, kind.__name__, "contexts", len(set(told)), "given", len(told), "live", live())
    shown = told[0] if told else ()
    del contexts, context, engine
    gc.collect()
    print("after", live(), [address != 0 for address in shown])
"""


def run(folder, program, **environment):
    done = emulated_gpu.run_program(
        PROGRAM + program, OPWRIGHT_CUDA_PATH=str(folder), **environment
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvidia")
    for library, file, create, destroy, set_stream in (
        ("cublas", "libcublas.so.13", "cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2"),
        ("cudnn", "libcudnn.so.9", "cudnnCreate", "cudnnDestroy", "cudnnSetStream"),
    ):
        source = folder / f"{library}.c"
        names = {"create": create, "destroy": destroy, "set_stream": set_stream}
        source.write_text(SOURCE % {"library": library, **names})
        subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / file, source], check=True)
    return folder


def test_plugins_of_a_context_share_its_handles(libraries):
    lines, _ = run(libraries, "run(Attached)")
    assert lines == [
        "cuda Attached contexts 2 given 4 live (2, 2)",
        "after (0, 0) [True, True]",
    ]


def test_handles_work_on_the_stream_of_the_run(libraries):
    program = """
first, second = cuda_driver.Stream(), cuda_driver.Stream()
run(Streamed, streams=(first.handle, first.handle, second.handle, 0))
print(len(Streamed.seen), all(Streamed.seen))
"""
    lines, _ = run(libraries, program)
    assert lines[-1] == "32 True"


def test_a_handle_that_refuses_a_stream_is_an_error(libraries):
    program = """
try:
    run(Attached, streams=(cuda_driver.Stream().handle,))
except trt.Error as error:
    print(error)
"""
    lines, _ = run(libraries, program, STAND_IN_REFUSES="1")
    assert "cuDNN's handle does not take the run's stream: status 9" in lines[-1]


def test_libraries_are_not_loaded_for_those_who_do_not_look(libraries):
    lines, _ = run(libraries, "run(Plain)\nrun(Attached, 'cpu')")
    assert lines == [
        "cuda Plain contexts 0 given 0 live (0, 0)",
        "after (0, 0) []",
        "cpu Attached contexts 1 given 4 live (0, 0)",
        "after (0, 0) [False, False]",
    ]


@pytest.mark.parametrize("fault", ["missing", "failing"])
def test_the_log_says_why_there_is_no_handle(libraries, tmp_path, fault):
    folder = tmp_path if fault == "missing" else libraries
    environment = {} if fault == "missing" else {"STAND_IN_FAILS": "1"}
    lines, errors = run(folder, "run(Attached)", **environment)
    assert lines[1].endswith("[False, False]")
    reason = "cannot be loaded" if fault == "missing" else "failed with status 7"
    for library in ("cuBLAS", "cuDNN"):
        said = [line for line in errors.splitlines() if f"no handle of {library}" in line]
        assert len(said) == 1 and reason in said[0], errors
