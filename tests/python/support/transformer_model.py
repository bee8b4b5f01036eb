"""A sentence transformer as exporters write it: shapes computed from shapes, everything decomposed.

The architecture is BERT's with mean pooling over the tokens that the mask keeps and a normalized
result, as in all-MiniLM-L6-v2; the weights are seeded random numbers.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LOWEST = float(np.finfo(np.float32).min)


class Exporter:
    """Collects nodes; every call adds one and returns the name of its output."""

    def __init__(self, seed: int):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def __call__(self, op: str, *inputs: str, **attributes) -> str:
        name = f"/{op}_{len(self.nodes)}"
        output = f"{name}_output_0"
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def constant(self, value, dtype=np.float32) -> str:
        return self("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def weight(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> str:
        name = f"onnx::weight_{len(self.weights)}"
        value = (self.rng.standard_normal(shape) * scale + offset).astype(np.float32)
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def extent(self, x: str, axis: int) -> str:
        """One extent of a tensor as a vector of one element."""
        index = self.constant(axis, np.int64)
        scalar = self("Gather", self("Shape", x), index, axis=0)
        return self("Unsqueeze", scalar, self.constant([0], np.int64))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self("MatMul", x, self.weight(inputs, outputs, scale=inputs**-0.5))
        return self("Add", self.weight(outputs, scale=0.1), product)

    def layer_norm(self, x: str, width: int) -> str:
        centered = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        variance = self("ReduceMean", self("Pow", centered, self.constant(2.0)), axes=[-1])
        deviation = self("Sqrt", self("Add", variance, self.constant(1e-12)))
        scaled = self(
            "Mul", self("Div", centered, deviation), self.weight(width, scale=0.1, offset=1)
        )
        return self("Add", scaled, self.weight(width, scale=0.1))

    def gelu(self, x: str) -> str:
        erf = self("Erf", self("Div", x, self.constant(2**0.5)))
        return self("Mul", self("Mul", x, self("Add", erf, self.constant(1.0))), self.constant(0.5))

    def heads(self, x: str, heads: int, head: int, permutation: list[int]) -> str:
        shape = self(
            "Concat",
            self.extent(x, 0),
            self.extent(x, 1),
            self.constant([heads], np.int64),
            self.constant([head], np.int64),
            axis=0,
        )
        return self("Transpose", self("Reshape", x, shape), perm=permutation)

    def attention(self, x: str, mask: str, width: int, heads: int) -> str:
        head = width // heads
        query = self.heads(self.linear(x, width, width), heads, head, [0, 2, 1, 3])
        key = self.heads(self.linear(x, width, width), heads, head, [0, 2, 3, 1])
        value = self.heads(self.linear(x, width, width), heads, head, [0, 2, 1, 3])
        scores = self("Div", self("MatMul", query, key), self.constant(head**0.5))
        weights = self("Softmax", self("Add", scores, mask), axis=-1)
        context = self("Transpose", self("MatMul", weights, value), perm=[0, 2, 1, 3])
        shape = self(
            "Concat",
            self.extent(context, 0),
            self.extent(context, 1),
            self.constant([width], np.int64),
            axis=0,
        )
        return self.linear(self("Reshape", context, shape), width, width)

    def attention_mask(self, mask: str) -> str:
        """Converts a mask [batch, tokens] of 0 and 1 to [batch, 1, tokens, tokens] of the lowest
        number and 0."""
        batch, tokens = self.extent(mask, 0), self.extent(mask, 1)
        wide = self("Unsqueeze", mask, self.constant([1], np.int64))
        wide = self("Unsqueeze", wide, self.constant([2], np.int64))
        shape = self("Concat", batch, self.constant([1], np.int64), tokens, tokens, axis=0)
        ones = self(
            "ConstantOfShape",
            self("Shape", shape),
            value=numpy_helper.from_array(np.array([1], np.int64)),
        )
        # Exporters guard against extents of -1 in the shape of an expand.
        is_free = self("Equal", shape, self("Mul", ones, self.constant(-1, np.int64)))
        wide = self("Expand", wide, self("Where", is_free, ones, shape))
        kept = self("Cast", wide, to=TensorProto.FLOAT)
        dropped = self("Sub", self.constant(1.0), kept)
        return self(
            "Where", self("Cast", dropped, to=TensorProto.BOOL), self.constant(LOWEST), dropped
        )

    def positions(self, tokens: str, longest: int) -> str:
        """The first positions of a table [1, longest]."""
        table = self.constant(np.arange(longest)[None], np.int64)
        start, axis, step = (self.constant([v], np.int64) for v in (0, 1, 1))
        return self("Slice", table, start, self.extent(tokens, 1), axis, step)

    def mean_of_tokens(self, x: str, mask: str) -> str:
        wide = self("Unsqueeze", mask, self.constant([-1], np.int64))
        wide = self("Cast", self("Expand", wide, self("Shape", x)), to=TensorProto.FLOAT)
        total = self("ReduceSum", self("Mul", x, wide), self.constant([1], np.int64), keepdims=0)
        count = self("ReduceSum", wide, self.constant([1], np.int64), keepdims=0)
        return self("Div", total, self("Clip", count, self.constant(1e-9)))

    def normalized(self, x: str) -> str:
        norm = self("Clip", self("ReduceL2", x, axes=[1], keepdims=1), self.constant(1e-12))
        return self("Div", x, self("Expand", norm, self("Shape", x)))


def sentence_transformer(
    layers: int = 6,
    width: int = 384,
    heads: int = 12,
    hidden: int = 1536,
    words: int = 2000,
    longest: int = 512,
    seed: int = 0,
) -> onnx.ModelProto:
    """Inputs input_ids, attention_mask, token_type_ids: INT64 [batch, tokens]. Outputs
    last_hidden_state: FP32 [batch, tokens, width] and sentence_embedding: FP32 [batch, width]."""
    add = Exporter(seed)
    embedded = add("Gather", add.weight(words, width), "input_ids")
    embedded = add("Add", embedded, add("Gather", add.weight(2, width), "token_type_ids"))
    positions = add("Gather", add.weight(longest, width), add.positions("input_ids", longest))
    x = add.layer_norm(add("Add", embedded, positions), width)
    mask = add.attention_mask("attention_mask")
    for _ in range(layers):
        x = add.layer_norm(add("Add", add.attention(x, mask, width, heads), x), width)
        inner = add.gelu(add.linear(x, width, hidden))
        x = add.layer_norm(add("Add", add.linear(inner, hidden, width), x), width)
    embedding = add.normalized(add.mean_of_tokens(x, "attention_mask"))
    add.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"]))
    add.nodes.append(helper.make_node("Identity", [embedding], ["sentence_embedding"]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    outputs = [
        helper.make_tensor_value_info(
            "last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", width]
        ),
        helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", width]),
    ]
    graph = helper.make_graph(add.nodes, "sentence_transformer", inputs, outputs, add.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)
    onnx.checker.check_model(made)
    return made
