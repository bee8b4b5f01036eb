"""Products of a row with large constant weights on a GPU, which normalize the row and take two matrices at once, beside
a profile of many rows with separate steps: against NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest

import opwright as trt
from cuda_driver import DeviceArray

K, INNER, MANY = 2048, 520, 24
EPSILON = 1e-3


class Model:
    """A strongly typed FP16 network of open length, and its weights."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(3)
        flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.builder = trt.Builder(trt.Logger())
        self.network = self.builder.create_network(flags)
        self.x = self.network.add_input("x", trt.float16, (1, -1, K))
        self.weights: dict[str, np.ndarray] = {}

    def constant(self, name: str, *shape: int, edge: float = 1) -> trt.ITensor:
        array = self.random.uniform(-edge, edge, shape).astype(np.float16)
        self.weights[name] = array.astype(np.float64)
        return self.network.add_constant(shape, array).get_output(0)

    def binary(self, op: str, a, b):
        return self.network.add_elementwise(a, b, trt.ElementWiseOperation[op]).get_output(0)

    def linear(self, x, name: str, columns: int):
        none, transpose = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
        weight = self.constant(name, columns, K, edge=(3 / K) ** 0.5)
        return self.network.add_matrix_multiply(x, none, weight, transpose).get_output(0)

    def normalized(self, x):
        """As PyTorch's models write it."""
        network = self.network
        exact = network.add_cast(x, trt.float32).get_output(0)
        square = self.binary("PROD", exact, exact)
        mean = network.add_reduce(square, trt.ReduceOperation.AVG, 4, True).get_output(0)
        least = network.add_constant((1, 1, 1), np.full((1, 1, 1), EPSILON, np.float32))
        sum_ = self.binary("SUM", mean, least.get_output(0))
        root = network.add_unary(sum_, trt.UnaryOperation.SQRT).get_output(0)
        y = network.add_cast(self.binary("DIV", exact, root), trt.float16).get_output(0)
        return self.binary("PROD", y, self.constant("scale", 1, 1, K))

    def swiglu(self, y):
        gate = self.linear(y, "gate", INNER)
        sigmoid = self.network.add_activation(gate, trt.ActivationType.SIGMOID).get_output(0)
        return self.binary("PROD", self.binary("PROD", gate, sigmoid), self.linear(y, "up", INNER))

    def build(self, *lengths: int) -> trt.ICudaEngine:
        """With a profile for each."""
        config = self.builder.create_builder_config()
        config.default_device_type = trt.DeviceType.GPU
        config.timing = False
        for rows in lengths:
            profile = self.builder.create_optimization_profile()
            profile.set_shape("x", *[(1, rows, K)] * 3)
            config.add_optimization_profile(profile)
        engine = self.builder.build_engine_with_config(self.network, config)
        assert engine is not None
        return engine


def steps(engine: trt.ICudaEngine) -> list[str]:
    """What runs in the first profile."""
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    layers = json.loads(text)["Layers"]
    return [layer if isinstance(layer, str) else layer["Name"] for layer in layers]


def run(engine: trt.ICudaEngine, profile: int, x: np.ndarray, outputs: dict[str, int]):
    context = engine.create_execution_context()
    context.set_optimization_profile_async(profile, 0)
    context.set_input_shape("x", x.shape)
    arrays = {"x": DeviceArray(x)}
    for name, columns in outputs.items():
        arrays[name] = DeviceArray(np.full((*x.shape[:2], columns), np.nan, np.float16))
    for name, array in arrays.items():
        context.set_tensor_address(name, array.ptr)
    assert context.execute_async_v3(0)
    return {name: arrays[name].numpy().astype(np.float64) for name in outputs}


def reference(x: np.ndarray, weights: dict[str, np.ndarray], normalizes: bool):
    x = x.astype(np.float64)
    if normalizes:
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weights["scale"]
    gate, up = x @ weights["gate"].T, x @ weights["up"].T
    return x, gate / (1 + np.exp(-gate)) * up


@pytest.mark.parametrize("normalizes", [False, True])
def test_one_row_takes_one_step(normalizes):
    m = Model()
    y = m.swiglu(m.normalized(m.x) if normalizes else m.x)
    y.name = "y"
    m.network.mark_output(y)
    assert len(steps(m.build(1))) == 1
    engine = m.build(MANY, 1)
    assert len(steps(engine)) == (3 if normalizes else 2), steps(engine)
    for profile, rows in ((0, MANY), (1, 1)):
        x = m.random.uniform(-4, 4, (1, rows, K)).astype(np.float16)
        expected = reference(x, m.weights, normalizes)[1]
        result = run(engine, profile, x, {"y": INNER})["y"]
        np.testing.assert_allclose(result, expected, rtol=4e-3, atol=4e-3 * np.abs(expected).max())


def test_what_others_read_is_there():
    """A normalization that is an output remains a step."""
    m = Model()
    rows = m.normalized(m.x)
    y = m.swiglu(rows)
    for name, tensor in (("rows", rows), ("y", y)):
        tensor.name = name
        m.network.mark_output(tensor)
    engine = m.build(1)
    assert len(steps(engine)) == 2, steps(engine)
    x = m.random.uniform(-4, 4, (1, 1, K)).astype(np.float16)
    result = run(engine, 0, x, {"rows": K, "y": INNER})
    for name, expected in zip(("rows", "y"), reference(x, m.weights, True)):
        limit = 4e-3 * np.abs(expected).max()
        np.testing.assert_allclose(result[name], expected, rtol=4e-3, atol=limit)
