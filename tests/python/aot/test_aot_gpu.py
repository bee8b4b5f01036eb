"""Kernels for GPUs, compiled without one: what the code says of itself, its parameters, and mistakes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from opwright.aot import _code, _nvrtc, _ptx
from opwright.plugin import SymFloat32, SymInt32, SymInt64
from paths import ROOT, SUPPORT
from plugin_testing import build, need_nvrtc, new_id, one_plugin

pytestmark = pytest.mark.usefixtures("nvidias_nvrtc")

F32, F16 = trt.float32, trt.float16
EXTRA = [SymInt64(0), SymFloat32(0)]

PTX = """
.version 8.0
.target sm_80
.address_size 64
// .visible .entry not_this( .param .u64 a )
.visible .entry scale(
    .param .u64 .ptr .global .align 4 scale_param_0,
    .param .u32 scale_param_1,
    .param .b32 scale_param_2,
    .param .align 8 .b8 scale_param_3[16]
)
{ ret; }
.visible .entry nothing() { ret; }
"""


def plain_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_code, "_in_memory", {})


def test_ptx_parameters():
    assert _ptx.target(PTX) == "sm_80"
    assert _ptx.target("text\n.target sm_80") is None
    assert _ptx.entries(PTX) == {"scale": ["u64", "u32", "b32", "b8[16]"], "nothing": []}


def test_ptx_tells_which_kernels_wait():
    """Not by a comment, and of several kernels each by itself."""
    waits = PTX.replace("{ ret; }", "{ griddepcontrol.wait; ret; }", 1)
    assert [_ptx.waits(waits, name) for name in ("scale", "nothing")] == [True, False]
    assert not _ptx.waits(PTX + "// griddepcontrol.wait;", "nothing")
    function = ".func wait() { griddepcontrol.wait; ret; }\n.visible .entry one() { call wait; }"
    assert _ptx.waits(function, "one")


# Code that was compiled elsewhere.


def test_object_takes_ptx(tmp_path):
    code = aot.object(PTX.encode() + b"\0", "scale")
    assert (code.name, code.kind, code.target) == ("scale", "ptx", "sm_80")
    path = tmp_path / "k.ptx"
    path.write_text(PTX)
    assert bytes(aot.object(path, "scale", "sm_80")) == PTX.encode()


def test_object_takes_a_shared_object():
    pytest.importorskip("elftools")
    source = "void f(float* y, int64_t, int64_t, int64_t) { *y = 3; }"
    made = aot.cpp(source, "f", inputs=[], outputs=[F32])
    code = aot.object(bytes(made), made.name, target="sse4.2")
    architecture = "aarch64" if made.target.startswith("aarch64") else "x86-64"
    assert (code.kind, code.target) == ("elf", f"{architecture} sse4.2")
    assert aot.object(bytes(made), made.name).target == architecture

    plugin_id = new_id("aot")
    trtp.register(plugin_id)(plain_desc)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        source = "void f(const float* x, float* y, int64_t, int64_t, int64_t) { *y = *x + 3; }"
        code = aot.object(
            bytes(aot.cpp(source, "f", inputs=[x], outputs=outputs)), "opwright_kernel_f"
        )
        return code.name, code, code.launch(), []

    x = np.float32([4])
    net, layer = one_plugin(plugin_id, x)
    assert build(net, layer.get_output(0))(x) == [7]


def elf(made, **header):
    """The file with fields of its header changed."""
    data = bytearray(made)
    for name, value in header.items():
        at = {"type": 16, "machine": 18}[name]
        data[at : at + 2] = value.to_bytes(2, "little")
    return bytes(data)


def test_object_says_what_is_wrong(tmp_path):
    with pytest.raises(aot.CompileError, match=r"neither ELF nor PTX; it has 5 bytes .* b'hello'"):
        aot.object(b"hello", "f")
    with pytest.raises(
        aot.CompileError, match=r"no kernel 'f'; its kernels are: 'scale', 'nothing'"
    ):
        aot.object(PTX.encode(), "f")
    with pytest.raises(aot.CompileError, match=r"is for sm_80, but target='sm_90' was given"):
        aot.object(PTX.encode(), "scale", "sm_90")
    with pytest.raises(aot.CompileError, match=r"nothing\.so cannot be read"):
        aot.object(tmp_path / "nothing.so", "f")
    with pytest.raises(TypeError, match="bytes or the pathlib.Path of a file; int came"):
        aot.object(3, "f")
    pytest.importorskip("elftools")
    made = aot.cpp("void f(int64_t, int64_t, int64_t) {}", "f", inputs=[], outputs=[])
    with pytest.raises(aot.CompileError, match=r"exports no 'f'; it exports: 'opwright_kernel_f'"):
        aot.object(bytes(made), "f")
    with pytest.raises(aot.CompileError, match=r"for the machine EM_RISCV; expected x86-64"):
        aot.object(elf(made, machine=243), made.name)
    with pytest.raises(aot.CompileError, match=r"type ET_REL; expected a shared object"):
        aot.object(elf(made, type=1), made.name)
    other = "x86-64" if made.target == "aarch64" else "aarch64"
    with pytest.raises(aot.CompileError, match=f"but target='{other}' was given"):
        aot.object(bytes(made), made.name, other)
    with pytest.raises(aot.CompileError, match="damaged ELF file"):
        aot.object(made[:100], made.name)


def test_fixed_launch_parameters_stay():
    code = aot.Code(b"", "k", "sm_90", kind="ptx", launch={"block_x": 128, "shared_mem": 64})
    launch = code.launch(7, grid_y=2)
    values = [launch.grid_x, launch.grid_y, launch.block_x, launch.shared_mem]
    assert [value.constant_value() for value in values] == [7, 2, 128, 64]
    with pytest.raises(ValueError, match="compiled for block_x=128; 64 came"):
        code.launch(7, block_x=64)


# CUDA C++.

CUDA = """
extern "C" __global__ void plain(const float* x, int64_t n, float f, float* y) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) y[i] = x[i] * f;
}
namespace ns {
template <class T>
__global__ void kernel(const T* x, int64_t n, float f, T* y) { *y = x[n] * T(f); }
template <class T>
__device__ void function(const T* x, int64_t n, float f, T* y) { *y = x[n] * T(f); }
}
"""


def cuda(source, name, dtype=F32, extra=EXTRA, arch="compute_80", **more):
    need_nvrtc()
    return aot.cuda(source, name, inputs=[dtype], outputs=[dtype], extra=extra, arch=arch, **more)


@pytest.mark.parametrize("name", ["plain", "ns::kernel<float>", "ns::function"])
def test_cuda_kernels_have_the_parameters(name):
    code = cuda(CUDA, name)
    assert (code.kind, code.target) == ("ptx", "sm_80")
    assert _ptx.entries(code.decode())[code.name] == ["u64", "u64", "f32", "u64"]
    cubin = cuda(CUDA, name, arch="sm_80")
    assert (cubin.kind, cubin.target, cubin.name) == ("cubin", "sm_80", code.name)
    pytest.importorskip("elftools")
    assert aot.object(bytes(cubin), code.name).target == "sm_80"


@pytest.mark.parametrize("dtype", [F16, trt.bfloat16, trt.int8, trt.bool], ids=str)
def test_cuda_functions_take_the_types_of_the_descriptors(dtype):
    if not _nvrtc.header_folders():
        pytest.skip("CUDA's headers are not installed")
    cuda(CUDA, "ns::function", dtype)


@pytest.mark.parametrize("waits", [False, True])
def test_cuda_kernels_that_wait_begin_early(tmp_path, waits):
    """Where code is made, from the cache, from PTX, and in the engine."""
    statement = 'asm volatile("griddepcontrol.wait;" ::: "memory");' if waits else ""
    source = f"__global__ void pass(const float* x, float* y) {{ {statement} y[0] = x[0]; }}"
    types = {"inputs": [F32], "outputs": [F32], "arch": "compute_90"}
    code = aot.cuda(source, "pass", **types)
    assert code.begins_early is waits
    assert aot.cuda(source, "pass", **types).begins_early is waits
    stored = tmp_path / "pass.ptx"
    stored.write_bytes(code)
    assert aot.object(stored, code.name).begins_early is waits


def test_cuda_errors_have_the_sources_lines(tmp_path):
    broken = CUDA + "__device__ int f() { return nowhere; }\n"
    line = broken.count("\n")
    with pytest.raises(
        aot.CompileError, match=rf'plain\.cu\({line}\): error: identifier "nowhere"'
    ):
        cuda(broken, "plain")
    path = tmp_path / "mine.cu"
    path.write_text(broken)
    with pytest.raises(aot.CompileError, match=rf'mine\.cu\({line}\): error: identifier "nowhere"'):
        cuda(path, "ns::function")
    with pytest.raises(aot.CompileError, match='identifier "missing" is undefined'):
        cuda(CUDA, "missing")
    message = (
        r"'plain' has the parameters \(u64, u64, f32, u64\).* 1 inputs, the extra arguments "
        r"\(SymInt32, SymFloat32\) and 1 outputs are \(u64, u32, f32, u64\)"
    )
    with pytest.raises(aot.CompileError, match=message):
        cuda(CUDA, "plain", extra=[SymInt32(0), SymFloat32(0)])
    with pytest.raises(aot.CompileError, match="not the name of a function"):
        cuda(CUDA, "a b")


def test_the_architecture_must_be_known():
    with pytest.raises(aot.CompileError, match=r"no engine is being built; name one: arch='sm_90'"):
        aot.cuda(CUDA, "plain", inputs=[F32], outputs=[F32], extra=EXTRA)
    with pytest.raises(aot.CompileError, match="arch='90' is no architecture; expected one like"):
        aot.cuda(CUDA, "plain", inputs=[F32], outputs=[F32], extra=EXTRA, arch="90")


def test_missing_nvrtc_is_named(monkeypatch):
    monkeypatch.setenv("OPWRIGHT_NVRTC", "/nowhere/libnvrtc.so")
    _nvrtc.nvrtc.cache_clear()
    message = r"python -m pip install nvidia-cuda-nvrtc.*/nowhere/libnvrtc\.so"
    with pytest.raises(aot.CompileError, match=message):
        aot.cuda(CUDA, "plain", inputs=[F32], outputs=[F32], extra=EXTRA, arch="sm_90")


def test_a_loaded_emulation_is_not_taken_for_nvidias_compiler():
    """Tests of the emulated driver in the same process have loaded the emulated driver and compiler by their paths;
    NVIDIA's compiler looks for a driver by its name."""
    source = """
import ctypes, os
import cuda_driver
import emulated_gpu
from opwright.aot import _nvrtc

assert cuda_driver.driver().calls("cuInit") == 1
emulation = ctypes.CDLL(os.environ.pop("OPWRIGHT_NVRTC"))
for name in ("libnvrtc.so.13", "libnvrtc.so.12"):
    try:
        assert ctypes.CDLL(name)._handle != emulation._handle
    except OSError:
        pass
try:
    compiler = _nvrtc.nvrtc()
except _nvrtc.NvrtcError:
    raise SystemExit(0)
text = 'extern "C" __global__ void k(float* x) { *x = 1; }'
made = compiler.compile(text, "k.cu", ["--gpu-architecture=compute_80"], "k", cubin=False)
assert b".entry k(" in made.ptx
"""
    emulations = (ROOT / "build").glob("*/tests/emulation/libnvrtc.so.13")
    if "OPWRIGHT_EMULATION_DIR" not in os.environ and next(emulations, None) is None:
        pytest.skip("tests/emulation is not built")
    environment = dict(os.environ)
    for name in ("OPWRIGHT_NVRTC", "OPWRIGHT_CUDA_DRIVER"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=SUPPORT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_cuda_is_compiled_once(tmp_path, monkeypatch):
    need_nvrtc()
    from opwright.aot import _cuda

    runs = []
    original = _cuda.compile_source
    monkeypatch.setattr(_cuda, "compile_source", lambda *a: (runs.append(1), original(*a))[1])
    (tmp_path / "twice.h").write_text("__device__ float twice(float v) { return 2 * v; }")
    path = tmp_path / "k.cu"
    path.write_text('#include "twice.h"\n' + CUDA.replace("* f", "* twice(f)"))
    first = cuda(path, "plain")
    monkeypatch.setattr(_code, "_in_memory", {})
    again = cuda(path, "plain")
    assert (again, again.name, again.target) == (first, first.name, first.target)
    assert len(runs) == 1
    (tmp_path / "twice.h").write_text("__device__ float twice(float v) { return 3 * v; }")
    assert cuda(path, "plain") != first and len(runs) == 2, "the included file has changed"


# Triton.

TRITON = """
import triton
import triton.language as tl

@triton.jit
def scaled(v, f):
    return v * f

@triton.jit
def scale(x, n, f, y, BLOCK: tl.constexpr, TWICE: tl.constexpr = False):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = scaled(tl.load(x + i, i < n), f)
    tl.store(y + i, v + v if TWICE else v, i < n)

@triton.jit
def broken(x, n, f, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, x.nothing)

@triton.jit
def total(x, n, f, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y, tl.sum(tl.load(x + i, i < n) * f))
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("triton")
    (folder / "kernels_of_triton.py").write_text(TRITON)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
        yield __import__("kernels_of_triton")


def compile_triton(kernel, constexprs, dtype=F32, extra=EXTRA, arch="sm_90", **more):
    return aot.triton(
        kernel, constexprs, inputs=[dtype], outputs=[dtype], extra=extra, arch=arch, **more
    )


def test_triton_kernels_are_compiled_without_a_gpu(kernels):
    code = compile_triton(kernels.scale, {"BLOCK": 1024}, num_warps=8)
    assert (code.kind, code.target[:5], code[:4]) == ("cubin", "sm_90", b"\x7fELF")
    launch = code.launch(grid_x=5)
    assert [launch.grid_x.constant_value(), launch.block_x.constant_value()] == [5, 256]
    ptx = compile_triton(kernels.scale, {"BLOCK": 64}, F16, arch="compute_80")
    assert (ptx.kind, ptx.target) == ("ptx", "sm_80")
    # Each pointer that Triton adds to the arguments is declared.
    found = _ptx.entries(ptx.decode())[ptx.name]
    assert found == ["u64", "u64", "f32", "u64", *["u64"] * len(ptx.scratch)]
    shared = compile_triton(kernels.total, {"BLOCK": 1024}).launch().shared_mem
    assert shared.constant_value() > 0


def test_triton_specializes_what_is_promised(kernels):
    def wide(n, **more):
        extra = [n, SymFloat32(0)]
        code = compile_triton(
            kernels.scale, {"BLOCK": 1024}, extra=extra, arch="compute_80", **more
        )
        return "ld.global.v4" in code.decode()

    assert not wide(SymInt32(1024)), "nothing is known of the addresses"
    assert wide(SymInt32(1024), multiples_of_16=["x", "y"])
    assert not wide(SymInt32(1023), multiples_of_16=["x", "y"])


def test_triton_says_what_does_not_fit(kernels):
    text = r"the kernel `scale\(x, n, f, y, BLOCK.*\)`: "
    with pytest.raises(aot.CompileError, match=text + "the constexpr 'BLOCK' has no value"):
        compile_triton(kernels.scale, {})
    with pytest.raises(aot.CompileError, match=text + "constexprs names 'SIZE'"):
        compile_triton(kernels.scale, {"BLOCK": 64, "SIZE": 3})
    message = r"it has 4 parameters beside its constexprs \(x, n, f, y\), but 1 inputs, 1 extra"
    with pytest.raises(aot.CompileError, match=text + message):
        compile_triton(kernels.scale, {"BLOCK": 64}, extra=[SymInt64(0)])
    with pytest.raises(aot.CompileError, match=text + "multiples_of_16 names z"):
        compile_triton(kernels.scale, {"BLOCK": 64}, multiples_of_16=["z"])
    line = TRITON[: TRITON.index("x.nothing")].count("\n") + 1
    message = rf"kernels_of_triton\.py:{line}: .*nothing"
    with pytest.raises(aot.CompileError, match=message):
        compile_triton(kernels.broken, {"BLOCK": 64})
    with pytest.raises(TypeError, match="decorated with triton.jit; builtin_function"):
        compile_triton(print, {})
    import triton

    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])
    with pytest.raises(
        aot.CompileError, match="decorated with triton.autotuner, which needs a GPU"
    ):
        compile_triton(tuned(kernels.scale), {})


def test_triton_compiles_once(kernels, monkeypatch):
    import triton

    runs = []
    original = triton.compile
    monkeypatch.setattr(triton, "compile", lambda *a, **k: (runs.append(1), original(*a, **k))[1])
    first = compile_triton(kernels.scale, {"BLOCK": 128})
    monkeypatch.setattr(_code, "_in_memory", {})
    again = compile_triton(kernels.scale, {"BLOCK": 128})
    assert len(runs) == 1
    assert (again, again.name, again.scratch) == (first, first.name, first.scratch)
    assert compile_triton(kernels.scale, {"BLOCK": 128, "TWICE": True}) != first
    assert len(runs) == 2


# Numba-CUDA.


@pytest.fixture
def numba_cuda():
    pytest.importorskip("numba_cuda")
    return pytest.importorskip("numba.cuda")


def make_scale(cuda):
    def scale(x, n, f, y):
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < n:
            y[i] = x[i] * f

    return scale


def compile_numba(function, dtype=F32, arch="compute_80", **more):
    ports = {"inputs": [dtype], "outputs": [dtype], "extra": EXTRA}
    return aot.numba_cuda(function, "scale", arch=arch, **(ports | more))


def test_numba_cuda_makes_ptx_without_a_gpu(numba_cuda):
    scale = make_scale(numba_cuda)
    code = compile_numba(scale)
    assert (code.kind, code.name) == ("ptx", "opwright_kernel_scale")
    assert _ptx.entries(code.decode()) == {code.name: ["u64", "u64", "f32", "u64"]}
    assert _ptx.target(code.decode()) == "sm_80"
    assert b"__main__" not in code and b"test_aot_gpu" not in code.split(b".entry")[1]
    decorated = compile_numba(numba_cuda.jit(scale), F16, arch="sm_90")
    assert _ptx.target(decorated.decode()) == "sm_90"
    assert b"b16" in decorated
    launch = code.launch(grid_x=4, block_x=128)
    assert launch.block_x.constant_value() == 128


def test_numba_cuda_compiles_once(numba_cuda, monkeypatch):
    from opwright.aot import _numba_cuda

    runs = []
    original = _numba_cuda._compile
    monkeypatch.setattr(_numba_cuda, "_compile", lambda *a: (runs.append(1), original(*a))[1])
    first = compile_numba(make_scale(numba_cuda))
    monkeypatch.setattr(_code, "_in_memory", {})
    assert compile_numba(make_scale(numba_cuda)) == first and len(runs) == 1
    assert compile_numba(make_scale(numba_cuda), arch="compute_90") != first and len(runs) == 2


def test_numba_cuda_takes_absent_inputs(numba_cuda):
    def pick(x, y):
        y[0] = 1.0 if x is None else 2.0

    code = aot.numba_cuda(pick, "pick", inputs=[None], outputs=[F32], arch="compute_80")
    assert _ptx.entries(code.decode())[code.name] == ["u64", "u64"]


def test_numba_cuda_says_what_is_wrong(numba_cuda):
    def broken(x, n, f, y):
        y[0] = x.nothing

    with pytest.raises(aot.CompileError, match="kernel 'scale' does not compile(?s:.*)nothing"):
        compile_numba(broken)
    with pytest.raises(aot.CompileError, match="'a b' is not a name for a kernel"):
        aot.numba_cuda(broken, "a b", inputs=[], outputs=[], arch="compute_80")
    with pytest.raises(aot.CompileError, match="arch='80' is no architecture"):
        compile_numba(broken, arch="80")


def test_missing_numba_cuda_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(aot.CompileError, match="python -m pip install numba-cuda nvidia-nvvm"):
        compile_numba(print)


def test_kernels_of_numba_cuda_make_plugins(numba_cuda):
    plugin_id = new_id("aot")
    decorate = trtp.kernel(plugin_id, numba_cuda.jit(make_scale(numba_cuda)), "scale", block=128)

    def scale(x: trtp.TensorDesc, f: float) -> trtp.TensorDesc:
        return x.like()

    decorate(scale)
    x = np.float32([4])
    net, layer = one_plugin(plugin_id, x, f=2.0)
    with pytest.raises(trt.Error, match="has no aot_impl function for the CPU"):
        build(net, layer.get_output(0))


@pytest.mark.parametrize("code, what", [(PTX, "PTX for sm_80"), (b"ELF", "no shared object")])
def test_code_for_gpus_is_no_code_for_the_cpu(code, what):
    plugin_id = new_id("aot")
    trtp.register(plugin_id)(plain_desc)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        return "scale", code, trtp.KernelLaunchParams(), []

    x = np.float32([4])
    net, layer = one_plugin(plugin_id, x)
    message = rf"plugin '{plugin_id}': the code of kernel 'scale' is {what}.*built for the CPU"
    with pytest.raises(trt.Error, match=message):
        build(net, layer.get_output(0))


def test_the_architecture_is_that_of_the_engine():
    plugin_id = new_id("aot")
    trtp.register(plugin_id)(plain_desc)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        code = aot.cuda(CUDA, "plain", inputs=[x], outputs=outputs, extra=EXTRA)
        return code.name, code, code.launch(), EXTRA

    x = np.float32([4])
    net, layer = one_plugin(plugin_id, x)
    with pytest.raises(aot.CompileError, match="the engine is built for (x86-64|aarch64)"):
        build(net, layer.get_output(0))


def test_aot_impl_of_another_device_is_not_used():
    plugin_id = new_id("aot")
    trtp.register(plugin_id)(plain_desc)

    @trtp.aot_impl(plugin_id, device="cuda")
    def compile_cuda(x, outputs, tactic):
        raise AssertionError("this is no GPU")

    x = np.float32([4])
    net, layer = one_plugin(plugin_id, x)
    with pytest.raises(trt.Error, match="has no aot_impl function for the CPU"):
        build(net, layer.get_output(0))

    @trtp.aot_impl(plugin_id, device="cpu")
    def compile_cpu(x, outputs, tactic):
        source = "void f(const float* x, float* y, int64_t, int64_t, int64_t) { *y = *x + 1; }"
        code = aot.cpp(source, "f", inputs=[x], outputs=outputs)
        return code.name, code, code.launch(), []

    net, layer = one_plugin(plugin_id, x)
    assert build(net, layer.get_output(0))(x) == [5]
    with pytest.raises(ValueError, match="aot_impl: device='tpu'; expected 'cpu', 'cuda' or None"):
        trtp.aot_impl(plugin_id, device="tpu")


def test_import_needs_neither_triton_nor_cuda():
    program = """
import sys, opwright.aot
sys.exit(bool({"triton", "cuda", "elftools"} & set(sys.modules)))"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_scratch_memory_is_for_gpus():
    plugin_id = new_id("aot")
    trtp.register(plugin_id)(plain_desc)

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        source = "void f(const float* x, float* y, int64_t, int64_t, int64_t) { *y = *x; }"
        made = aot.cpp(source, "f", inputs=[x], outputs=outputs)
        code = aot.Code(made, made.name, made.target, scratch=(16,))
        return code.name, code, code.launch(3), []

    x = np.float32([4])
    net, layer = one_plugin(plugin_id, x)
    with pytest.raises(trt.Error, match="wants scratch memory, which only kernels for GPUs get"):
        build(net, layer.get_output(0))
