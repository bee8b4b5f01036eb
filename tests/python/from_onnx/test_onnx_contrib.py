"""Operators of the domain com.microsoft, against ONNX Runtime, which defines them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opwright
from decoding_models import decoding_model

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


def query_attention(past, lengths, total, queries, packed=False, **attributes):
    """Arrays for GroupQueryAttention of 4 heads that share 2 of keys, each of 16 elements."""
    batch, heads, shared, size = len(lengths), 4, 2, 16
    q, k = normal(batch, queries, heads * size), normal(batch, queries, shared * size)
    v = normal(batch, queries, shared * size) * 2
    arrays = {"q": q, "k": k, "v": v}
    if packed:
        arrays = {"q": np.concatenate([q, k, v], -1), "k": None, "v": None}
    cache = (batch, shared, past, size)
    arrays |= {"pk": normal(*cache) if past else None, "pv": normal(*cache) + 1 if past else None}
    arrays |= {"lengths": np.array(lengths, np.int32) - 1, "total": np.array(total, np.int32)}
    if attributes.get("do_rotary"):
        angle = np.arange(32)[:, None] / 10 ** np.linspace(0, 1, size // 2)
        arrays |= {"cos": np.cos(angle).astype("f"), "sin": np.sin(angle).astype("f")}
    outputs = ("y", "present_key", "present_value")
    names = ("total", *(n for n in ("cos", "sin") if n in arrays))
    sizes = {"num_heads": heads, "kv_num_heads": shared}
    compare("GroupQueryAttention", arrays, outputs, names, **sizes, **attributes)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention_of_a_prompt(packed, rotary):
    query_attention(0, [6, 6], 6, 6, packed, do_rotary=rotary)


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_group_query_attention_with_a_cache(rotary, interleaved):
    kwargs = {"do_rotary": rotary, "rotary_interleaved": interleaved}
    query_attention(5, [6, 6], 6, 1, **kwargs)


@pytest.mark.parametrize(
    "attributes",
    [{"local_window_size": 3}, {"softcap": 2.0}, {"smooth_softmax": 1}, {"scale": 0.3}],
)
def test_group_query_attention_variants(attributes):
    query_attention(5, [8], 8, 3, do_rotary=1, **attributes)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("is_fixed", [True, False])
def test_group_query_attention_writes_into_the_cache(is_fixed, is_shared):
    """Token by token, where past and present lie in one place and where they do not."""
    room = 8
    data, session, shapes = decoding_model(room, total=room if is_fixed else None)
    values = {} if is_fixed else {"total": ([1], [room], [room])}
    engine = opwright.build(data, values=values, timing=False, device="cpu").engine
    context = engine.create_execution_context()
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    arrays |= {"lengths": np.zeros(1, np.int32), "y": np.empty(shapes["q"], np.float32)}
    if not is_fixed:
        arrays["total"] = np.array(1, np.int32)
    for past, present in (("pk", "present_key"), ("pv", "present_value")):
        arrays[present] = arrays[past] if is_shared else np.empty_like(arrays[past])
    for name, array in arrays.items():
        context.set_tensor_address(name, array.ctypes.data)
    want = {name: arrays[name].copy() for name in ("pk", "pv")}
    for step in range(room):
        for name in "qkv":
            arrays[name][:] = rng.standard_normal(shapes[name])
        arrays["lengths"][:] = step
        feeds = {name: arrays[name] for name in ("q", "k", "v", "lengths")} | want
        if not is_fixed:
            arrays["total"][...] = step + 1
            feeds["total"] = arrays["total"]
        y, want["pk"], want["pv"] = session.run(None, feeds)
        before = arrays["pk"].copy()
        assert context.execute_async_v3(0)
        np.testing.assert_allclose(arrays["y"], y, rtol=2e-4, atol=2e-5)
        for present, past in (("present_key", "pk"), ("present_value", "pv")):
            filled = np.s_[:, :, : step + 1]
            np.testing.assert_array_equal(arrays[present][filled], want[past][filled])
        if not is_shared:
            np.testing.assert_array_equal(arrays["pk"], before)
            arrays["pk"][:], arrays["pv"][:] = arrays["present_key"], arrays["present_value"]


def test_the_inputs_of_a_call_stay():
    data, _, shapes = decoding_model(8, total=8)
    rng = np.random.default_rng(2)
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    past = feeds["pk"].copy()
    made = opwright.build(data, timing=False)(**feeds, lengths=np.array([3], np.int32))
    np.testing.assert_array_equal(feeds["pk"], past)
    np.testing.assert_array_equal(made["present_key"][:, :, 3].ravel(), feeds["k"].ravel())


def test_fused_convolution():
    arrays = {"x": normal(1, 3, 8, 8), "w": normal(4, 3, 3, 3), "b": normal(4)}
    compare("FusedConv", arrays, constants=("w", "b"), activation="Relu", pads=[1, 1, 1, 1])
    params = {"activation": "LeakyRelu", "activation_params": [0.3]}
    compare("FusedConv", arrays, constants=("w", "b"), **params)


def test_fused_gemm():
    arrays = {"a": normal(4, 8), "b": normal(6, 8), "c": normal(6)}
    kwargs = {"transB": 1, "alpha": 0.5, "beta": 2.0, "activation": "Relu"}
    compare("FusedGemm", arrays, constants=("b", "c"), **kwargs)


def build_one(operator, arrays, **attributes):
    node = helper.make_node(operator, list(arrays), ["y"], domain="com.microsoft", **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [value(name, FLOAT, array.shape) for name, array in arrays.items()],
        [value("y", FLOAT, None)],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    return opwright.build(model, timing=False)(**arrays)


def test_diffusion_operators():
    """ONNX Runtime has these on GPUs alone: as its documentation defines them."""
    from scipy.special import erf

    x, bias = normal(2, 5, 16), normal(16)
    left, right = np.split(x + bias, 2, -1)
    gelu = 0.5 * right * (1 + erf(right / np.sqrt(2)))
    y = build_one("BiasSplitGelu", {"x": x, "b": bias})
    np.testing.assert_allclose(y, left * gelu, rtol=1e-5, atol=1e-6)
    y = build_one("BiasAdd", {"x": x, "b": bias, "skip": x * 3})
    np.testing.assert_allclose(y, x + bias + x * 3, rtol=1e-6)

    x, gamma, beta = normal(2, 3, 4, 8), normal(8), normal(8) + 1
    grouped = x.reshape(2, 12, 4, 2)
    mean = grouped.mean((1, 3), keepdims=True)
    variance = grouped.var((1, 3), keepdims=True)
    want = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
    want = want / (1 + np.exp(-want))
    y = build_one("GroupNorm", {"x": x, "g": gamma, "b": beta}, groups=4, activation=1)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_group_norm_of_a_sum():
    x, skip, bias = normal(2, 3, 4, 8), normal(2, 8), normal(8) * 2
    gamma, beta = normal(8), normal(8) + 1
    total = x + skip[:, None, None, :] + bias
    first = total.transpose(0, 3, 1, 2).reshape(2, 2, -1)
    want = (first - first.mean(-1, keepdims=True)) / np.sqrt(first.var(-1, keepdims=True) + 1e-5)
    want = want.reshape(2, 8, 3, 4).transpose(0, 2, 3, 1) * gamma + beta
    arrays = {"x": x, "g": gamma, "b": beta, "skip": skip, "bias": bias}
    y = build_one("SkipGroupNorm", arrays, groups=2, activation=0)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_convolution_of_channels_last():
    """ONNX Runtime has it in FP16 alone: as the convolution of channels first."""
    x, w, b = normal(1, 6, 7, 3), normal(4, 3, 3, 3), normal(4)
    y = build_one("NhwcConv", {"x": x, "w": w, "b": b}, pads=[1, 1, 1, 1])
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
    value = helper.make_tensor_value_info
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    graph = helper.make_graph(
        [node],
        "g",
        [value("x", FLOAT, first.shape)],
        [value("y", FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {"x": first})
    np.testing.assert_allclose(y, want.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-5)


def test_transposed_product():
    arrays = {"a": normal(2, 4, 3), "b": normal(2, 5, 4)}
    compare("TransposeMatMul", arrays, alpha=2.0, transA=1, transB=1)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"num_heads": 3}, "num_heads and kv_num_heads are 3 and 2"),
        ({"local_window_size": 0}, "local_window_size is 0"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type is 'PER_TENSOR'"),
        ({"qk_output": 1}, "qk_output is 1"),
    ],
)
def test_what_group_query_attention_refuses(attributes, message):
    sizes = {"num_heads": 4, "kv_num_heads": 2, **attributes}
    names = ["q", "k", "v", "", "", "lengths", "total"]
    node = helper.make_node("GroupQueryAttention", names, ["y"], domain="com.microsoft", **sizes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [
            value("q", FLOAT, [1, 2, 32]),
            value("k", FLOAT, [1, 2, 16]),
            value("v", FLOAT, [1, 2, 16]),
            value("lengths", INT32, [1]),
        ],
        [value("y", FLOAT, None)],
        [numpy_helper.from_array(np.array(2, np.int32), "total")],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    with pytest.raises(opwright.Error, match=rf"\(GroupQueryAttention\): .*{message}"):
        opwright.build(model, timing=False)
