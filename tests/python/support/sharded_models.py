"""Models that tests cut for ranks: decoders as exporters write them, with names of weights as in transformers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"


class Graph:
    """Collects nodes; every call adds one and returns the name of its output, or of its first one."""

    def __init__(self, seed: int = 0):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(seed)

    def __call__(
        self,
        op: str,
        *inputs: str,
        outputs: Sequence[str] = (),
        name: str = "",
        domain: str = "",
        **given,
    ):
        names = list(outputs) or [f"{op}_{len(self.nodes)}"]
        self.nodes.append(
            helper.make_node(
                op, inputs, names, name=name or f"node_{names[0]}", domain=domain, **given
            )
        )
        return names[0]

    def input(self, name: str, shape: Sequence, dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, value, dtype=np.int64) -> str:
        return self("Constant", value=numpy_helper.from_array(np.array(value, dtype)))

    def weight(self, name: str, *shape: int, dtype=np.float32) -> str:
        if name not in self.weights:
            scale = shape[-2] ** -0.5 if len(shape) > 1 else 0.5
            value = (self.random.standard_normal(shape) * scale).astype(dtype)
            self.weights[name] = numpy_helper.from_array(value, name)
        return name

    def linear(
        self, x: str, name: str, inputs: int, outputs: int, bias: bool = False, turned: bool = True
    ) -> str:
        """As PyTorch has it, [outputs, inputs] behind a Transpose, or as it is multiplied."""
        shape = (outputs, inputs) if turned else (inputs, outputs)
        weight = self.weight(f"{name}.weight", *shape)
        if turned:
            weight = self("Transpose", weight, perm=[1, 0])
        y = self("MatMul", x, weight)
        return self("Add", self.weight(f"{name}.bias", outputs), y) if bias else y

    def extent(self, x: str, axis: int) -> str:
        return self(
            "Unsqueeze", self("Gather", self("Shape", x), self.constant(axis)), self.constant([0])
        )

    def shaped(self, x: str, *extents: str | int) -> str:
        parts = [each if isinstance(each, str) else self.constant([each]) for each in extents]
        return self("Reshape", x, self("Concat", *parts, axis=0))

    def rms(self, x: str, name: str, width: int) -> str:
        mean = self("ReduceMean", self("Mul", x, x), self.constant([-1]))
        scale = self("Reciprocal", self("Sqrt", self("Add", mean, self.constant(1e-6, np.float32))))
        return self("Mul", self.weight(f"{name}.weight", width), self("Mul", x, scale))

    def model(self, outputs: dict[str, Sequence], opset: int = 20) -> onnx.ModelProto:
        made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()]
        graph = helper.make_graph(
            self.nodes, "graph", self.inputs, made, list(self.weights.values())
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def mlp(gemm: bool = False, width: int = 32, inner: int = 64) -> onnx.ModelProto:
    g = Graph()
    x = g.input("x", ["n", width])
    if gemm:
        y = g("Gemm", x, g.weight("up.weight", inner, width), g.weight("up.bias", inner), transB=1)
        y = g(
            "Gemm",
            g("Gelu", y),
            g.weight("down.weight", width, inner),
            g.weight("down.bias", width),
            transB=1,
            beta=0.5,
        )
    else:
        y = g.linear(
            g("Relu", g.linear(x, "up", width, inner, bias=True)),
            "down",
            inner,
            width,
            bias=True,
            turned=False,
        )
    g("Add", y, x, outputs=["y"])
    return g.model({"y": ["n", width]})


def rotate(g: Graph, x: str, cos: str, sin: str, size: int) -> str:
    ends = [g.constant([v]) for v in (0, size // 2, size)]
    axis = g.constant([3])
    first, second = (g("Slice", x, ends[i], ends[i + 1], axis) for i in (0, 1))
    turned = g("Concat", g("Neg", second), first, axis=-1)
    return g("Add", g("Mul", x, cos), g("Mul", turned, sin))


def attention(
    g: Graph, x: str, stem: str, heads: int, shared: int, size: int, width: int, tables, mask: str
) -> str:
    """Grouped queries with rotary embeddings, all written out, shapes computed from shapes."""
    batch, length = g.extent(x, 0), g.extent(x, 1)
    parts = []
    for name, count in (("q", heads), ("k", shared), ("v", shared)):
        part = g.linear(x, f"{stem}.{name}_proj", width, count * size, bias=name == "q")
        parts.append(g("Transpose", g.shaped(part, batch, length, count, size), perm=[0, 2, 1, 3]))
    query, key, value = parts
    query, key = rotate(g, query, *tables, size), rotate(g, key, *tables, size)
    if shared != heads:
        group = [g.constant([n]) for n in (shared, heads // shared, size, heads)]
        target = g("Concat", batch, group[0], group[1], length, group[2], axis=0)
        key, value = (
            g.shaped(
                g("Expand", g("Unsqueeze", each, g.constant([2])), target),
                batch,
                heads,
                length,
                size,
            )
            for each in (key, value)
        )
    scores = g("MatMul", query, g("Transpose", key, perm=[0, 1, 3, 2]))
    scores = g("Add", g("Mul", scores, g.constant(size**-0.5, np.float32)), mask)
    y = g("MatMul", g("Softmax", scores, axis=-1), value)
    y = g.shaped(g("Transpose", y, perm=[0, 2, 1, 3]), batch, length, -1)
    return g.linear(y, f"{stem}.o_proj", heads * size, width)


def llama(
    layers: int = 2,
    heads: int = 4,
    shared: int = 2,
    size: int = 8,
    words: int = 40,
    tied: bool = False,
) -> onnx.ModelProto:
    """A decoder of Llama's structure over `ids` [batch, length]; logits are whole."""
    width, inner = heads * size, 48
    g = Graph()
    ids = g.input("ids", ["batch", "length"], TensorProto.INT64)
    x = g("Gather", g.weight("model.embed_tokens.weight", words, width), ids)
    length = g("Squeeze", g.extent(ids, 1), g.constant([0]))
    places = g("Cast", g("Range", g.constant(0), length, g.constant(1)), to=TensorProto.FLOAT)
    column = g("Unsqueeze", places, g.constant([1]))
    speeds = g.constant(1.0 / 100 ** (np.arange(0, size, 2) / size), np.float32)
    angles = g("Mul", column, speeds)
    angles = g("Concat", angles, angles, axis=-1)
    tables = g("Cos", angles), g("Sin", angles)
    later = g("Greater", g("Unsqueeze", places, g.constant([0])), column)
    mask = g("Where", later, g.constant(-1e9, np.float32), g.constant(0, np.float32))
    for i in range(layers):
        stem = f"model.layers.{i}"
        y = attention(g, g.rms(x, f"{stem}.input_layernorm", width), f"{stem}.self_attn", heads, shared, size, width,
                      tables, mask)  # fmt: skip
        x = g("Add", x, y)
        h = g.rms(x, f"{stem}.post_attention_layernorm", width)
        gate = g.linear(h, f"{stem}.mlp.gate_proj", width, inner)
        gate = g("Mul", gate, g("Sigmoid", gate))
        up = g.linear(h, f"{stem}.mlp.up_proj", width, inner)
        x = g("Add", x, g.linear(g("Mul", gate, up), f"{stem}.mlp.down_proj", inner, width))
    x = g.rms(x, "model.norm", width)
    head = g.weight("model.embed_tokens.weight" if tied else "lm_head.weight", words, width)
    g("MatMul", x, g("Transpose", head, perm=[1, 0]), outputs=["logits"])
    return g.model({"logits": ["batch", "length", words]})


