"""Kernels that are compiled into engines: CUDA C++, PTX, cubin, Triton, Numba; also in the native program."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from gpu_engines import Log, Runner, build, new_id, one_plugin, wrap
from opwright import aot

pytestmark = pytest.mark.usefixtures("on_gpu")

SCALE = """
template <class T>
__device__ void scale(const T* x, int64_t n, float factor, T* y) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(static_cast<float>(x[i]) * factor);
}
"""
# The same, as what other compilers make: for any GPU since sm_70.
PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 n, .param .f32 factor, .param .u64 y)
{
  .reg .pred %p;
  .reg .f32 %f<3>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [n];
  ld.param.f32 %f1, [factor];
  ld.param.u64 %rd3, [y];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd4, %r1, %r2;
  cvt.u64.u32 %rd5, %r3;
  add.u64 %rd4, %rd4, %rd5;
  setp.ge.u64 %p, %rd4, %rd2;
  @%p bra DONE;
  shl.b64 %rd4, %rd4, 2;
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd3, %rd3;
  add.u64 %rd6, %rd1, %rd4;
  add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f2, [%rd6];
  mul.f32 %f2, %f2, %f1;
  st.global.f32 [%rd7], %f2;
DONE:
  ret;
}
"""


def scale_plugin(make):
    """A plugin y = factor x whose kernel is what `make(x, extra, outputs)` gives."""
    plugin_id = new_id("scale")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, factor: float) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id, device="cuda")
    def kernel(x, factor, outputs, tactic):
        n = x.shape_expr.numel()
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(n), trtp.SymFloat32(factor)])
        code = make(x, extra, outputs)
        block = {} if code.name == "scale_triton" else {"block_x": 256}
        per_block = 1024 if code.name == "scale_triton" else 256
        return code.name, code, code.launch(grid_x=trtp.cdiv(n, per_block), **block), extra

    return plugin_id


def from_cuda(x, extra, outputs):
    return aot.cuda(SCALE, "scale", inputs=[x], extra=extra, outputs=outputs)


def from_ptx_of_cuda(x, extra, outputs):
    return aot.cuda(SCALE, "scale", inputs=[x], extra=extra, outputs=outputs, arch="compute_75")


def from_ptx(x, extra, outputs):
    return aot.object(PTX.encode(), "scale")


MAKERS = {"cuda": from_cuda, "ptx of cuda": from_ptx_of_cuda, "ptx": from_ptx}
each_maker = pytest.mark.parametrize(
    "maker", [pytest.param(n, marks=pytest.mark.nvidia) if n == "ptx" else n for n in MAKERS]
)


@each_maker
def test_each_kind_of_code(gpu, stream, rng, maker):
    x = rng.random((37, 101), np.float32)
    net, layer = one_plugin(scale_plugin(MAKERS[maker]), x, shapes=[(-1, 101)], factor=3.0)
    shapes = {"x0": ((1, 101), (37, 101), (500, 101))}
    engine = build(net, layer.get_output(0), shapes=shapes)
    np.testing.assert_array_equal(engine(x), x * np.float32(3))
    for rows in (37, 500, 1):
        x = rng.random((rows, 101), np.float32)
        np.testing.assert_array_equal(Runner(engine, x).run(stream)[0], x * np.float32(3))


@pytest.mark.parametrize("dtype", [np.float16, np.int32], ids=str)
def test_types_follow_the_descriptors(rng, dtype):
    x = (rng.random(3000) * 100).astype(dtype)
    net, layer = one_plugin(scale_plugin(from_cuda), x, factor=2.0)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(x), x * dtype(2))


@each_maker
def test_the_native_program_runs_it_without_python(tmp_path, program, rng, maker):
    x = rng.random((64, 101), np.float32)
    net, layer = one_plugin(scale_plugin(MAKERS[maker]), x, factor=0.5)
    build(net, layer.get_output(0)).save(tmp_path / "scale.engine")
    run_program(program, tmp_path, x)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x * np.float32(0.5))


