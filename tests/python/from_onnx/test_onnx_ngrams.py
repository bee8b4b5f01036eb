"""TfIdfVectorizer of integers, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import opwright

POOL = {
    "ngram_counts": [0, 3, 9],
    "ngram_indexes": [4, 0, 2, 1, 6, 5],
    "pool_int64s": [2, 3, 5, 5, 4, 5, 6, 7, 8],
}


def model(rank: int, kind=TensorProto.INT64, **attributes) -> bytes:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**POOL, **attributes})
    shape = ["rows", "elements"][2 - rank :]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opset = [helper.make_opsetid("", 9)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("skips", [0, 1, 5])
@pytest.mark.parametrize("places", [None, [4, 0, 4, 1, 6, 0]])
def test_against_onnx_runtime(mode, lengths, skips, places):
    attributes = {"mode": mode, "max_skip_count": skips}
    attributes |= {"min_gram_length": lengths[0], "max_gram_length": lengths[1]}
    attributes |= {"ngram_indexes": places} if places else {}
    data = model(2, **attributes)
    session = onnxruntime.InferenceSession(data)
    engine = opwright.build(data, shapes={"x": ((1, 1), (2, 12), (3, 20))}, timing=False)
    random = np.random.default_rng(0)
    for shape in ((2, 12), (1, 1), (3, 2), (3, 20)):
        x = random.integers(2, 9, shape)
        np.testing.assert_array_equal(engine(x), session.run(None, {"x": x})[0])


@pytest.mark.parametrize("mode", ["IDF", "TFIDF"])
def test_weights_and_a_vector(mode):
    """Weights belong to n-grams, not to places."""
    attributes = {"mode": mode, "max_skip_count": 2, "ngram_indexes": [5, 0, 2, 1, 4, 3]}
    attributes |= {"min_gram_length": 1, "max_gram_length": 2, "weights": [2, 0.5, 3, 4, 5, 0.25]}
    data = model(1, TensorProto.INT32, **attributes)
    session = onnxruntime.InferenceSession(data)
    engine = opwright.build(data, shapes={"x": ((1,), (9,), (30,))}, timing=False)
    for count in (9, 1, 30):
        x = np.random.default_rng(count).integers(2, 9, count).astype(np.int32)
        np.testing.assert_allclose(engine(x), session.run(None, {"x": x})[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"mode": "MAX"}, "mode is 'MAX'"),
        ({"mode": "IDF", "weights": [1.0, 2.0]}, "there are 2 weights; expected one for each of 6"),
        ({"max_skip_count": -1}, "max_skip_count are 1, 2 and -1"),
        ({"min_gram_length": 3}, "min_gram_length, max_gram_length"),
        ({"ngram_counts": [0, 4, 9]}, "the 2-grams are the elements"),
        ({"ngram_counts": [0, 99]}, "the 1-grams are the elements 0 to 99 of 9"),
        ({"ngram_indexes": [0, 1]}, "ngram_indexes has 2 elements; the pool has 6"),
        ({"ngram_indexes": [0, 1, 2, 3, 4, 1 << 40]}, "goes from 0 to 1099511627776"),
    ],
)
def test_errors(attributes, message):
    usual = {"mode": "TF", "max_skip_count": 0, "min_gram_length": 1, "max_gram_length": 2}
    with pytest.raises(opwright.Error, match=rf"node 'TfIdfVectorizer_0' .*{message}"):
        opwright.build(model(1, **{**usual, **attributes}), shapes={"x": (5,)}, timing=False)
