"""Open extents of inputs that the model, a profile or the exported program relates, against NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import emulated_gpu
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


DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]


@pytest.fixture(scope="module", params=DEVICES)
def broadcasting(request):
    """What broadcasts open extents, each in its own name."""
    text = """net (float[n, 1, k] a, float[m, p, l] b, bool[q, r, s] c) => (float d, float e, float f, float g) {
      d = Sub (a, b)
      e = Where (c, a, b)
      half = Constant <value = float {0.5}> ()
      more = Mul (d, half)
      f = ReduceSum (more, last)
      wide = Shape (b)
      g = Expand (a, wide)
    }"""
    made = model(text, last=np.int64([-1]))
    for output in made.graph.output:
        output.ClearField("type")
    ranges = {
        "a": ((0, 1, 0), (4, 1, 5), (4, 1, 5)),
        "b": ((0, 0, 0), (4, 3, 5), (4, 3, 5)),
        "c": ((0, 0, 0), (4, 3, 5), (4, 3, 5)),
    }
    return trt.build(made, shapes=ranges, timing=False, device=request.param)


def test_open_extents_broadcast_as_those_of_numpy(broadcasting):
    """0 beside 1 is 0, also where nothing but the run knows which of the two each extent is."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        common = [int(rng.choice([0, 1, extent])) for extent in (4, 3, 5)]
        shapes = [[int(rng.choice([1, extent])) for extent in common] for _ in "abc"]
        shapes[0][1] = 1
        a, b = array(*shapes[0]), array(*shapes[1])
        c = rng.integers(0, 2, shapes[2]).astype(bool)
        got = broadcasting(a=a, b=b, c=c)
        close(got["d"], a - b)
        close(got["e"], np.where(c, a, b))
        close(got["f"], ((a - b) * np.float32(0.5)).sum(-1, keepdims=True))
        close(got["g"], a * np.ones_like(b))
    for extents in ((3, 4), (0, 3), (3, 0)):
        n, m = extents
        with pytest.raises(trt.Error):
            broadcasting(a=array(n, 1, 5), b=array(m, 3, 5), c=np.ones((1, 1, 1), bool))


@pytest.mark.parametrize("device", DEVICES)
def test_products_of_stacks_broadcast_0_beside_1(device):
    made = model(
        "net (float[n, 2, 3] a, float[m, 3, 4] b) => (float[k, 2, 4] y) { y = MatMul (a, b) }"
    )
    ranges = {"a": ((0, 2, 3), (3, 2, 3), (5, 2, 3)), "b": ((0, 3, 4), (3, 3, 4), (7, 3, 4))}
    engine = trt.build(made, shapes=ranges, timing=False, device=device)
    for n, m in ((0, 1), (1, 0), (0, 0), (1, 7), (5, 1), (5, 5), (1, 1)):
        a, b = array(n, 2, 3), array(m, 3, 4)
        close(engine(a=a, b=b), a @ b)
    with pytest.raises(trt.Error):
        engine(a=array(0, 2, 3), b=array(3, 3, 4))


@pytest.mark.parametrize("device", DEVICES)
def test_a_maximum_that_a_model_computes_is_no_broadcast(device):
    """The quotient of a maximum and an operand is whatever it is, not 1."""
    text = """net (float[n] a, float[m] b) => (float[u, v] y, float[p, q] z) {
      first = Shape (a)  second = Shape (b)
      most = Max (first, second)
      times = Div (most, second)
      one = Constant <value_ints = [1]> ()
      shape = Concat <axis = 0> (times, second)
      row = Reshape (b, rows)
      y = Expand (row, shape)
      sum = Add (a, b)
      two = Concat <axis = 0> (second, rest)
      z = Reshape (sum, two)
    }"""
    made = model(text, rows=np.int64([1, -1]), rest=np.int64([-1]))
    ranges = {"a": ((1,), (4,), (12,)), "b": ((1,), (4,), (12,))}
    engine = trt.build(made, shapes=ranges, timing=False, device=device)
    for n, m in ((4, 4), (12, 1), (7, 1)):
        a, b = array(n), array(m)
        got = engine(a=a, b=b)
        close(got["y"], np.broadcast_to(b, (max(n, m) // m, m)))
        close(got["z"], (a + b).reshape(m, -1))


CHANNELS = {
    "Conv": ("y = Conv (x, w)", array(6, 10, 3), "axis 1 of input 0"),
    "ConvTranspose": ("y = ConvTranspose (x, w)", array(10, 6, 3), "axis 0 of input 1"),
    "BatchNormalization": (
        "y = BatchNormalization (x, w, w, w, w)",
        array(10) ** 2,
        "axis 1 of input 0",
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CHANNELS)
def test_open_channels_that_weights_decide(name, device):
    node, w, place = CHANNELS[name]
    made = model(f"net (float[2, c, 8] x) => (float[2, p, q] y) {{ {node} }}", w=w)
    fitting = {"x": ((2, 1, 8), (2, 4, 8), (2, 16, 8))}
    engine = trt.build(made, shapes=fitting, timing=False, device=device)
    x = array(2, 10, 8)
    close(engine(x=x), ReferenceEvaluator(made).run(None, {"x": x})[0])
    with pytest.raises(trt.Error, match="input 'x'"):
        engine(x=array(2, 4, 8))
    message = f"{place}, .*extent 1 of network input 'x', which must be 10, .* has 20 to 40"
    with pytest.raises(trt.Error, match=message):
        trt.build(
            made,
            shapes={"x": ((2, 20, 8), (2, 30, 8), (2, 40, 8))},
            timing=False,
            device=device,
        )


def test_inputs_that_share_a_dimension_that_weights_decide():
    made = model(
        "net (float[2, c] x, float[c] z) => (float[2, 6] y) { s = Add (x, z) y = MatMul (s, w) }",
        w=array(10, 6),
    )
    ranges = {"x": ((2, 1), (2, 4), (2, 16)), "z": ((1,), (4,), (16,))}
    engine = trt.build(made, shapes=ranges, timing=False)
    x, z = array(2, 10), array(10)
    close(engine(x=x, z=z), ReferenceEvaluator(made).run(None, {"x": x, "z": z})[0])
    for name in "xz":
        given = {"x": x, "z": z, name: array(*{"x": (2, 4), "z": (4,)}[name])}
        with pytest.raises(trt.Error):
            engine(**given)
