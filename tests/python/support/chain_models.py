"""Models that are a chain of short convolutions: many small parallel loops one after another."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper


def convolution_chain(
    count: int,
    shape: tuple[int, int, int, int],
    follow: Callable[[int, str], NodeProto | None] = lambda index, tensor: None,
) -> bytes:
    """`count` convolutions, 3 x 3, that keep the shape of their input `x`.

    `follow(i, tensor)` returns a node that follows convolution i and takes its output, or None.
    """
    random = np.random.default_rng(1)
    channels = shape[1]
    scale = 1 / math.sqrt(9 * channels)  # activations keep their variance
    weights = [
        random.standard_normal((channels, channels, 3, 3), np.float32) * scale for _ in range(count)
    ]
    nodes, last = [], "x"
    for i in range(count):
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"y{i}"], pads=[1, 1, 1, 1]))
        if (node := follow(i, f"y{i}")) is not None:
            nodes.append(node)
        last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    domains = sorted({node.domain for node in nodes})
    opsets = [helper.make_opsetid(domain, 1 if domain else 17) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
