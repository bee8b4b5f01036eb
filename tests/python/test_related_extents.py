"""Open extents of inputs that the model, a profile or the exported program relates, against NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import opwright as trt

RNG = np.random.default_rng(0)
HEADER = '<ir_version: 9, opset_import: ["" : 19]>'


def model(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f"{HEADER} {text}")
    made.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    return made


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def close(got, want) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def reshaped():
    """A sum whose rows a Reshape takes from one of its operands."""
    w = array(12, 5)
    text = """net (float[n, s, 12] a, float[m, t, 12] b) => (float[u, v, 5] y) {
      sum = Add (a, b)
      first = Shape <start = 0, end = 1> (b)
      second = Shape <start = 1, end = 2> (b)
      rest = Constant <value_ints = [-1]> ()
      shape = Concat <axis = 0> (first, second, rest)
      rows = Reshape (sum, shape)
      y = MatMul (rows, w)
    }"""
    ranges = {name: ((1, 1, 12), (8, 16, 12), (16, 128, 12)) for name in "ab"}
    return trt.build(model(text, w=w), shapes=ranges, timing=False), w


@pytest.mark.parametrize("rows", [(8, 128), (1, 1), (16, 7)])
@pytest.mark.parametrize("of_a", ["same", "one"])
def test_a_reshape_by_the_extents_of_an_operand(reshaped, rows, of_a):
    engine, w = reshaped
    a, b = array(*(rows if of_a == "same" else (1, rows[1])), 12), array(*rows, 12)
    close(engine(a=a, b=b), (a + b) @ w)


@pytest.mark.parametrize(("a", "b"), [((8, 4), (3, 4)), ((8, 4), (1, 4)), ((2, 4), (2, 3))])
def test_a_reshape_by_extents_that_the_sum_has_not(reshaped, a, b):
    with pytest.raises(trt.Error):
        reshaped[0](a=array(*a, 12), b=array(*b, 12))


def test_operands_of_a_sum_may_be_1_where_nothing_excludes_it():
    text = "net (float[n, 4] a, float[m, 4] b) => (float[k, 4] y) { y = Add (a, b) }"
    engine = trt.build(
        model(text), shapes={name: ((1, 4), (4, 4), (8, 4)) for name in "ab"}, timing=False
    )
    for n, m in ((8, 8), (1, 8), (8, 1)):
        a, b = array(n, 4), array(m, 4)
        close(engine(a=a, b=b), a + b)
    for n, m in ((8, 3), (3, 8)):  # a kernel would read past the smaller one
        with pytest.raises(trt.Error):
            engine(a=array(n, 4), b=array(m, 4))


JOINS = {
    "joined": ("y = Concat <axis = 1> (a, b)", lambda a, b: np.concatenate([a, b], 1), 1),
    "added": ("y = Add (a, b)", lambda a, b: a + b, 2),
    "multiplied": ("c = Transpose <perm = [1, 0]> (a) y = MatMul (c, b)", lambda a, b: a.T @ b, 1),
}


@pytest.mark.parametrize("name", JOINS)
def test_extents_that_have_to_be_equal_are_one(name):
    node, expected, least = JOINS[name]
    text = f"net (float[n, 3] a, float[m, 3] b) => (float[p, q] y) {{ {node} }}"
    ranges = {name: ((least, 3), (4, 3), (9, 3)) for name in "ab"}
    ranges["b"] = ((least, 3), (4, 3), (7, 3))
    engine = trt.build(model(text), shapes=ranges, timing=False)
    for n in (4, least, 7):
        a, b = array(n, 3), array(n, 3)
        close(engine(a=a, b=b), expected(a, b))
    with pytest.raises(
        trt.Error, match="dimension 0 of input 'b' is 3, but dimension 0 of input 'a' is 6"
    ):
        engine(a=array(6, 3), b=array(3, 3))


def test_what_all_profiles_fix_is_constant():
    """A Squeeze without axes needs to know which extents are 1."""
    text = """net (float[n, 3, h, w] x) => (float[3] y) {
      mean = GlobalAveragePool (x)
      y = Squeeze (mean)
    }"""
    engine = trt.build(
        model(text), shapes={"x": ((1, 3, 5, 6), (1, 3, 9, 6), (1, 3, 20, 6))}, timing=False
    )
    x = array(1, 3, 7, 6)
    close(engine(x=x), x[0].mean((1, 2)))


def fixed_network():
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 3, -1))
    y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return builder, network


@pytest.mark.parametrize(("second", "shown"), [(2, (2, 3, -1)), (4, (-1, 3, -1))])
def test_an_engine_tells_what_its_network_leaves_open(second, shown):
    builder, network = fixed_network()
    config = builder.create_builder_config()
    config.timing = False
    for batch in (2, second):
        profile = builder.create_optimization_profile()
        profile.set_shape("x", (batch, 3, 2), (batch, 3, 4), (batch, 3, 8))
        config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
    assert tuple(engine.get_tensor_shape("x")) == (-1, 3, -1)
    assert tuple(engine.get_tensor_shape("y")) == (-1, 3, -1)
    context = engine.create_execution_context()
    assert tuple(context.get_tensor_shape("x")) == (2, 3, -1)
    # Only what is the same in all profiles is constant; each profile knows its own.
    assert tuple(context.get_tensor_shape("y"))[:2] == shown[:2]


def test_two_outputs_of_one_name():
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y, y])
    made = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(trt.Error, match="two outputs of the name 'y'"):
        trt.build(made, timing=False)


def test_an_input_that_is_an_output():
    """An engine has one tensor of a name: the input keeps it, by which a caller gives it."""
    x = array(3)
    engine = trt.build(model("net (float[3] x) => (float[3] x) { }"), timing=False)
    assert engine.inputs == ["x"] and engine.outputs == ["x_output_0"]
    np.testing.assert_array_equal(engine(x=x), x)
    engine = trt.build(model("net (float[3] x) => (float[3] y) { y = Identity (x) }"), timing=False)
    assert engine.outputs == ["y"]
