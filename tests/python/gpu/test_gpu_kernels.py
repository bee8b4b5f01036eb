"""Element-wise layers, casts and reductions on a GPU: random networks against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import opwright as trt

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": np.add,
    "SUB": np.subtract,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "ABS": np.abs,
    "NEG": np.negative,
    "SIN": np.sin,
    "ATAN": np.arctan,
    "FLOOR": np.floor,
}
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "RELU": lambda x: np.maximum(x, 0),
    "TANH": np.tanh,
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
}
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "SUM": np.sum,
    "MAX": np.max,
    "MIN": np.min,
    "AVG": np.mean,
}

Step = Callable[[list[np.ndarray]], np.ndarray]


class RandomNetwork:
    """A network of random layers, and the same in NumPy: each value is a step over those before it."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.network = trt.Builder(trt.Logger()).create_network()
        self.tensors: list[Any] = []
        self.steps: list[Step] = []
        # (n, 5, m) and what is broadcast to it.
        self.patterns = [(-1, 5, -1), (5, 1), (-1, 1, -1), (1, 5, -1)]
        for i, dims in enumerate(self.patterns):
            self.tensors.append(self.network.add_input(f"x{i}", trt.float32, dims))

    def inputs(self, n: int, m: int) -> list[np.ndarray]:
        open_extents = {0: n, 2: m}
        shapes = [
            tuple(open_extents[k + 3 - len(dims)] if d < 0 else d for k, d in enumerate(dims))
            for dims in self.patterns
        ]
        return [self.random.normal(size=shape).astype(np.float32) for shape in shapes]

    def choose(self, names: dict[str, Any]) -> str:
        return str(self.random.choice(sorted(names)))

    def any_tensor(self) -> int:
        return int(self.random.integers(len(self.tensors)))

    def add(self, layer: Any, step: Step) -> None:
        self.tensors.append(layer.get_output(0))
        self.steps.append(step)

    def add_random_layer(self) -> None:
        a, b = self.any_tensor(), self.any_tensor()
        x, y = self.tensors[a], self.tensors[b]
        kind = self.random.integers(6)
        if kind == 0:
            name = self.choose(UNARY)
            layer = self.network.add_unary(x, trt.UnaryOperation[name])
            self.add(layer, lambda v: UNARY[name](v[a]))
        elif kind == 1:
            name = self.choose(ACTIVATIONS)
            layer = self.network.add_activation(x, trt.ActivationType[name])
            self.add(layer, lambda v: ACTIVATIONS[name](v[a]))
        elif kind == 2:
            name = self.choose(REDUCTIONS)
            rank = len(x.shape)
            axes = tuple(k for k in range(rank) if self.random.integers(2)) or (rank - 1,)
            mask = sum(1 << k for k in axes)
            layer = self.network.add_reduce(x, trt.ReduceOperation[name], mask, True)
            self.add(layer, lambda v: REDUCTIONS[name](v[a], axis=axes, keepdims=True))
        elif kind == 3:
            less = self.network.add_elementwise(x, y, trt.ElementWiseOperation.LESS).get_output(0)
            layer = self.network.add_select(less, y, x)
            self.add(layer, lambda v: np.where(v[a] < v[b], v[b], v[a]))
        elif kind == 4:
            rounded = self.network.add_cast(x, trt.int32).get_output(0)
            layer = self.network.add_cast(rounded, trt.float32)
            self.add(layer, lambda v: np.trunc(v[a]))
        else:
            name = self.choose(BINARY)
            layer = self.network.add_elementwise(x, y, trt.ElementWiseOperation[name])
            self.add(layer, lambda v: BINARY[name](v[a], v[b]))

    def evaluate(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        values = [x.astype(np.float64) for x in inputs]
        for step in self.steps:
            values.append(np.asarray(step(values)))
        return values


@pytest.mark.parametrize("seed", range(6))
def test_random_networks_agree_with_numpy(seed: int) -> None:
    made = RandomNetwork(seed)
    for _ in range(9):
        made.add_random_layer()
    outputs = [len(made.tensors) - 1, len(made.tensors) - 4]
    for index in outputs:
        made.network.mark_output(made.tensors[index])
    shapes = {
        f"x{i}": tuple(tuple(e if d < 0 else d for d in dims) for e in (1, 8, 70))
        for i, dims in enumerate(made.patterns)
        if -1 in dims
    }
    engine = trt.build(made.network, shapes=shapes, device=trt.DeviceType.GPU, timing=seed < 1)
    for n, m in [(3, 8), (1, 1), (2, 67), (1, 33)]:
        inputs = made.inputs(n, m)
        values = made.evaluate(inputs)
        results = engine(**{f"x{i}": x for i, x in enumerate(inputs)})
        for index in outputs:
            result = results[made.tensors[index].name]
            assert isinstance(result, np.ndarray)
            assert result.shape == values[index].shape
            np.testing.assert_allclose(result, values[index], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("dtype", [trt.float16, trt.bfloat16, trt.int8, trt.int64])
def test_types_other_than_float(dtype: Any) -> None:
    """sum over rows of max(x, y) + 2, in the network's own type."""
    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (-1, 24))
    y = network.add_input("y", trt.float32, (24,))
    a, b = (network.add_cast(t, dtype).get_output(0) for t in (x, y))
    largest = network.add_elementwise(a, b, trt.ElementWiseOperation.MAX).get_output(0)
    total = network.add_reduce(largest, trt.ReduceOperation.SUM, 2, False).get_output(0)
    network.mark_output(network.add_cast(total, trt.float32).get_output(0))
    shapes = {"x": ((1, 24), (4, 24), (50, 24))}
    engine = trt.build(network, shapes=shapes, device=trt.DeviceType.GPU, timing=False)
    rng = np.random.default_rng(1)
    for rows in (1, 7, 50):
        # Small whole numbers, which every type holds, and their sums as well.
        given = rng.integers(-3, 4, (rows, 24)).astype(np.float32)
        other = rng.integers(-3, 4, 24).astype(np.float32)
        wanted = np.maximum(given, other).sum(1)
        np.testing.assert_array_equal(engine(x=given, y=other), wanted)
