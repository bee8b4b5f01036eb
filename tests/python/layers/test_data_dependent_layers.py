"""Layers whose data decide how many elements there are, against NumPy and ONNX Runtime."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import opwright as trt
from onnx_graphs import FLOAT, INT64, model, reference_session


def engine_of(nodes, inputs, outputs, constants=None, shapes=None, opset=18):
    made = model(nodes, inputs, outputs, constants, opset)
    return trt.build(made.SerializeToString(), timing=False, shapes=shapes)


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32, np.int64, bool],
    ids=lambda t: np.dtype(t).name,
)
def test_nonzero_of_every_type(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    engine = engine_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": (kind, [3, 5, 4])}, ["y"])
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 2 + seed, (3, 5, 4)).astype(dtype)
        got = engine(x)
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, np.stack(np.nonzero(x)))


def test_nonzero_of_nothing_all_and_much():
    engine = engine_of(
        [helper.make_node("NonZero", ["x"], ["y"])],
        {"x": (FLOAT, ["n", "m"])},
        ["y"],
        shapes={"x": ((0, 1), (4, 4), (300, 400))},
    )
    x = np.random.default_rng(1).integers(0, 2, (300, 400)).astype(np.float32)
    for case in (x, np.zeros((3, 4), np.float32), np.ones((2, 2), np.float32), x[:0]):
        np.testing.assert_array_equal(engine(case), np.stack(np.nonzero(case)))
    special = np.float32([[-0.0, np.nan], [np.inf, 0]])
    np.testing.assert_array_equal(engine(special), [[0, 1], [1, 0]])


def test_the_number_is_followed():
    """What is found goes through other layers, whose extents it decides."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Transpose", ["at"], ["rows"]),
        helper.make_node("GatherND", ["x", "rows"], ["found"]),
        helper.make_node("Mul", ["found", "found"], ["squares"]),
        helper.make_node("ReduceSum", ["squares"], ["sum"]),
        helper.make_node("ScatterND", ["x", "rows", "squares"], ["y"]),
        helper.make_node("Shape", ["found"], ["count"]),
    ]
    engine = engine_of(nodes, {"x": (FLOAT, [4, 6])}, ["squares", "sum", "y", "count"])
    for seed in range(3):
        x = np.random.default_rng(seed).integers(-2, 3, (4, 6)).astype(np.float32)
        got = engine(x)
        want = x[x != 0] ** 2
        np.testing.assert_array_equal(got["squares"], want)
        np.testing.assert_allclose(np.reshape(got["sum"], ()), want.sum())
        np.testing.assert_array_equal(got["y"], x**2)
        np.testing.assert_array_equal(got["count"], [want.size])


def test_the_layer_has_a_count():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_non_zero(x)
    assert (layer.type, layer.indices_type) == (trt.LayerType.NON_ZERO, trt.int32)
    assert layer.num_outputs == 2
    for i in range(2):
        network.mark_output(layer.get_output(i))
    got = list(trt.build(network, timing=False)(np.float32([[0, 1, 0], [2, 0, 3]])).values())
    np.testing.assert_array_equal(got[0], [[0, 1, 1], [1, 0, 2]])
    assert got[0].dtype == np.int32
    assert got[1] == 3
    layer.indices_type = trt.float32
    with pytest.raises(trt.Error, match="indices must be INT32 or INT64"):
        str(layer.get_output(0).shape)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64, bool])
def test_compress(axis, dtype):
    attributes = {} if axis is None else {"axis": axis}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    engine = engine_of(
        [helper.make_node("Compress", ["x", "c"], ["y"], **attributes)],
        {"x": (kind, [3, 4]), "c": (TensorProto.BOOL, ["n"])},
        ["y"],
        shapes={"c": ((0,), (2,), (12,))},
    )
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2 if dtype is bool else 100, (3, 4)).astype(dtype)
    most = x.size if axis is None else x.shape[axis]
    for n in (0, 1, most):
        c = rng.integers(0, 2, n).astype(bool)
        np.testing.assert_array_equal(engine(x=x, c=c), np.compress(c, x, axis))
    # What a longer condition says of nothing is not asked.
    c = np.ones(12, bool)
    np.testing.assert_array_equal(engine(x=x, c=c), np.compress(c[:most], x, axis))


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_unique(axis, is_sorted, dtype):
    attributes = {} if axis is None else {"axis": axis}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    engine = engine_of(
        [helper.make_node("Unique", ["x"], ["y", "i", "v", "c"], sorted=is_sorted, **attributes)],
        {"x": (kind, ["n", "m", 2])},
        ["y", "i", "v", "c"],
        shapes={"x": ((1, 1, 2), (3, 4, 2), (8, 9, 2))},
    )
    for seed, shape in enumerate([(5, 6, 2), (8, 9, 2), (1, 1, 2)]):
        x = np.random.default_rng(seed).integers(0, 2, shape).astype(dtype)
        y, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not is_sorted:
            order = np.argsort(first)
            y = np.take(y, order, 0 if axis is None else axis)
            first, counts = first[order], counts[order]
            inverse = np.argsort(order)[inverse]
        got = engine(x)
        for name, want in zip("yivc", (y, first, inverse, counts)):
            np.testing.assert_array_equal(got[name], want)
            assert got[name].dtype == (dtype if name == "y" else np.int64)


