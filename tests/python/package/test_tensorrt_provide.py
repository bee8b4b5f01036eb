"""`python -m opwright tensorrt provide`, and NVIDIA's binding over it where the environment names its wheels.

OPWRIGHT_TENSORRT_BINDINGS names folders with a `tensorrt_bindings` each, unpacked wheels of NVIDIA's, with a colon
between.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import emulated_gpu

BINDINGS = [
    Path(path) for path in os.environ.get("OPWRIGHT_TENSORRT_BINDINGS", "").split(":") if path
]

LOADED = """
import ctypes, tensorrt_libs
for major in (10, 11):
    library = ctypes.CDLL(f"libnvinfer.so.{major}")
    parser = ctypes.CDLL(f"libnvonnxparser.so.{major}")
    ctypes.CDLL(f"libnvinfer_plugin.so.{major}")
    print(library.getInferLibMajorVersion(), parser.getNvOnnxParserVersion())
"""


@pytest.fixture
def python(tmp_path):
    """The interpreter of an environment that has this one's packages and none of its own."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (found,) = (environment / "lib").glob("python*/site-packages")
    here = "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (found / "here.pth").write_text(here)
    return environment / "bin" / "python"


def site_packages(python: Path) -> Path:
    (found,) = (python.parents[1] / "lib").glob("python*/site-packages")
    return found


