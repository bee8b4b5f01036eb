"""Attention as exporters write it (transposes, two products, a softmax) on the CPU, which is fused here, beside
ONNX Runtime's MultiHeadAttention and PyTorch's scaled_dot_product_attention, measured in turns: python
bench/attention.py"""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from timing import in_turns, threads

import opwright

# Batch, heads, query tokens, key tokens, elements of a head.
CASES = [(1, 12, 128, 128, 64), (1, 12, 512, 512, 64), (8, 12, 128, 128, 64), (1, 32, 1, 1024, 128)]


def ports(batch, heads, queries, keys, width):
    tokens = {"q": queries, "k": keys, "v": keys}
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, count, heads * width])
        for name, count in {**tokens, "y": queries}.items()
    }
    return [values[name] for name in tokens], [values["y"]]


def in_parts(batch, heads, queries, keys, width) -> bytes:
    """A model of the layers that exporters write. Input and output are tokens x (heads * width)."""
    nodes, constants = [], {"scale": np.float32(width**-0.5)}
    for name, count in {"q": queries, "k": keys, "v": keys}.items():
        constants[f"shape_{name}"] = np.array([batch, count, heads, width])
        nodes.append(helper.make_node("Reshape", [name, f"shape_{name}"], [f"{name}_heads"]))
        order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(
            helper.make_node("Transpose", [f"{name}_heads"], [f"{name}_first"], perm=order)
        )
    constants["shape"] = np.array([batch, queries, heads * width])
    nodes += [
        helper.make_node("MatMul", ["q_first", "k_first"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v_first"], ["sums"]),
        helper.make_node("Transpose", ["sums"], ["tokens"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["tokens", "shape"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes, "attention", *ports(batch, heads, queries, keys, width), initializers
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def as_one_node(batch, heads, queries, keys, width) -> bytes:
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=heads
    )
    graph = helper.make_graph([node], "attention", *ports(batch, heads, queries, keys, width))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def measure(case, seconds):
    batch, heads, queries, keys, width = case
    random = np.random.default_rng(0)
    inputs = {
        name: random.standard_normal((batch, count, heads * width)).astype(np.float32)
        for name, count in {"q": queries, "k": keys, "v": keys}.items()
    }
    engine = opwright.build(in_parts(*case), device="cpu")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    session = onnxruntime.InferenceSession(
        as_one_node(*case), options, providers=["CPUExecutionProvider"]
    )
    heads_first = [
        torch.from_numpy(value).view(batch, -1, heads, width).transpose(1, 2)
        for value in inputs.values()
    ]
    np.testing.assert_allclose(engine(**inputs), session.run(None, inputs)[0], rtol=1e-4, atol=1e-5)
    return in_turns(
        [
            lambda: engine(**inputs),
            lambda: session.run(None, inputs),
            lambda: torch.nn.functional.scaled_dot_product_attention(*heads_first),
        ],
        seconds=seconds,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each turn")
    arguments = parser.parse_args()
    torch.set_num_threads(threads())
    print(
        f"{threads()} threads, ONNX Runtime {onnxruntime.__version__}, PyTorch {torch.__version__}"
    )
    print("microseconds a call, and ours as a ratio to the peer's\n")
    print(
        f"{'batch, heads, queries, keys, width':36}{'ours':>9}{'runtime':>9}{'torch':>9}{'ratios':>13}"
    )
    for case in CASES:
        ours, runtime, pytorch = measure(case, arguments.seconds)
        print(
            f"{str(case):36}{ours * 1e6:9.0f}{runtime * 1e6:9.0f}{pytorch * 1e6:9.0f}"
            f"{ours / runtime:7.2f}{ours / pytorch:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
