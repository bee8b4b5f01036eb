"""Polygraphy's TrtRunner, unmodified: on an emulated GPU by the emulated libcudart, or on a real one."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx.parser
import pytest

import emulated_gpu
import opwright
import opwright.plugin as trtp
from cuda_driver import driver
from plugin_testing import new_id, op_of

pytest.importorskip("polygraphy")

import tensorrt as trt  # noqa: E402
from polygraphy import cuda  # noqa: E402
from polygraphy.backend.common import BytesFromPath  # noqa: E402
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx  # noqa: E402
from polygraphy.backend.trt import (  # noqa: E402
    CreateConfig,
    EngineFromBytes,
    EngineFromNetwork,
    NetworkFromOnnxBytes,
    Profile,
    SaveEngine,
    TrtRunner,
    create_network,
    engine_from_network,
)
from polygraphy.comparator import (  # noqa: E402
    Comparator,
    DataLoader,
    RunResults,
    SimpleCompareFunc,
)
from polygraphy.datatype import DataType  # noqa: E402
from polygraphy.json import load_json  # noqa: E402

pytestmark = emulated_gpu.required

MODEL = """
    <ir_version: 9, opset_import: ["" : 19]>
    net (float[n, 6] x, float[n, 6] y) => (float[n, 6] scaled, float[n] total) {
        sum = Add (x, y)
        scaled = Tanh (sum)
        total = ReduceSum <keepdims: int = 0> (sum, axes)
    }"""
RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """Engines are for the GPU, and Polygraphy finds the runtime library, by its own rules."""
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cuda")
    for name, value in emulated_gpu.RUNTIME_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def model() -> bytes:
    parsed = onnx.parser.parse_model(MODEL)
    axes = onnx.numpy_helper.from_array(np.array([1], np.int64), "axes")
    parsed.graph.initializer.append(axes)
    return parsed.SerializeToString()


def profile(low: int, typical: int, high: int) -> Profile:
    made = Profile()
    for name in ("x", "y"):
        made.add(name, (low, 6), (typical, 6), (high, 6))
    return made


def engine(*profiles: Profile):
    """A loader of the model's engine."""
    config = CreateConfig(profiles=list(profiles or [profile(1, 4, 16)]))
    return EngineFromNetwork(NetworkFromOnnxBytes(model()), config)


def inputs(n: int) -> dict[str, np.ndarray]:
    return {name: RNG.standard_normal((n, 6)).astype(np.float32) for name in ("x", "y")}


def check(outputs, feed) -> None:
    total = feed["x"].astype(np.float64) + feed["y"]
    np.testing.assert_allclose(outputs["scaled"], np.tanh(total), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["total"], total.sum(1), rtol=1e-5, atol=1e-5)


def test_shapes_that_change():
    with TrtRunner(engine()) as runner:
        metadata = runner.get_input_metadata(use_numpy_dtypes=False)
        assert metadata["x"].dtype == DataType.FLOAT32 and list(metadata["x"].shape) == [-1, 6]
        for n in (4, 1, 16, 4):
            feed = inputs(n)
            outputs = runner.infer(feed)
            check(outputs, feed)
            assert runner.last_inference_time() > 0
        with pytest.raises(opwright.Error, match="outside of profile 0"):
            runner.infer(inputs(17))
        feed = inputs(2)
        check(runner.infer(feed), feed)


def test_profiles():
    with TrtRunner(engine(profile(1, 2, 4), profile(5, 8, 64)), optimization_profile=1) as runner:
        feed = inputs(40)
        check(runner.infer(feed), feed)
        runner.set_profile(0)
        feed = inputs(3)
        check(runner.infer(feed), feed)


@pytest.mark.parametrize("strategy", ["static", "profile", "runtime"])
def test_memory_of_contexts(strategy):
    with TrtRunner(engine(), allocation_strategy=strategy) as runner:
        for n in (2, 9):
            feed = inputs(n)
            check(runner.infer(feed), feed)


def test_arrays_of_the_gpu_in_and_out():
    feed = inputs(5)
    with TrtRunner(engine()) as runner:
        arrays = [cuda.DeviceArray(shape=(5, 6), dtype=DataType.FLOAT32) for _ in feed]
        for array, (_, values) in zip(arrays, feed.items()):
            array.copy_from(values)
        views = {name: array.view() for name, array in zip(feed, arrays)}
        outputs = runner.infer(views, copy_outputs_to_host=False)
        assert all(isinstance(output, cuda.DeviceView) for output in outputs.values())
        check({name: view.numpy() for name, view in outputs.items()}, feed)
        for array in arrays:
            array.free()


def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    feed = inputs(5)
    with TrtRunner(engine()) as runner:
        outputs = runner.infer({name: torch.from_numpy(values) for name, values in feed.items()})
        assert all(isinstance(output, torch.Tensor) for output in outputs.values())
        check({name: output.numpy() for name, output in outputs.items()}, feed)


def test_a_saved_engine(tmp_path):
    path = str(tmp_path / "net.engine")
    with TrtRunner(SaveEngine(engine(), path)):
        pass
    with TrtRunner(EngineFromBytes(BytesFromPath(path))) as runner:
        feed = inputs(3)
        check(runner.infer(feed), feed)


def test_a_context_is_taken_too():
    built = engine()()
    with TrtRunner(built.create_execution_context()) as runner:
        feed = inputs(3)
        check(runner.infer(feed), feed)


def test_the_comparator_agrees_with_onnx_runtime():
    runners = [TrtRunner(engine()), OnnxrtRunner(SessionFromOnnx(model()))]
    data = DataLoader(iterations=2)
    results = Comparator.run(runners, data_loader=data, warm_up=1)
    compare = SimpleCompareFunc(atol=1e-5, rtol=1e-5)
    assert bool(Comparator.compare_accuracy(results, compare_func=compare))


