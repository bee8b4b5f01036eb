"""Compiled kernels on a GPU: built, stored, inspected, loaded without permission, replayed as CUDA graphs."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import new_id, op_of

pytestmark = emulated_gpu.emulated_only

AFFINE = """
extern "C" __global__ void affine(const float* x, int64_t n, int64_t factor, float* y) {
  const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i] + 1;
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


class Log(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
        self.text = ""

    def log(self, severity, message):
        self.text += message + "\n"


def affine(arch=None, block=256, drop_extra=False):
    """A plugin y = factor x + 1."""
    plugin_id = new_id("gpu")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, factor: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id, device="cuda")
    def compile(x, factor, outputs, tactic):
        n = x.shape_expr.numel()
        extra = [trtp.SymInt64(n), trtp.SymInt64(factor)]
        code = aot.cuda(AFFINE, "affine", inputs=[x], extra=extra, outputs=outputs, arch=arch)
        launch = code.launch(grid_x=trtp.cdiv(n, 256), block_x=block)
        if drop_extra:  # the engine no longer knows what the code takes
            return code.name, bytes(code), launch, trtp.SymExprs.from_tuple(extra[:1])
        return code.name, code, launch, trtp.SymExprs.from_tuple(extra)

    return plugin_id


def engine_of(plugin_id, count=1, extent=-1, **options):
    net = trt.Builder(trt.Logger()).create_network()
    tensor = net.add_input("x", trt.float32, (extent, 3))
    for _ in range(count):
        tensor = net.add_plugin(op_of(plugin_id)(tensor, factor=2)).get_output(0)
    tensor.name = "y"
    net.mark_output(tensor)
    shapes = {"x": ((0, 3), (100, 3), (1000, 3))} if extent < 0 else None
    return trt.build(net, shapes=shapes, device=trt.DeviceType.GPU, **options)


def ramp(rows):
    return np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)


def test_launches_follow_the_shapes():
    engine = engine_of(affine())
    for rows in (100, 1, 1000, 0, 33):
        np.testing.assert_array_equal(engine(ramp(rows)), 2 * ramp(rows) + 1)


@pytest.mark.parametrize(
    "arch, target, gpus",
    [
        (None, "sm_90", "GPUs of compute capability 9.0 to 9.9"),
        ("compute_80", "compute_80", "GPUs of compute capability 8.0 and newer"),
    ],
)
def test_engines_say_which_gpus_they_serve(program, tmp_path, arch, target, gpus):
    engine = engine_of(affine(arch))
    assert f"kernel for {target}" in engine.inspect()
    assert f"its code runs on {gpus}\n" in engine.inspect()
    path = tmp_path / "affine.engine"
    engine.save(path)
    shown = subprocess.run([program, "inspect", path], capture_output=True, text=True, check=True)
    assert f"its code runs on {gpus}\n" in shown.stdout
    assert "graphs may have all layers" in shown.stdout
    shown = subprocess.run(
        [program, "inspect", "--json", path], capture_output=True, text=True, check=True
    )
    assert json.loads(shown.stdout)["RunsOn"] == gpus


def test_built_in_layers_are_shown_as_what_they_are():
    net = trt.Builder(trt.Logger()).create_network()
    x = net.add_input("x", trt.float32, (8,))
    net.mark_output(net.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    engine = trt.build(net, device=trt.DeviceType.GPU)
    (layer,) = engine.layers
    assert layer["LayerType"] == "Pointwise"
    assert layer["CaptureObstacle"] == ""
    np.testing.assert_array_equal(engine(np.float32(range(8))), -np.float32(range(8)))


def test_code_for_gpus_needs_permission(program, tmp_path):
    engine_of(affine()).save(tmp_path / "affine.engine")
    np.save(tmp_path / "x.npy", ramp(5))
    command = [program, "run", "affine.engine", "--input", "x=x.npy", "--output", "y=y.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert 0 < done.returncode < 128 and "--allow-device-code" in done.stderr
    command.append("--allow-device-code")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), 2 * ramp(5) + 1)
    # This process has built it.
    np.testing.assert_array_equal(trt.load(tmp_path / "affine.engine")(ramp(5)), 2 * ramp(5) + 1)


