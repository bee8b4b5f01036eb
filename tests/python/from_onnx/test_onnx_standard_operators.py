"""Operators that are made of several layers, with shapes, types and attributes that ONNX's own tests leave out."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

import opwright as trt
from onnx_graphs import FLOAT, INT64, model, reference_session

BOOL = TensorProto.BOOL


def engine_of(made, shapes=None, **options):
    return trt.build(made.SerializeToString(), timing=False, shapes=shapes, **options)


def kind_of(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int32, np.int64, bool])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu_of_open_extents(upper, dtype):
    made = model(
        [helper.make_node("Trilu", ["x", "k"], ["y"], upper=upper)],
        {"x": (kind_of(dtype), ["b", "m", "n"]), "k": (INT64, [])},
        ["y"],
    )
    engine = engine_of(made, {"x": ((1, 1, 1), (2, 4, 5), (3, 6, 6))})
    take = np.triu if upper else np.tril
    for shape in ((2, 4, 5), (3, 6, 2), (1, 1, 1)):
        x = (np.random.default_rng(1).integers(1, 9, shape) % 3).astype(dtype)
        for k in (-7, -1, 0, 2, 9):
            np.testing.assert_array_equal(engine(x=x, k=np.array(k)), take(x, k))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_eye_like(dtype):
    made = model(
        [helper.make_node("EyeLike", ["x"], ["y"], k=-1, dtype=kind_of(dtype))],
        {"x": (FLOAT, ["m", "n"])},
        ["y"],
    )
    engine = engine_of(made, {"x": ((1, 1), (3, 4), (5, 6))})
    for shape in ((3, 4), (5, 2), (1, 1)):
        got = engine(np.ones(shape, np.float32))
        np.testing.assert_array_equal(got, np.eye(*shape, k=-1, dtype=dtype))
        assert got.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("opset", [7, 9, 10, 13])
def test_the_mask_of_dropout(opset, dtype):
    """Its type is that of x before opset 10. ONNX Runtime's mask has zeros before opset 12, which say nothing."""
    mask = bool if opset >= 10 else dtype
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("Dropout", ["x"], ["y", "mask"])],
            "dropout",
            [helper.make_tensor_value_info("x", kind_of(dtype), ["n", 3])],
            [
                helper.make_tensor_value_info("y", kind_of(dtype), ["n", 3]),
                helper.make_tensor_value_info("mask", kind_of(mask), ["n", 3]),
            ],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    x = np.arange(6).reshape(2, 3).astype(dtype)
    got = engine_of(made, {"x": ((1, 3), (2, 3), (4, 3))})(x).values()
    expected = ReferenceEvaluator(made).run(None, {"x": x})
    for own, other, kind in zip(got, expected, (dtype, mask), strict=True):
        assert own.dtype == kind
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("index_type", [np.int32, np.int64, np.float32, np.uint8])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, bool])
def test_one_hot(dtype, index_type, axis):
    made = model(
        [helper.make_node("OneHot", ["i", "depth", "values"], ["y"], axis=axis)],
        {"i": (kind_of(index_type), ["n", 3]), "values": (kind_of(dtype), [2])},
        ["y"],
        {"depth": np.array(5)},
    )
    engine = engine_of(made, {"i": ((0, 3), (2, 3), (4, 3))})
    values = np.array([3, 0]).astype(dtype)
    for n in (2, 4, 0):
        low = 0 if index_type is np.uint8 else -6
        indices = np.random.default_rng(n).integers(low, 7, (n, 3)).astype(index_type)
        hit = np.where(indices < 0, indices.astype(np.int64) + 5, indices)[..., None] == np.arange(
            5
        )
        want = np.moveaxis(np.where(hit, values[1], values[0]), -1, axis)
        np.testing.assert_array_equal(engine(i=indices, values=values), want)


def test_one_hot_of_a_depth_from_shapes():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("OneHot", ["i", "shape", "values"], ["y"]),
    ]
    made = model(
        nodes, {"x": (FLOAT, ["d"]), "i": (INT64, [3])}, ["y"], {"values": np.float32([0, 1])}
    )
    engine = engine_of(made, {"x": ((1,), (4,), (8,))})
    for depth in (1, 4, 8):
        got = engine(x=np.zeros(depth, np.float32), i=np.array([0, 3, -1]))
        want = np.zeros((3, depth), np.float32)
        want[0, 0] = want[2, depth - 1] = 1
        if depth > 3:
            want[1, 3] = 1
        np.testing.assert_array_equal(got, want)