def run_program(program, folder, x):
    np.save(folder / "x.npy", x)
    command = [
        program,
        "run",
        folder / "scale.engine",
        "--allow-device-code",
        "--input",
        f"x0={folder / 'x.npy'}",
    ]
    kept = ("LD_LIBRARY_PATH", "OPWRIGHT_CUDA_DRIVER")  # what finds the driver
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run(
        [*map(str, command), "--output", f"y0={folder / 'y.npy'}"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


TRITON = """
import triton
import triton.language as tl

@triton.jit
def scale_triton(x, n, factor, y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)
"""


@pytest.mark.nvidia
@pytest.mark.frameworks
def test_triton(tmp_path, monkeypatch, program, rng):
    pytest.importorskip("triton")
    (tmp_path / "kernel_of_triton.py").write_text(TRITON)
    monkeypatch.syspath_prepend(tmp_path)
    import kernel_of_triton

    def make(x, extra, outputs):
        kernel = kernel_of_triton.scale_triton
        return aot.triton(kernel, {"BLOCK": 1024}, inputs=[x], extra=extra, outputs=outputs)

    x = rng.random((64, 101), np.float32)
    net, layer = one_plugin(scale_plugin(make), x, factor=0.5)
    engine = build(net, layer.get_output(0))
    np.testing.assert_array_equal(engine(x), x * np.float32(0.5))
    engine.save(tmp_path / "scale.engine")
    run_program(program, tmp_path, x)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x * np.float32(0.5))


@pytest.mark.frameworks
def test_numba_cuda(numba_cuda, tmp_path, program, rng):
    def scale(x, n, factor, y):
        i = numba_cuda.blockIdx.x * numba_cuda.blockDim.x + numba_cuda.threadIdx.x
        if i < n:
            y[i] = x[i] * factor

    def make(x, extra, outputs):
        return aot.numba_cuda(scale, "scale", inputs=[x], extra=extra, outputs=outputs)

    x = rng.random((64, 101), np.float32)
    net, layer = one_plugin(scale_plugin(make), x, factor=0.5)
    engine = build(net, layer.get_output(0))
    np.testing.assert_array_equal(engine(x), x * np.float32(0.5))
    engine.save(tmp_path / "scale.engine")
    run_program(program, tmp_path, x)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x * np.float32(0.5))


@pytest.mark.nvidia  # slow on an emulated one
def test_tactics_are_timed_and_one_is_chosen(rng):
    name = new_id("tactics")

    # The second does the work of the first a hundred times over.
    @trtp.kernel(
        name,
        """
        __device__ void tactics(const float* x, int64_t n, float* y) {
          for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
            float sum = 0;
            for (int k = 0; k < ROUNDS; ++k) sum += *reinterpret_cast<const volatile float*>(x + i);
            y[i] = sum / ROUNDS;
          }
        }""",
        grid=lambda x: trtp.cdiv(x.shape_expr.numel(), 256),
        block=256,
        extra=lambda x: [x.shape_expr.numel()],
        constants=[{"ROUNDS": 256}, {"ROUNDS": 1}],
    )
    def tactics(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    x = rng.random(1 << 22, np.float32)
    net, layer = one_plugin(name, x)
    engine = build(net, layer.get_output(0))
    (described,) = [layer for layer in engine.layers if layer["Candidates"]]
    times = {option["TacticValue"]: option["TimeMs"] for option in described["Candidates"]}
    assert set(times) == {1, 2} and described["TacticValue"] == 2
    assert times[1] > times[2] > 0
    np.testing.assert_allclose(engine(x), x, rtol=1e-5)


def test_two_axes_of_a_grid_and_shared_memory(rng):
    name = new_id("transpose")

    @trtp.kernel(
        name,
        """
        __device__ void transpose(const float* x, int32_t rows, int32_t columns, float* y) {
          __shared__ float tile[32][33];
          int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
          if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
          __syncthreads();
          row = blockIdx.x * 32 + threadIdx.y, column = blockIdx.y * 32 + threadIdx.x;
          if (row < columns && column < rows) y[row * rows + column] = tile[threadIdx.x][threadIdx.y];
        }""",
        grid=lambda x: (trtp.cdiv(x.shape_expr[1], 32), trtp.cdiv(x.shape_expr[0], 32)),
        block=(32, 32),
        extra=lambda x: [trtp.SymInt32(extent) for extent in x.shape_expr],
    )
    def transpose(x: trtp.TensorDesc) -> trtp.TensorDesc:
        y = x.like()
        y.shape_expr[0], y.shape_expr[1] = x.shape_expr[1], x.shape_expr[0]
        return y

    x = rng.random((100, 333), np.float32)
    net, layer = one_plugin(name, x)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(x), x.T)