LOADS = """
import ctypes, os, opwright as trt
driver = ctypes.CDLL(os.environ["OPWRIGHT_CUDA_DRIVER"])
def loads():
    if not hasattr(driver, "opwright_emulation_calls"):
        return 0  # a real driver
    return sum(driver.opwright_emulation_calls(name) for name in
               (b"cuModuleLoadData", b"cuModuleLoadDataEx", b"cuLibraryLoadData"))
"""


def in_another_process(folder, source, **environment):
    done = emulated_gpu.run_program(
        LOADS + f"path = {str(folder / 'affine.engine')!r}\n" + source, **environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("permission", ["allow_device_code", "allow_host_code"])
def test_before_the_permission_no_code_reaches_the_driver(tmp_path, permission):
    engine_of(affine()).save(tmp_path / "affine.engine")
    said = in_another_process(
        tmp_path,
        "try:\n"
        "    trt.load(path)\n"
        "except trt.Error as error:\n"
        "    print(error)\n"
        "assert loads() == 0\n"
        f"trt.load(path, {permission}=True)\n"
        "print('permitted')\n",
    )
    for part in (
        "contains code for a GPU",
        "affine' (sm_90)",
        "engine_device_code_allowed",
        "allow_device_code=True",
        "--allow-device-code",
        "OPWRIGHT_ALLOW_DEVICE_CODE=1",
        "Permission for host code implies it",
    ):
        assert part in said
    assert said.endswith("permitted\n")


@pytest.mark.parametrize("variable, permits", [("1", True), ("", False), ("0", False)])
def test_the_environment_permits_what_programs_for_tensorrt_load(tmp_path, variable, permits):
    engine_of(affine()).save(tmp_path / "affine.engine")
    said = in_another_process(
        tmp_path,
        "runtime = trt.Runtime(trt.Logger(trt.Logger.INTERNAL_ERROR))\n"
        "print(runtime.engine_device_code_allowed, runtime.engine_host_code_allowed)\n"
        "def load():\n"
        "    try:\n"
        "        return runtime.deserialize_cuda_engine(open(path, 'rb').read()) is not None\n"
        "    except trt.Error:\n"
        "        return False\n"
        "print(load())\n"
        "runtime.engine_device_code_allowed = False\n"
        "print(load(), loads() > 0)\n"
        "try:\n"
        "    trt.load(path)\n"
        "except trt.Error:\n"
        "    print('load says so itself')\n",
        OPWRIGHT_ALLOW_DEVICE_CODE=variable,
    ).splitlines()
    assert said[0] == f"{permits} False"
    assert said[1] == str(permits)
    assert said[2].startswith("False")
    assert said[3] == "load says so itself"


def test_a_changed_engine_of_this_process_needs_permission(tmp_path):
    """Trust is in the code with its launch, not only in the code."""
    engine_of(affine()).save(tmp_path / "affine.engine")
    trt.load(tmp_path / "affine.engine")
    other = engine_of(affine(block=64), timing=False)  # it does not write all
    other.save(tmp_path / "other.engine")
    said = in_another_process(
        tmp_path,
        "trt.load(path, allow_device_code=True)\n"
        "try:\n"
        "    trt.load(path)\n"
        "except trt.Error as error:\n"
        "    print('permission is for one call')\n",
    )
    assert said == "permission is for one call\n"


def test_code_for_other_gpus_is_refused(tmp_path):
    with pytest.raises(
        trt.Error, match=r"compiled kernel '.*affine' is code for sm_80, for GPUs of "
    ):
        engine_of(affine("sm_80"))
    engine_of(affine()).save(tmp_path / "affine.engine")
    done = emulated_gpu.run_program(
        f"import opwright; opwright.load({str(tmp_path / 'affine.engine')!r}, allow_device_code=True)",
        OPWRIGHT_EMULATED_ARCHITECTURE="80",
    )
    assert done.returncode != 0
    assert (
        "its code runs on GPUs of compute capability 9.0 to 9.9; this device is sm_80"
        in done.stderr
    )
    engine_of(affine("compute_80")).save(tmp_path / "affine.engine")
    done = emulated_gpu.run_program(
        f"import opwright; opwright.load({str(tmp_path / 'affine.engine')!r}, allow_device_code=True)",
        OPWRIGHT_EMULATED_ARCHITECTURE="100",
    )
    assert done.returncode == 0, done.stderr


def test_launches_beyond_the_limits_are_refused():
    with pytest.raises(trt.Error, match=r"block_x is 2048 \(2048\); GPUs have at most 1024"):
        engine_of(affine(block=2048))


def test_the_number_of_parameters_is_checked():
    message = r"the code takes 4 parameters, but it is called with 3 arguments \(1 input, 1 extra"
    with pytest.raises(trt.Error, match=message):
        engine_of(affine(drop_extra=True))


def test_runs_are_replayed_as_cuda_graphs():
    log = Log()
    engine = engine_of(affine(), count=4, extent=10, logger=log)
    for run in range(6):
        x = ramp(10) + run
        np.testing.assert_array_equal(engine(x), 16 * x + 15)
    assert "steps 0 to 3 are replayed as one graph of 4 kernels" in log.text


def test_cuda_graphs_can_be_turned_off():
    builder = trt.Builder(trt.Logger())
    net = builder.create_network()
    x = net.add_input("x", trt.float32, (8,))
    net.mark_output(net.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    config = builder.create_builder_config()
    assert config.cuda_graphs
    config.cuda_graphs = False
    config.default_device_type = trt.DeviceType.GPU
    engine = trt.Engine(builder.build_engine_with_config(net, config))
    assert "graphs are off" in engine.inspect()
    for _ in range(5):
        np.testing.assert_array_equal(engine(np.float32(range(8))), -np.float32(range(8)))


TRITON_SCALE = """
import triton
import triton.language as tl


@triton.jit
def scale(x, n, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 3 * tl.load(x + i, i < n), i < n)
"""
AS_TRITON = """
extern "C" __global__ void scale(const float* x, int n, float* y, void* global, void* profile) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = global || profile ? -1 : 3 * x[i];
}
"""


@pytest.fixture
def ptx_of_triton(tmp_path, monkeypatch):
    """What triton.compile() makes of a kernel, with what the emulated driver runs in its place behind it."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget

    (tmp_path / "scale_of_triton.py").write_text(TRITON_SCALE)
    monkeypatch.syspath_prepend(tmp_path)
    source = triton.compiler.ASTSource(
        fn=__import__("scale_of_triton").scale,
        signature={"x": "*fp32", "n": "i32", "y": "*fp32"},
        constexprs={"BLOCK": 128},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    port = trtp.TensorDesc((1,), trt.float32)
    code = aot.cuda(
        AS_TRITON,
        "scale",
        inputs=[port],
        extra=[trtp.SymInt32(1)],
        outputs=[port, port, port],
        arch="compute_90",
    )
    payload = bytes(code).decode().partition("\n}\n")[2]
    return compiled.asm["ptx"] + payload, compiled.metadata.num_warps * 32


@pytest.mark.parametrize("as_bytes", [True, False])
def test_ptx_of_triton_runs_with_the_arguments_of_the_operator(ptx_of_triton, as_bytes):
    ptx, threads = ptx_of_triton
    plugin_id = new_id("triton")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    dropped = []

    @trtp.aot_impl(plugin_id)
    def compile(x, outputs, tactic):
        n = x.shape_expr.numel()
        params = trtp.KernelLaunchParams()
        params.grid_x, params.block_x = trtp.cdiv(n, 128), threads
        extra = trtp.SymIntExprs.from_tuple([] if dropped else [trtp.SymInt32(n)])
        name = "scale"
        return (
            (name.encode(), ptx.encode(), params, extra) if as_bytes else (name, ptx, params, extra)
        )

    def build(x):
        net = trt.Builder(trt.Logger()).create_network()
        layer = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, x.shape)))
        net.mark_output(layer.get_output(0))
        return trt.build(net, device=trt.DeviceType.GPU)

    x = ramp(100)
    np.testing.assert_array_equal(build(x)(x), 3 * x)
    dropped.append(True)
    with pytest.raises(trt.Error, match="takes 5 parameters, but it is called with 2 arguments"):
        build(ramp(100))
