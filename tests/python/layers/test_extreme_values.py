"""NaN, infinities, zeros with a sign and bounds that are none, on both devices, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import emulated_gpu
import opwright

nan, inf = np.nan, np.inf
TYPES = {
    "float32": (np.float32, TensorProto.FLOAT),
    "float16": (np.float16, TensorProto.FLOAT16),
    "bfloat16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
}
DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]
pytestmark = [
    pytest.mark.parametrize("dtype", TYPES),
    pytest.mark.parametrize("device", DEVICES),
]
ROWS = [
    [1, nan, 3, nan],
    [nan, 1, 2, 3],
    [5, 5, nan, 1],
    [inf, -inf, inf, 0],
    [-inf, -inf, -inf, -inf],
    [inf, nan, -inf, inf],
]
LINE = [nan, -inf, -3, -1, -0.0, 0.0, 0.5, 1, 3, inf]


class Case:
    """A model of nodes that all read x, and what they make of it."""

    def __init__(self, x: list, device: str, dtype: str):
        self.type, self.element = TYPES[dtype]
        self.x, self.device = np.array(x, self.type), device
        self.wide = self.x.astype(np.float64)
        self.nodes, self.initializers, self.expected = [], [], []

    def constant(self, values, element=None) -> str:
        name = f"c{len(self.initializers)}"
        values = np.asarray(values)
        self.initializers.append(
            helper.make_tensor(name, element or self.element, values.shape, values.ravel())
        )
        return name

    def add(self, op: str, expected, *inputs: str, **attributes) -> None:
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, ["x", *inputs], [name], **attributes))
        self.expected.append(np.asarray(expected))

    def check(self) -> None:
        inputs = [helper.make_tensor_value_info("x", self.element, self.x.shape)]
        outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in self.nodes]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.initializers)
        model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
        engine = opwright.build(model, device=self.device, timing=False)
        results = engine(self.x)
        if len(self.nodes) == 1:
            results = {self.nodes[0].output[0]: results}
        for node, expected in zip(self.nodes, self.expected):
            result = np.asarray(results[node.output[0]])
            kind = f"{node.op_type} {[a.name for a in node.attribute]} {list(node.input)}"
            if expected.dtype.kind == "f":
                result = result.astype(np.float64)
                numbers = ~np.isnan(expected)
                np.testing.assert_array_equal(
                    np.signbit(result[numbers]), np.signbit(expected[numbers]), kind
                )
            np.testing.assert_allclose(result, expected, rtol=1e-2, err_msg=kind)


def test_the_first_nan_is_the_least_and_the_greatest(device, dtype):
    case = Case(ROWS, device, dtype)
    for axis in (0, 1):
        for last in (0, 1):
            for op, arg in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
                x = np.flip(case.wide, axis) if last else case.wide
                place = arg(x, axis)
                place = x.shape[axis] - 1 - place if last else place
                case.add(op, place, axis=axis, keepdims=0, select_last_index=last)
    case.check()


def test_nan_is_beyond_infinity_where_elements_are_sorted(device, dtype):
    case = Case([[1, inf, -inf, nan, 0, -0.0, 1]], device, dtype)
    count = helper.make_tensor("count", TensorProto.INT64, [1], [7])
    case.initializers.append(count)
    case.add("TopK", [[nan, inf, 1, 1, 0, -0.0, -inf]], "count", largest=1)
    case.add("TopK", [[-inf, 0, -0.0, 1, 1, inf, nan]], "count", largest=0)
    for i, node in enumerate(case.nodes):
        node.output.append(f"places{i}")
    case.check()


def test_activations_of_extreme_values(device, dtype):
    case = Case(LINE, device, dtype)
    x = case.wide
    case.add("Sign", np.where(np.isnan(x), x, np.sign(x)))
    case.add("ThresholdedRelu", np.where(x > 1, x, 0), alpha=1.0)
    case.add("LeakyRelu", np.where(x < 0, x * 0.5, x), alpha=0.5)
    case.add("HardSigmoid", np.clip(x * 0.25 + 0.5, 0, 1), alpha=0.25, beta=0.5)
    case.check()


@pytest.mark.parametrize("low,high", [(nan, 1), (-1, nan), (2, -2), (-1, 1), (-inf, inf)])
def test_bounds_that_are_none_or_the_wrong_way_round(device, dtype, low, high):
    case = Case(LINE, device, dtype)
    expected = np.minimum(np.maximum(case.wide, low), high)
    case.add("Clip", expected, case.constant(low), case.constant(high))
    case.check()
