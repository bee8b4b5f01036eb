"""Plugin libraries that were compiled with NVIDIA's headers give what the same sources give with Opwright's.

OPWRIGHT_TENSORRT_HEADERS names the folder `include` of a checkout of NVIDIA/TensorRT; several with a colon between.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import opwright
from paths import ROOT

HEADERS = [
    Path(path) for path in os.environ.get("OPWRIGHT_TENSORRT_HEADERS", "").split(":") if path
]
LIBRARIES = Path(opwright.__file__).parent / "lib"

MODEL = """
import sys
from onnx import TensorProto, helper

node = helper.make_node(sys.argv[2], ["x"], ["y"], pads=[1, 1, 2, 2])
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 3, 4])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", "c", "d"])
model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
"""
SAVE = (
    MODEL
    + """
import onnx
onnx.save(model, sys.argv[1])
"""
)
RUN = (
    MODEL
    + """
import numpy as np
import opwright as trt

registry = trt.get_plugin_registry()
handle = registry.load_library(sys.argv[1])
engine = trt.build(model.SerializeToString(), device=trt.DeviceType.CPU)
given = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
want = np.pad(given, ((0, 0), (0, 0), (2, 2), (1, 1)), mode="wrap")
assert (engine(given) == want).all(), engine(given)
registry.deregister_library(handle)
assert (engine(given) == want).all()
print("equal")
"""
)


def major_of(headers: Path) -> int:
    return 11 if "MAJOR_ENTERPRISE 11" in (headers / "NvInferVersion.h").read_text() else 10


@pytest.mark.skipif(
    not HEADERS, reason="OPWRIGHT_TENSORRT_HEADERS names no checkout of TensorRT's headers"
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("plugin", ["circ_pad_plugin", "circ_pad_v2_plugin"])
@pytest.mark.parametrize("headers", HEADERS, ids=str)
def test_a_library_of_nvidias_headers(headers, plugin, tmp_path, program):
    (tmp_path / "libnvinfer.so").symlink_to(
        LIBRARIES / f"libopwright_nvinfer_{major_of(headers)}.so"
    )
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    source = ROOT / "tests" / "cpp" / "plugins" / f"{plugin}.cpp"
    library = tmp_path / "plugin.so"
    command = [
        "g++",
        "-std=c++17",
        "-w",
        "-fPIC",
        "-shared",
        f"-I{headers}",
        f"-I{cuda}/include",
        str(source),
    ]
    command += ["-o", str(library), f"-L{tmp_path}", "-lnvinfer", "-Wl,--allow-shlib-undefined"]
    subprocess.run(command, check=True)
    (tmp_path / "libnvinfer.so").unlink()  # the library finds Opwright's by load_library() alone
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(library), plugin],
        capture_output=True,
        text=True,
        env=os.environ | {"OPWRIGHT_DEVICE": "cpu"},
    )
    assert done.stdout == "equal\n", done.stderr
    # The program has Opwright's functions of TensorRT's names in front of the library's.
    model = tmp_path / "model.onnx"
    subprocess.run([sys.executable, "-c", SAVE, str(model), plugin], check=True)
    built = [program, "build", model, "-o", tmp_path / "engine", "--plugins", library]
    done = subprocess.run([*map(str, built), "--device", "cpu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
