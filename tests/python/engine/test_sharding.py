"""Models cut for ranks: the ranks' results against ONNX Runtime's of the whole model, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import onnxruntime
import pytest

import opwright
import sharded_models as models
from opwright.sharding import Rule, ShardedEngine, Shards

random = np.random.default_rng(7)
PAIR = [("up*", "columns"), ("down*", "rows")]


def whole(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # exact weights
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))


def compare(
    shards: Shards, model: onnx.ModelProto, shapes: dict, calls: list[dict[str, np.ndarray]]
) -> None:
    built = shards.build(shapes=shapes, timing=False)
    with ShardedEngine(built.manifest, timeout=20) as engine:
        for inputs in calls:
            results, expected = engine(inputs), whole(model, inputs)
            if not isinstance(results, dict):
                results = {engine.outputs[0]: results}
            assert list(results) == list(expected)
            for name, result in results.items():
                np.testing.assert_allclose(
                    result, expected[name], rtol=1e-4, atol=2e-4, err_msg=name
                )


def floats(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def text(length: int, batch: int, words: int = 40) -> dict[str, np.ndarray]:
    return {"ids": random.integers(0, words, (batch, length))}


@pytest.mark.parametrize("ranks, gemm", [(2, False), (4, True)])
def test_a_pair_of_products_has_one_sum(tmp_path, ranks, gemm):
    model = models.mlp(gemm)
    shards = opwright.shard(model, ranks=ranks, plan=PAIR, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    calls = [{"x": floats(n, 32)} for n in (1, 5)]
    compare(shards, model, {"x": ((1, 32), (4, 32), (8, 32))}, calls)


@pytest.mark.parametrize("ranks, tied", [(2, False), (2, True), (4, False)])
def test_a_decoder_of_llama(tmp_path, ranks, tied):
    """Table and head cut by words, heads by ranks, open batch and length."""
    layers = 2 if tied else 1
    model = models.llama(layers, tied=tied, shared=4 if ranks == 4 else 2)
    shards = opwright.shard(model, ranks=ranks, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1 + 2 * layers, "all_gather": 1}
    shapes = {"ids": ((1, 1), (2, 5), (3, 8))}
    compare(shards, model, shapes, [text(5, 2), text(1, 1), text(8, 3)])


def test_keys_may_stay_whole(tmp_path):
    """Two ranks cannot have a half each of one shared head of keys."""
    model = models.llama(layers=1, shared=1)
    with pytest.raises(
        opwright.Error, match="'node_Slice.*cut along axis 3, the axis of the slice.*'replicate'"
    ):
        opwright.shard(model, ranks=2, plan="llama", folder=tmp_path)
    plan = [(f"*{n}_proj*", "replicate") for n in "kv"]
    plan += [("*q_proj*", "heads"), ("*o_proj*", "rows"), ("lm_head*", "vocabulary")]
    shards = opwright.shard(model, ranks=2, plan=plan, folder=tmp_path)
    compare(shards, model, {"ids": ((1, 1), (2, 5), (2, 6))}, [text(5, 2), text(6, 1)])


def test_queries_keys_and_values_of_one_product(tmp_path):
    model = models.gpt2()
    shards = opwright.shard(model, ranks=2, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 3}
    compare(shards, model, {"ids": ((1, 1), (2, 5), (3, 8))}, [text(5, 2), text(7, 1)])


def test_experts(tmp_path):
    model = models.experts()
    shards = opwright.shard(model, ranks=2, plan=[("*experts*", "experts")], folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    calls = [{"x": floats(n, 16)} for n in (1, 6)]
    compare(shards, model, {"x": ((1, 16), (4, 16), (8, 16))}, calls)


def test_caches_are_split(tmp_path):
    """Each rank keeps its own heads of keys and values; callers see whole ones."""
    model = models.grouped_attention()
    shards = opwright.shard(model, ranks=2, plan="llama", folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    assert [port.axis for port in shards.inputs] == [None, None, 1, 1, None]
    assert [port.axis for port in shards.outputs] == [None, 1, 1]
    inputs = {"x": floats(2, 1, 64), "skip": floats(2, 1, 64), "lengths": np.full(2, 11, np.int32)}
    inputs |= {f"past_key_values.0.{n}": floats(2, 2, 11, 16) for n in ("key", "value")}
    compare(shards, model, {name: array.shape for name, array in inputs.items()}, [inputs])


def check_graph(
    folder, g: models.Graph, plan, collectives: dict, inputs: dict, out: dict, opset: int = 20
) -> None:
    """Two ranks, fixed shapes."""
    model = g.model(out, opset)
    shards = opwright.shard(model, ranks=2, plan=plan, folder=folder)
    assert shards.collectives == collectives
    compare(shards, model, {name: array.shape for name, array in inputs.items()}, [inputs])


def test_sums_stay_sums_until_one_is_needed_whole(tmp_path):
    g = models.Graph()
    x = g.input("x", [3, 8])
    branches = []
    for i in range(2):
        h = g("Tanh", g("MatMul", x, g.weight(f"up{i}", 8, 16)))
        branches.append(g("MatMul", h, g.weight(f"down{i}", 16, 8)))
    y = g("Mul", g("Add", *branches), g.constant(0.5, np.float32))
    y = g("Transpose", g("Reshape", y, g.constant([3, 2, 4])), perm=[1, 0, 2])
    y = g("Relu", g("ReduceSum", y, g.constant([2]), keepdims=0))
    g("Add", y, y, outputs=["y"])
    check_graph(tmp_path, g, PAIR, {"all_reduce": 1}, {"x": floats(3, 8)}, {"y": [2, 3]})


@pytest.mark.parametrize("ranks, is_shared", [(2, True), (3, False), (4, True)])
def test_what_is_added_to_a_sum_is_added_before_the_all_reduce(tmp_path, ranks, is_shared):
    """A bias and what goes around the pair. Thirds of a number do not add up to it."""
    g = models.Graph()
    x = g.input("x", [3, 12])
    h = g("Tanh", g("MatMul", x, g.weight("up", 12, 24)))
    y = g("Add", g("MatMul", h, g.weight("down", 24, 12)), g.weight("bias", 12))
    y = g("Add", x, y)
    g("Mul", g("Relu", y), g("Tanh", y), outputs=["y"])
    model = g.model({"y": [3, 12]}, 20)
    shards = opwright.shard(model, ranks=ranks, plan=PAIR, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    nodes = onnx.load(tmp_path / "rank0.onnx", load_external_data=False).graph.node
    kinds = [node.op_type for node in nodes]
    behind = kinds[kinds.index("DistCollective") + 1 :]
    assert behind.count("Add") == (0 if is_shared else 2)
    compare(shards, model, {"x": (3, 12)}, [{"x": floats(3, 12)}])


def test_a_product_with_a_bias_that_two_read_has_one_sum(tmp_path):
    g = models.Graph()
    x = g.input("x", [4, 8])
    h = g("Relu", g("MatMul", x, g.weight("up", 8, 16)))
    y = g("Gemm", h, g.weight("down", 16, 8), g.weight("bias", 8))
    first, second = (g("Tanh", g("Reshape", y, g.constant(shape))) for shape in ([2, 16], [16, 2]))
    g("MatMul", first, second, outputs=["y"])
    check_graph(tmp_path, g, PAIR, {"all_reduce": 1}, {"x": floats(4, 8)}, {"y": [2, 2]})


def test_a_term_that_makes_the_sum_larger_is_added_after_it(tmp_path):
    g = models.Graph()
    x, wide = g.input("x", [3, 8]), g.input("wide", [5, 3, 8])
    h = g("Tanh", g("MatMul", x, g.weight("up", 8, 16)))
    g("Sub", wide, g("MatMul", h, g.weight("down", 16, 8)), outputs=["y"])
    check_graph(
        tmp_path,
        g,
        PAIR,
        {"all_reduce": 1},
        {"x": floats(3, 8), "wide": floats(5, 3, 8)},
        {"y": [5, 3, 8]},
    )


def test_attention_operators(tmp_path):
    """ONNX's own, of three axes with a cache and a mask for each head, and of four axes with grouped heads."""
    g = models.Graph()
    x = g.input("x", [2, 3, 32])
    mask = g.input("mask", [2, 4, 3, 5])
    past = [g.input(f"past_{n}", [2, 4, 2, 8]) for n in ("key", "value")]
    parts = [g.linear(x, f"{n}_proj", 32, 32) for n in "qkv"]
    y = g("Attention", *parts, mask, *past, outputs=["a", "present.key", "present.value"], q_num_heads=4,
          kv_num_heads=4)  # fmt: skip
    y = g.linear(y, "o_proj", 32, 32)
    parts = []
    for name, count in (("q", 4), ("k", 2), ("v", 2)):
        part = g.linear(y, f"second.{name}_proj", 32, 8 * count)
        parts.append(
            g("Transpose", g("Reshape", part, g.constant([0, 0, count, 8])), perm=[0, 2, 1, 3])
        )
    parts[:2] = [
        g(
            "RotaryEmbedding",
            each,
            *(g.constant(f(np.ones((2, 3, 4))), np.float32) for f in (np.cos, np.sin)),
        )
        for each in parts[:2]
    ]
    y = g("Transpose", g("Attention", *parts, is_causal=1), perm=[0, 2, 1, 3])
    y = g.linear(g("Reshape", y, g.constant([0, 0, 32])), "second.o_proj", 32, 32)
    g("Identity", y, outputs=["y"])
    inputs = {"x": floats(2, 3, 32), "mask": floats(2, 4, 3, 5)}
    inputs |= {f"past_{n}": floats(2, 4, 2, 8) for n in ("key", "value")}
    cache = [2, 4, 5, 8]
    out = {"y": [2, 3, 32], "present.key": cache, "present.value": cache}
    check_graph(tmp_path, g, "llama", {"all_reduce": 2}, inputs, out, opset=23)


