"""On the emulated GPU: products of integers, axes and extents that data decides, caches; against NumPy."""

import numpy as np
import onnx.parser
import pytest
from onnx import helper

import opwright as trt
from cuda_driver import DeviceArray, driver
from decoding_models import decoding_model


def built(text, opset=18, **options):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> ' + text)
    for output in model.graph.output:
        output.ClearField("type")
    return trt.build(model, device="cuda", timing=False, **options)


def run(engine, **inputs):
    made = engine(**inputs)
    return list(made.values()) if isinstance(made, dict) else [made]


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=lambda t: np.dtype(t).name)
def test_products_of_integers(dtype):
    kind = np.dtype(dtype).name
    engine = built(
        f"net ({kind}[2, 5, 7] a, {kind}[7, 3] b, {kind}[3] c) => ({kind} y)"
        " { p = MatMul(a, b)  y = Add(p, c) }"
    )
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.integers(info.min, info.max, shape, dtype) for shape in ((2, 5, 7), (7, 3), (3,))
    )
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run(engine, a=a, b=b, c=c)[0], a @ b + c)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_along_axes_of_an_input(keepdims):
    engine = built(
        f"net (float[3, 4, 5] x, int64[2] axes) => (float y) {{ y = ReduceMax<keepdims = {keepdims}>(x, axes) }}"
    )
    x = np.random.default_rng(2).standard_normal((3, 4, 5)).astype(np.float32)
    for axes in ((0, 1), (2, 0), (-1, 1)):
        want = x.max(axes, keepdims=bool(keepdims))
        (got,) = run(engine, x=x, axes=np.array(axes))
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


def test_extents_that_have_to_agree():
    engine = built("""
        net (float[6, 4] x, bool[6] chosen, float[3, 2] w) => (float y) {
            k = Compress<axis = 0>(x, chosen)  t = Transpose(k)  y = MatMul(t, w)
        }""")
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((6, 4)).astype("f"), rng.standard_normal((3, 2)).astype("f")
    chosen = np.array([1, 0, 1, 0, 0, 1], bool)
    (got,) = run(engine, x=x, chosen=chosen, w=w)
    np.testing.assert_allclose(got, x[chosen].T @ w, rtol=1e-5, atol=1e-6)
    with pytest.raises(trt.Error):
        run(engine, x=x, chosen=~chosen & False, w=w)


def test_ngrams_by_tables():
    attributes = {
        "mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1,
        "ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3, 4],
        "pool_int64s": [2, 5, 9, 2, 5, 9, 9],
    }  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("TfIdfVectorizer", ["x"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [2, 8])],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    x = np.array([[2, 5, 9, 9, 1, 2, 7, 5], [9, 9, 9, -4, 2, 2, 5, 100]])
    engine = trt.build(model, device="cuda", timing=False)

    def counted(row):
        singles = [int((row == e).sum()) for e in (2, 5, 9)]
        pairs = [
            sum(int(((row[:-d] == a) & (row[d:] == b)).sum()) for d in (1, 2))
            for a, b in ((2, 5), (9, 9))
        ]
        return singles + pairs

    np.testing.assert_array_equal(run(engine, x=x)[0], [counted(row) for row in x])


@pytest.mark.parametrize("total", [5, 6])
def test_group_query_attention_whose_cache_grows(total):
    """From 5 elements, against ONNX Runtime."""
    data, session, shapes = decoding_model(5, total=total)
    rng = np.random.default_rng(5)
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    feeds["lengths"] = np.array([total - 1], np.int32)
    want = session.run(None, feeds)
    got = run(trt.build(data, device="cuda", timing=False), **feeds)
    for result, expected in zip(got, want, strict=True):
        assert result.shape == expected.shape
    np.testing.assert_allclose(got[0], want[0], rtol=2e-4, atol=2e-5)
    kept = np.s_[:, :, : min(5, total - 1)]
    for result, expected, new in zip(got[1:], want[1:], "kv"):
        np.testing.assert_array_equal(result[kept], expected[kept])
        np.testing.assert_array_equal(result[:, :, total - 1].ravel(), feeds[new].ravel())


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_cache_that_may_lie_in_one_place(is_shared):
    engine = built(
        "net (float[2, 3, 8, 4] past, float[2, 3, 2, 4] new, int64[2] at) => (float present)"
        " { present = TensorScatter<axis = 2>(past, new, at) }",
        24,
    ).engine
    context = engine.create_execution_context()
    rng = np.random.default_rng(4)
    past = rng.standard_normal((2, 3, 8, 4)).astype(np.float32)
    new = rng.standard_normal((2, 3, 2, 4)).astype(np.float32)
    want = past.copy()
    want[0, :, 3:5], want[1, :, 6:8] = new
    arrays = {"past": DeviceArray(past), "new": DeviceArray(new), "at": DeviceArray([3, 6])}
    arrays["present"] = arrays["past"] if is_shared else DeviceArray(np.zeros_like(past))
    for name, array in arrays.items():
        context.set_tensor_address(name, array.ptr)
    assert context.execute_async_v3(0)
    driver().synchronize()
    np.testing.assert_array_equal(arrays["present"].numpy(), want)
    if not is_shared:
        np.testing.assert_array_equal(arrays["past"].numpy(), past)