def run(python, *arguments, **environment):
    return subprocess.run(
        [str(python), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=python.parent,
        env=os.environ | {"OPWRIGHT_DEVICE": "cpu"} | environment,
    )


def command(python, *arguments):
    return run(python, "-m", "opwright", "tensorrt", *arguments)


def test_provide_and_remove(python):
    before = sorted(site_packages(python).iterdir())
    done = command(python, "provide")
    assert done.returncode == 0 and "NVIDIA's binding runs on it" in done.stdout, done.stderr
    done = run(python, "-c", LOADED)
    assert done.stdout.split() == ["10", "100", "11", "100"], done.stderr
    done = command(python, "status")
    assert done.returncode == 0 and "tensorrt_libs is Opwright" in done.stdout
    assert "needs NVIDIA's binding" in run(python, "-c", "import tensorrt").stderr
    assert command(python, "provide").returncode == 0
    assert "tensorrt_libs is removed" in command(python, "remove").stdout
    assert sorted(site_packages(python).iterdir()) == before


def test_libraries_of_nvidia_stay(python):
    (site_packages(python) / "tensorrt_libs").mkdir()
    (site_packages(python) / "tensorrt_libs" / "__init__.py").write_text("")
    done = command(python, "provide")
    assert done.returncode == 1 and "uninstall them first" in done.stderr
    assert "nothing to remove" in command(python, "remove").stdout
    assert (site_packages(python) / "tensorrt_libs" / "__init__.py").read_text() == ""


def test_a_folder_for_programs(python, tmp_path):
    folder = tmp_path / "libraries"
    done = command(python, "provide", "--folder", folder)
    assert done.returncode == 0 and f"LD_LIBRARY_PATH={folder}" in done.stdout, done.stderr
    code = 'import ctypes; print(ctypes.CDLL("libnvinfer.so.11").getInferLibMajorVersion())'
    assert run(python, "-c", code, LD_LIBRARY_PATH=str(folder)).stdout == "11\n"
    assert "No such file" in run(python, "-c", code).stderr
    (folder / "libnvinfer.so.11").unlink()
    (folder / "libnvinfer.so.11").write_text("theirs")
    assert "is not a link" in command(python, "provide", "--folder", folder).stderr
    assert (folder / "libnvinfer.so.11").read_text() == "theirs"


BINDING = """
import numpy as np
import tensorrt as trt

assert trt.__file__ and "tensorrt_bindings" in trt.__file__, trt.__file__
logger = trt.Logger(trt.Logger.WARNING)
builder = trt.Builder(logger)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (-1, 3))
layer = network.add_activation(x, trt.ActivationType.LEAKY_RELU)
layer.alpha = 0.5
layer.get_output(0).name = "y"
network.mark_output(layer.get_output(0))
config = builder.create_builder_config()
profile = builder.create_optimization_profile()
profile.set_shape("x", (1, 3), (2, 3), (4, 3))
config.add_optimization_profile(profile)
plan = builder.build_serialized_network(network, config)
engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
context = engine.create_execution_context()
context.set_input_shape("x", (2, 3))
given = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
result = np.empty_like(given)
context.set_tensor_address("x", given.ctypes.data)
context.set_tensor_address("y", result.ctypes.data)
assert context.execute_async_v3(0)
assert (result == np.where(given < 0, given / 2, given)).all(), result
if trt.__version__ > "10.0.1":
    import tensorrt.plugin
print("well")
"""


# What ended the process once.
CALLS = """
import numpy as np
import tensorrt as trt

logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
x = network.add_input("x", trt.float32, (1, 2, 1, 3))
if hasattr(network, "add_squeeze"):
    axes = network.add_constant((1,), np.array([0], np.int32)).get_output(0)
    assert tuple(network.add_squeeze(x, axes).get_output(0).shape) == (2, 1, 3)
    if "= None" in trt.INetworkDefinition.add_squeeze.__doc__:
        assert tuple(network.add_squeeze(x).get_output(0).shape) == (2, 3)

class Twice(trt.IPluginV2DynamicExt):
    def __init__(self):
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_type = "Twice"
        self.plugin_version = "1"

    def get_output_datatype(self, index, types):
        return types[0]

    def get_output_dimensions(self, index, inputs, builder):
        return trt.DimsExprs(inputs[0])

    def clone(self):
        return Twice()

assert tuple(network.add_plugin_v2([x], Twice()).get_output(0).shape) == (1, 2, 1, 3)

if hasattr(trt, "IPluginV3"):
    class Partless(trt.IPluginV3):
        def __init__(self):
            trt.IPluginV3.__init__(self)

        def clone(self):
            return Partless()

    for _ in range(20):
        assert network.add_plugin_v3([x], [], Partless()) is None
print("well")
"""

# A reader asks CUDA's driver where the memory lies.
READER = """
import io
import tensorrt as trt

class Reader(trt.IStreamReaderV2):
    def __init__(self, data):
        trt.IStreamReaderV2.__init__(self)
        self.file = io.BytesIO(data)

    def read(self, size, stream):
        return self.file.read(size)

    def seek(self, offset, where):
        return self.file.seek(offset, int(where)) >= 0

logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(0)
layer = network.add_identity(network.add_input("x", trt.float32, (2, 3)))
network.mark_output(layer.get_output(0))
plan = builder.build_serialized_network(network, builder.create_builder_config())
assert trt.Runtime(logger).deserialize_cuda_engine(Reader(memoryview(plan))).num_io_tensors == 2
print("well")
"""


@pytest.fixture(
    params=[
        pytest.param(
            binding,
            id=binding.name,
            marks=pytest.mark.skipif(
                not BINDINGS, reason="OPWRIGHT_TENSORRT_BINDINGS names no binding of NVIDIA's"
            ),
        )
        for binding in BINDINGS or [Path("none")]
    ]
)
def python_with_binding(python, request):
    shutil.copytree(
        request.param / "tensorrt_bindings", site_packages(python) / "tensorrt_bindings"
    )
    assert command(python, "provide").returncode == 0
    return python


@pytest.mark.parametrize("script", [BINDING, CALLS], ids=["engine", "calls"])
def test_nvidias_binding(python_with_binding, script):
    done = run(python_with_binding, "-c", script)
    assert done.returncode == 0 and done.stdout.endswith("well\n"), done.stderr


@emulated_gpu.emulated_only
def test_readers_over_nvidias_binding(python_with_binding):
    folder = emulated_gpu.RUNTIME_ENVIRONMENT["LD_LIBRARY_PATH"]
    libraries = f"{folder}:{Path(emulated_gpu.DRIVER).parent}"
    on_the_gpu = {"OPWRIGHT_DEVICE": "cuda", "OPWRIGHT_ALLOW_DEVICE_CODE": "1"}
    done = run(python_with_binding, "-c", READER, LD_LIBRARY_PATH=libraries, **on_the_gpu)
    assert done.returncode == 0 and done.stdout.endswith("well\n"), done.stderr