def test_attention_operators_of_onnx_runtime(tmp_path):
    """Biases of all heads in one vector, rotary embeddings, and queries, keys and values in one tensor."""
    g = models.Graph()
    x = g.input("x", [2, 5, 32])
    places = g.input("places", [2, 5], onnx.TensorProto.INT64)
    angles = np.arange(8)[:, None] / 10 ** (np.arange(4) / 4)
    tables = [g.constant(f(angles), np.float32) for f in (np.cos, np.sin)]
    parts = [g.linear(x, f"{n}_proj", 32, 32) for n in "qkv"]
    parts[:2] = [
        g("RotaryEmbedding", each, places, *tables, domain=models.MICROSOFT) for each in parts[:2]
    ]
    bias, mask = g.weight("bias", 96), g.input("mask", [1, 4, 5, 5])
    y = g("MultiHeadAttention", *parts, bias, "", mask, domain=models.MICROSOFT, num_heads=4)
    norm = g.linear(y, "o_proj", 32, 32), x, g.weight("scale", 32), g.weight("shift", 32)
    y = g("SkipSimplifiedLayerNormalization", *norm, domain=models.MICROSOFT)
    packed = g.linear(y, "qkv", 32, 32 + 2 * 16)
    past = [g.input(f"past_{n}", [2, 2, 0, 8]) for n in ("key", "value")]
    lengths = g.input("lengths", [2], onnx.TensorProto.INT32), g.constant(5, np.int32)
    caches = ["present.key", "present.value"]
    y = g("GroupQueryAttention", packed, "", "", *past, *lengths, domain=models.MICROSOFT, outputs=["a", *caches],
          num_heads=4, kv_num_heads=2)  # fmt: skip
    g("Identity", g.linear(y, "second.o_proj", 32, 32), outputs=["y"])
    inputs = {
        "x": floats(2, 5, 32),
        "places": np.tile(np.arange(5), (2, 1)),
        "mask": floats(1, 4, 5, 5),
    }
    inputs |= {
        "past_key": floats(2, 2, 0, 8),
        "past_value": floats(2, 2, 0, 8),
        "lengths": np.full(2, 4, np.int32),
    }
    out = {"y": [2, 5, 32], **dict.fromkeys(caches, [2, 2, 5, 8])}
    plan = [(f"*{n}_proj*", "heads") for n in "qkv"] + [("*o_proj*", "rows")]
    plan.append(Rule("qkv*", "heads", blocks=(32, 16, 16)))
    check_graph(tmp_path, g, plan, {"all_reduce": 2, "all_gather": 2}, inputs, out)