# Plugins that are written for a GPU


def build_plugin(plugin, shape, dtype, **attributes):
    builder, net = create_network()
    layer = net.add_plugin(plugin(net.add_input("x", dtype, shape), **attributes))
    for i in range(layer.num_outputs):
        layer.get_output(i).name = f"y{i}"
        net.mark_output(layer.get_output(i))
    profiles = []
    if -1 in shape:
        profiles = [Profile().add("x", *([n if e == -1 else e for e in shape] for n in (1, 8, 99)))]
    return engine_from_network((builder, net), CreateConfig(profiles=profiles))


def test_a_plugin_in_python():
    """Its function gets addresses of the GPU, which the host cannot touch, and the runner's stream."""
    plugin_id = new_id("shifted")
    streams = []

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        streams.append(stream)
        size, queue = ctypes.c_size_t(x.numel() * 4), ctypes.c_void_p(stream)
        target, source = ctypes.c_uint64(outputs[0].data_ptr), ctypes.c_uint64(x.data_ptr)
        driver().call_here("cuMemcpyDtoDAsync_v2", target, source, size, queue)

    with TrtRunner(build_plugin(op_of(plugin_id), (-1, 3), trt.float32)) as runner:
        streams.clear()
        for n in (8, 33):
            x = RNG.standard_normal((n, 3)).astype(np.float32)
            np.testing.assert_array_equal(runner.infer({"x": x})["y0"], x)
        assert streams == [runner.stream.ptr] * 2


# As plugins of TensorRT's samples do, it counts up from what is there.
KEEP = """
__device__ void keep(const float* x, int64_t n, float limit, float* y, int32_t* count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n && x[i] > limit) y[atomicAdd(count, 1)] = x[i];
}
"""


def test_an_output_whose_size_the_data_decides():
    plugin_id = new_id("keep")

    @trtp.kernel(
        plugin_id,
        KEEP,
        "keep",
        block=32,
        grid=lambda x, limit: trtp.cdiv(x.shape_expr.numel(), 32),
        extra=lambda x, limit: [x.shape_expr.numel(), limit],
    )
    def keep(x: trtp.TensorDesc, limit: float) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        n = x.shape_expr[0]
        size = trtp.size_tensor(n // 2, n)
        return trtp.from_shape_expr((size.expr(),), dtype=x.dtype), size

    with TrtRunner(build_plugin(op_of(plugin_id), (-1,), trt.float32, limit=0.25)) as runner:
        for n in (8, 99, 1):
            x = RNG.random(n, np.float32)
            outputs = runner.infer({"x": x})
            np.testing.assert_array_equal(np.sort(outputs["y0"]), np.sort(x[x > np.float32(0.25)]))
            assert outputs["y1"] == (x > 0.25).sum()


# The program


def polygraphy(folder, *arguments):
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    program = shutil.which("polygraphy", path=os.pathsep.join(folders))
    if program is None:
        pytest.skip("the program polygraphy is neither beside this interpreter nor in PATH")
    command = [sys.executable, "-m", "opwright.trt", program, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_run_as_a_program(tmp_path):
    (tmp_path / "net.onnx").write_bytes(model())
    shapes = [f"{name}:[4,6]" for name in ("x", "y")]
    done = polygraphy(
        tmp_path,
        "run",
        "net.onnx",
        "--trt",
        "--onnxrt",
        "--trt-min-shapes",
        *shapes,
        "--trt-opt-shapes",
        *shapes,
        "--trt-max-shapes",
        *shapes,
        "--input-shapes",
        *shapes,
        "--save-engine",
        "net.engine",
    )
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr
    again = ["--model-type=engine", "--input-shapes", *shapes]
    done = polygraphy(tmp_path, "run", "net.engine", "--trt", *again)
    assert done.returncode == 0, done.stdout + done.stderr


NETWORK = """
import tensorrt as trt
import tensorrt.plugin as trtp
from polygraphy import func
from polygraphy.backend.trt import CreateNetwork

SQUARE = "__device__ void square(const float* x, int64_t n, float* y) {" \\
    " int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }"

@trtp.kernel("script::square", SQUARE, "square", block=64,
             grid=lambda x: trtp.cdiv(x.shape_expr.numel(), 64), extra=lambda x: [x.shape_expr.numel()])
def square(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@func.extend(CreateNetwork())
def load_network(builder, network):
    layer = network.add_plugin(trtp.op.script.square(network.add_input("x", trt.float32, (3, 50))))
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
"""


def test_a_script_with_a_plugin_in_the_program(tmp_path):
    (tmp_path / "network.py").write_text(NETWORK)
    kind = ["--trt", "--model-type=trt-network-script"]
    saved = ["--save-inputs", "x.json", "--save-outputs", "y.json"]
    done = polygraphy(tmp_path, "run", "network.py", *kind, *saved)
    assert done.returncode == 0, done.stdout + done.stderr
    (feed,) = load_json(str(tmp_path / "x.json"))
    ((_, (outputs,)),) = RunResults.load(str(tmp_path / "y.json"))
    np.testing.assert_allclose(outputs["y"], feed["x"] ** 2, rtol=1e-6)


def test_the_runtime_library_is_the_emulated_one():
    """So that nothing above is about another; a real GPU has its own."""
    if not emulated_gpu.RUNTIME_ENVIRONMENT:
        pytest.skip("a real GPU")
    folder = emulated_gpu.RUNTIME_ENVIRONMENT["LD_LIBRARY_PATH"].split(os.pathsep)[0]
    assert os.path.dirname(cuda.wrapper().handle._name) == folder
