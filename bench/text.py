"""Latency of small text models with random weights, against ONNX Runtime with as many threads: batches of 1 and 8,
16 to 256 tokens, in engines for just that shape and in engines with a profile of shapes. It stops if a result differs
by more than 1e-4.

python bench/text.py [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from timing import chosen_names, in_turns, threads

import opwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "python" / "support")]

from transformer_model import Exporter, sentence_transformer  # noqa: E402

WORDS, WIDTH, CLASSES = 2000, 128, 4


def classifier(add: Exporter, features: str, width: int) -> onnx.ModelProto:
    """A model with a linear layer and Softmax behind features [batch, width] that are computed from
    `ids`."""
    weight, bias = add.weight(width, CLASSES, scale=width**-0.5), add.weight(CLASSES)
    scores = add("Gemm", features, weight, bias)
    add.nodes.append(helper.make_node("Softmax", [scores], ["y"], axis=-1))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "tokens"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])
    graph = helper.make_graph(add.nodes, "classifier", [ids], [y], add.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def bag_of_words() -> onnx.ModelProto:
    """fastText's classifier: the mean of the words' vectors."""
    add = Exporter(0)
    words = add("Gather", add.weight(WORDS, WIDTH), "ids")
    return classifier(add, add("ReduceMean", words, axes=[1], keepdims=0), WIDTH)


def masked_bag_of_words() -> onnx.ModelProto:
    """The same classifier, in which word 0 does not count."""
    add = Exporter(0)
    words = add("Gather", add.weight(WORDS, WIDTH), "ids")
    counts = add("Not", add("Equal", "ids", add.constant([0], np.int64)))
    mask = add("Unsqueeze", add("Cast", counts, to=TensorProto.FLOAT), add.constant([2], np.int64))
    axis = add.constant([1], np.int64)
    total = add("ReduceSum", add("Mul", words, mask), axis, keepdims=0)
    count = add("Max", add("ReduceSum", mask, axis, keepdims=0), add.constant([1.0]))
    return classifier(add, add("Div", total, count), WIDTH)


def convolutions() -> onnx.ModelProto:
    """TextCNN (Kim 2014): convolutions over 3, 4 and 5 words, and the largest value of each
    feature."""
    add, features = Exporter(0), 100
    words = add("Gather", add.weight(WORDS, WIDTH), "ids")
    words = add("Transpose", words, perm=[0, 2, 1])
    found = []
    for count in (3, 4, 5):
        weight = add.weight(features, WIDTH, count, scale=(WIDTH * count) ** -0.5)
        found.append(add("GlobalMaxPool", add("Relu", add("Conv", words, weight))))
    return classifier(add, add("Flatten", add("Concat", *found, axis=1)), 3 * features)


def transformer() -> onnx.ModelProto:
    """Two layers of a sentence transformer, 128 wide, with 4 heads."""
    return sentence_transformer(layers=2, width=WIDTH, heads=4, hidden=2 * WIDTH, words=WORDS)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    f.__name__: f for f in (bag_of_words, masked_bag_of_words, convolutions, transformer)
}


def sample(model: onnx.ModelProto, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(0).integers(1, WORDS, shape)
    ids[:, -3:] = 0
    values = {"attention_mask": (ids != 0).astype(np.int64), "token_type_ids": np.zeros_like(ids)}
    return {x.name: values.get(x.name, ids) for x in model.graph.input}


def compare(
    model: onnx.ModelProto, shape: tuple[int, int], is_dynamic: bool
) -> tuple[float, float]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 3
    serialized, inputs = model.SerializeToString(), sample(model, shape)
    peer = onnxruntime.InferenceSession(serialized, options)
    profile = ((1, 8), shape, (16, 512)) if is_dynamic else shape
    engine = opwright.build(serialized, shapes={name: profile for name in inputs})
    results, wanted = engine(**inputs), peer.run(None, inputs)
    for got, want in zip(results.values() if isinstance(results, dict) else [results], wanted):
        error = np.abs(got - want).max() / np.abs(want).max()
        if not error < 1e-4:
            raise SystemExit(f"bench/text: a result differs from ONNX Runtime by {error:.1e}")
    ours, theirs = in_turns(
        [lambda: engine(**inputs), lambda: peer.run(None, inputs)], rounds=3, seconds=0.1
    )
    return ours, theirs


def main() -> None:
    chosen = chosen_names(__doc__, MODELS)
    print(f"threads: {threads()}, ONNX Runtime {onnxruntime.__version__}")
    print(f"{'model':20} {'batch x tokens':>14} {'shapes':>8} {'ours us':>9} {'ratio':>6}")
    for name in chosen:
        model = MODELS[name]()
        for shape in ((b, t) for b in (1, 8) for t in (16, 64, 256)):
            for is_dynamic in (False, True):
                ours, theirs = compare(model, shape, is_dynamic)
                print(
                    f"{name:20} {shape[0]:8} x {shape[1]:3} {'several' if is_dynamic else 'one':>8}"
                    f" {ours * 1e6:9.1f} {ours / theirs:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