def test_the_sample_of_circular_padding(rng, monkeypatch):
    from paths import ROOT

    monkeypatch.syspath_prepend(ROOT / "samples" / "aot")
    import circ_pad  # noqa: F401

    for shape, pads in [
        ((2, 3, 17, 40), (1, 2, 3, 4)),
        ((5, 224, 224), (3, 3, 3, 3)),
        ((3, 4, 5), (7, 9, 6, 1)),
    ]:
        for dtype in (np.float32, np.float16):
            x = rng.random(shape).astype(dtype)
            net, layer = one_plugin("sample::circ_pad_rows", x, pads=np.array(pads, np.int32))
            np.testing.assert_array_equal(build(net, layer.get_output(0))(x), wrap(x, pads))


def test_no_nvrtc_is_needed_to_run(tmp_path, program, rng, monkeypatch):
    # Neither for compiled kernels nor for built-in layers: the program finds no compiler here.
    x = rng.random((64, 101), np.float32)
    net, layer = one_plugin(scale_plugin(from_cuda), x, factor=0.5)
    y = net.add_unary(layer.get_output(0), trt.UnaryOperation.NEG).get_output(0)
    build(net, y).save(tmp_path / "scale.engine")
    monkeypatch.setenv("OPWRIGHT_NVRTC", str(tmp_path / "missing.so"))
    np.save(tmp_path / "x.npy", x)
    command = [program, "run", tmp_path / "scale.engine", "--allow-device-code"]
    command += ["--input", f"x0={tmp_path / 'x.npy'}"]
    done = subprocess.run(
        [*map(str, command), "--output", f"y0={tmp_path / 'y.npy'}"],
        env={**os.environ, "OPWRIGHT_CACHE_DIR": str(tmp_path / "empty")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x * np.float32(-0.5))
    assert not list((tmp_path / "empty").glob("*"))


def test_code_for_another_architecture(rng):
    def make(x, extra, outputs):
        code = aot.cuda(SCALE, "scale", inputs=[x], extra=extra, outputs=outputs, arch="sm_75")
        return code

    x = rng.random(100, np.float32)
    net, layer = one_plugin(scale_plugin(make), x, factor=2.0)
    with pytest.raises(trt.Error, match="sm_75"):
        build(net, layer.get_output(0))


def test_the_inspector_says_which_architectures_are_served(rng):
    x = rng.random(100, np.float32)
    net, layer = one_plugin(scale_plugin(from_cuda), x, factor=2.0)
    assert "sm_" in build(net, layer.get_output(0)).inspect()


def test_the_log_of_a_build_names_no_fault(rng):
    log = Log()
    x = rng.random(100, np.float32)
    net, layer = one_plugin(scale_plugin(from_cuda), x, factor=2.0)
    build(net, layer.get_output(0), logger=log)
    worse = [message for severity, message in log.lines if severity <= trt.Logger.WARNING]
    assert worse == []
