"""Convolutions by cuDNN on an emulated GPU: the library of tests/emulation in place of NVIDIA's."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import cuda_driver
import emulated_gpu
import opwright as trt
from library_engines import CUDNN as FIRST_TACTIC
from library_engines import Listener, favour, tactics

pytestmark = emulated_gpu.emulated_only

LIBRARY = emulated_gpu._find("libcudnn.so.*")
TYPES = {
    "float32": (np.float32, 1e-4),
    "float16": (np.float16, 3e-2),
    "bfloat16": (ml_dtypes.bfloat16, 2e-1),
}
CUDNN = 1 << int(trt.TacticSource.CUDNN)
RANDOM = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def library(monkeypatch):
    if LIBRARY is None:
        pytest.skip("tests/emulation has no cuDNN")
    monkeypatch.setenv("OPWRIGHT_CUDNN", str(LIBRARY))


def values(*shape: int, dtype=np.float32) -> np.ndarray:
    return RANDOM.uniform(-1, 1, shape).astype(dtype)


def convolution(
    x=(2, 6, 9, 8),
    kernel=(4, 6, 3, 3),
    dtype="float32",
    bias=True,
    residual=False,
    after=None,
    **attributes,
) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A model of `x`, and `r` where it has a residual; with the shape of its result."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[dtype][0]))
    constants = [numpy_helper.from_array(values(*kernel, dtype=TYPES[dtype][0]), "w")]
    if bias:
        constants.append(numpy_helper.from_array(values(kernel[0], dtype=TYPES[dtype][0]), "b"))
    names = ["x", "w", "b"] if bias else ["x", "w"]
    nodes = [helper.make_node("Conv", names, ["t0"], **attributes)]
    inputs = [helper.make_tensor_value_info("x", element, x)]
    result = "t0"
    if residual:
        nodes.append(helper.make_node("Add", [result, "r"], ["t1"]))
        inputs.append(helper.make_tensor_value_info("r", element, None))
        result = "t1"
    if after:
        nodes.append(helper.make_node(after, [result], ["t2"]))
        result = "t2"
    graph = helper.make_graph(
        nodes,
        "convolution",
        inputs,
        [helper.make_tensor_value_info(result, element, None)],
        constants,
    )
    opset = [helper.make_opsetid("", 22)]
    made = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opset, ir_version=10), data_prop=True
    )
    shape: tuple[int, ...] = ()
    for value in [*made.graph.value_info, *made.graph.output]:
        if value.name == "t0":
            shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
    if residual:
        del inputs[1]
        inputs.append(helper.make_tensor_value_info("r", element, shape))
        graph = helper.make_graph(
            nodes,
            "convolution",
            inputs,
            [helper.make_tensor_value_info(result, element, None)],
            constants,
        )
        made = helper.make_model(graph, opset_imports=opset, ir_version=10)
    return made, shape


def built(model: onnx.ModelProto, ranges=None, only=True):
    """An engine of the model, by the library where it can be."""
    listener = Listener()
    builder = trt.Builder(listener)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, listener)
    assert parser.parse(model.SerializeToString()), listener.messages
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    assert config.set_tactic_sources(CUDNN)
    if ranges is not None:
        profile = builder.create_optimization_profile()
        for name, shapes in ranges.items():
            profile.set_shape(name, *shapes)
        config.add_optimization_profile(profile)
    if only:  # times that make the library's the fastest
        favour(builder, network, config, FIRST_TACTIC)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None, listener.messages
    return trt.Engine(engine), listener


def check(engine, model, limit, **feeds) -> None:
    wide = {name: array.astype(np.float32) for name, array in feeds.items()}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
        )
    for value in [*copy.graph.input, *copy.graph.output]:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    expected = ReferenceEvaluator(copy).run(None, wide)[0]
    result = np.asarray(engine(**feeds)).astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=limit, atol=limit)


CASES = {
    "plain": {},
    "no bias": {"bias": False},
    "strides and padding": {"strides": [2, 1], "pads": [1, 0, 2, 1]},
    "dilations": {"dilations": [2, 1], "pads": [2, 1, 2, 1]},
    "groups": {"kernel": (4, 3, 3, 3), "group": 2},
    "depthwise": {"kernel": (6, 1, 3, 3), "group": 6},
    "pointwise": {"kernel": (4, 6, 1, 1)},
    "same": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    "one axis": {"x": (2, 6, 11), "kernel": (4, 6, 3), "pads": [1, 1]},
    "three axes": {"x": (1, 3, 5, 6, 4), "kernel": (4, 3, 3, 2, 3), "pads": [1] * 6},
    "residual": {"residual": True, "pads": [1] * 4},
    "residual and ReLU": {"residual": True, "after": "Relu", "pads": [1] * 4},
    "sigmoid": {"after": "Sigmoid"},
    "tanh": {"after": "Tanh", "bias": False},
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_convolutions(case, dtype, tmp_path):
    model, shape = convolution(dtype=dtype, **CASES[case])
    engine, listener = built(model)
    assert tactics(engine)[0].startswith("cuDNN 9.19.0"), (engine.layers, listener.messages)
    assert len(tactics(engine)) == 1, engine.layers
    assert engine.engine.tactic_sources == CUDNN
    engine.save(tmp_path / "convolution.engine")
    loaded = trt.load(tmp_path / "convolution.engine", allow_device_code=True)
    element = TYPES[dtype][0]
    for each in (engine, engine, engine, engine, loaded):  # the last ones from a graph
        x = CASES[case].get("x", (2, 6, 9, 8))
        feeds = {"x": values(*x, dtype=element)}
        if CASES[case].get("residual"):
            feeds["r"] = values(*shape, dtype=element)
        check(each, model, TYPES[dtype][1], **feeds)


def test_shapes_that_are_open():
    model, _ = convolution(x=("n", 6, "h", 8), after="Relu")
    ranges = {"x": ((1, 6, 4, 8), (2, 6, 9, 8), (4, 6, 20, 8))}
    engine, _ = built(model, ranges)
    assert tactics(engine)[0].startswith("cuDNN"), engine.layers
    for images, height in ((2, 9), (1, 4), (4, 20), (3, 7)):
        check(engine, model, 1e-4, x=values(images, 6, height, 8))


def test_addresses_that_are_not_aligned_are_an_error():
    model, shape = convolution()
    engine, _ = built(model)
    context = engine.engine.create_execution_context()
    names = [engine.engine.get_tensor_name(i) for i in range(engine.engine.num_io_tensors)]
    storage = {name: cuda_driver.DeviceArray(np.zeros(2000, np.float32)) for name in names}
    for name in names:
        assert context.set_tensor_address(name, storage[name].ptr + 4)
    with pytest.raises(trt.Error, match="addresses that are multiples of 16 bytes"):
        context.execute_async_v3(0)
    for name in names:
        assert context.set_tensor_address(name, storage[name].ptr)
    assert context.execute_async_v3(0)


def test_off_by_default_and_for_other_layers():
    model, _ = convolution()
    engine = trt.build(model.SerializeToString(), device="cuda")
    assert engine.engine.tactic_sources == 0
    assert "cuDNN" not in str(engine.layers)
    # What is fused as a program is for the engine's own kernels.
    model, _ = convolution(after="Softsign")
    engine, _ = built(model, only=False)
    assert "cuDNN" not in str(tactics(engine))


def test_a_shape_where_it_fails_leaves_it_out_with_the_reason():
    model, _ = convolution(kernel=(13, 6, 3, 3))
    engine, listener = built(model, only=False)
    assert not tactics(engine)[0].startswith("cuDNN")
    text = "\n".join(listener.messages)
    assert "is left out" in text and "failed with status 3000 (not supported)" in text, text


def test_engines_that_give_other_bits_each_time_are_left_out():
    script = """