def test_unique_knows_what_is_no_number():
    engine = engine_of([helper.make_node("Unique", ["x"], ["y"])], {"x": (FLOAT, [7])}, ["y"])
    x = np.float32([np.nan, 1, -0.0, np.inf, 0.0, np.nan, -np.inf])
    np.testing.assert_array_equal(engine(x), [-np.inf, 0, 1, np.inf, np.nan])


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32, np.int64, bool],
    ids=lambda t: np.dtype(t).name,
)
def test_unique_of_many_elements(dtype, is_sorted):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    engine = engine_of(
        [helper.make_node("Unique", ["x"], ["y", "i", "v", "c"], sorted=is_sorted)],
        {"x": (kind, ["n"])},
        ["y", "i", "v", "c"],
        shapes={"x": ((1,), (1000,), (3000,))},
    )
    rng = np.random.default_rng(4)
    for count in (127, 128, 3000):
        if np.issubdtype(dtype, np.integer):
            info = np.iinfo(dtype)
            x = rng.integers(info.min, info.max, count // 2, dtype, endpoint=True)
        else:
            x = (rng.standard_normal(count // 2) * 3).astype(dtype)
        x = rng.permutation(np.resize(x, count))
        y, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True
        )
        if not is_sorted:
            order = np.argsort(first)
            y, first, counts = y[order], first[order], counts[order]
            inverse = np.argsort(order)[inverse]
        got = engine(x)
        for name, want in zip("yivc", (y, first, inverse, counts)):
            np.testing.assert_array_equal(got[name], want)


def boxes_and_scores(seed, batch=2, count=60, classes=3, dtype=np.float32):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 20, (batch, count, 2))
    corners = np.concatenate([low, low + rng.uniform(1, 10, low.shape)], -1)
    return corners.astype(dtype), rng.uniform(0, 1, (batch, classes, count)).astype(dtype)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("thresholds", [(), (0.3,), (0.5, 0.4), (0.0, 0.9), (1.0, 2.0)])
@pytest.mark.parametrize("most", [0, 1, 5, 1000])
def test_nms_is_that_of_onnx_runtime(most, thresholds, center):
    names = ["boxes", "scores", "most", "iou", "score"][: 3 + len(thresholds)]
    constants = {"most": np.array([most])}
    for name, value in zip(names[3:], thresholds):
        constants[name] = np.float32([value])
    made = model(
        [helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=center)],
        {"boxes": (FLOAT, ["b", "n", 4]), "scores": (FLOAT, ["b", "c", "n"])},
        ["y"],
        constants,
    )
    engine = trt.build(
        made.SerializeToString(),
        timing=False,
        shapes={
            "boxes": ((1, 1, 4), (2, 60, 4), (2, 100, 4)),
            "scores": ((1, 1, 1), (2, 3, 60), (2, 3, 100)),
        },
    )
    session = reference_session(made)
    for seed, count in ((0, 60), (1, 100), (2, 1)):
        boxes, scores = boxes_and_scores(seed, count=count)
        inputs = {"boxes": boxes, "scores": scores}
        got, want = engine(**inputs), session.run(None, inputs)[0]
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, want)


def test_nms_takes_its_limits_from_data():
    """A number of boxes that is only known when the engine runs."""
    made = model(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["y"])],
        {
            "boxes": (FLOAT, [2, 60, 4]),
            "scores": (FLOAT, [2, 3, 60]),
            "numbers": (FLOAT, [2]),
            "iou": (FLOAT, [1]),
        },
        ["y"],
    )
    made.graph.node.insert(0, helper.make_node("ReduceMax", ["numbers"], ["m"], keepdims=0))
    made.graph.node.insert(1, helper.make_node("Cast", ["m"], ["most"], to=INT64))
    engine = trt.build(made.SerializeToString(), timing=False)
    session = reference_session(made)
    boxes, scores = boxes_and_scores(3)
    for most in (0, 2, 9):
        inputs = {
            "boxes": boxes,
            "scores": scores,
            "numbers": np.float32([most, 0]),
            "iou": np.float32([0.4]),
        }
        np.testing.assert_array_equal(engine(**inputs), session.run(None, inputs)[0])


@pytest.mark.parametrize("dtype", [trt.float32, trt.float16])
def test_the_nms_layer(dtype):
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    boxes = network.add_input("boxes", dtype, (1, 4, 2, 4))
    scores = network.add_input("scores", dtype, (1, 4, 2))
    most = network.add_constant((), np.array(3, np.int32)).get_output(0)
    layer = network.add_nms(boxes, scores, most)
    assert layer.type == trt.LayerType.NMS
    assert layer.bounding_box_format == trt.BoundingBoxFormat.CORNER_PAIRS
    assert (layer.topk_box_limit, layer.indices_type) == (0, trt.int32)
    layer.set_input(3, network.add_constant((), np.float32([0.5])).get_output(0))
    layer.set_input(4, network.add_constant((), np.float32([0.1])).get_output(0))
    layer.topk_box_limit = 3
    for i in range(2):
        network.mark_output(layer.get_output(i))
    engine = trt.build(network, timing=False)
    kind = np.float32 if dtype == trt.float32 else np.float16
    one = [[0, 0, 2, 2], [10, 10, 12, 12], [0, 0, 2, 1.9], [20, 20, 22, 22]]
    two = [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]]
    given = np.stack([np.array(one), np.array(two)], 1)[None].astype(kind)
    points = np.array([[[0.9, 0.2], [0.8, 0.05], [0.7, 0.3], [0.6, 0.25]]]).astype(kind)
    got = list(engine(boxes=given, scores=points).values())
    # In the first class the fourth box is beyond the limit, and the third overlaps the first.
    np.testing.assert_array_equal(got[0], [[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 1, 3]])
    assert got[1] == 4
