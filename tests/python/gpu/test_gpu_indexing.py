"""Operators that index, scatter and sample on a GPU, against ONNX's reference, with fixed and with dynamic shapes."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import opwright as trt
from onnx_graphs import model, reference_session, roi_align

both = pytest.mark.parametrize("dynamic", [False, True])
TYPES = [np.float32, np.float16, np.int64]


def made(node, inputs, dynamic, outputs=("y",), constants=None, opset=20):
    """A model of the node, all of whose extents are open where it is dynamic."""
    specs = {}
    for name, array in inputs.items():
        shape = [f"{name}{i}" for i in range(array.ndim)] if dynamic else list(array.shape)
        specs[name] = (helper.np_dtype_to_tensor_dtype(array.dtype), shape)
    return model([node], specs, list(outputs), constants, opset=opset)


def run(built, *feeds, shapes=None):
    """What the engine gives for the feeds, of a profile around the first one."""
    ranges = {
        name: (
            tuple(min(1, n) for n in array.shape),
            array.shape,
            tuple(n + 3 for n in array.shape),
        )
        for name, array in feeds[0].items()
    }
    ranges.update(shapes or {})
    is_dynamic = any(
        dim.dim_param for value in built.graph.input for dim in value.type.tensor_type.shape.dim
    )
    engine = trt.build(
        built.SerializeToString(),
        shapes=ranges if is_dynamic else None,
        device=trt.DeviceType.GPU,
        timing=False,
    )
    found = [engine(**feed) for feed in feeds]
    return found[0] if len(found) == 1 else found


def reference(built, feed):
    return ReferenceEvaluator(built).run(None, feed)[0]


def numbers(rng, shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(-50, 50, shape).astype(dtype)


@both
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", TYPES)
def test_one_hot(dtype, axis, dynamic):
    rng = np.random.default_rng(1)
    node = helper.make_node("OneHot", ["indices", "depth", "values"], ["y"], axis=axis)
    feed = {"indices": rng.integers(-9, 9, (3, 5)), "values": np.array([2, 7], dtype)}
    built = made(node, feed, dynamic, constants={"depth": np.array([7])})
    for value in built.graph.input:
        if value.name == "values":
            value.type.tensor_type.shape.dim[0].dim_value = 2
    places = feed["indices"][..., None] == np.arange(7)
    places |= feed["indices"][..., None] + 7 == np.arange(7)  # others are nowhere
    want = np.moveaxis(np.where(places, 7, 2), -1, axis).astype(dtype)
    np.testing.assert_array_equal(run(built, feed, shapes={"values": ((2,),) * 3}), want)


REDUCTIONS = ["none", "add", "mul", "min", "max"]


@both
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(4, 5, 6), (3, 2, 2), (11, 13, 9)])
def test_scattered_elements(shape, axis, reduction, dynamic):
    rng = np.random.default_rng(axis)
    dtype = TYPES[sum(shape) % 3]
    data = numbers(rng, shape, dtype)
    extents = [max(1, n - 1) for n in shape]
    places = np.argsort(rng.random(shape), axis)[tuple(slice(n) for n in extents)]
    if reduction != "none":  # several updates meet one element
        places = places // 2
    indices = np.where(rng.random(extents) < 0.5, places, places - shape[axis])
    feed = {"data": data, "indices": indices, "updates": numbers(rng, extents, dtype)}
    node = helper.make_node(
        "ScatterElements", ["data", "indices", "updates"], ["y"], axis=axis, reduction=reduction
    )
    built = made(node, feed, dynamic)
    tolerance = 2e-2 if dtype == np.float16 else 1e-5
    want = reference(built, feed)
    np.testing.assert_allclose(run(built, feed), want, rtol=tolerance, atol=tolerance)


@both
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scattered_slices(depth, dtype, reduction, dynamic):
    rng = np.random.default_rng(depth)
    data = numbers(rng, (7, 6, 50), dtype)
    # The last one of several updates of an element stays.
    indices = np.stack([rng.integers(-n, n, (4, 9)) for n in data.shape[:depth]], -1)
    feed = {
        "data": data,
        "indices": indices,
        "updates": numbers(rng, (4, 9, *data.shape[depth:]), dtype),
    }
    node = helper.make_node("ScatterND", ["data", "indices", "updates"], ["y"], reduction=reduction)
    built = made(node, feed, dynamic)
    shapes = {}
    if dynamic:
        tuples = built.graph.input[1].type.tensor_type.shape.dim[2]
        tuples.dim_value = depth
        shapes = {"indices": ((1, 1, depth), (4, 9, depth), (5, 500, depth))}
        updates = (4, 9, *data.shape[depth:])
        most = (5, 500, *(n + 3 for n in data.shape[depth:]))
        shapes["updates"] = ((1,) * len(updates), updates, most)
    tolerance = 3e-2 if dtype == np.float16 else 1e-4
    want = reference(built, feed)
    np.testing.assert_allclose(
        run(built, feed, shapes=shapes), want, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [40, 7])
def test_rows_are_added_to_a_table(columns, dtype):
    """As graph networks add messages to nodes: many rows of a table that many blocks share."""
    rng = np.random.default_rng(columns)
    data = numbers(rng, (6000, columns), dtype)
    indices = rng.integers(-6000, 6000, (9000, 1))
    updates = numbers(rng, (9000, columns), dtype)
    feed = {"data": data, "indices": indices, "updates": updates}
    node = helper.make_node("ScatterND", ["data", "indices", "updates"], ["y"], reduction="add")
    want = data.copy()
    for index, update in zip(indices[:, 0], updates):
        want[index] += update
    np.testing.assert_array_equal(run(made(node, feed, False), feed), want)


def test_many_updates_are_put_in_their_order():
    """More updates than a block takes at once, most of them of elements that others update, too."""
    rng = np.random.default_rng(5)
    data = np.zeros((40,), np.float32)
    indices = rng.integers(-45, 45, (3000, 1))  # some out of range
    updates = rng.standard_normal(3000).astype(np.float32)
    feed = {"data": data, "indices": indices, "updates": updates}
    for operator in ("ScatterND", "ScatterElements"):
        if operator == "ScatterElements":
            data, updates = np.zeros((1, 40), np.float32), updates[None]
            feed = {"data": data, "indices": indices.reshape(1, 3000), "updates": updates}
        attributes = {} if operator == "ScatterND" else {"axis": 1}
        node = helper.make_node(operator, ["data", "indices", "updates"], ["y"], **attributes)
        want = np.zeros(40, np.float32)
        for index, update in zip(indices[:, 0], updates.ravel()):
            if -40 <= index < 40:
                want[index] = update
        np.testing.assert_array_equal(run(made(node, feed, False), feed).ravel(), want)


def test_bools_are_scattered():
    data = np.array([True, False, True, False])
    feed = {"data": data, "indices": np.array([0, 1, 1]), "updates": np.array([False, True, True])}
    node = helper.make_node("ScatterElements", ["data", "indices", "updates"], ["y"])
    want = np.array([False, True, True, False])
    np.testing.assert_array_equal(run(made(node, feed, False), feed), want)


def test_indices_that_do_not_fit_the_data_are_an_error():
    feed = {
        "data": np.zeros((4, 4), np.float32),
        "indices": np.zeros((2, 4), np.int64),
        "updates": np.ones((2, 4), np.float32),
    }
    node = helper.make_node("ScatterElements", ["data", "indices", "updates"], ["y"], axis=0)
    built = made(node, feed, True)
    wrong = {**feed, "updates": np.ones((3, 4), np.float32)}
    wide = {name: np.zeros((2, 5), array.dtype) for name, array in feed.items()}
    wide["data"] = feed["data"]
    for bad, message in (
        (wrong, "dimension 0 of input 'updates' is 3, but dimension 0 of input 'indices' is 2"),
        (wide, "(?i)layer.*axis"),
    ):
        with pytest.raises(trt.Error, match=message):
            run(built, feed, bad)


@both
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0), (0, 2), (1, 2)])
@pytest.mark.parametrize("dtype", TYPES)
def test_reversed_sequences(dtype, axes, dynamic):
    rng = np.random.default_rng(3)
    batch, sequence = axes
    shape = (3, 4, 5, 2)[: 4 if 2 not in axes else 3]
    x = numbers(rng, shape, dtype)
    lengths = rng.integers(-1, shape[sequence] + 3, shape[batch])
    want = x.copy()
    for i, length in enumerate(lengths):  # lengths out of range are clamped
        line = np.moveaxis(want, (batch, sequence), (0, 1))[i]
        length = min(max(length, 0), shape[sequence])
        line[:length] = line[:length][::-1].copy()
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    types = {np.float32: trt.float32, np.float16: trt.float16, np.int64: trt.int64}
    inputs = [
        network.add_input(name, kind, (-1,) * array.ndim if dynamic else array.shape)
        for name, kind, array in (("x", types[dtype], x), ("lengths", trt.int64, lengths))
    ]
    layer = network.add_reverse_sequence(*inputs)
    layer.batch_axis, layer.sequence_axis = batch, sequence
    network.mark_output(layer.get_output(0))
    shapes = {}
    if dynamic:
        for name, array in (("x", x), ("lengths", lengths)):
            most = tuple(n + 2 for n in array.shape)
            shapes[name] = ((1,) * array.ndim, array.shape, most)
    engine = trt.build(network, shapes=shapes, device=trt.DeviceType.GPU, timing=False)
    np.testing.assert_array_equal(engine(x=x, lengths=lengths), want)


@both
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("spatial", [2, 3])
def test_grid_samples(spatial, mode, padding, align, dynamic):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 11, 4, 5, 6)[: 2 + spatial]).astype(np.float32)
    grid = rng.uniform(-1.6, 1.6, (2, 3, 4, 2)[: 1 + spatial] + (spatial,)).astype(np.float32)
    node = helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=align
    )
    feed = {"x": x, "grid": grid}
    built = made(node, feed, dynamic)
    # ONNX's reference moves cubic positions to the border before it looks for their neighbours.
    if (mode, padding, spatial) == ("cubic", "border", 3):
        pytest.skip("ONNX Runtime has no cubic interpolation along three axes")
    if mode == "cubic" and spatial == 2:
        want = reference_session(made(node, feed, False, opset=20)).run(None, feed)[0]
    else:
        want = reference(built, feed)
    ranges = {"grid": ((1,) * (spatial + 1) + (spatial,), grid.shape, grid.shape)}
    if dynamic:
        built.graph.input[1].type.tensor_type.shape.dim[spatial + 1].dim_value = spatial
    np.testing.assert_allclose(run(built, feed, shapes=ranges), want, rtol=1e-4, atol=1e-4)


def test_positions_that_are_no_numbers_read_nothing():
    for padding in ("zeros", "border", "reflection"):
        node = helper.make_node("GridSample", ["x", "grid"], ["y"], padding_mode=padding)
        grid = np.float16([[[[np.nan, 0], [np.inf, 0], [-np.inf, 6e4], [0, 0]]]])
        feed = {"x": np.ones((1, 1, 3, 3), np.float16), "grid": grid}
        found = run(made(node, feed, False), feed)
        assert found[0, 0, 0, 3] == 1
        assert np.isfinite(found).all()


@both
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_aligned_regions(transformation, ratio, mode, dynamic):
    rng = np.random.default_rng(2)
    node = roi_align(transformation, ratio, mode)
    corners = rng.uniform(-2, 18, (6, 2, 2))
    feed = {
        "x": rng.standard_normal((2, 3, 8, 9)).astype(np.float32),
        "rois": np.sort(corners, 1).reshape(6, 4).astype(np.float32),
        "images": rng.integers(0, 2, 6),
    }
    built = made(node, feed, dynamic)
    if dynamic:
        built.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 4
    want = reference_session(made(node, feed, False)).run(None, feed)[0]
    ranges = {"rois": ((1, 4), (6, 4), (9, 4))}
    np.testing.assert_allclose(run(built, feed, shapes=ranges), want, rtol=1e-4, atol=1e-4)


def test_regions_of_images_that_are_not_there_are_zero():
    node = helper.make_node("RoiAlign", ["x", "rois", "images"], ["y"], sampling_ratio=2)
    feed = {
        "x": np.ones((2, 1, 4, 4), np.float32),
        "rois": np.float32([[0, 0, 3, 3], [0, 0, 3, 3], [np.nan, -np.inf, np.inf, 3]]),
        "images": np.array([1, 2, 0]),
    }
    found = run(made(node, feed, False), feed).ravel()
    assert (found[0], found[1]) == (1, 0)


def test_pooled_regions():
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[2, 3])
    rng = np.random.default_rng(4)
    corners = np.sort(rng.integers(0, 9, (5, 2, 2)), 1).reshape(5, 4)
    feed = {
        "x": rng.standard_normal((2, 3, 8, 9)).astype(np.float32),
        "rois": np.concatenate([rng.integers(0, 2, (5, 1)), corners], 1).astype(np.float32),
    }
    built = made(node, feed, False)
    np.testing.assert_array_equal(run(built, feed), reference_session(built).run(None, feed)[0])


WINDOWS = [
    {"kernel_shape": [3]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER", "strides": [1, 2]},
    {"kernel_shape": [3, 3], "dilations": [2, 1], "ceil_mode": 1, "strides": [2, 2]},
    {"kernel_shape": [2, 2, 2], "strides": [1, 2, 1]},
]


@both
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("order", [0, 1])
def test_indices_of_maxima(order, window, dynamic):
    rng = np.random.default_rng(6)
    spatial = len(window["kernel_shape"])
    shape = (2, 3, 7, 8, 9)[: 2 + spatial]
    x = rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    node = helper.make_node("MaxPool", ["x"], ["y", "indices"], storage_order=order, **window)
    feed = {"x": x}
    want = reference_session(made(node, feed, False, ("y", "indices"))).run(None, feed)
    built = made(node, feed, dynamic, ("y", "indices"))
    ranges = {"x": (x.shape[:2] + (6,) * spatial, x.shape, tuple(n + 2 for n in x.shape))}
    found = run(built, feed, shapes=ranges)
    np.testing.assert_array_equal(found["y"], want[0])
    np.testing.assert_array_equal(found["indices"], want[1])


@both
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_norms_of_windows(dtype, p, window, dynamic):
    rng = np.random.default_rng(8)
    spatial = len(window["kernel_shape"])
    x = rng.standard_normal((2, 3, 7, 8, 9)[: 2 + spatial]).astype(dtype)
    node = helper.make_node("LpPool", ["x"], ["y"], p=p, **window)
    feed = {"x": x}
    built = made(node, {"x": x.astype(np.float32)}, False)
    want = reference_session(built).run(None, {"x": x.astype(np.float32)})[0]
    ranges = {"x": (x.shape[:2] + (6,) * spatial, x.shape, tuple(n + 2 for n in x.shape))}
    found = run(made(node, feed, dynamic), feed, shapes=ranges)
    np.testing.assert_allclose(found, want, rtol=5e-3 if dtype == np.float16 else 1e-5)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("n", [1, 2, 5, 17])
def test_determinants(n, dtype, dynamic):
    rng = np.random.default_rng(9)
    x = (rng.standard_normal((3, 4, n, n)) * n**-0.4).astype(dtype)
    x[1, 2, 0] = x[1, 2, n - 1]  # singular, but for a single element
    feed = {"x": x}
    built = made(helper.make_node("Det", ["x"], ["y"]), feed, dynamic)
    found = run(built, feed)
    want = np.linalg.det(x.astype(np.float64))
    np.testing.assert_allclose(found, want, rtol=2e-3 if dtype == np.float16 else 1e-4, atol=1e-4)


def test_bits_as_another_type():
    x = np.float32([1, -2, np.inf, 0.1]).reshape(2, 2)
    node = helper.make_node("BitCast", ["x"], ["y"], to=TensorProto.INT32)
    found = run(made(node, {"x": x}, False, opset=26), {"x": x})
    np.testing.assert_array_equal(found, x.view(np.int32))


@pytest.mark.parametrize("name", ["indices", "updates"])
def test_empty_tensors(name):
    feed = {
        "data": np.arange(6, dtype=np.float32).reshape(2, 3),
        "indices": np.zeros((0, 3), np.int64),
        "updates": np.zeros((0, 3), np.float32),
    }
    node = helper.make_node("ScatterElements", ["data", "indices", "updates"], ["y"], axis=0)
    ranges = {key: ((0, 3), (2, 3), (4, 3)) for key in ("data", "indices", "updates")}
    built = made(node, feed, True)
    np.testing.assert_array_equal(run(built, feed, shapes=ranges), feed["data"])
    if name == "updates":  # nothing at all
        nothing = {key: array[:0] for key, array in feed.items()}
        assert run(built, nothing, shapes=ranges).shape == (0, 3)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("dims", [(2, 3, 5), (1, 40, 6, 4)])
def test_maxima_are_put_back(dims, dtype, dynamic):
    rng = np.random.default_rng(4)
    spatial = len(dims) - 2
    to = (*dims[:2], *(2 * n for n in dims[2:]))
    total = int(np.prod(to))
    feed = {"x": numbers(rng, dims, dtype), "i": rng.integers(0, total, dims)}
    node = helper.make_node(
        "MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2] * spatial, strides=[2] * spatial
    )
    want = np.zeros(total, dtype)
    for value, place in zip(feed["x"].ravel(), feed["i"].ravel()):
        want[place] = value  # the last one stays
    np.testing.assert_array_equal(run(made(node, feed, dynamic), feed), want.reshape(to))


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(7,), (3, 5, 4), (2100,), (40, 60)])
def test_elements_that_are_not_zero(shape, dtype, dynamic):
    rng = np.random.default_rng(10)
    feed = {"x": (numbers(rng, shape, np.float32) * (rng.random(shape) < 0.4)).astype(dtype)}
    zeros = {"x": np.zeros(shape, dtype)}
    built = made(helper.make_node("NonZero", ["x"], ["y"]), feed, dynamic)
    found, none = run(built, feed, zeros)
    np.testing.assert_array_equal(found, np.stack(np.nonzero(feed["x"])))
    assert none.shape == (len(shape), 0)


@both
def test_extents_that_data_decides(dynamic):
    """Range, Slice and TopK by the number of elements that hold."""
    nodes = [
        helper.make_node("Cast", ["mask"], ["held"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["held", "first"], ["sums"], keepdims=1),
        helper.make_node("Cast", ["sums"], ["counts"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["counts", "first"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["places"]),
        helper.make_node("Slice", ["x", "first", "counts", "second"], ["part"]),
        helper.make_node("TopK", ["x", "counts"], ["most", "where"]),
    ]
    constants = {
        "first": np.array([0], np.int64),
        "second": np.array([1], np.int64),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
    }
    rng = np.random.default_rng(14)
    x = numbers(rng, (4, 9), np.float32)
    feeds = [{"mask": np.arange(9) < held, "x": x} for held in (5, 9, 1)]
    extents = ["n", "m"] if dynamic else [4, 9]
    specs = {"mask": (TensorProto.BOOL, extents[1:]), "x": (TensorProto.FLOAT, extents)}
    outputs = ["places", "part", "most", "where"]
    built = model(nodes, specs, outputs, constants, opset=20)
    for feed, result in zip(feeds, run(built, *feeds)):
        held = int(feed["mask"].sum())
        order = np.argsort(-x, axis=1, kind="stable")[:, :held]
        np.testing.assert_array_equal(result["places"], np.arange(held))
        np.testing.assert_array_equal(result["part"], x[:, :held])
        np.testing.assert_array_equal(result["where"], order)
        np.testing.assert_array_equal(result["most"], np.take_along_axis(x, order, 1))


def test_compressed_slices():
    rng = np.random.default_rng(12)
    feed = {"x": numbers(rng, (5, 6), np.float16), "condition": rng.random(6) < 0.5}
    node = helper.make_node("Compress", ["x", "condition"], ["y"], axis=1)
    want = feed["x"][:, feed["condition"]]
    np.testing.assert_array_equal(run(made(node, feed, False), feed), want)


@both
@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("limit", [0, 1, 30, 1000])
def test_boxes_that_overlap_no_better_one(limit, center, dynamic):
    rng = np.random.default_rng(11)
    low, size = rng.uniform(0, 10, (2, 300, 2)), rng.uniform(0.5, 4, (2, 300, 2))
    feed = {
        "boxes": np.concatenate([low, size if center else low + size], 2).astype(np.float32),
        "scores": rng.integers(0, 50, (2, 3, 300)).astype(np.float32) / 50,  # many are equal
    }
    constants = {
        "limit": np.array([limit]),
        "overlap": np.float32([0.3]),
        "score": np.float32([0.4]),
    }
    node = helper.make_node(
        "NonMaxSuppression", ["boxes", "scores", *constants], ["y"], center_point_box=center
    )
    built = made(node, feed, dynamic, constants=constants)
    if dynamic:
        built.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 4
        for axis, name in ((0, "boxes0"), (2, "boxes1")):
            built.graph.input[1].type.tensor_type.shape.dim[axis].dim_param = name
    ranges = {"boxes": ((1, 1, 4), (2, 300, 4), (3, 400, 4))}
    ranges["scores"] = ((1, 1, 1), (2, 3, 300), (3, 4, 400))
    want = reference_session(made(node, feed, False, constants=constants)).run(None, feed)[0]
    np.testing.assert_array_equal(run(built, feed, shapes=ranges), want)


@pytest.mark.parametrize("most", [1, 5, 300])
def test_only_the_best_boxes_are_looked_at(most):
    rng = np.random.default_rng(13)
    corners = rng.uniform(0, 10, (1, 300, 2))
    boxes = np.concatenate([corners, corners + 3], 2).astype(np.float32)
    scores = rng.random((1, 300, 2)).astype(np.float32)
    found = []
    for device in (trt.DeviceType.GPU, trt.DeviceType.CPU):
        network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
        tensors = [
            network.add_input("boxes", trt.float32, boxes.shape),
            network.add_input("scores", trt.float32, scores.shape),
            network.add_constant((), np.array(20, np.int32)).get_output(0),
        ]
        layer = network.add_nms(*tensors)
        layer.topk_box_limit = most
        network.mark_output(layer.get_output(0))
        found.append(trt.build(network, device=device, timing=False)(boxes=boxes, scores=scores))
    np.testing.assert_array_equal(*found)
    assert len(found[0]) > 0


@both
@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_different_elements(axis, dtype, is_sorted, dynamic):
    rng = np.random.default_rng(14)
    shape = (1500,) if axis is None else (9, 4, 2)
    x = rng.integers(0, 300 if axis is None else 2, shape).astype(dtype)
    if axis is not None:
        x = np.repeat(x, 2, axis)
    attributes = {} if axis is None else {"axis": axis}
    outputs = ["y", "first", "inverse", "counts"]
    node = helper.make_node("Unique", ["x"], outputs, sorted=is_sorted, **attributes)
    feeds = [{"x": x}, {"x": x[:1]}]
    built = made(node, feeds[0], dynamic, outputs)
    found = run(built, *feeds) if dynamic else [run(built, feeds[0])]
    for feed, got in zip(feeds, found):
        want = np.unique(
            feed["x"], axis=axis, return_index=True, return_inverse=True, return_counts=True
        )
        values, first, inverse, counts = (np.asarray(part) for part in want)
        inverse = inverse.ravel()
        if not is_sorted:
            order = np.argsort(first)
            values = np.take(values, order, axis or 0)
            first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
        for name, part in zip(outputs, (values, first, inverse, counts)):
            np.testing.assert_array_equal(got[name], part, err_msg=name)