import test_gpu_cudnn as tests
engine, listener = tests.built(tests.convolution()[0], only=False)
print(tests.tactics(engine)[0].startswith("cuDNN"))
print("\\n".join(listener.messages))
"""
    done = emulated_gpu.run_program(
        script, OPWRIGHT_CUDNN=str(LIBRARY), OPWRIGHT_EMULATED_CUDNN_ENGINES="1"
    )
    assert done.stdout.startswith("False\n"), done.stderr
    assert "has 0 engines for it that give the same bits in every run" in done.stdout, done.stdout


ENGINE = """
from pathlib import Path
import opwright as trt
try:
    engine = trt.load(Path({path!r}), allow_device_code=True)
    print("loaded", engine.engine.tactic_sources)
except trt.Error as error:
    print(error)
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cudnn") / "convolution.engine"
    before = os.environ.get("OPWRIGHT_CUDNN")
    os.environ["OPWRIGHT_CUDNN"] = str(LIBRARY)
    try:
        built(convolution()[0])[0].save(path)
    finally:
        if before is None:
            del os.environ["OPWRIGHT_CUDNN"]
    return path


def load(path: Path, **environment: str) -> str:
    return emulated_gpu.run_program(ENGINE.format(path=str(path)), **environment).stdout


def test_engines_say_what_they_need(stored):
    assert load(stored) == f"loaded {CUDNN}\n"
    other = load(stored, OPWRIGHT_EMULATED_CUDNN_VERSION="91002")
    assert "needs cuDNN 9.19.0" in other and "the one here is 9.10.2" in other, other
    assert "OPWRIGHT_CUDNN" in other and "without TacticSource.CUDNN" in other
    missing = load(stored, OPWRIGHT_CUDNN="/nowhere/libcudnn.so.9")
    assert "needs cuDNN 9.19.0" in missing and "cannot be loaded" in missing, missing
    assert "pip install nvidia-cudnn" in missing
    old = load(stored, OPWRIGHT_EMULATED_CUDNN_VERSION="8907")
    assert "needs cuDNN 9.19.0" in old and "expected 9.0.0 or newer" in old, old


def test_where_it_is_missing_a_build_goes_on_without_it():
    script = """
import test_gpu_cudnn as tests
engine, listener = tests.built(tests.convolution()[0], only=False)
print(tests.tactics(engine)[0].startswith("cuDNN"))
print(engine.engine.create_engine_inspector().get_engine_information(
    tests.trt.LayerInformationFormat.JSON))
"""
    done = emulated_gpu.run_program(script, OPWRIGHT_CUDNN="/nowhere/libcudnn.so.9")
    assert done.stdout.startswith("False\n"), done.stderr
    assert "cuDNN cannot be loaded" in done.stdout, done.stdout
