"""Windows that slide over images, and images of other extents: places that are whole or half, paddings that are odd,
and what is no ordinary number."""

import math
from fractions import Fraction

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import emulated_gpu
import opwright as trt
from onnx_graphs import as_list, model, reference_session

devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]
)
TRANSFORMATIONS = ["asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"]
ROUNDINGS = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]


def kind_of(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def single(op, inputs, constants=(), opset=19, extents=None, **attributes):
    """A model of one node; None is an input that is absent."""
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    given = {name: array for name, array in zip(names, inputs) if name}
    fixed = {name: given[name] for name in constants}
    shapes = {name: (kind_of(a), extents or list(a.shape)) for name, a in given.items()}
    made = model(
        [helper.make_node(op, names, ["y"], **attributes)],
        {name: shape for name, shape in shapes.items() if name not in fixed},
        ["y"],
        fixed,
        opset,
    )
    return made, {name: array for name, array in given.items() if name not in fixed}


def run(made, feed, device="cpu", **options):
    return as_list(trt.build(made, device=device, timing=False, **options)(**feed))


def nearest(transformation, rounding, i, extent, scale):
    """The place of an element in exact fractions."""
    result = math.floor(extent * scale)
    place = (i + Fraction(1, 2)) / scale - Fraction(1, 2)
    if transformation == "asymmetric":
        place = i / scale
    elif transformation == "align_corners":
        place = Fraction(i * (extent - 1), max(result - 1, 1))
    elif transformation == "pytorch_half_pixel" and result == 1:
        place = Fraction(0)
    below = math.floor(place)
    up = {
        "floor": False,
        "ceil": place > below,
        "round_prefer_floor": place - below > Fraction(1, 2),
        "round_prefer_ceil": place - below >= Fraction(1, 2),
    }[rounding]
    return min(max(below + up, 0), extent - 1)


# What a rounded scale put beside an element: 14 to 2, 20 to 24, 11 to 13, 10 to 6, 7 to 1.
EXTENTS, RESULTS = (14, 20, 11, 10, 7), (2, 24, 13, 6, 1)


@devices
@pytest.mark.parametrize("given", ["sizes", "scales", "open"])
def test_nearest_places_are_exact(given, device):
    x = np.arange(math.prod(EXTENTS), dtype=np.float32).reshape(EXTENTS)
    scales = [Fraction(b, a) for a, b in zip(EXTENTS, RESULTS)]
    by_scales = given == "scales"
    constant = {
        "w": np.array(RESULTS)
        if not by_scales
        else np.array([float(s) for s in scales], np.float32)
    }
    ways = [(t, r) for t in TRANSFORMATIONS for r in ROUNDINGS]
    if device == "cuda":  # each kernel is compiled
        ways = ways[::3]
    nodes = [
        helper.make_node(
            "Resize",
            ["x", "", "w"] if by_scales else ["x", "", "", "w"],
            [f"y{i}"],
            mode="nearest",
            coordinate_transformation_mode=transformation,
            nearest_mode=rounding,
        )
        for i, (transformation, rounding) in enumerate(ways)
    ]
    dims = [*"abcde"] if given == "open" else list(EXTENTS)
    made = model(
        nodes, {"x": (kind_of(x), dims)}, [f"y{i}" for i in range(len(ways))], constant, opset=19
    )
    shapes = {"x": ((1,) * 5, EXTENTS, tuple(n + 1 for n in EXTENTS))} if given == "open" else None
    for (transformation, rounding), got in zip(ways, run(made, {"x": x}, device, shapes=shapes)):
        places = [
            [nearest(transformation, rounding, i, extent, scale) for i in range(result)]
            for extent, result, scale in zip(EXTENTS, RESULTS, scales)
        ]
        np.testing.assert_array_equal(got, x[np.ix_(*places)], f"{transformation} {rounding}")


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_proportions_are_kept_exactly(policy):
    for n in range(2, 60):
        x = np.arange(n * 2 * n, dtype=np.float32).reshape(n, 2 * n)
        made, feed = single(
            "Resize",
            [x, None, None, np.array([1, 2] if policy == "not_larger" else [1, 1])],
            ["x3"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
            keep_aspect_ratio_policy=policy,
        )
        np.testing.assert_array_equal(run(made, feed)[0], x[::n, ::n])


@devices
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_whole_places_take_one_element(mode, device):
    x = np.random.default_rng(0).standard_normal((1, 49, 14)).astype(np.float32)
    made, feed = single(
        "Resize",
        [x, None, None, np.array([1, 7, 2])],
        ["x3"],
        mode=mode,
        coordinate_transformation_mode="asymmetric",
    )
    np.testing.assert_array_equal(run(made, feed, device)[0], x[:, ::7, ::7])


@devices
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_integers_are_interpolated(mode, dtype, device):
    x = np.random.default_rng(1).integers(-128, 127, (1, 2, 4, 6)).astype(dtype)
    ways = [("half_pixel", 0), ("align_corners", 0), ("asymmetric", 1), ("half_pixel", 1)]
    for transformation, antialias in ways[:: 1 if device == "cpu" else 3]:
        made, feed = single(
            "Resize",
            [x, None, None, np.array([1, 2, 7, 3])],
            ["x3"],
            mode=mode,
            coordinate_transformation_mode=transformation,
            antialias=antialias,
        )
        (got,) = run(made, feed, device)
        (want,) = ReferenceEvaluator(made).run(None, feed)
        assert got.dtype == dtype and got.shape == want.shape
        # What lies in the middle between two integers may become either.
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
        assert np.mean(got != want) < 0.1


@devices
@pytest.mark.parametrize("mode", ["LINEAR", "CUBIC"])
def test_a_resize_layer_takes_integers(mode, device):
    x = np.random.default_rng(2).integers(0, 255, (1, 2, 4, 6)).astype(np.uint8)
    builder = trt.Builder(trt.Logger())
    network = builder.create_network(0)
    layer = network.add_resize(network.add_input("x", trt.uint8, x.shape))
    layer.shape, layer.resize_mode = (1, 2, 7, 9), trt.InterpolationMode[mode]
    layer.coordinate_transformation = trt.ResizeCoordinateTransformation.HALF_PIXEL
    assert layer.get_output(0).dtype == trt.uint8
    network.mark_output(layer.get_output(0))
    got = np.asarray(trt.build(network, device=device, timing=False)(x))
    sizes = [x.astype(np.float32), None, None, np.array([1, 2, 7, 9])]
    wide, feed = single("Resize", sizes, ["x3"], mode=mode.lower())
    want = np.clip(np.rint(ReferenceEvaluator(wide).run(None, feed)[0]), 0, 255)
    assert got.dtype == np.uint8 and np.abs(got - want).max() <= 1 and np.mean(got != want) < 0.1


def test_the_largest_integers_stay_within_their_type():
    for dtype in (np.int32, np.int64):
        most, least = np.iinfo(dtype).max, np.iinfo(dtype).min
        x = np.array([[[most, least] * 2]], dtype)
        made, feed = single("Resize", [x, None, None, np.array([1, 1, 7])], ["x3"], mode="cubic")
        wide, wide_feed = single(
            "Resize", [x.astype(float), None, None, np.array([1, 1, 7])], ["x3"], mode="cubic"
        )
        (want,) = ReferenceEvaluator(wide).run(None, wide_feed)
        assert want.max() > most
        want = np.clip(want, float(least), float(most))
        np.testing.assert_allclose(
            run(made, feed)[0].astype(float), want, rtol=1e-6, atol=2**-20 * most
        )


def transposed(x, w, strides, dilations, output_padding, groups):
    """All of a transposed convolution, before padding is taken off; along one axis."""
    channels = w.shape[1] * groups
    reach = strides * (x.shape[2] - 1) + (w.shape[2] - 1) * dilations + 1
    full = np.zeros((x.shape[0], channels, reach + output_padding), np.float64)
    for i in range(x.shape[2]):
        for c in range(x.shape[1]):
            first = c // (x.shape[1] // groups) * w.shape[1]
            for k in range(w.shape[2]):
                at = i * strides + k * dilations
                full[:, first : first + w.shape[1], at] += np.outer(x[:, c, i], w[c, :, k])
    return full


@pytest.mark.parametrize("opset", [7, 11, 22])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
def test_an_output_shape_decides_where_odd_padding_lies(auto_pad, opset):
    rng = np.random.default_rng(2)
    for groups, strides, dilations, output_padding, taken in [
        (1, 2, 1, 0, 3),
        (1, 3, 2, 1, 1),
        (2, 2, 2, 0, 2),
        (2, 1, 1, 0, 1),
    ]:
        x = rng.standard_normal((1, 2 * groups, 5)).astype(np.float32)
        w = rng.standard_normal((2 * groups, 2, 4)).astype(np.float32)
        full = transposed(x, w, strides, dilations, output_padding, groups)
        made, feed = single(
            "ConvTranspose",
            [x, w],
            ["x1"],
            opset,
            auto_pad=auto_pad,
            strides=[strides],
            dilations=[dilations],
            output_padding=[output_padding],
            group=groups,
            output_shape=[full.shape[2] - taken],
        )
        # Before opset 11 the standard says the opposite for NOTSET and VALID.
        less_first = auto_pad == "SAME_UPPER" or (opset < 11 and auto_pad != "SAME_LOWER")
        first = taken // 2 if less_first else taken - taken // 2
        want = full[:, :, first : first + full.shape[2] - taken]
        np.testing.assert_allclose(run(made, feed)[0], want, rtol=1e-4, atol=1e-4)
        if opset >= 11:
            want = reference_session(made).run(None, feed)[0]
            np.testing.assert_allclose(run(made, feed)[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spatial", [2, 3])
def test_odd_padding_of_an_output_shape_along_several_axes(spatial):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 2, *(4, 3, 5)[:spatial])).astype(np.float32)
    w = rng.standard_normal((2, 1, *(4, 3, 3)[:spatial])).astype(np.float32)
    full = [2 * (n - 1) + k for n, k in zip(x.shape[2:], w.shape[2:])]
    made, feed = single(
        "ConvTranspose",
        [x, w],
        ["x1"],
        strides=[2] * spatial,
        output_shape=[n - taken for n, taken in zip(full, (1, 3, 2))],
    )
    want = reference_session(made).run(None, feed)[0]
    np.testing.assert_allclose(run(made, feed)[0], want, rtol=1e-4, atol=1e-4)


@devices
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_maxima_of_infinity_and_nan(spatial, dtype, device):
    rng = np.random.default_rng(4)
    shape = (1, 3, 5, 6, 7)[: 2 + spatial]
    x = np.where(rng.random(shape) < 0.2, rng.standard_normal(shape), -np.inf).astype(dtype)
    x[rng.random(shape) < 0.05] = x[0, 1, 0] = np.nan
    made, feed = single(
        "MaxPool", [x], kernel_shape=[2] * spatial, strides=[2] * spatial, pads=[1] * 2 * spatial
    )
    want = np.full((*shape[:2], *(n // 2 + 1 for n in shape[2:])), -np.inf)
    for at in np.ndindex(want.shape):
        window = tuple(slice(max(0, 2 * i - 1), 2 * i + 1) for i in at[2:])
        want[at] = x[at[:2] + window].max()
    assert np.isnan(want).any() and (want == -np.inf).any()
    np.testing.assert_array_equal(run(made, feed, device)[0], want)


@devices
@pytest.mark.parametrize("indexed", [False, True])
def test_a_window_of_padding_alone_has_the_least_maximum(indexed, device):
    for x in (np.ones((1, 2, 1), np.float32), np.ones((1, 2, 1), np.int8)):
        outputs = ["y", "i"] if indexed else ["y"]
        node = helper.make_node(
            "MaxPool", ["x"], outputs, kernel_shape=[2], dilations=[2], pads=[1, 1]
        )
        made = model([node], {"x": (kind_of(x), list(x.shape))}, outputs)
        least = -np.inf if x.dtype == np.float32 else -128
        np.testing.assert_array_equal(run(made, {"x": x}, device)[0], np.full_like(x, least))


def test_padding_as_wide_as_the_window_before_a_pooling():
    rng = np.random.default_rng(5)
    for window, pads, shape in [
        ([1, 1], [0, 0, 1, 1, 0, 0, 1, 1], (1, 2, 8, 8)),
        ([2, 2], [0, 0, 2, 0, 0, 0, 0, 1], (1, 2, 8, 8)),
        ([2], [0, 0, 0, 0, 0, 2], (1, 2, 8)),
        ([2, 2, 2], [0, 0, 2, 2, 2, 0, 0, 0, 0, 0], (1, 2, 4, 4, 4)),
    ]:
        x = rng.standard_normal(shape).astype(np.float32)
        padded = np.pad(x, list(zip(pads[: len(shape)], pads[len(shape) :])))
        nodes = [helper.make_node("Pad", ["x", "p"], ["t"])]
        kinds = ["AveragePool", "LpPool", "MaxPool"]
        nodes += [helper.make_node(kind, ["t"], [kind], kernel_shape=window) for kind in kinds]
        for kind, node in zip(kinds, nodes[1:]):
            made = model(
                [nodes[0], node], {"x": (kind_of(x), list(shape))}, [kind], {"p": np.array(pads)}
            )
            (got,) = run(made, {"x": x})
            alone, feed = single(kind, [padded], opset=18, kernel_shape=window)
            want = reference_session(alone).run(None, feed)[0]
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@devices
@pytest.mark.parametrize("align", [0, 1])
def test_grids_that_point_between_two_elements(align, device):
    rng = np.random.default_rng(6)
    x = rng.standard_normal((1, 1, 4, 5)).astype(np.float32)
    places = [rng.integers(-4, 2 * n + 4, (12, 12)) / 2 for n in (5, 4)]
    grid = np.stack(
        [2 * p / (n - 1) - 1 if align else (2 * p + 1) / n - 1 for p, n in zip(places, (5, 4))], -1
    )[None].astype(np.float32)
    for padding in ("zeros", "border", "reflection")[:: 1 if device == "cpu" else 2]:
        made, feed = single(
            "GridSample", [x, grid], opset=20, mode="nearest", padding_mode=padding,
            align_corners=align,
        )  # fmt: skip
        (got,) = run(made, feed, device)
        np.testing.assert_array_equal(got, ReferenceEvaluator(made).run(None, feed)[0])
        np.testing.assert_array_equal(got, reference_session(made).run(None, feed)[0])


@pytest.mark.parametrize("open_batch", [False, True])
def test_images_of_one_column(open_batch):
    """They run as images of one row, with strides, dilations, paddings, residuals and activations along it."""
    random = np.random.default_rng(5)
    real = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    along = {"strides": [2, 1], "dilations": [3, 1], "pads": [2, 0, 4, 0]}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["t"], **along),
        helper.make_node("Relu", ["t"], ["u"]),
        helper.make_node("Conv", ["u", "v"], ["s"], group=2, pads=[1, 0, 1, 0]),
        helper.make_node("Add", ["s", "u"], ["y"]),
    ]
    constants = {"w": real(16, 6, 5, 1), "b": real(16), "v": real(16, 8, 3, 1)}
    shape = ["n" if open_batch else 2, 6, 41, 1]
    made = model(nodes, {"x": (1, shape)}, ["y"], constants)
    feed = {"x": real(2, 6, 41, 1)}
    shapes = {"x": ((1, 6, 41, 1), (2, 6, 41, 1), (4, 6, 41, 1))} if open_batch else None
    engine = trt.build(made, device="cpu", timing=False, shapes=shapes)
    (wanted,) = reference_session(made).run(None, feed)
    np.testing.assert_allclose(engine(**feed), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    convolutions = [layer for layer in engine.layers if layer["LayerType"] == "Convolution"]
    assert len(convolutions) == 2
    for layer in convolutions:
        assert layer["Inputs"][0]["Dimensions"][2] == layer["Outputs"][0]["Dimensions"][2] == 1


def test_images_of_one_column_that_are_padded_beside_it_stay():
    random = np.random.default_rng(6)
    x = random.standard_normal((1, 3, 20, 1)).astype(np.float32)
    w = random.standard_normal((4, 3, 3, 1)).astype(np.float32)
    made, feed = single("Conv", [x, w], ["x1"], pads=[1, 1, 1, 1])
    (wanted,) = reference_session(made).run(None, feed)
    np.testing.assert_allclose(run(made, feed)[0], wanted, rtol=0, atol=1e-5)