def test_the_one_hot_and_reverse_layers():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    i = network.add_input("i", trt.int32, (2,))
    values = network.add_input("values", trt.float32, (2,))
    depth = network.add_constant((), np.array(3, np.int32)).get_output(0)
    layer = network.add_one_hot(i, values, depth, 0)
    assert (layer.type, layer.axis) == (trt.LayerType.ONE_HOT, 0)
    back = network.add_reverse_sequence(
        layer.get_output(0), network.add_constant((2,), np.array([3, 2], np.int32)).get_output(0)
    )
    assert back.type == trt.LayerType.REVERSE_SEQUENCE
    assert (back.batch_axis, back.sequence_axis) == (1, 0)
    network.mark_output(back.get_output(0))
    engine = trt.build(network, timing=False)
    got = engine(i=np.array([0, 1], np.int32), values=np.float32([7, 8]))
    np.testing.assert_array_equal(got, [[7, 8], [7, 7], [8, 7]])
    back.batch_axis = 0
    with pytest.raises(trt.Error, match="must differ, but both are 0"):
        str(back.get_output(0).shape)


@pytest.mark.parametrize("batch, time", [(0, 1), (1, 0), (0, 2), (2, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_reverse_sequence(dtype, batch, time):
    shape = (3, 4, 5)
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    types = {
        np.float32: trt.float32,
        np.float16: trt.float16,
        np.int8: trt.int8,
        np.int64: trt.int64,
    }
    x = network.add_input("x", types[dtype], shape)
    lengths = network.add_input("lengths", trt.int64, (shape[batch],))
    layer = network.add_reverse_sequence(x, lengths)
    layer.batch_axis, layer.sequence_axis = (batch, time) if (batch, time) != (0, 1) else (0, 1)
    network.mark_output(layer.get_output(0))
    engine = trt.build(network, timing=False)
    data = np.arange(60).reshape(shape).astype(dtype)
    given = np.array([2, 0, 4, 1, 99][: shape[batch]])
    want = data.copy()
    view = np.moveaxis(want, (batch, time), (0, 1))
    for b, n in enumerate(np.minimum(given, shape[time])):
        view[b, :n] = view[b, :n][::-1].copy()
    np.testing.assert_array_equal(engine(x=data, lengths=given), want)


@pytest.mark.parametrize("opset, axis", [(11, 1), (13, -1), (13, 0), (13, 1)])
def test_hardmax(opset, axis):
    made = model(
        [helper.make_node("Hardmax", ["x"], ["y"], axis=axis)],
        {"x": (FLOAT, ["n", 3, 4])},
        ["y"],
        opset=opset,
    )
    engine = engine_of(made, {"x": ((1, 3, 4), (2, 3, 4), (3, 3, 4))})
    x = np.random.default_rng(1).integers(0, 4, (2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(engine(x), reference_session(made).run(None, {"x": x})[0])


def test_determinants():
    made = model([helper.make_node("Det", ["x"], ["y"])], {"x": (FLOAT, ["b", "n", "n"])}, ["y"])
    engine = engine_of(made, {"x": ((1, 1, 1), (2, 3, 3), (40, 9, 9))})
    for shape in ((2, 3, 3), (40, 9, 9), (1, 1, 1)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(engine(x), np.linalg.det(x.astype(np.float64)), rtol=2e-4)
    np.testing.assert_array_equal(engine(np.ones((1, 3, 3), np.float32)), [0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_bits(dtype):
    kind = kind_of(dtype)
    nodes = [
        helper.make_node(f"Bitwise{name}", ["a", "b"], [name]) for name in ("And", "Or", "Xor")
    ]
    nodes.append(helper.make_node("BitwiseNot", ["a"], ["Not"]))
    made = model(
        nodes, {"a": (kind, [50, 7]), "b": (kind, [7])}, ["And", "Or", "Xor", "Not"], opset=18
    )
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    a = rng.integers(info.min, info.max, (50, 7), dtype, endpoint=True)
    b = rng.integers(info.min, info.max, 7, dtype, endpoint=True)
    got = engine_of(made)(a=a, b=b)
    for name, want in (("And", a & b), ("Or", a | b), ("Xor", a ^ b), ("Not", ~a)):
        np.testing.assert_array_equal(got[name], want)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_last_of_equal_extremes(keepdims, axis, kind):
    made = model(
        [helper.make_node(kind, ["x"], ["y"], axis=axis, keepdims=keepdims, select_last_index=1)],
        {"x": (FLOAT, ["n", 6])},
        ["y"],
    )
    engine = engine_of(made, {"x": ((1, 6), (4, 6), (9, 6))})
    for n in (4, 9, 1):
        x = np.random.default_rng(n).integers(0, 3, (n, 6)).astype(np.float32)
        np.testing.assert_array_equal(engine(x), reference_session(made).run(None, {"x": x})[0])


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("axis", [0, 1])
def test_products_up_to_each_element(axis, dtype, reverse, exclusive):
    made = model(
        [helper.make_node("CumProd", ["x", "axis"], ["y"], reverse=reverse, exclusive=exclusive)],
        {"x": (kind_of(dtype), [5, 30])},
        ["y"],
        {"axis": np.array(axis)},
        opset=26,
    )
    x = np.random.default_rng(2).integers(1, 3, (5, 30)).astype(dtype)
    if dtype == np.float16:
        x = x / 2 + np.float16(0.5)
    wide = np.flip(x, axis) if reverse else x
    want = np.cumprod(wide.astype(np.float64 if dtype != np.int32 else np.int32), axis)
    if exclusive:
        want = want / wide if dtype != np.int32 else want // wide
    want = (np.flip(want, axis) if reverse else want).astype(dtype)
    np.testing.assert_allclose(engine_of(made)(x), want, rtol=2e-3 if dtype == np.float16 else 1e-6)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_pooling_with_indices(spatial, ceil, order):
    node = helper.make_node(
        "MaxPool",
        ["x"],
        ["y", "i"],
        kernel_shape=[3, 2, 3][:spatial],
        strides=[2, 1, 2][:spatial],
        dilations=[1, 2, 1][:spatial],
        pads=[1, 1, 0][:spatial] + [0, 1, 1][:spatial],
        ceil_mode=ceil,
        storage_order=order,
    )
    dims = [2, 3, 9, 7, 8][: spatial + 2]
    made = model([node], {"x": (FLOAT, ["n", *dims[1:]])}, ["y", "i"])
    engine = engine_of(made, {"x": ((1, *dims[1:]), tuple(dims), (3, *dims[1:]))})
    x = np.random.default_rng(1).integers(-5, 5, dims).astype(np.float32)
    got = engine(x)
    y, i = reference_session(made).run(None, {"x": x})
    np.testing.assert_array_equal(got["y"], y)
    np.testing.assert_array_equal(got["i"], i)


def test_unpooling_puts_maxima_back():
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxUnpool", ["m", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    made = model(nodes, {"x": (FLOAT, ["n", 2, 6, 4])}, ["y"])
    engine = engine_of(made, {"x": ((1, 2, 6, 4), (2, 2, 6, 4), (4, 2, 6, 4))})
    for n in (1, 3):
        x = np.random.default_rng(n).permutation(n * 48).reshape(n, 2, 6, 4).astype(np.float32)
        blocks = x.reshape(n, 2, 3, 2, 2, 2)
        most = blocks.max((3, 5), keepdims=True)
        want = np.where(blocks == most, blocks, 0).reshape(x.shape)
        np.testing.assert_array_equal(engine(x), want)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("dims", [(2, 3, 5), (2, 70, 6, 4), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("spread", ["planes", "all", "beyond"])
def test_unpooling_by_any_indices(spread, dims, dtype):
    rng = np.random.default_rng(len(dims))
    spatial = len(dims) - 2
    to = (*dims[:2], *(2 * n for n in dims[2:]))
    x = rng.integers(1, 100, dims).astype(dtype)
    total, plane = int(np.prod(to)), int(np.prod(to[2:]))
    if spread == "planes":
        starts = plane * np.arange(dims[0] * dims[1]).reshape(*dims[:2], *[1] * spatial)
        places = starts + rng.integers(0, plane, dims)
    else:
        places = rng.integers(0, total, dims)
        places = places if spread == "all" else np.where(rng.random(dims) < 0.2, 2 * total, places)
    node = helper.make_node(
        "MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2] * spatial, strides=[2] * spatial
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = model([node], {"x": (kind, dims), "i": (TensorProto.INT64, dims)}, ["y"])
    want = np.zeros(total, dtype)
    for value, place in zip(x.ravel(), places.ravel()):
        if place < total:
            want[place] = value  # the last one stays
    np.testing.assert_array_equal(engine_of(made)(x=x, i=places), want.reshape(to))


def test_unpooling_by_fewer_indices_than_maxima():
    node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2], strides=[2])
    made = model([node], {"x": (FLOAT, [1, 1, 4]), "i": (TensorProto.INT64, [1, 1, 3])}, ["y"])
    with pytest.raises(trt.Error, match=r"MaxUnpool.*indices.*that of the maxima"):
        engine_of(made)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("ceil", [0, 1])
def test_norms_over_windows(ceil, p):
    node = helper.make_node(
        "LpPool",
        ["x"],
        ["y"],
        p=p,
        kernel_shape=[3, 2],
        strides=[2, 2],
        pads=[1, 0, 1, 1],
        ceil_mode=ceil,
        dilations=[1, 2],
    )
    made = model([node], {"x": (FLOAT, [2, 3, 8, 9])}, ["y"])
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 9)).astype(np.float32)
    want = reference_session(made).run(None, {"x": x})[0]
    np.testing.assert_allclose(engine_of(made)(x), want, rtol=1e-5)
    whole = model(
        [helper.make_node("GlobalLpPool", ["x"], ["y"], p=p)], {"x": (FLOAT, [2, 3, 8, 9])}, ["y"]
    )
    want = (np.abs(x) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(engine_of(whole)(x), want, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 1, -3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("inner", [(), (4,), (2, 3)])
def test_losses(inner, kind, weighted, ignored, reduction):
    attributes = {"reduction": reduction}
    if ignored is not None:
        attributes["ignore_index"] = ignored
    names = ["x", "t", "w"] if weighted else ["x", "t"]
    outputs = ["y", "log"] if kind.startswith("Softmax") else ["y"]
    made = model(
        [helper.make_node(kind, names, outputs, **attributes)],
        {
            "x": (FLOAT, ["n", 5, *inner]),
            "t": (INT64, ["n", *inner]),
            **({"w": (FLOAT, [5])} if weighted else {}),
        },
        outputs,
    )
    shapes = {
        "x": ((1, 5, *inner), (3, 5, *inner), (6, 5, *inner)),
        "t": ((1, *inner), (3, *inner), (6, *inner)),
    }
    engine = engine_of(made, shapes)
    rng = np.random.default_rng(3)
    target = rng.integers(0, 5, (3, *inner))
    if ignored is not None:
        target.flat[0] = ignored
    inputs = {"x": rng.standard_normal((3, 5, *inner)).astype(np.float32), "t": target}
    if weighted:
        inputs["w"] = rng.uniform(0.5, 2, 5).astype(np.float32)
    got = engine(**inputs)
    got = list(got.values()) if isinstance(got, dict) else [got]
    for g, want in zip(got, ReferenceEvaluator(made).run(None, inputs)):
        np.testing.assert_allclose(g, want, rtol=1e-4, atol=1e-5)


def test_columns_to_images():
    made = model(
        [
            helper.make_node(
                "Col2Im",
                ["x", "image", "block"],
                ["y"],
                strides=[2, 1],
                pads=[1, 0, 0, 2],
                dilations=[1, 2],
            )
        ],
        {"x": (FLOAT, ["n", 12, 6])},
        ["y"],
        {"image": np.array([6, 4]), "block": np.array([2, 3])},
    )
    engine = engine_of(made, {"x": ((1, 12, 6), (2, 12, 6), (3, 12, 6))})
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 12, 6)).astype(np.float32)
        want = ReferenceEvaluator(made).run(None, {"x": x})[0]
        np.testing.assert_allclose(engine(x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1])
def test_tensor_scatter(axis, mode):
    made = model(
        [helper.make_node("TensorScatter", ["past", "new", "at"], ["y"], mode=mode, axis=axis)],
        {
            "past": (FLOAT, ["b", 4, 5, 3]),
            "new": (FLOAT, ["b", 4, 2, 3] if axis == -2 else ["b", 2, 5, 3]),
            "at": (INT64, ["b"]),
        },
        ["y"],
        opset=24,
    )
    small = (
        made.graph.input[1].type.tensor_type.shape.dim[1].dim_value,
        made.graph.input[1].type.tensor_type.shape.dim[2].dim_value,
    )
    shapes = {
        "past": ((1, 4, 5, 3), (2, 4, 5, 3), (3, 4, 5, 3)),
        "new": tuple((n, *small, 3) for n in (1, 2, 3)),
        "at": ((1,), (2,), (3,)),
    }
    engine = engine_of(made, shapes)
    rng = np.random.default_rng(1)
    inputs = {
        "past": rng.standard_normal((3, 4, 5, 3)).astype(np.float32),
        "new": rng.standard_normal((3, *small, 3)).astype(np.float32),
        "at": np.array([0, 2, 1]) if mode == "linear" else np.array([3, 0, 1]),
    }
    want = ReferenceEvaluator(made).run(None, inputs)[0]
    np.testing.assert_array_equal(engine(**inputs), want)


def test_crops_and_pads_of_open_extents():
    nodes = [
        helper.make_node("Shape", ["z"], ["shape"]),
        helper.make_node("CenterCropPad", ["x", "shape"], ["y"], axes=[1, 0]),
    ]
    made = model(nodes, {"x": (FLOAT, ["a", "b"]), "z": (FLOAT, ["c", "d"])}, ["y"])
    ranges = ((1, 1), (4, 5), (9, 9))
    engine = engine_of(made, {"x": ranges, "z": ranges})
    for small, large in (((4, 5), (9, 8)), ((3, 8), (8, 3)), ((5, 5), (5, 4))):
        for shape, target in ((small, large), (large, small)):
            x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
            z = np.zeros(target, np.float32)
            want = ReferenceEvaluator(made).run(None, {"x": x, "z": z})[0]
            np.testing.assert_array_equal(engine(x=x, z=z), want)


def test_bits_of_another_type():
    made = model(
        [helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT32)],
        {"x": (FLOAT, ["n", 3])},
        ["y"],
        opset=26,
    )
    engine = engine_of(made, {"x": ((0, 3), (2, 3), (4, 3))})
    for n in (0, 2, 4):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        np.testing.assert_array_equal(engine(x), x.view(np.int32))
    made.graph.node[0].attribute[0].i = INT64
    with pytest.raises(trt.Error, match="whose elements have 32 bits; those of INT64 have 64"):
        engine_of(made, {"x": ((0, 3), (2, 3), (4, 3))})


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int32])
def test_shrink(dtype):
    made = model(
        [helper.make_node("Shrink", ["x"], ["y"], bias=1.0, lambd=1.5)],
        {"x": (kind_of(dtype), [7])},
        ["y"],
    )
    x = np.arange(-3, 4).astype(dtype)
    want = np.where(x > 1.5, x - 1, np.where(x < -1.5, x + 1, 0)).astype(dtype)
    np.testing.assert_array_equal(engine_of(made)(x), want)


@pytest.mark.parametrize("other", [np.nan, -0.0])
def test_constants_that_compare_equal_or_not_at_all_stay_apart(other):
    """In a fused program NaN is not the constant beside it, and -0 is not 0."""
    made = parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[4] x) => (float[4] y) {'
        " zero = Constant <value_float = 0.0> () is_large = Greater (x, zero)"
        " chosen = Where (is_large, other, zero) y = Div (x, chosen) }"
    )
    made.graph.initializer.append(numpy_helper.from_array(np.float32(other), "other"))
    x = np.array([1, -1, 2, -3], np.float32)
    want = np.array([1 / other if other else -np.inf, -np.inf] * 2, np.float32)
    np.testing.assert_array_equal(trt.build(made.SerializeToString(), timing=False)(x=x), want)
