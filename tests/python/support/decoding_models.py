"""A decoding step in the form of ONNX Runtime."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


def decoding_model(room, total=None):
    """A GroupQueryAttention of one token with a cache of `room` elements, and ONNX Runtime's session."""
    heads, shared, size = 4, 2, 16
    shapes = {"q": (1, 1, heads * size), "k": (1, 1, shared * size), "v": (1, 1, shared * size)}
    shapes |= dict.fromkeys(("pk", "pv"), (1, shared, room, size))
    values = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items()]
    values.append(helper.make_tensor_value_info("lengths", INT32, [1]))
    constants = []
    if total is None:
        values.append(helper.make_tensor_value_info("total", INT32, []))
    else:
        constants.append(numpy_helper.from_array(np.array(total, np.int32), "total"))
    outputs = ("y", "present_key", "present_value")
    node = helper.make_node(
        "GroupQueryAttention", [*shapes, "lengths", "total"], outputs,
        domain="com.microsoft", num_heads=heads, kv_num_heads=shared,
    )  # fmt: skip
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "g", values, results, constants)
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
    return data, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]), shapes
