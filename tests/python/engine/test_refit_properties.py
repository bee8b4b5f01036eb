"""Random small networks: refitted with other weights they are what a fresh build makes of these."""

from __future__ import annotations

import numpy as np
import onnxruntime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import opwright as trt
from test_refit import build, refit, run

bounded = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
CHANNELS = 4


class Graph:
    """Nodes after each other, with weights that a seed fills."""

    def __init__(self):
        self.nodes, self.shapes = [], {}
        self.last = "x"

    def weight(self, *shape):
        name = f"w{len(self.shapes)}"
        self.shapes[name] = shape
        return name

    def add(self, op, *inputs, **attributes):
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def then(self, op, *more, **attributes):
        self.last = self.add(op, self.last, *more, **attributes)

    def model(self, seed):
        rng = np.random.default_rng(seed)
        initializers = [
            numpy_helper.from_array(
                np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1]), np.float32)
                if name not in self.positive
                else np.asarray(rng.uniform(0.5, 1.5, shape), np.float32),
                name,
            )
            for name, shape in self.shapes.items()
        ]
        shape = [1, CHANNELS, 5, 5]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)],
            initializers,
        )
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])

    positive: frozenset = frozenset()


def convolution(graph, draw):
    group = draw(st.sampled_from([1, 2]))
    bias = [graph.weight(CHANNELS)] if draw(st.booleans()) else []
    kernel = graph.weight(CHANNELS, CHANNELS // group, 3, 3)
    graph.then("Conv", kernel, *bias, group=group, pads=[1, 1, 1, 1])


def deconvolution(graph, draw):
    group = draw(st.sampled_from([1, 2]))
    kernel = graph.weight(CHANNELS, CHANNELS // group, 3, 3)
    graph.then("ConvTranspose", kernel, group=group, pads=[1, 1, 1, 1])


def normalization(graph, draw):
    parameters = [graph.weight(CHANNELS) for _ in range(4)]
    graph.positive |= {parameters[3]}
    graph.then("BatchNormalization", *parameters)


def arithmetic(graph, draw):
    shape = draw(st.sampled_from([(), (1,), (CHANNELS, 1, 1), (1, CHANNELS, 1, 1), (5,)]))
    graph.then(draw(st.sampled_from(["Mul", "Add", "Sub", "Div"])), graph.weight(*shape))


def computed(graph, draw):
    """A factor that is folded out of two weights, one of them transposed and cast."""
    a = graph.add("Transpose", graph.weight(1, CHANNELS), perm=[1, 0])
    b = graph.add(draw(st.sampled_from(["Exp", "Neg", "Abs"])), graph.weight(CHANNELS, 1))
    c = graph.add("Mul", a, b)
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [CHANNELS, 1, 1])
    graph.nodes.append(helper.make_node("Constant", [], [f"s{len(graph.nodes)}"], value=shape))
    graph.then("Mul", graph.add("Reshape", c, graph.nodes[-1].output[0]))


def product(graph, draw):
    graph.then("MatMul", graph.weight(5, 5))


def activation(graph, draw):
    graph.then(draw(st.sampled_from(["Relu", "Sigmoid", "Tanh"])))


PARTS = [
    convolution, deconvolution, normalization, arithmetic, computed, product, activation,
]  # fmt: skip


@st.composite
def graphs(draw):
    graph = Graph()
    for part in draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6)):
        part(graph, draw)
    if not graph.shapes:
        convolution(graph, draw)
    return graph


@bounded
@given(graph=graphs(), stripped=st.booleans())
def test_a_refitted_engine_is_that_of_a_fresh_build(graph, stripped):
    first, second = graph.model(1), graph.model(2)
    x = {"x": np.random.default_rng(0).standard_normal((1, CHANNELS, 5, 5)).astype(np.float32)}
    flags = [trt.BuilderFlag.REFIT, *([trt.BuilderFlag.STRIP_PLAN] if stripped else [])]
    engine = build(first, *flags)
    refit(engine, second)
    result = run(engine, x)
    fresh = build(second, trt.BuilderFlag.REFIT)
    np.testing.assert_array_equal(result, run(fresh, x))
    (expected,) = onnxruntime.InferenceSession(second.SerializeToString()).run(None, x)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(result / scale, expected / scale, rtol=1e-4, atol=1e-4)
