"""The ONNX standard's own tests, of the installed onnx package, through `opwright.onnx_backend`."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnx.parser
import pytest
from onnx import TensorProto, helper

import opwright
from opwright import onnx_backend


class Untimed(onnx_backend.OpwrightBackend):
    """What is fastest is of no interest for models of one node.

    The tests run on the CPU, or on the device that OPWRIGHT_ONNX_DEVICE names ("CUDA").
    """

    @classmethod
    def supports_device(cls, device):
        return device == os.environ.get("OPWRIGHT_ONNX_DEVICE", "CPU")

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        return super().prepare(model, device, timing=False, **kwargs)


def refused() -> list[str]:
    """The names of tests in the file; what stands behind '#' are the reasons."""
    text = Path(__file__).with_name("onnx_backend_refused.txt").read_text()
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of NumPy, where the package computes what is expected
    STANDARD = onnx.backend.test.BackendTest(Untimed, __name__)

# These download models.
STANDARD.exclude(r"test_(bvlc|densenet|inception|resnet50|shufflenet|squeezenet|vgg19|zfnet).*")
for name in refused():
    # One that passes is a failure, so that the list stays true.
    STANDARD.xfail(rf"^{name}_(cpu|cuda)$")

globals().update(STANDARD.test_cases)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)


def test_an_input_that_an_operator_needs_becomes_a_constant():
    model = parse("g (float[2, 3] x, int64[n] axes) => (float[r] y) { y = ReduceSum(x, axes) }")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    rep = onnx_backend.prepare(model, timing=False)
    np.testing.assert_array_equal(rep.run([x, np.array([0])]).y, x.sum(0, keepdims=True))
    # Another value is another engine.
    np.testing.assert_array_equal(rep.run([x, np.array([1])]).y, x.sum(1, keepdims=True))
    np.testing.assert_array_equal(
        rep.run({"axes": np.array([0, 1]), "x": x}).y, x.sum((0, 1), keepdims=True)
    )


def test_new_shapes_build_new_engines():
    model = parse("g (float[n, m] x) => (float[n, m] y) { y = Relu(x) }")
    rep = onnx_backend.prepare(model, timing=False)
    for shape in ((2, 3), (5, 1), (0, 4)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(rep.run(x).y, np.maximum(x, 0))


def test_double_comes_back_as_double():
    model = parse("g (double[3] x) => (double[3] y) { y = Exp(x) }")
    x = np.array([0.0, 1.0, -1.0])
    y = onnx_backend.run_model(model, [x], timing=False).y
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_sequences_in_and_out():
    model = parse(
        "g (seq(float[n]) x, int64 at) => (seq(float[n]) y) "
        "{ first = SequenceAt(x, at) y = SequenceInsert(x, first) }"
    )
    parts = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    y = onnx_backend.run_model(model, [parts, np.array(0)], timing=False).y
    assert [part.tolist() for part in y] == [[1, 1], [0, 0, 0], [1, 1]]


def test_nodes_of_an_older_opset():
    node = helper.make_node("Squeeze", ["x"], ["y"], axes=[0])
    x = np.ones((1, 3), np.float32)
    assert onnx_backend.run_node(node, [x], opset_version=11, timing=False).y.shape == (3,)


def test_what_cannot_be_built_is_an_error():
    node = helper.make_node("StringNormalizer", ["x"], ["y"])
    with pytest.raises(opwright.Error, match="StringNormalizer|element type"):
        onnx_backend.run_node(node, [np.ones(3, np.float32)], opset_version=18)


def test_devices():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:99")
    assert not onnx_backend.supports_device("TPU")


def reduction() -> bytes:
    return parse(
        "g (float[a, b] x, int64[1] axes) => (float[r] y) { y = ReduceSum(x, axes) }"
    ).SerializeToString()


def wider() -> bytes:
    return parse(
        "g (float[a, b] x, int64[1] axes) => (float[r] y) { y = Unsqueeze(x, axes) }"
    ).SerializeToString()


def parsed(data: bytes, **shapes):
    logger = opwright.Logger(opwright.Logger.INTERNAL_ERROR)
    network = opwright.Builder(logger).create_network()
    parser = opwright.OnnxParser(network, logger)
    for name, shape in shapes.items():
        parser.set_input_shape(name, shape)
    return network, parser, parser.parse(data)


def test_errors_name_the_inputs_that_have_to_be_constant():
    _network, parser, ok = parsed(wider())
    assert not ok
    error = parser.get_error(0)
    assert error.needed_constants() == ["axes"]
    assert "set_constant_input" in error.desc() and "'axes'" in error.desc()
    with pytest.raises(opwright.Error, match=r'constants=\{"axes": array\}') as raised:
        opwright.build(wider(), shapes={"x": (2, 3)}, device="cpu")
    assert "set_constant_input" not in str(raised.value)
    assert "set_input_shape" not in str(raised.value)


def test_constants_take_the_place_of_inputs():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    engine = opwright.build(
        reduction(), shapes={"x": (2, 3)}, constants={"axes": np.array([1])}, timing=False
    )
    assert engine.inputs == ["x"]
    np.testing.assert_array_equal(engine(x=x), x.sum(1, keepdims=True))


@pytest.mark.parametrize("wrong", [np.array([1.0], np.float32), np.array([0, 1])])
def test_constants_that_do_not_fit(wrong):
    with pytest.raises(opwright.Error, match="input 'axes' is INT64 of shape 1; the constant"):
        opwright.build(reduction(), shapes={"x": (2, 3)}, constants={"axes": wrong}, timing=False)


def test_fixed_shapes_reach_inputs_with_the_same_names():
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Squeeze", ["c"], ["d"])],
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", 3]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n", 1]),
        ],
        [helper.make_tensor_value_info("d", TensorProto.FLOAT, None)],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    data.ir_version = 8
    network, _parser, ok = parsed(data.SerializeToString(), a=(1, 3))
    assert ok
    assert tuple(network.get_input(1).shape) == (1, 1)
    assert tuple(network.get_output(0).shape) == (3,)


@pytest.mark.parametrize("shape", [(2,), (2, 3, 4)])
def test_shapes_of_another_rank_are_refused(shape):
    _network, parser, ok = parsed(reduction(), x=shape)
    assert not ok
    assert "input 'x' has rank 2" in parser.get_error(0).desc()


def test_shapes_that_contradict_the_model_are_refused():
    data = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }").SerializeToString()
    _network, parser, ok = parsed(data, x=(5,))
    assert not ok
    assert "has extent 4 on axis 0 in the model, but 5" in parser.get_error(0).desc()
