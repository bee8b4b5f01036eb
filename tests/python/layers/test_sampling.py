"""Grid sampling and regions of interest against ONNX's reference and ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import opwright as trt
from onnx_graphs import FLOAT, INT64, model, reference_session, roi_align


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("spatial", [2, 3])
def test_grid_sample(spatial, mode, padding, align):
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 3, 4, 5, 6)[: 2 + spatial]).astype(np.float32)
    grid = rng.uniform(-1.6, 1.6, (2, 3, 4, 2)[: 1 + spatial] + (spatial,)).astype(np.float32)
    node = helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=align
    )
    made = model(
        [node],
        {"x": (FLOAT, list("nchwd"[: x.ndim])), "grid": (FLOAT, [*"npqr"[: x.ndim - 1], spatial])},
        ["y"],
        opset=20,
    )
    low = {"x": (1,) * x.ndim, "grid": (*(1,) * (x.ndim - 1), spatial)}
    shapes = {"x": (low["x"], x.shape, x.shape), "grid": (low["grid"], grid.shape, grid.shape)}
    engine = trt.build(made.SerializeToString(), timing=False, shapes=shapes)
    got = engine(x=x, grid=grid)
    # ONNX's reference moves cubic positions to the border before it looks for their neighbours.
    if (mode, padding) != ("cubic", "border"):
        want = ReferenceEvaluator(made).run(None, {"x": x, "grid": grid})[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    if spatial == 2:
        want = reference_session(made).run(None, {"x": x, "grid": grid})[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_positions_that_are_no_numbers_read_nothing():
    for padding in ("zeros", "border", "reflection"):
        node = helper.make_node("GridSample", ["x", "grid"], ["y"], padding_mode=padding)
        made = model(
            [node], {"x": (FLOAT, [1, 1, 3, 3]), "grid": (FLOAT, [1, 1, 4, 2])}, ["y"], opset=20
        )
        engine = trt.build(made.SerializeToString(), timing=False)
        grid = np.float32([[[[np.nan, 0], [np.inf, 0], [-np.inf, 1e30], [0, 0]]]])
        got = engine(x=np.ones((1, 1, 3, 3), np.float32), grid=grid)
        assert got[0, 0, 0, 3] == 1
        assert np.isfinite(got).all()


def test_the_grid_layer():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float16, (1, 2, 4, 4))
    grid = network.add_input("grid", trt.float16, (1, 4, 4, 2))
    layer = network.add_grid_sample(x, grid)
    assert layer.type == trt.LayerType.GRID_SAMPLE
    assert layer.interpolation_mode == trt.InterpolationMode.LINEAR
    assert (layer.align_corners, layer.sample_mode) == (False, trt.SampleMode.FILL)
    layer.align_corners = True
    layer.sample_mode = trt.SampleMode.CLAMP
    network.mark_output(layer.get_output(0))
    engine = trt.build(network, timing=False)
    lines = np.linspace(-1, 1, 4)
    positions = np.stack(np.meshgrid(lines, lines, indexing="xy"), -1)[None].astype(np.float16)
    image = np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype(np.float16)
    np.testing.assert_allclose(engine(x=image, grid=positions), image, atol=5e-3)
    layer.sample_mode = trt.SampleMode.WRAP
    with pytest.raises(trt.Error, match="the sample mode must be FILL, CLAMP or REFLECT"):
        str(layer.get_output(0).shape)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_roi_align(transformation, ratio, mode):
    node = roi_align(transformation, ratio, mode)
    made = model(
        [node],
        {"x": (FLOAT, [2, 3, 10, 12]), "rois": (FLOAT, ["r", 4]), "images": (INT64, ["r"])},
        ["y"],
        opset=16,
    )
    engine = trt.build(
        made.SerializeToString(),
        timing=False,
        shapes={"rois": ((0, 4), (5, 4), (9, 4)), "images": ((0,), (5,), (9,))},
    )
    rng = np.random.default_rng(3)
    session = reference_session(made)
    for count in (5, 9, 0):
        low = rng.uniform(-4, 18, (count, 2))
        inputs = {
            "x": rng.standard_normal((2, 3, 10, 12)).astype(np.float32),
            "rois": np.concatenate([low, low + rng.uniform(0.1, 9, low.shape)], 1).astype(
                np.float32
            ),
            "images": rng.integers(0, 2, count),
        }
        want = session.run(None, inputs)[0]
        np.testing.assert_allclose(engine(**inputs), want, rtol=1e-4, atol=1e-5)


def test_regions_of_images_that_are_not_there_are_zero():
    made = model(
        [helper.make_node("RoiAlign", ["x", "rois", "images"], ["y"])],
        {"x": (FLOAT, [1, 1, 4, 4]), "rois": (FLOAT, [3, 4]), "images": (INT64, [3])},
        ["y"],
        opset=16,
    )
    rois = np.float32([[0, 0, 3, 3], [0, 0, 3, 3], [np.nan, -np.inf, 1e30, np.inf]])
    x = np.ones((1, 1, 4, 4), np.float32)
    engine = trt.build(made.SerializeToString(), timing=False)
    got = engine(x=x, rois=rois, images=np.array([1, 0, 0]))
    np.testing.assert_array_equal(got[:2].ravel(), [0, 1])


def test_max_roi_pool():
    node = helper.make_node(
        "MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[2, 3], spatial_scale=0.5
    )
    made = model([node], {"x": (FLOAT, [2, 3, 10, 12]), "rois": (FLOAT, [6, 5])}, ["y"], opset=16)
    engine = trt.build(made.SerializeToString(), timing=False)
    rng = np.random.default_rng(3)
    low = rng.integers(0, 14, (6, 2))
    rois = np.concatenate([rng.integers(0, 2, (6, 1)), low, low + rng.integers(0, 9, (6, 2))], 1)
    inputs = {
        "x": rng.standard_normal((2, 3, 10, 12)).astype(np.float32),
        "rois": rois.astype(np.float32),
    }
    want = reference_session(made).run(None, inputs)[0]
    np.testing.assert_allclose(engine(**inputs), want)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_affine_grid(size, align):
    spatial = len(size) - 2
    made = model(
        [helper.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=align)],
        {"theta": (FLOAT, ["n", spatial, spatial + 1])},
        ["y"],
        {"size": np.array(size)},
        opset=20,
    )
    theta = np.random.default_rng(2).standard_normal((2, spatial, spatial + 1)).astype(np.float32)
    shapes = {"theta": ((2, *theta.shape[1:]),) * 3}
    engine = trt.build(made.SerializeToString(), timing=False, shapes=shapes)
    want = ReferenceEvaluator(made).run(None, {"theta": theta})[0]
    np.testing.assert_allclose(engine(theta), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups, offset_groups", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("extras", [(), ("bias",), ("bias", "mask")])
def test_deformable_convolution(extras, groups, offset_groups):
    rng = np.random.default_rng(2)
    node = helper.make_node(
        "DeformConv",
        ["x", "w", "offset", *[n if n in extras else "" for n in ("bias", "mask")]],
        ["y"],
        strides=[2, 1],
        pads=[1, 0, 1, 2],
        dilations=[1, 2],
        group=groups,
        offset_group=offset_groups,
    )
    weights = {"w": rng.standard_normal((6, 10 // groups, 3, 2)).astype(np.float32)}
    if "bias" in extras:
        weights["bias"] = rng.standard_normal(6).astype(np.float32)
    inputs = {
        "x": (FLOAT, ["n", 10, 7, 6]),
        "offset": (FLOAT, ["n", 12 * offset_groups, 4, 6]),
        "mask": (FLOAT, ["n", 6 * offset_groups, 4, 6]),
    }
    if "mask" not in extras:
        del inputs["mask"]
    made = model([node], inputs, ["y"], weights, opset=19)
    shapes = {name: tuple((n, *dims[1:]) for n in (1, 2, 3)) for name, (_, dims) in inputs.items()}
    engine = trt.build(made.SerializeToString(), timing=False, shapes=shapes)
    session = reference_session(made)
    for n in (1, 3):
        given = {
            name: rng.standard_normal((n, *dims[1:])).astype(np.float32)
            for name, (_, dims) in inputs.items()
        }
        want = session.run(None, given)[0]
        np.testing.assert_allclose(engine(**given), want, rtol=1e-3, atol=1e-3)
