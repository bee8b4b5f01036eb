"""Engines for other GPUs than the one they are built on (HardwareCompatibilityLevel), on the emulated driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from opwright import aot
from plugin_testing import new_id, op_of

pytestmark = emulated_gpu.emulated_only

Level = trt.HardwareCompatibilityLevel
DOUBLED = """
extern "C" __global__ void doubled(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
"""
X = np.arange(8, dtype=np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def build(path: Path, level: trt.HardwareCompatibilityLevel, plugin: str | None = None) -> None:
    """Stores an engine for y = -x of eight numbers, or of what the plugin makes of them."""
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.hardware_compatibility_level = level
    assert config.hardware_compatibility_level == level
    x = network.add_input("x", trt.float32, (8,))
    if plugin is not None:
        x = network.add_plugin(op_of(plugin)(x)).get_output(0)
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    path.write_bytes(builder.build_serialized_network(network, config))


def doubled(arch: str) -> str:
    """A plugin y = 2 x whose kernel is for the architecture."""
    plugin_id = new_id("compatible")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl(plugin_id, device="cuda")
    def compile(x, outputs, tactic):
        code = aot.cuda(DOUBLED, "doubled", inputs=[x], outputs=outputs, arch=arch)
        return code.name, code, code.launch(grid_x=1, block_x=8), trtp.SymExprs.from_tuple([])

    return plugin_id


def served(path: Path) -> trt.HardwareCompatibilityLevel:
    runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
    return runtime.deserialize_cuda_engine(path.read_bytes()).hardware_compatibility_level


def run_on(architecture: int, engine: Path) -> str:
    """What a program says that runs the engine on a GPU of that architecture."""
    done = emulated_gpu.run_program(
        "import numpy, opwright\n"
        f"engine = opwright.load({str(engine)!r}, allow_device_code=True)\n"
        "print(engine(numpy.arange(8, dtype='f')).tolist())",
        OPWRIGHT_EMULATED_ARCHITECTURE=str(architecture),
    )
    return done.stdout or done.stderr


def test_ampere_plus_engines_run_on_older_and_newer_gpus(tmp_path):
    path = tmp_path / "negate.engine"
    build(path, Level.AMPERE_PLUS)
    assert served(path) == Level.AMPERE_PLUS
    text = trt.load(path).inspect()
    assert "its code runs on GPUs of compute capability 8.0 and newer\n" in text
    for architecture in (80, 120):
        assert run_on(architecture, path) == f"{(-X).tolist()}\n"


@pytest.mark.parametrize("level", [Level.NONE, Level.SAME_COMPUTE_CAPABILITY])
def test_other_engines_run_on_gpus_of_the_same_capability(tmp_path, level):
    path = tmp_path / "negate.engine"
    build(path, level)
    assert served(path) == Level.SAME_COMPUTE_CAPABILITY
    assert run_on(90, path) == f"{(-X).tolist()}\n"
    assert "this device is sm_80, which cannot run" in run_on(80, path)


def test_kernels_of_plugins_must_be_compatible_too(tmp_path):
    path = tmp_path / "doubled.engine"
    with pytest.raises(
        trt.Error,
        match=r"kernel '.*doubled' is for sm_90, so it runs on GPUs of compute capability 9.0 to "
        r"9.9, and .*AMPERE_PLUS. Let the plugin give PTX for compute_80 \(arch='compute_80'\)",
    ):
        build(path, Level.AMPERE_PLUS, doubled("sm_90"))
    build(path, Level.SAME_COMPUTE_CAPABILITY, doubled("sm_90"))
    build(path, Level.AMPERE_PLUS, doubled("compute_80"))
    assert run_on(80, path) == f"{(-2 * X).tolist()}\n"


def test_older_gpus_build_no_ampere_plus_engines():
    done = emulated_gpu.run_program(
        "import pathlib, test_gpu_compatibility as test\n"
        "test.build(pathlib.Path('/dev/null'), test.Level.AMPERE_PLUS)",
        OPWRIGHT_EMULATED_ARCHITECTURE="75",
    )
    assert "is for GPUs of compute capability 8.0 and newer; this one is sm_75" in done.stderr
