"""Engines as objects: what they show, their tensors, copies, pickles, and what they give up."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import onnx.parser
import pytest

import opwright

MODEL = onnx.parser.parse_model("""
    <ir_version: 9, opset_import: ["": 19]>
    net (float[n, 8] x, int64[2] size) => (float[n, 8] y, float[a, b] z)
    { y = Relu(x)  z = Reshape(x, size) }""")
X = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
SIZE = np.array([8, 4])


@pytest.fixture(scope="module")
def engine() -> opwright.Engine:
    return opwright.build(
        MODEL,
        shapes={"x": ((1, 8), (4, 8), (16, 8))},
        values={"size": ([1, 1], [8, 4], [64, 64])},
        timing=False,
        device="cpu",
    )


def results_of(engine: opwright.Engine) -> dict[str, np.ndarray]:
    return engine(X, SIZE)


def test_inputs_and_outputs_are_described(engine):
    x, size = engine.inputs["x"], engine.inputs["size"]
    assert (x.name, x.dtype, x.shape) == ("x", opwright.float32, (-1, 8))
    assert x.is_dynamic and x.dimension_names[0] == "n"
    assert x.range == ((1, 8), (4, 8), (16, 8)) and x.values is None
    assert size.values == ((1, 1), (8, 4), (64, 64)) and not size.is_dynamic
    y = engine.outputs["y"]
    assert (y.dtype, y.shape, y.range) == (opwright.float32, (-1, 8), None)


def test_inputs_are_a_mapping_of_names(engine):
    assert list(engine.inputs) == ["x", "size"] and engine.inputs == ["x", "size"]
    assert engine.inputs[0] == "x" and engine.outputs[-1] == "z"
    assert engine.outputs[1:] == ["z"]
    assert "x" in engine.inputs and len(engine.outputs) == 2
    assert [tensor.name for tensor in engine.inputs.values()] == ["x", "size"]
    with pytest.raises(KeyError, match="no input 'y'; it has"):
        engine.inputs["y"]


def test_representations_tell_what_things_are(engine):
    shown = repr(engine)
    assert repr(engine.inputs) == "<inputs x: FP32 (n, 8), size: INT64 (2,)>"
    for part in (
        "Engine 'net' on cpu",
        "x: FP32 (n, 8)",
        "size: INT64 (2,)",
        "y: FP32 (n, 8)",
        "steps",
        "of weights",
        "working memory",
    ):
        assert part in shown
    assert repr(engine.engine).startswith("<ICudaEngine 'net' on cpu: x: FP32 (n, 8)")
    context = engine.engine.create_execution_context()
    context.set_input_shape("x", (3, 8))
    assert "profile 0: x: FP32 (3, 8), size: INT64 (2,) -> y: FP32 (" in repr(context)
    builder = opwright.Builder(opwright.Logger(opwright.Logger.ERROR))
    network = builder.create_network()
    parser = opwright.OnnxParser(network, builder.logger)
    assert parser.parse(MODEL.SerializeToString())
    shown = repr(network)
    assert shown.startswith(
        "<INetworkDefinition 'net': x: FP32 (n, 8), size: INT64 (2,) -> y: FP32"
    )
    assert shown.endswith(" layers>")
    config = builder.create_builder_config()
    config.default_device_type = opwright.DeviceType.CPU
    config.set_flag(opwright.BuilderFlag.FP16)
    assert repr(config).startswith("<IBuilderConfig for cpu: 0 optimization profiles, FP16")


def test_a_notebook_shows_the_view_in_a_page_of_its_own(engine):
    html = engine._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "sandbox" in html
    assert "<style" not in html  # it is escaped within the page


def test_a_pickle_is_the_engine(engine):
    again = pickle.loads(pickle.dumps(engine))
    for name, array in results_of(engine).items():
        np.testing.assert_array_equal(results_of(again)[name], array)


def test_a_pickle_of_a_plugin_in_python_runs_elsewhere(tmp_path):
    (tmp_path / "my_ops.py").write_text(
        "import numpy as np\nimport opwright.plugin as trtp\n"
        '@trtp.register("pickled::twice")\n'
        "def twice_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:\n    return x.like()\n"
        '@trtp.impl("pickled::twice")\n'
        "def twice(x, outputs, stream):\n    np.copyto(np.asarray(outputs[0]), 2 * np.asarray(x))\n"
    )
    (tmp_path / "make.py").write_text(
        "import pickle, onnx.parser, opwright, my_ops\n"
        'model = onnx.parser.parse_model(\'\'\'<ir_version: 9, opset_import: ["": 19, "pickled": 1]>\n'
        "g (float[3] x) => (float[3] y) { y = pickled.twice(x) }''')\n"
        "engine = opwright.build(model, timing=False, embed_python_plugins=True)\n"
        "open('engine.pickle', 'wb').write(pickle.dumps(engine))\n"
    )
    run = {"cwd": tmp_path, "check": True, "timeout": 120}
    subprocess.run([sys.executable, "make.py"], **run)
    code = "import pickle; e = pickle.load(open('engine.pickle', 'rb')); assert (e([1, 2, 3]) == [2, 4, 6]).all()"
    subprocess.run([sys.executable, "-c", code], **run)


def test_copies(engine):
    shallow, deep = copy.copy(engine), copy.deepcopy(engine)
    assert shallow.engine is engine.engine and deep.engine is not engine.engine
    for other in (shallow, deep):
        np.testing.assert_array_equal(results_of(other)["y"], np.maximum(X, 0))


def test_with_gives_the_engine_up(engine):
    with copy.copy(engine) as used:
        future = used.submit(X, SIZE)
        assert not used.closed
    assert used.closed and repr(used) == "<Engine, closed>" and used._repr_html_() is None
    np.testing.assert_array_equal(future.result()["y"], np.maximum(X, 0))
    for use in (
        lambda: used(X, SIZE),
        lambda: used.inputs,
        lambda: used.save("x"),
        lambda: used.engine,
    ):
        with pytest.raises(opwright.Error, match="the engine is closed"):
            use()
    used.close()
    results_of(engine)  # others are not concerned


def test_jax_arrays_come_back_as_jax_arrays(engine):
    jax = pytest.importorskip("jax")
    results = engine(jax.numpy.asarray(X), SIZE)
    assert all(isinstance(array, jax.Array) for array in results.values())
    np.testing.assert_array_equal(np.asarray(results["y"]), np.maximum(X, 0))
