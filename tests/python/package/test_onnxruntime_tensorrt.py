"""ONNX Runtime's TensorRT provider, as its wheel has it, over Opwright's libraries. Needs a GPU.

OPWRIGHT_ONNXRUNTIME_GPU names a folder with the unpacked wheel onnxruntime-gpu. CUDA's libraries that the provider
needs (libcudart, libcublas, libcurand, libcudnn) come from PyPI's packages or LD_LIBRARY_PATH.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

WHEEL = os.environ.get("OPWRIGHT_ONNXRUNTIME_GPU", "")
pytestmark = pytest.mark.skipif(not WHEEL, reason="OPWRIGHT_ONNXRUNTIME_GPU names no folder")

PROGRAM = """
import sys
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

assert onnxruntime.__file__.startswith(sys.argv[1]), onnxruntime.__file__
folder = sys.argv[2]
random = np.random.default_rng(0)

def weight(name, *shape):
    return numpy_helper.from_array(random.normal(0, shape[0] ** -0.5, shape).astype(np.float32), name)

def compare(model, inputs, tolerance, **options):
    '''The results of both providers agree, and TensorRT's provider is not left out.'''
    cpu = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    providers = [("TensorrtExecutionProvider", options), "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, settings, providers=providers)
    session.disable_fallback()
    assert session.get_providers()[0] == "TensorrtExecutionProvider", session.get_providers()
    for x in inputs:
        for ours, theirs in zip(session.run(None, x), cpu.run(None, x), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
"""

PERCEPTRON = """
nodes = [
    helper.make_node("Gemm", ["x", "a", "bias"], ["h"]),
    helper.make_node("Relu", ["h"], ["r"]),
    helper.make_node("MatMul", ["r", "b"], ["y"]),
    helper.make_node("Softmax", ["y"], ["z"], axis=-1),
]
ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", k]) for n, k in (("x", 16), ("z", 8))]
weights = [weight("a", 16, 32), weight("bias", 32), weight("b", 32, 8)]
graph = helper.make_graph(nodes, "perceptron", ports[:1], ports[1:], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
path = f"{folder}/perceptron.onnx"
onnx.save(model, path)
rows = [{"x": random.normal(size=(n, 16)).astype(np.float32)} for n in (4, 4, 4, 1, 7)]
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    command = [sys.executable, "-m", "opwright", "tensorrt", "provide", "--folder", str(folder)]
    subprocess.run(command, check=True)
    return folder


def run(libraries: Path, folder: Path, program: str) -> None:
    packages = sysconfig.get_path("purelib")
    nvidia = glob.glob(f"{packages}/nvidia/*/lib")
    path = [str(libraries), os.environ.get("LD_LIBRARY_PATH", ""), *nvidia]
    environment = {
        "LD_LIBRARY_PATH": ":".join(filter(None, path)),
        "PYTHONPATH": ":".join([WHEEL, *sys.path]),
        "OPWRIGHT_ALLOW_DEVICE_CODE": "1",  # the provider loads the plan that it has built
    }
    command = [sys.executable, "-c", PROGRAM + program, WHEEL, str(folder)]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize(
    "tolerance, options",
    [
        (1e-5, {}),
        (1e-2, {"trt_fp16_enable": True}),
        (5e-2, {"trt_bf16_enable": True}),
        (1e-5, {"trt_builder_optimization_level": 2, "trt_auxiliary_streams": 1}),
        (1e-5, {"trt_timing_cache_enable": True, "trt_timing_cache_path": "FOLDER"}),
        (1e-5, {f"trt_profile_{k}_shapes": f"x:{n}x16" for k, n in (("min", 1), ("opt", 4), ("max", 8))}),
    ],
    ids=["defaults", "fp16", "bf16", "level", "timing cache", "profile"],
)  # fmt: skip
def test_options(libraries, tmp_path, tolerance, options):
    options = {key: str(tmp_path) if x == "FOLDER" else x for key, x in options.items()}
    run(libraries, tmp_path, f"{PERCEPTRON}compare(path, rows, {tolerance}, **{options})")


def test_a_cuda_graph(libraries, tmp_path):
    program = """
cpu = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
providers = [("TensorrtExecutionProvider", {"trt_cuda_graph_enable": True})]
session = onnxruntime.InferenceSession(path, providers=providers)
binding = session.io_binding()
x = onnxruntime.OrtValue.ortvalue_from_numpy(rows[0]["x"], "cuda", 0)
y = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((4, 8), np.float32), "cuda", 0)
binding.bind_ortvalue_input("x", x)
binding.bind_ortvalue_output("z", y)
for given in rows[:3]:
    x.update_inplace(given["x"])
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(y.numpy(), cpu.run(None, given)[0], rtol=1e-5, atol=1e-5)
"""
    run(libraries, tmp_path, PERCEPTRON + program)


def test_stored_engines(libraries, tmp_path):
    program = """
options = {"trt_engine_cache_enable": True, "trt_engine_cache_path": "cache"}
compare(path, rows, 1e-5, **options)
compare(path, rows, 1e-5, **options)  # loads the engine
context = f"{folder}/context.onnx"
compare(path, rows, 1e-5, trt_dump_ep_context_model=True, trt_ep_context_file_path=context, **options)
compare(path, rows, 1e-5, trt_weight_stripped_engine_enable=True, trt_onnx_model_folder_path=folder)
"""
    run(libraries, tmp_path, PERCEPTRON + program)
    assert list(tmp_path.rglob("*.engine")) and (tmp_path / "context.onnx").exists()


def test_a_model_in_parts(libraries, tmp_path):
    """The provider of TensorRT's takes what the parser supports. Strings stay with the CPU's."""
    program = """
nodes = [
    helper.make_node("MatMul", ["x", "a"], ["h"]),
    helper.make_node("Cast", ["h"], ["text"], to=TensorProto.STRING),
    helper.make_node("Cast", ["text"], ["back"], to=TensorProto.FLOAT),
    helper.make_node("MatMul", ["back", "b"], ["y"]),
]
ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, k]) for n, k in (("x", 16), ("y", 8))]
graph = helper.make_graph(nodes, "parts", ports[:1], ports[1:], [weight("a", 16, 32), weight("b", 32, 8)])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
model = onnx.shape_inference.infer_shapes(model)
onnx.save(model, f"{folder}/parts.onnx")
compare(f"{folder}/parts.onnx", [{"x": random.normal(size=(3, 16)).astype(np.float32)}], 1e-4)
"""
    run(libraries, tmp_path, program)


@pytest.mark.parametrize(
    "name",
    """bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19
    zfnet512""".split(),
)
def test_models_of_the_onnx_package(libraries, tmp_path, name):
    program = f"""
import os
path = os.path.dirname(onnx.__file__) + "/backend/test/data/light/light_{name}.onnx"
(port,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()
compare(path, [{{port.name: random.normal(size=port.shape).astype(np.float32)}}], 1e-3)
"""
    run(libraries, tmp_path, program)