def test_narrow_weights(tmp_path):
    """Bytes with a scale for each output or input feature, and packed weights of four bits."""
    g = models.Graph()
    x = g.input("x", [3, 64])

    def narrow(name: str, inputs: int, outputs: int, axis: int) -> str:
        g.weights[name] = onnx.numpy_helper.from_array(
            random.integers(-9, 9, (inputs, outputs), np.int8), name
        )
        scale = g.weight(f"{name}.scale", (inputs, outputs)[axis])
        return g("DequantizeLinear", name, scale, axis=axis)

    def packed(y: str, name: str, inputs: int, outputs: int) -> str:
        bits = random.integers(0, 255, (outputs, inputs // 16, 8), np.uint8)
        g.weights[name] = onnx.numpy_helper.from_array(bits, name)
        scale = g.weight(f"{name}.scales", outputs, inputs // 16)
        return g(
            "MatMulNBits",
            y,
            name,
            scale,
            domain=models.MICROSOFT,
            K=inputs,
            N=outputs,
            bits=4,
            block_size=16,
        )

    y = g("MatMul", x, narrow("up0", 64, 32, 1))
    y = g("Tanh", g("MatMul", g("Tanh", y), narrow("down0", 32, 64, 0)))
    y = packed(g("Tanh", packed(y, "up1", 64, 32)), "down1", 32, 64)
    g("Tanh", y, outputs=["y"])
    check_graph(tmp_path, g, PAIR, {"all_reduce": 2}, {"x": floats(3, 64)}, {"y": [3, 64]})


def test_parts_by_slices_and_keys_that_are_transposed_in_three_axes(tmp_path):
    """Queries, fewer keys and values of one product, and the nodes that torch.onnx writes before opset 23."""
    g = models.Graph()
    x = g.input("x", ["batch", "length", 16])
    packed = g.linear(x, "qkv", 16, 32 + 2 * 16)
    ends, axis = [g.constant([v]) for v in (0, 32, 48, 2**62)], g.constant([2])
    parts = []
    for i, count in enumerate((4, 2, 2)):
        part = g("Slice", packed, ends[i], ends[i + 1], axis)
        parts.append(
            g("Transpose", g("Reshape", part, g.constant([0, 0, count, 8])), perm=[0, 2, 1, 3])
        )
    query, key, value = parts
    merged = g("Concat", g.constant([-1]), g.extent(key, 2), g.extent(key, 3), axis=0)
    apart = g(
        "Concat", g.extent(key, 0), g.extent(key, 1), g.extent(key, 3), g.extent(key, 2), axis=0
    )
    key = g("Reshape", g("Transpose", g("Reshape", key, merged), perm=[0, 2, 1]), apart)
    key, value = (g("Unsqueeze", each, g.constant([2])) for each in (key, value))
    query = g(
        "Reshape",
        query,
        g("Concat", g.extent(x, 0), g.constant([2, 2]), g.extent(x, 1), g.constant([8]), axis=0),
    )
    y = g("MatMul", g("Softmax", g("MatMul", query, key)), value)
    y = g("Transpose", y, perm=[0, 3, 1, 2, 4])
    y = g("Reshape", y, g("Concat", g.extent(x, 0), g.extent(x, 1), g.constant([-1]), axis=0))
    g("Identity", g.linear(y, "out", 32, 16), outputs=["y"])
    plan = [Rule("qkv*", "heads", blocks=(32, 16, 16)), ("out*", "rows")]
    model = g.model({"y": ["batch", "length", 16]})
    shards = opwright.shard(model, ranks=2, plan=plan, folder=tmp_path)
    assert shards.collectives == {"all_reduce": 1}
    compare(
        shards,
        model,
        {"x": ((1, 1, 16), (2, 5, 16), (3, 8, 16))},
        [{"x": floats(2, 5, 16)}, {"x": floats(1, 7, 16)}],
    )
    with pytest.raises(opwright.Error, match=r"the axis of the slice.*as blocks"):
        opwright.shard(model, ranks=2, plan=[("qkv*", "heads"), ("out*", "rows")], folder=tmp_path)


def test_features_of_a_table_are_gathered(tmp_path):
    g = models.Graph()
    rows = g("Gather", g.weight("table", 10, 8), g.input("ids", [2, 3], onnx.TensorProto.INT64))
    g("LayerNormalization", rows, g.weight("scale", 8), outputs=["y"])
    ids = {"ids": random.integers(0, 10, (2, 3))}
    check_graph(tmp_path, g, [("table", "columns")], {"all_gather": 1}, ids, {"y": [2, 3, 8]})


def test_convolutions(tmp_path):
    g = models.Graph()
    x = g.input("x", [2, 3, 6, 6])
    y = g("Relu", g("Conv", x, g.weight("up", 8, 3, 3, 3), g.weight("up.bias", 8)))
    g("Conv", y, g.weight("down", 5, 8, 1, 1), g.weight("down.bias", 5), outputs=["y"])
    check_graph(
        tmp_path, g, PAIR, {"all_reduce": 1}, {"x": floats(2, 3, 6, 6)}, {"y": [2, 5, 4, 4]}
    )


def test_weights_are_cut_by_ranges(tmp_path):
    """Parts of weights in another file; what all ranks need is written once."""
    model = models.llama(layers=1, words=64)
    expected = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    source = tmp_path / "source"
    source.mkdir()
    onnx.save(model, source / "model.onnx", save_as_external_data=True, size_threshold=0)
    plan = [("*q_proj*", "heads"), ("*o_proj*", "rows"), ("lm_head*", "vocabulary")]
    shards = opwright.shard(source / "model.onnx", ranks=2, plan=plan)
    assert shards.folder == source / "model.2ranks"
    axes = {"q_proj.weight": 0, "q_proj.bias": 0, "o_proj.weight": 1, "lm_head.weight": 0}
    for rank in range(2):
        graph = onnx.load(shards.folder / f"rank{rank}.onnx").graph
        found = {
            each.name.split("/")[0]: onnx.numpy_helper.to_array(each) for each in graph.initializer
        }
        for name, array in expected.items():
            axis = next((a for ending, a in axes.items() if name.endswith(ending)), None)
            part = array if axis is None else np.split(array, 2, axis)[rank]
            np.testing.assert_array_equal(found[name], part, err_msg=name)
    cut = sum(expected[n].nbytes for n in expected if n.endswith(tuple(axes)) and n[-4:] != "bias")
    assert shards.files["rank0.data"]["bytes"] < cut / 2 + 4 * 4096
    (source / "model.onnx.data").write_bytes(b"")
    data = [entry.name for entry in source.iterdir() if entry.suffix != ".onnx" and entry.is_file()]
    for name in data:
        (source / name).write_bytes(b"")
    with pytest.raises(opwright.Error, match="ends before the weight '.*', which needs"):
        opwright.shard(source / "model.onnx", ranks=2, plan=plan)


def product(
    *steps: tuple, shape=("n", 8), out: tuple = ("n", 8), **weights: tuple
) -> onnx.ModelProto:
    """x -> MatMul with `up` [8, 8] -> the steps (operator, further inputs, attributes) -> y."""
    g = models.Graph()
    y = g("MatMul", g.input("x", shape), g.weight("up", 8, 8), name="first")
    for op, others, given in steps:
        others = [g.weight(o, *weights[o]) if isinstance(o, str) else g.constant(o) for o in others]
        y = g(op, y, *others, name=f"the {op}", **given)
    g.nodes[-1].output[0] = "y"
    return g.model({"y": out})


REFUSED = {
    "softmax": (
        product(("Softmax", [], {"axis": -1})),
        r"node 'the Softmax'.*cut along axis 1.*mixes that axis.*gather",
    ),
    "norm": (
        product(("LayerNormalization", ["s"], {}), s=(8,)),
        r"node 'the LayerNormalization'.*mixes that axis",
    ),
    "mean": (product(("ReduceMean", [[-1]], {})), r"node 'the ReduceMean'.*mixes that axis"),
    "slice": (
        product(("Slice", [[0], [4], [1]], {})),
        r"node 'the Slice'.*the axis of the slice.*as blocks",
    ),
    "split": (product(("Split", [[2, 6]], {"axis": 1})), r"node 'the Split'.*blocks=\[2, 6\]"),
    "reshape": (
        product(
            ("Reshape", [[-1, 1, 8]], {}), ("Reshape", [[8, -1]], {}), shape=(4, 8), out=(8, 4)
        ),
        r"node 'the Reshape'.*the reshape from .* mixes that axis",
    ),
    "unknown": (
        product(("Pad", [[0, 1, 0, 1]], {})),
        r"node 'the Pad'.*needs all of it.*\"gather\"",
    ),
    "random": (
        product(("RandomNormalLike", [], {})),
        r"node 'the RandomNormalLike'.*different numbers.*seed",
    ),
    "product": (
        product(("MatMul", ["w"], {}), w=(8, 8)),
        r"node 'the MatMul'.*do not go together|needs all of it",
    ),
}


CHANGED_AXES = ["Squeeze", "Unsqueeze", "Split", "ReduceMax"]


@pytest.mark.parametrize(
    ("op", "is_empty"), [*((op, False) for op in CHANGED_AXES), ("ReduceMax", True)]
)
def test_what_a_node_does_to_a_cut_axis_must_be_constant(tmp_path, op, is_empty):
    """Empty axes of a reduction are all axes, the cut one among them."""
    float_, int_ = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    outputs = ["y", "z"] if op == "Split" else ["y"]
    attributes = {"axis": 1} if op == "Split" else {}
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "up"], ["a"]),
        onnx.helper.make_node(op, ["a", "which"], outputs, name="the node", **attributes),
    ]
    which = onnx.helper.make_tensor_value_info("which", int_, [len(outputs)])
    x = onnx.helper.make_tensor_value_info("x", float_, [4, 8])
    weights = [onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "up")]
    if is_empty:
        weights.append(onnx.numpy_helper.from_array(np.array([], np.int64), "which"))
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [x] if is_empty else [x, which],
        [onnx.helper.make_tensor_value_info(name, float_, None) for name in outputs],
        weights,
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    message = "mixes that axis" if is_empty else r"'which'\) are not constant"
    with pytest.raises(opwright.Error, match=f"node 'the node'.*{message}"):
        opwright.shard(model, ranks=2, plan=[("up", "columns")], folder=tmp_path)


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_cut_that_cannot_pass_names_the_node(tmp_path, name):
    model, message = REFUSED[name]
    plan = [("up", "columns")] + ([("w", "columns")] if name == "product" else [])
    with pytest.raises(opwright.Error, match=message):
        opwright.shard(model, ranks=2, plan=plan, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_rule_makes_a_tensor_whole(tmp_path):
    model = product(("Softmax", [], {"axis": -1}))
    plan = [("up", "columns"), (model.graph.node[0].output[0], "gather")]
    shards = opwright.shard(model, ranks=2, plan=plan, folder=tmp_path)
    assert shards.collectives == {"all_gather": 1}
    compare(shards, model, {"x": (3, 8)}, [{"x": floats(3, 8)}])


@pytest.mark.parametrize(
    "plan, error, message",
    [
        ([("upp", "columns")], opwright.Error, r"no rule of the plan cuts a weight.*'up'"),
        (
            [("up", "columns"), ("dwon*", "rows")],
            opwright.Error,
            r"\('dwon\*', 'rows'\) matches no weight",
        ),
        ([("up", "colums")], ValueError, r"'up' has the action 'colums'.*columns.*did you mean"),
        ([("up", "split")], ValueError, r"'split' needs an axis"),
        ([Rule("up", "split", axis=2)], opwright.Error, r"cuts axis 2, and 'up' has 2 axes"),
        (
            [Rule("up", "columns", blocks=(2, 3))],
            opwright.Error,
            r"blocks \[2, 3\] do not add up to 8",
        ),
        ([("up", "experts")], opwright.Error, r"a weight that has all experts.*'up' has 2 axes"),
        ("lama", ValueError, r"no plan 'lama'.*did you mean"),
        ("auto", opwright.Error, r"no known plan.*fits the model's names.*give the rules"),
    ],
)
def test_wrong_plans(tmp_path, plan, error, message):
    with pytest.raises(error, match=message):
        opwright.shard(product(), ranks=2, plan=plan, folder=tmp_path)


def test_wrong_arguments(tmp_path):
    model, plan = product(), [("up", "columns")]
    with pytest.raises(
        opwright.Error, match=r"node 'first'.*axis 1 of 'up' is 8, which 3 ranks do not divide"
    ):
        opwright.shard(model, ranks=3, plan=plan, folder=tmp_path)
    with pytest.raises(ValueError, match="ranks is 1; expected an integer of 2 or more"):
        opwright.shard(model, ranks=1, plan=plan, folder=tmp_path)
    with pytest.raises(TypeError, match="folder says where"):
        opwright.shard(model, ranks=2, plan=plan)
    with pytest.raises(TypeError, match="int was given"):
        opwright.shard(3, ranks=2, plan=plan, folder=tmp_path)
    with pytest.raises(opwright.Error, match="No such file"):
        opwright.shard("absent.onnx", ranks=2, plan=plan, folder=tmp_path)
    with pytest.raises(opwright.Error, match="opwright.shard writes manifests"):
        ShardedEngine(tmp_path)
    shards = opwright.shard(model, ranks=2, plan=plan, folder=tmp_path)
    with pytest.raises(opwright.Error, match="has no engines yet"):
        ShardedEngine(shards)
    for given, message in (
        ({}, "is no manifest of shards"),
        ({"format": "opwright shards", "version": 9}, "manifest of version 9"),
        ({"format": "opwright shards", "version": 1}, "no whole manifest"),
    ):
        shards.manifest.write_text(json.dumps(given))
        with pytest.raises(opwright.Error, match=message):
            Shards.open(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Shards:
    model = models.mlp()
    shards = opwright.shard(model, ranks=2, plan=PAIR, folder=tmp_path_factory.mktemp("mlp"))
    return shards.build(shapes={"x": ((1, 32), (4, 32), (8192, 32))}, timing=False)


def test_wrong_inputs_end_nothing(built):
    x = floats(3, 32)
    with ShardedEngine(built) as engine:
        for arguments, named, message in (
            ((), {}, "missing, unknown or given twice: ['x']"),
            ((x, x), {}, "2 arrays were given; the inputs are ['x']"),
            ((x,), {"x": x}, "given twice: ['x']"),
            ((), {"z": x}, "['x', 'z']"),
            ((x.astype(np.float64),), {}, "input 'x' is of the type float64; expected float32"),
            ((floats(8193, 32),), {}, "'x'"),
        ):
            with pytest.raises(opwright.Error) as caught:
                engine(*arguments, **named)
            assert message in str(caught.value)
        expected = whole(models.mlp(), {"x": x})["y"]
        results = []
        threads = [threading.Thread(target=lambda: results.append(engine(x=x))) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(results) == 4
        for result in results:
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(opwright.Error, match="it was closed; make another one"):
        engine(x)
    assert [process.process.poll() for process in engine._others] == [0]


@pytest.mark.parametrize(
    "how, rows", [(signal.SIGKILL, 2), (signal.SIGSTOP, 2), (signal.SIGSTOP, 8192)]
)
def test_a_rank_that_ends_or_stops_fails_the_call(built, how, rows):
    """Many rows do not fit into the buffer of a socket that nobody reads."""
    engine = ShardedEngine(built, timeout=1)
    x = floats(rows, 32)
    engine(x)
    process = engine._others[0].process
    os.kill(process.pid, how)
    if how == signal.SIGKILL:
        process.wait()
    begin = time.monotonic()
    with pytest.raises(opwright.Error, match=r"rank 1|ranks? .*1"):
        engine(x)
    assert time.monotonic() - begin < 20
    with pytest.raises(opwright.Error, match="cannot run any more: .*rank"):
        engine(x)
    assert process.poll() is not None


def test_a_changed_file(built, tmp_path):
    shards = opwright.shard(models.mlp(), ranks=2, plan=PAIR, folder=tmp_path / "cut")
    (shards.folder / "rank0.data").write_bytes(bytes(shards.files["rank0.data"]["bytes"]))
    with pytest.raises(opwright.Error, match="rank0.data' is not the file that"):
        shards.build(shapes={"x": (2, 32)})
    for name in (built.manifest.name, *built.engines):
        (tmp_path / name).write_bytes((built.folder / name).read_bytes())
    (tmp_path / built.engines[1]).write_bytes((tmp_path / built.engines[0]).read_bytes())
    with pytest.raises(opwright.Error, match=r"rank1.engine' is not the file that"):
        ShardedEngine(tmp_path)
    (tmp_path / built.engines[1]).write_bytes(b"?" * 100)
    with pytest.raises(opwright.Error, match=r"^rank 1 cannot load its engine: "):
        ShardedEngine(tmp_path, verify=False)


def test_the_program(built, tmp_path):
    onnx.save(models.mlp(), tmp_path / "mlp.onnx")
    x = floats(3, 32)
    np.save(tmp_path / "x.npy", x)

    def opwright_(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "opwright", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    rules = ["--rule", "up*=columns", "--rule", "down*=rows"]
    shaped = ["--shapes", "x:1x32,4x32,8x32"]
    made = opwright_("shard", "mlp.onnx", "--ranks", "2", *rules, *shaped)
    assert made.returncode == 0 and "2 ranks, each with 1 all_reduce" in made.stdout, made.stderr
    ran = opwright_("run", "mlp.2ranks", "--ranks", "2", "--input", "x=x.npy", "--output", "y.npy")
    assert (ran.returncode, ran.stdout) == (0, "y: float32 3x32\n"), ran.stderr
    expected = whole(models.mlp(), {"x": x})["y"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-4)
    wrong = opwright_("run", "mlp.2ranks", "--ranks=3", "--input", "x.npy")
    assert wrong.returncode == 1 and "is for 2 ranks, and --ranks says 3" in wrong.stderr


def test_a_module_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(32, 32) for _ in range(3))
            self.o_proj = nn.Linear(32, 32)
            self.norm = nn.LayerNorm(32)

        def forward(self, x):
            batch, length, width = x.shape
            query, key, value = (
                f(self.norm(x)).view(batch, length, 4, 8).transpose(1, 2)
                for f in (self.q_proj, self.k_proj, self.v_proj)
            )
            y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            return x + self.o_proj(y.transpose(1, 2).reshape(batch, length, width))

    module = Block().eval()
    Dim = torch.export.Dim
    open_extents = {"x": {0: Dim("batch", min=1, max=4), 1: Dim("length", min=2, max=8)}}
    example = (torch.randn(2, 5, 32),)
    shards = opwright.shard(module, example, ranks=2, folder=tmp_path, dynamic_shapes=open_extents)
    assert shards.collectives == {"all_reduce": 1}
    built = shards.build(shapes={"x": ((1, 2, 32), (2, 5, 32), (4, 8, 32))}, timing=False)
    with ShardedEngine(built) as engine:
        for batch, length in ((2, 5), (1, 8)):
            x = torch.randn(batch, length, 32)
            with torch.no_grad():
                expected = module(x).numpy()
            np.testing.assert_allclose(engine(x), expected, rtol=1e-4, atol=1e-4)