def gpt2(heads: int = 4, size: int = 8, words: int = 40) -> onnx.ModelProto:
    """A block of GPT-2's structure: Gemm over all rows, and one product for queries, keys and values."""
    width = heads * size
    g = Graph()
    ids = g.input("ids", ["batch", "length"], TensorProto.INT64)
    x = g("Gather", g.weight("wte.weight", words, width), ids)

    def conv1d(x: str, name: str, inputs: int, outputs: int) -> str:
        rows = g("Reshape", x, g.constant([-1, inputs]))
        rows = g(
            "Gemm",
            rows,
            g.weight(f"{name}.weight", inputs, outputs),
            g.weight(f"{name}.bias", outputs),
        )
        return g.shaped(rows, g.extent(x, 0), g.extent(x, 1), outputs)

    h = g("LayerNormalization", x, g.weight("ln_1.weight", width), g.weight("ln_1.bias", width))
    parts = ["q", "k", "v"]
    g(
        "Split",
        conv1d(h, "attn.c_attn", width, 3 * width),
        g.constant([width] * 3),
        outputs=parts,
        axis=2,
    )
    parts = [
        g("Transpose", g("Reshape", p, g.constant([0, 0, heads, size])), perm=[0, 2, 1, 3])
        for p in parts
    ]
    scores = g("MatMul", parts[0], g("Transpose", parts[1], perm=[0, 1, 3, 2]))
    y = g("MatMul", g("Softmax", scores), parts[2])
    y = g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3]), g.constant([0, 0, width]))
    x = g("Add", x, conv1d(y, "attn.c_proj", width, width))
    y = g("Gelu", conv1d(x, "mlp.c_fc", width, 4 * width), approximate="tanh")
    g("Add", x, conv1d(y, "mlp.c_proj", 4 * width, width), outputs=["y"])
    return g.model({"y": ["batch", "length", width]})


