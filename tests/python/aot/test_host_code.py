"""Compiled code in engine files: permission, crashes that are named, nothing that waits for Python."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from paths import ROOT
from plugin_testing import build, new_id, one_plugin

X = np.arange(6, dtype=np.float32)


def kernel_plugin(source: str, cells: int = 1) -> str:
    """A plugin y = f(x) whose kernel is the C++ function f(const T*, T*, x, y, z)."""
    plugin_id = new_id("kernel")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        code = aot.cpp(source, "f", inputs=[x], outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(grid_x=cells), ()

    return plugin_id


def kernel_engine(source: str, x: np.ndarray = X, cells: int = 1, **options) -> trt.Engine:
    net, layer = one_plugin(kernel_plugin(source, cells), x)
    layer.name = "the layer"
    return build(net, layer.get_output(0), **options)


def run_program(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)


# Files that bring code which must not run without permission.

MARKED = """
#include <cstdio>
#include <cstdlib>
static __attribute__((constructor)) void mark() {
  if (const char* name = std::getenv("OPWRIGHT_TEST_MARK")) std::fclose(std::fopen(name, "w"));
}
"""
DOUBLE = (
    MARKED + "void f(const float* x, float* y, int64_t i, int64_t, int64_t) { y[i] = 2 * x[i]; }"
)


@pytest.fixture(scope="module")
def with_kernel(tmp_path_factory):
    path = tmp_path_factory.mktemp("host_code") / "kernel.engine"
    kernel_engine(DOUBLE, cells=X.size).save(path)
    return path


@pytest.fixture(scope="module")
def with_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host_code")
    (folder / "marked.cpp").write_text(MARKED)
    library = folder / "libmarked.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-o", library, folder / "marked.cpp"], check=True)
    net = trt.Builder(trt.Logger()).create_network()
    x = net.add_input("x0", trt.float32, X.shape)
    layer = net.add_unary(x, trt.UnaryOperation.NEG)
    path = folder / "library.engine"
    build(net, layer.get_output(0), plugins_to_serialize=[str(library)]).save(path)
    return path


LOADS = {
    "load": """
        engine = opwright.load(path, allow_host_code=allow)
        engine(numpy.zeros(6, "float32"))
        """,
    "deserialize": """
        runtime = opwright.Runtime(opwright.Logger())
        runtime.engine_host_code_allowed = allow
        engine = runtime.deserialize_cuda_engine(open(path, "rb").read())
        context = engine.create_execution_context()
        x, y = numpy.zeros(6, "float32"), numpy.zeros(6, "float32")
        assert context.execute_v2([x.ctypes.data, y.ctypes.data])
        """,
}


@pytest.mark.parametrize("file", ["with_kernel", "with_library"])
@pytest.mark.parametrize("how", ["load", "deserialize", "run", "bench", "inspect"])
def test_no_constructor_runs_without_permission(file, how, request, program, tmp_path, monkeypatch):
    engine = request.getfixturevalue(file)
    mark = tmp_path / "mark"
    monkeypatch.setenv("OPWRIGHT_TEST_MARK", str(mark))
    np.save(tmp_path / "x.npy", X)

    def go(allow):
        if how in LOADS:
            script = f"import numpy, opwright\npath, allow = {str(engine)!r}, {allow}\n"
            script += textwrap.dedent(LOADS[how])
            return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        arguments = {
            "run": ["--input", tmp_path / "x.npy"],
            "bench": ["--iterations", 1, "--warmup", 0],
            "inspect": ["--json"],
        }[how]
        arguments += ["--allow-host-code"] if allow else []
        return run_program(program, how, engine, *arguments)

    done = go(False)
    assert not mark.exists()
    if how == "inspect":
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 1
    assert "contains code that would run on this computer" in done.stderr
    done = go(True)
    assert done.returncode == 0, done.stderr
    assert mark.exists(), "the test would not notice a constructor that runs"


@pytest.mark.parametrize("part", ["begin", "middle", "end"])
def test_files_that_end_within_the_code(with_kernel, part, tmp_path, program):
    data = with_kernel.read_bytes()
    begin = data.index(b"\x7fELF")
    size = {"begin": begin + 1, "middle": begin + 5000, "end": len(data) - 1}[part]
    (tmp_path / "cut.engine").write_bytes(data[:size])
    with pytest.raises(trt.Error, match=r"cut\.engine.*truncated"):
        trt.load(tmp_path / "cut.engine", allow_host_code=True)
    done = run_program(program, "run", tmp_path / "cut.engine", "--allow-host-code")
    assert done.returncode == 1 and "truncated" in done.stderr


# Kernels that crash.

# x[i] is -1e7, which compilers do not know.
CRASHES = {
    "null": (
        signal.SIGSEGV,
        "*reinterpret_cast<volatile float*>(static_cast<uintptr_t>(x[i] + 1e7f)) = 1;",
        "SIGSEGV, an invalid memory access at 0x0)",
    ),
    "division": (
        signal.SIGFPE,
        "volatile int of_zero = 7 / static_cast<int>(x[i] + 1e7f);",
        "SIGFPE, an integer division by zero or overflow)",
    ),
    "instruction": (signal.SIGILL, "__builtin_trap();", "SIGILL"),
    "bus": (signal.SIGBUS, "std::raise(SIGBUS);", "SIGBUS, an invalid memory access"),
    "abort": (signal.SIGABRT, "std::abort();", "SIGABRT"),
}


def crashing(statement: str) -> str:
    """Crashes on negative numbers only, which the tuner does not give."""
    return f"""
    #include <csignal>
    #include <cstdlib>
    void f(const float* x, float* y, int64_t i, int64_t, int64_t) {{
      if (x[i] < -1e6f) {{ {statement} }}
      y[i] = x[i];
    }}"""


@pytest.mark.parametrize("cells", [1, 6])
@pytest.mark.parametrize("crash", CRASHES)
def test_program_names_the_kernel_that_crashes(crash, cells, program, tmp_path):
    number, statement, text = CRASHES[crash]
    path = tmp_path / "crash.engine"
    # A build wants all cells to be written.
    kernel_engine(crashing(statement), cells=cells, timing=cells == X.size).save(path)
    np.save(tmp_path / "x.npy", np.full(6, -1e7, np.float32))
    for command in ("run", "bench"):
        done = run_program(
            program, command, path, "--allow-host-code", "--input", tmp_path / "x.npy"
        )
        assert done.returncode == -number, done.stderr
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("opwright: error: crashed ("), done.stderr
        assert text in lines[0] and str(path) in lines[0]
        assert "layer 'the layer' (CompiledKernel 'test" in lines[0]
        assert "kernel opwright_kernel_f'" in lines[0]


def test_program_names_the_engine_whose_constructor_crashes(program, tmp_path):
    source = """
    #include <cstdlib>
    static __attribute__((constructor)) void crash() {
      if (const char* to = std::getenv("OPWRIGHT_TEST_CRASH"))
        *reinterpret_cast<volatile int*>(std::atol(to)) = 1;
    }
    void f(const float* x, float* y, int64_t, int64_t, int64_t) {
      for (int i = 0; i < 6; ++i) y[i] = x[i];
    }"""
    path = tmp_path / "crash.engine"
    kernel_engine(source).save(path)
    np.save(tmp_path / "x.npy", X)
    done = subprocess.run(
        [program, "run", path, "--allow-host-code", "--input", tmp_path / "x.npy"],
        capture_output=True, text=True, env={"OPWRIGHT_TEST_CRASH": "8"},
    )  # fmt: skip
    assert done.returncode == -signal.SIGSEGV
    assert "SIGSEGV" in done.stderr and "layer 'the layer'" in done.stderr


# Code that is no code.


@pytest.mark.parametrize(
    "code, message",
    [
        (b"", "no shared object for this host: it is shorter"),
        (b"garbage", "no shared object for this host: it is shorter"),
        (b".version 8.0\n.target sm_90\n", "is PTX for sm_90"),
        (b"\x7fELF" + bytes(10), "no shared object for this host: it is shorter"),
    ],
)
def test_aot_impl_that_returns_no_code(code, message):
    plugin_id = new_id("wrong")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        return "f", code, trtp.KernelLaunchParams(), ()

    net, layer = one_plugin(plugin_id, X)
    with pytest.raises(trt.Error, match=message) as error:
        build(net, layer.get_output(0))
    assert plugin_id in str(error.value)


def test_aot_impl_whose_code_wants_an_executable_stack():
    plugin_id = new_id("stack")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        source = "void f(const float*, float*, int64_t, int64_t, int64_t) {}"
        code = aot.cpp(source, "f", inputs=[x], outputs=outputs, flags=["-Wl,-z,execstack"])
        return code.name, code, trtp.KernelLaunchParams(), ()

    net, layer = one_plugin(plugin_id, X)
    with pytest.raises(trt.Error, match="executable stack; link it with -Wl,-z,noexecstack"):
        build(net, layer.get_output(0))


@pytest.mark.parametrize(
    "compiler, message",
    [
        ("/nonexistent/c++", "no C\\+\\+ compiler was found"),
        ("false", "does not compile"),
        ("true", "wrote no|does not compile|No such file"),
    ],
)
def test_compilers_that_fail(compiler, message, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path))
    source = f"""// {compiler}
    void f(const float* x, float* y, int64_t, int64_t, int64_t) {{
      for (int i = 0; i < 6; ++i) y[i] = x[i];
    }}"""
    net, layer = one_plugin(kernel_plugin(source), X)
    with pytest.raises((trt.Error, OSError), match=message):
        build(net, layer.get_output(0))
    monkeypatch.delenv("CXX")
    net, layer = one_plugin(kernel_plugin(source), X)
    assert build(net, layer.get_output(0)) is not None


# Nothing waits for Python.

# flags: 0 whether to take part, 1 cells that have begun, 2 that the GIL is held, 3 cells that ended.
WAITING = """
#include <atomic>
void f(const int64_t* x, int64_t* y, int64_t i, int64_t, int64_t) {
  auto* flags = reinterpret_cast<std::atomic<int64_t>*>(const_cast<int64_t*>(x));
  if (i == 0) y[0] = y[1] = y[2] = y[3] = 7;
  if (flags[0] == 0) return;
  ++flags[1];
  while (flags[2] == 0) {}
  ++flags[3];
}
"""
HOLDER = """
#include <atomic>
#include <chrono>
#include <cstdint>
// Called with the GIL held, which it keeps until all cells have ended.
extern "C" int hold(std::atomic<int64_t>* flags, int64_t cells) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  flags[2] = 1;
  while (flags[3] < cells)
    if (std::chrono::steady_clock::now() > end) return 0;
  return 1;
}
"""


@pytest.fixture(scope="module")
def holder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("holder")
    (folder / "holder.cpp").write_text(HOLDER)
    library = folder / "holder.so"
    command = ["c++", "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library, folder / "holder.cpp"]
    subprocess.run(command, check=True)
    hold = ctypes.PyDLL(str(library)).hold
    hold.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    return hold


@pytest.mark.parametrize("cells", [1, 2])
def test_kernels_end_while_another_thread_holds_the_gil(holder, cells):
    flags = np.zeros(4, np.int64)
    engine = kernel_engine(WAITING, flags, cells)
    context = engine.engine.create_execution_context()
    y = np.zeros(4, np.int64)
    context.set_tensor_address("x0", flags.ctypes.data)
    context.set_tensor_address("y0", y.ctypes.data)
    flags[0] = 1
    thread = threading.Thread(target=lambda: context.execute_async_v3(0))
    thread.start()
    while flags[1] == 0:  # this thread goes on while the kernel runs
        pass
    ended = holder(flags.ctypes.data, cells)
    thread.join()
    assert ended, "the kernel waited for the GIL"
    assert y[0] == 7 and flags[3] == cells


ELSEWHERE = """
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include "NvInferRuntime.h"
namespace {
class Quiet : public nvinfer1::ILogger {
  void log(Severity, char const*) noexcept override {}
};
bool load_and_run(const char* path, float* x, float* y) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Quiet quiet;
  const std::unique_ptr<nvinfer1::IRuntime> runtime(nvinfer1::createInferRuntime(quiet));
  runtime->setEngineHostCodeAllowed(true);
  const std::unique_ptr<nvinfer1::ICudaEngine> engine(
      runtime->deserializeCudaEngine(bytes.data(), bytes.size()));
  if (!engine) return false;
  const std::unique_ptr<nvinfer1::IExecutionContext> context(engine->createExecutionContext());
  return context && context->setTensorAddress("x0", x) && context->setTensorAddress("y0", y) &&
         context->enqueueV3(nullptr);
}
}  // namespace
// Called with the GIL held: a native thread does everything meanwhile.
extern "C" int run_elsewhere(const char* path, float* x, float* y) {
  bool done = false;
  std::thread([&] { done = load_and_run(path, x, y); }).join();
  return done;
}
"""


def test_everything_works_on_a_native_thread_while_the_gil_is_held(with_kernel, tmp_path):
    (tmp_path / "elsewhere.cpp").write_text(ELSEWHERE)
    library = tmp_path / "elsewhere.so"
    subprocess.run(
        ["c++", "-std=c++20", "-shared", "-fPIC",
         f"-I{ROOT / 'include'}", f"-I{ROOT / 'include' / 'opwright'}",
         "-o", library, tmp_path / "elsewhere.cpp", "-Wl,--unresolved-symbols=ignore-all"],
        check=True,
    )  # fmt: skip
    script = f"""
import ctypes, faulthandler, numpy as np, os, opwright
faulthandler.dump_traceback_later(60, exit=True)
for line in open("/proc/self/maps"):
    if line.rstrip().endswith("libopwright.so"):
        ctypes.CDLL(line.split()[-1], ctypes.RTLD_GLOBAL)
        break
run = ctypes.PyDLL({str(library)!r}).run_elsewhere
x, y = np.arange({X.size}, dtype=np.float32), np.zeros({X.size}, np.float32)
run.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
assert run({str(with_kernel)!r}.encode(), x.ctypes.data, y.ctypes.data) == 1
assert (y == 2 * x).all()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
