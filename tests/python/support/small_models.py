"""Small ONNX models that tests of errors, of the program and of saving share."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(nodes, inputs, outputs, initializers=None, opset: int = 17) -> onnx.ModelProto:
    """A model; inputs and outputs are (name, ONNX type, shape), initializers arrays by name."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def convolution(batch: int | str = 1, channels: int = 4, seed: int = 0) -> onnx.ModelProto:
    """y = relu(conv(x, w, b)) of x [batch, 3, 8, 8], padded to the same extents."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.normal(0, 0.3, (channels, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(0, 1, channels).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    return model(
        nodes,
        [("x", TensorProto.FLOAT, [batch, 3, 8, 8])],
        [("y", TensorProto.FLOAT, [batch, channels, 8, 8])],
        weights,
    )


def two_inputs(rows: int | str = 2) -> onnx.ModelProto:
    """total = a + b and difference = a - b of [rows, 3]."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["total"], name="add"),
        helper.make_node("Sub", ["a", "b"], ["difference"], name="subtract"),
    ]
    return model(
        nodes,
        [(name, TensorProto.FLOAT, [rows, 3]) for name in ("a", "b")],
        [(name, TensorProto.FLOAT, [rows, 3]) for name in ("total", "difference")],
    )


def expansion() -> onnx.ModelProto:
    """y = x [1, 1] expanded to the shape that the input `size` has as its values."""
    return model(
        [helper.make_node("Expand", ["x", "size"], ["y"])],
        [("x", TensorProto.FLOAT, [1, 1]), ("size", TensorProto.INT64, [2])],
        [("y", TensorProto.FLOAT, ["rows", "columns"])],
    )


def circular_padding(pads: list[int]) -> onnx.ModelProto:
    """y = x [1, 2, 4, 5] padded circularly by [left, right, top, bottom], an example plugin."""
    node = helper.make_node(
        "circ_pad_plugin", ["x"], ["y"], name="pad", plugin_namespace="", pads=pads
    )
    return model(
        [node],
        [("x", TensorProto.FLOAT, [1, 2, 4, 5])],
        [("y", TensorProto.FLOAT, None)],
    )
