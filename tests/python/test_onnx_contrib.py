"""Operators of the domain com.microsoft, against ONNX Runtime, which defines them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opwright

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
TYPES = {np.dtype("f"): FLOAT, np.dtype("i4"): INT32, np.dtype("i8"): INT64}


def compare(operator, arrays, outputs=("y",), constants=(), **attributes):
    """`arrays` by name in the order of the inputs; None is one that is absent."""
    given = {name: array for name, array in arrays.items() if array is not None}
    node = helper.make_node(
        operator,
        [name if array is not None else "" for name, array in arrays.items()],
        list(outputs),
        domain="com.microsoft",
        **attributes,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, TYPES[array.dtype], array.shape)
            for name, array in given.items()
            if name not in constants
        ],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs if name],
        [numpy_helper.from_array(given[name], name) for name in constants],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
    feeds = {name: array for name, array in given.items() if name not in constants}
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = dict(zip((name for name in outputs if name), session.run(None, feeds)))
    got = opwright.build(data, timing=False)(**feeds)
    got = got if isinstance(got, dict) else {outputs[0]: got}
    for name, array in want.items():
        assert got[name].shape == array.shape
        np.testing.assert_allclose(got[name], array, rtol=2e-4, atol=2e-5)


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("operator", ["Gelu", "QuickGelu", "FastGelu"])
def test_activations(operator):
    compare(operator, {"x": normal(2, 5, 8)})


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_activations_with_a_bias(operator):
    compare(operator, {"x": normal(2, 5, 8), "b": normal(8)})


def test_quick_gelu_of_another_slope():
    compare("QuickGelu", {"x": normal(3, 7)}, alpha=0.75)


@pytest.mark.parametrize("bias", [None, normal(8)])
def test_skip_normalization(bias):
    x, skip = normal(2, 5, 8), normal(2, 5, 8) * 2
    compare(
        "SkipLayerNormalization",
        {"x": x, "skip": skip, "gamma": normal(8), "beta": normal(8) + 1, "bias": bias},
        ("y", "", "", "sum"),
    )
    compare("SkipSimplifiedLayerNormalization", {"x": x, "skip": skip, "gamma": normal(8)})


def test_fused_matrix_product():
    arrays = {"a": normal(2, 4, 3), "b": normal(2, 5, 4)}
    compare("FusedMatMul", arrays, alpha=0.5, transA=1, transB=1)


@pytest.mark.parametrize("mask", [None, np.array([5, 3], np.int32)])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(mask, unidirectional):
    compare(
        "Attention",
        {"x": normal(2, 5, 8), "w": normal(8, 24), "b": normal(24), "mask": mask},
        constants=("w", "b"),
        num_heads=2,
        unidirectional=unidirectional,
    )


@pytest.mark.parametrize("bias", [None, normal(24)])
def test_multi_head_attention(bias):
    arrays = {"q": normal(2, 5, 8), "k": normal(2, 6, 8), "v": normal(2, 6, 8) + 1, "b": bias}
    compare("MultiHeadAttention", arrays, num_heads=2)


def test_multi_head_attention_with_a_cache():
    arrays = {"q": normal(2, 1, 8), "k": normal(2, 1, 8) * 2, "v": normal(2, 1, 8) + 1}
    arrays |= dict.fromkeys(("b", "padding", "bias"))
    arrays |= {"past_k": normal(2, 2, 3, 4), "past_v": normal(2, 2, 3, 4) * 3}
    compare("MultiHeadAttention", arrays, ("y", "k_now", "v_now"), num_heads=2, scale=0.3)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([2]), np.array([[0, 1, 2], [4, 3, 1]])])
def test_rotary_embedding(interleaved, places):
    arrays = {"x": normal(2, 3, 16), "places": places, "cos": normal(9, 4), "sin": normal(9, 4) + 1}
    compare("RotaryEmbedding", arrays, constants=("cos", "sin"), interleaved=interleaved)
