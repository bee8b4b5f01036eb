"""Writes small models of quantized tensors, in the form of QDQ."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper


class QuantizedModel:
    """Collects the nodes and constants of a QDQ model with the FP32 input x."""

    def __init__(self):
        self.random = np.random.default_rng(11)
        self.nodes, self.constants = [], []

    def constant(self, array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op: str, *inputs: str, **attributes) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def quantized(self, x: str, scale: float, zero_point: np.generic) -> str:
        both = self.constant(np.float32(scale)), self.constant(zero_point)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *both), *both)

    def weights(self, *shape: int, axis: int = 0) -> str:
        """With a scale for each channel."""
        codes = self.random.integers(-127, 128, shape).astype(np.int8)
        scale = self.random.uniform(0.0005, 0.002, shape[axis]).astype(np.float32)
        zero = np.zeros(shape[axis], np.int8)
        inputs = [self.constant(a) for a in (codes, scale, zero)]
        return self.node("DequantizeLinear", *inputs, axis=axis)

    def bias(self, channels: int) -> str:
        return self.constant(self.random.normal(0, 0.5, channels).astype(np.float32))

    def finish(self, shape, *outputs: str) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
        results = [onnx.ValueInfoProto(name=output) for output in outputs]
        graph = helper.make_graph(self.nodes, "bytes", [given], results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)