def experts(count: int = 4, width: int = 16, inner: int = 24) -> onnx.ModelProto:
    """All experts compute all tokens, and a router weighs them."""
    g = Graph()
    x = g.input("x", ["n", width])
    chances = g("Softmax", g.linear(x, "mlp.gate", width, count))
    h = g(
        "MatMul",
        g("Unsqueeze", x, g.constant([0])),
        g.weight("mlp.experts.gate_up", count, width, inner),
    )
    y = g("MatMul", g("Relu", h), g.weight("mlp.experts.down", count, inner, width))
    weights = g("Unsqueeze", g("Transpose", chances, perm=[1, 0]), g.constant([2]))
    y = g("ReduceSum", g("Mul", y, weights), g.constant([0]), keepdims=0)
    g("Add", x, y, outputs=["y"])
    return g.model({"y": ["n", width]})


def grouped_attention(
    heads: int = 4, shared: int = 2, size: int = 16, total: int = 12
) -> onnx.ModelProto:
    """A layer as ONNX Runtime's exporter of decoders writes it, with caches of keys and values."""
    width = heads * size
    g = Graph()
    x = g.input("x", ["batch", "length", width])
    skip = g.input("skip", ["batch", "length", width])
    past = [
        g.input(f"past_key_values.0.{n}", ["batch", shared, "past", size]) for n in ("key", "value")
    ]
    lengths = g.input("lengths", ["batch"], TensorProto.INT32)
    h = g("SkipSimplifiedLayerNormalization", x, skip, g.weight("norm.weight", width), domain=MICROSOFT,
          outputs=["h", "", "", "sum"], epsilon=1e-6)  # fmt: skip
    query, key, value = (
        g.linear(h, f"layers.0.self_attn.{name}_proj", width, count * size, turned=False)
        for name, count in (("q", heads), ("k", shared), ("v", shared))
    )
    angles = np.arange(total)[:, None] / 100 ** (np.arange(0, size, 2) / size)
    tables = [g.constant(f(angles), np.float32) for f in (np.cos, np.sin)]
    all_tokens = g.constant(total, np.int32)
    y = g("GroupQueryAttention", query, key, value, *past, lengths, all_tokens, *tables, domain=MICROSOFT,
          outputs=["attention", "present.0.key", "present.0.value"], num_heads=heads, kv_num_heads=shared,
          do_rotary=1)  # fmt: skip
    y = g.linear(y, "layers.0.self_attn.o_proj", width, width, turned=False)
    g("Add", "sum", y, outputs=["y"])
    cache = ["batch", shared, "total", size]
    return g.model(
        {"y": ["batch", "length", width], "present.0.key": cache, "present.0.value": cache}
    )
