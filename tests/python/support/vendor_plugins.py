"""Plugins of others in their own compiled libraries: networks, inputs, and results by PyTorch, torchvision and NumPy.

A process of its own runs the cases with one library (`run`), since libraries for several versions of TensorRT have
creators of the same names, and some plugins end the process at an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Arrays = list[np.ndarray]

CIRC_PAD = "libcirc_pad_plugin.so"
MMDEPLOY = "libmmdeploy_tensorrt_ops.so"
YOLO = "libmyplugins.so"


@dataclass
class Case:
    """A plugin in a network."""

    library: str
    #: The name of the plugin's creator.
    plugin: str
    #: Makes the network or the model of the inputs' types and of these shapes, with -1 for an open extent.
    make: Callable[[Arrays, list[tuple[int, ...]]], Any]
    #: The inputs of each run. The first has the most typical shapes; open extents differ between them.
    feeds: list[Arrays]
    #: The results of these inputs, in double precision or as integers.
    reference: Callable[..., Arrays]
    #: The largest difference, as a share of the largest result.
    tolerance: float = 1e-5
    #: What of the results is defined, in an order of its own.
    defined: Callable[[Arrays], Arrays] = list
    #: -1 if the network negates the plugin's first input and first output.
    sign: int = 1
    fields: dict[str, Any] = field(default_factory=dict)

    def shapes(self) -> list[tuple[int, ...]]:
        """The inputs' shapes, with -1 where the runs differ."""
        return [
            tuple(
                n if all(f[i].shape[a] == n for f in self.feeds) else -1
                for a, n in enumerate(x.shape)
            )
            for i, x in enumerate(self.feeds[0])
        ]

    def given(self, feed: Arrays) -> Arrays:
        """What the network gets for the plugin to get `feed`."""
        return [self.sign * feed[0], *feed[1:]]

    def results(self, outputs: Arrays) -> Arrays:
        """What the plugin computed, from what the network returns."""
        return self.defined([self.sign * outputs[0], *outputs[1:]])


CASES: dict[str, Case] = {}


# Networks. ------------------------------------------------------------------------------------------------------


def node_model(operator: str, outputs: list[tuple[Any, int]], fields: dict[str, Any]) -> Callable:
    """A model of one node between negations of its first input and its first output: the plugin's kernels have to
    wait for the engine's, and the engine's for the plugin's."""

    def make(feed: Arrays, shapes: list[tuple[int, ...]]) -> Any:
        from onnx import TensorProto, helper

        types = {
            "float32": TensorProto.FLOAT,
            "float16": TensorProto.FLOAT16,
            "int32": TensorProto.INT32,
        }

        def described(name: str, dtype: Any, shape: Any) -> Any:
            named = [f"{name}_{i}" if n is None or n < 0 else n for i, n in enumerate(shape)]
            return helper.make_tensor_value_info(name, types[np.dtype(dtype).name], named)

        inputs = [described(f"x{i}", x.dtype, s) for i, (x, s) in enumerate(zip(feed, shapes))]
        made = [described(f"y{i}", dtype, [None] * rank) for i, (dtype, rank) in enumerate(outputs)]
        names = ["before", *(f"x{i}" for i in range(1, len(feed)))]
        results = ["after", *(f"y{i}" for i in range(1, len(outputs)))]
        nodes = [
            helper.make_node("Neg", ["x0"], ["before"]),
            helper.make_node(operator, names, results, domain="mmdeploy", name="plugin", **fields),
            helper.make_node("Neg", ["after"], ["y0"]),
        ]
        graph = helper.make_graph(nodes, "one_plugin", inputs, made)
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("mmdeploy", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()

    return make


def add(
    name: str,
    operator: str,
    feeds: list[Arrays],
    reference: Callable[..., Arrays],
    outputs: list[tuple[Any, int]] | None = None,
    tolerance: float = 1e-5,
    **fields: Any,
) -> None:
    """A case of mmdeploy. The reference gets the inputs and the fields."""
    outputs = outputs or [(feeds[0][0].dtype, feeds[0][0].ndim)]
    make = node_model(operator, outputs, fields)
    assert name not in CASES
    CASES[name] = Case(
        MMDEPLOY, operator, make, feeds, reference, tolerance, sign=-1, fields=fields
    )


def typed_network(feed: Arrays, shapes: list[tuple[int, ...]]) -> tuple[Any, list[Any]]:
    import opwright as trt
    from gpu_engines import TYPES, strongly_typed

    net = strongly_typed()
    assert isinstance(net, trt.INetworkDefinition)
    return net, [
        net.add_input(f"x{i}", TYPES[x.dtype], s) for i, (x, s) in enumerate(zip(feed, shapes))
    ]


def int_field(name: str, values: list[int]) -> Any:
    import opwright as trt

    field = trt.PluginField(name, np.array(values, np.int32), trt.PluginFieldType.INT32)
    return trt.PluginFieldCollection([field])


# References. ----------------------------------------------------------------------------------------------------


def double(x: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.asarray(x, np.float64))


def bilinear(image: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The image (channels, rows, columns) at real positions; beyond one pixel of its border it is 0."""
    rows, columns = image.shape[1:]
    outside = (y < -1) | (y > rows) | (x < -1) | (x > columns)
    y, x = np.clip(y, 0, rows - 1), np.clip(x, 0, columns - 1)
    low_y, low_x = np.floor(y).astype(int), np.floor(x).astype(int)
    high_y, high_x = np.minimum(low_y + 1, rows - 1), np.minimum(low_x + 1, columns - 1)
    dy, dx = y - low_y, x - low_x
    top = image[:, low_y, low_x] * (1 - dx) + image[:, low_y, high_x] * dx
    bottom = image[:, high_y, low_x] * (1 - dx) + image[:, high_y, high_x] * dx
    return np.where(outside, 0, top * (1 - dy) + bottom * dy)


def pooled(
    image: np.ndarray, centre: Any, size: Any, angle: float, out: Any, samples: int, mode: str
) -> np.ndarray:
    """Samples of a rotated rectangle, pooled in a grid of `out` cells; centre and size are (y, x) in pixels."""
    n = [samples if samples > 0 else int(np.ceil(s / o)) for s, o in zip(size, out)]
    along = [(np.arange(o * k) + 0.5) / (o * k) * s - s / 2 for s, o, k in zip(size, out, n)]
    v, u = np.meshgrid(*along, indexing="ij")
    y = v * np.cos(angle) - u * np.sin(angle) + centre[0]
    x = v * np.sin(angle) + u * np.cos(angle) + centre[1]
    values = bilinear(image, y, x).reshape(image.shape[0], out[0], n[0], out[1], n[1])
    return values.max((2, 4)) if mode == "max" else values.mean((2, 4))


def roi_align(x: np.ndarray, rois: np.ndarray, **f: Any) -> Arrays:
    x, rois = x.astype(np.float64), rois.astype(np.float64)
    out = (f["output_height"], f["output_width"])
    if f["mode"] == "avg":
        from torchvision.ops import roi_align as of_torchvision

        aligned = bool(f["aligned"])
        made = of_torchvision(
            double(x), double(rois), out, f["spatial_scale"], f["sampling_ratio"], aligned
        )
        return [made.numpy()]
    results = []
    for batch, *box in rois:
        x0, y0, x1, y1 = np.array(box) * f["spatial_scale"] - (0.5 if f["aligned"] else 0)
        size = (y1 - y0, x1 - x0)
        if not f["aligned"]:
            size = (max(size[0], 1.0), max(size[1], 1.0))
        centre = (y0 + size[0] / 2, x0 + size[1] / 2)
        results.append(pooled(x[int(batch)], centre, size, 0, out, f["sampling_ratio"], "max"))
    return [np.stack(results)]


def level_of(width: float, height: float, levels: int, finest: float) -> int:
    scale = np.sqrt(width * height)
    return int(np.clip(np.floor(np.log2(scale / finest + 1e-6)), 0, levels - 1))


def multi_level_roi_align(rois: np.ndarray, *features: np.ndarray, **f: Any) -> Arrays:
    out = (f["output_height"], f["output_width"])
    results = []
    for batch, x0, y0, x1, y1 in rois.astype(np.float64):
        level = level_of(x1 - x0, y1 - y0, len(features), f["finest_scale"])
        factor = f["roi_scale_factor"]
        if factor > 0:
            centre = (x0 + x1) / 2, (y0 + y1) / 2
            half = (x1 - x0 + 1) * factor / 2 - 0.5, (y1 - y0 + 1) * factor / 2 - 0.5
            x0, x1 = centre[0] - half[0], centre[0] + half[0]
            y0, y1 = centre[1] - half[1], centre[1] + half[1]
        scale = 1 / f["featmap_strides"][level]
        box = np.array([[batch, x0, y0, x1, y1]])
        mode = "max" if f["pool_mode"] == 0 else "avg"
        fields = {
            "output_height": out[0],
            "output_width": out[1],
            "spatial_scale": scale,
            "sampling_ratio": f["sampling_ratio"],
            "mode": mode,
            "aligned": f["aligned"],
        }
        results.append(roi_align(features[level], box, **fields)[0][0])
    return [np.stack(results)]


def multi_level_rotated_roi_align(rois: np.ndarray, *features: np.ndarray, **f: Any) -> Arrays:
    out = (f["output_height"], f["output_width"])
    results = []
    for batch, x, y, width, height, angle in rois.astype(np.float64):
        level = level_of(width, height, len(features), f["finest_scale"])
        if f["roi_scale_factor"] > 0:
            width, height = width * f["roi_scale_factor"], height * f["roi_scale_factor"]
        scale, shift = 1 / f["featmap_strides"][level], 0.5 if f["aligned"] else 0
        size = max(height * scale, 1), max(width * scale, 1)
        image = features[level][int(batch)].astype(np.float64)
        centre = y * scale - shift, x * scale - shift
        angle = -angle if f["clockwise"] else angle
        results.append(pooled(image, centre, size, angle, out, f["sampling_ratio"], "avg"))
    return [np.stack(results)]


def deformed(x: Any, offset: Any, weight: Any, mask: Any, bias: Any, f: dict[str, Any]) -> Arrays:
    from torchvision.ops import deform_conv2d

    given = [None if each is None else double(each) for each in (bias, mask)]
    made = deform_conv2d(
        double(x),
        double(offset),
        double(weight),
        given[0],
        tuple(f["stride"]),
        tuple(f["padding"]),
        tuple(f["dilation"]),
        given[1],
    )
    return [made.numpy()]


def modulated_deform_conv(x, offset, mask, weight, bias=None, **f: Any) -> Arrays:
    return deformed(x, offset, weight, mask, bias, f)


def deform_conv(x, offset, weight, **f: Any) -> Arrays:
    return deformed(x, offset, weight, None, None, f)


def deformable_attention(value, shapes, starts, locations, weights) -> Arrays:
    """One grid_sample for each level, weighted and added."""
    from torch.nn.functional import grid_sample

    value, locations, weights = double(value), double(locations), double(weights)
    batch, _, heads, channels = value.shape
    queries, levels = locations.shape[1], locations.shape[3]
    total = 0
    for level in range(levels):
        rows, columns = map(int, shapes[level])
        start = int(starts[level])
        image = value[:, start : start + rows * columns].permute(0, 2, 3, 1)
        image = image.reshape(batch * heads, channels, rows, columns)
        grid = (2 * locations[:, :, :, level] - 1).transpose(1, 2).flatten(0, 1)
        sampled = grid_sample(image, grid, align_corners=False)
        weight = weights[:, :, :, level].transpose(1, 2).reshape(batch * heads, 1, queries, -1)
        total = total + (sampled * weight).sum(-1)
    made = total.reshape(batch, heads * channels, queries).transpose(1, 2)
    return [made.contiguous().numpy()]


def bicubic(x: np.ndarray, **f: Any) -> Arrays:
    from torch.nn.functional import interpolate

    size = [int(n * s) for n, s in zip(x.shape[2:], f["scale_factor"])]
    made = interpolate(double(x), size, mode="bicubic", align_corners=bool(f["align_corners"]))
    return [made.numpy()]


def grid_priors(anchors: np.ndarray, rows: np.ndarray, columns: np.ndarray, **f: Any) -> Arrays:
    y = np.arange(len(rows))[:, None, None, None] * f["stride_h"]
    x = np.arange(len(columns))[None, :, None, None] * f["stride_w"]
    y, x = np.broadcast_arrays(y, x)
    return [(anchors + np.concatenate([x, y, x, y], -1)).reshape(-1, 4).astype(np.float64)]


def instance_norm(x, scale, bias, epsilon) -> Arrays:
    from torch.nn.functional import instance_norm as of_torch

    return [of_torch(double(x), weight=double(scale), bias=double(bias), eps=epsilon).numpy()]


def attention(query, key, value, mask=None) -> Arrays:
    from torch import softmax

    scores = double(query) @ double(key).transpose(1, 2) / query.shape[-1] ** 0.5
    weights = softmax(scores if mask is None else scores + double(mask), -1)
    return [(weights @ double(value)).numpy(), weights.numpy()]


def kept_boxes(boxes: np.ndarray, scores: np.ndarray, keep: Callable, f: dict[str, Any]) -> Arrays:
    """Suppression in each class; `keep(boxes, scores, threshold)` returns the places of those that stay."""
    batches, priors, sets, size = boxes.shape
    classes, limit = scores.shape[2], f["keep_topk"]
    detections = np.zeros((batches, limit, size + 1))
    labels = np.full((batches, limit), -1, np.int32)
    places = np.full((batches, limit), -1, np.int32)
    for batch in range(batches):
        found = []
        for label in range(classes):
            if label == f["background_label_id"]:
                continue
            own = boxes[batch, :, label if sets > 1 else 0]
            of_class = scores[batch, :, label]
            best = np.argsort(-of_class, kind="stable")[: f["topk"]]
            best = best[of_class[best] > f["score_threshold"]]
            for place in best[keep(own[best], of_class[best], f["iou_threshold"])]:
                index = place if sets == 1 else label * priors + place
                found.append((of_class[place], label, own[place], index))
        found.sort(key=lambda each: -each[0])
        for i, (score, label, box, index) in enumerate(found[:limit]):
            detections[batch, i] = [*box, score]
            labels[batch, i], places[batch, i] = label, index
    return [detections, labels, places]


def batched_nms(boxes: np.ndarray, scores: np.ndarray, **f: Any) -> Arrays:
    from torchvision.ops import nms

    def keep(own: np.ndarray, of_class: np.ndarray, threshold: float) -> np.ndarray:
        return nms(double(own), double(of_class), threshold).numpy()

    made = kept_boxes(boxes, scores, keep, f)
    return made if f.get("return_index") else made[:2]


def corners(box: np.ndarray) -> np.ndarray:
    x, y, width, height, angle = box
    across = np.array([np.cos(angle), np.sin(angle)]) * width / 2
    along = np.array([-np.sin(angle), np.cos(angle)]) * height / 2
    return np.array([across + along, along - across, -across - along, across - along]) + [x, y]


def shared_area(first: np.ndarray, second: np.ndarray) -> float:
    """The area of the intersection of two convex polygons whose corners go round in one direction (Sutherland and
    Hodgman, 1974)."""

    def side(a: np.ndarray, b: np.ndarray, p: np.ndarray) -> float:
        return float((b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]))

    polygon = list(first)
    for a, b in zip(second, np.roll(second, -1, 0)):
        left: list[np.ndarray] = []
        for p, q in zip(polygon, polygon[1:] + polygon[:1]):
            from_p, from_q = side(a, b, p), side(a, b, q)
            if from_p >= 0:
                left.append(p)
            if from_p * from_q < 0:
                left.append(p + (q - p) * (from_p / (from_p - from_q)))
        polygon = left
    if len(polygon) < 3:
        return 0.0
    x, y = np.array(polygon).T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def batched_rotated_nms(boxes: np.ndarray, scores: np.ndarray, **f: Any) -> Arrays:
    def keep(own: np.ndarray, of_class: np.ndarray, threshold: float) -> np.ndarray:
        outlines = [corners(box.astype(np.float64)) for box in own]
        areas = own[:, 2].astype(np.float64) * own[:, 3]
        kept: list[int] = []
        for i in range(len(own)):
            shared = [shared_area(outlines[i], outlines[k]) for k in kept]
            if all(s / (areas[i] + areas[k] - s) <= threshold for s, k in zip(shared, kept)):
                kept.append(i)
        return np.array(kept, int)

    return kept_boxes(boxes, scores, keep, f)[:2]


# mmdeploy's operators. ------------------------------------------------------------------------------------------


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def floats(r: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return r.standard_normal(shape).astype(dtype)


def boxes_within(r: np.random.Generator, count: int, size: float, least: float = 2) -> np.ndarray:
    corner = r.uniform(0, 0.7 * size, (count, 2))
    return np.hstack([corner, corner + r.uniform(least, 0.5 * size, (count, 2))])


def rois(r: np.random.Generator, count: int, size: float, batches: int = 2) -> np.ndarray:
    batch = r.integers(0, batches, (count, 1))
    return np.hstack([batch, boxes_within(r, count, size)]).astype(np.float32)


def add_roi_aligns() -> None:
    r = random(1)
    variants = [("avg", 2, 1), ("avg", 0, 1), ("avg", 2, 0), ("max", 2, 1), ("max", 3, 0)]
    for mode, ratio, aligned in variants:
        feeds = [[floats(r, 2, 3, 24, 32), rois(r, n, 48)] for n in (11, 1, 40)]
        add(
            f"roi_align, {mode}, {ratio} samples, {'' if aligned else 'not '}aligned",
            "MMCVRoiAlign",
            feeds,
            roi_align,
            tolerance=1e-4,
            output_height=5,
            output_width=7,
            spatial_scale=0.5,
            sampling_ratio=ratio,
            mode=mode,
            aligned=aligned,
        )
    for mode, factor, aligned in ((1, -1.0, 1), (0, 1.2, 0), (1, 1.2, 1)):
        levels = [floats(r, 2, 3, 64 >> i, 96 >> i) for i in range(3)]
        add(
            f"multi_level_roi_align, mode {mode}, factor {factor}",
            "MMCVMultiLevelRoiAlign",
            [[rois(r, n, 256), *levels] for n in (9, 17)],
            multi_level_roi_align,
            outputs=[(np.float32, 4)],
            tolerance=1e-4,
            output_height=7,
            output_width=5,
            pool_mode=mode,
            sampling_ratio=2,
            featmap_strides=[4.0, 8.0, 16.0],
            roi_scale_factor=factor,
            finest_scale=28,
            aligned=aligned,
        )
    for clockwise, factor in ((0, -1.0), (1, 1.2)):
        turned = rois(r, 12, 200)
        turned[:, 1:3] += 20
        turned[:, 3:5] = r.uniform(10, 150, (12, 2))
        turned = np.hstack([turned, r.uniform(-3, 3, (12, 1)).astype(np.float32)])
        add(
            f"multi_level_rotated_roi_align, {'' if clockwise else 'not '}clockwise",
            "MMCVMultiLevelRotatedRoiAlign",
            [[turned, *(floats(r, 2, 3, 64 >> i, 96 >> i) for i in range(3))]],
            multi_level_rotated_roi_align,
            outputs=[(np.float32, 4)],
            tolerance=1e-4,
            output_height=5,
            output_width=6,
            clockwise=clockwise,
            sampling_ratio=2,
            featmap_strides=[4.0, 8.0, 16.0],
            roi_scale_factor=factor,
            finest_scale=28,
            aligned=1,
        )


def convolution_feed(r, batch, dtype, groups, deform_groups, stride) -> Arrays:
    """x, offset, mask, weight, bias of a convolution of 8 channels to 12, 3 x 3, with padding and dilation 1."""
    rows, columns = (10 - 1) // stride + 1, (14 - 1) // stride + 1
    taps = deform_groups * 9
    offset = r.uniform(-2, 2, (batch, 2 * taps, rows, columns)).astype(dtype)
    mask = r.uniform(0, 1, (batch, taps, rows, columns)).astype(dtype)
    weight = floats(r, 12, 8 // groups, 3, 3, dtype=dtype) / 4
    return [
        floats(r, batch, 8, 10, 14, dtype=dtype),
        offset,
        mask,
        weight,
        floats(r, 12, dtype=dtype),
    ]


def add_deform_convs() -> None:
    r = random(2)
    for dtype, groups, deform_groups, stride, with_bias, batches in (
        (np.float32, 1, 1, 1, True, (2, 1, 4)),
        (np.float32, 2, 2, 2, False, (3,)),
        (np.float16, 1, 2, 1, True, (2,)),
    ):
        fields = {
            "stride": [stride] * 2,
            "padding": [1, 1],
            "dilation": [1, 1],
            "groups": groups,
            "deform_groups": deform_groups,
        }
        feeds = [convolution_feed(r, n, dtype, groups, deform_groups, stride) for n in batches]
        for feed in feeds[1:]:
            feed[3:] = feeds[0][3:]
        tolerance = 1e-4 if dtype == np.float32 else 2e-2
        text = f"{np.dtype(dtype).name}, {groups} groups"
        add(
            f"modulated_deform_conv, {text}",
            "MMCVModulatedDeformConv2d",
            [feed if with_bias else feed[:4] for feed in feeds],
            modulated_deform_conv,
            tolerance=tolerance,
            **fields,
        )
        add(
            f"deform_conv, {text}",
            "MMCVDeformConv2d",
            [[feed[0], feed[1], feed[3]] for feed in feeds],
            deform_conv,
            tolerance=tolerance,
            **fields,
        )


def add_attentions() -> None:
    r = random(3)
    shapes = np.array([[12, 16], [6, 8], [3, 4]], np.int32)
    sizes = shapes.prod(1)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    for dtype in (np.float32, np.float16):
        feeds = []
        for queries in (20, 7):
            weights = r.uniform(0, 1, (2, queries, 4, 3, 2))
            weights /= weights.sum((3, 4), keepdims=True)
            locations = r.uniform(-0.1, 1.1, (2, queries, 4, 3, 2, 2)).astype(dtype)
            value = floats(r, 2, int(sizes.sum()), 4, 8, dtype=dtype)
            feeds.append([value, shapes, starts, locations, weights.astype(dtype)])
        add(
            f"multi_scale_deform_attn, {np.dtype(dtype).name}",
            "MMCVMultiScaleDeformableAttention",
            feeds,
            deformable_attention,
            outputs=[(dtype, 3)],
            tolerance=1e-4 if dtype == np.float32 else 3e-2,
        )
    for masked, shape in (("no mask", None), ("one mask", (5, 9)), ("masks", (6, 5, 9))):
        feed = [floats(r, 6, 5, 16), floats(r, 6, 9, 16), floats(r, 6, 9, 16)]
        if shape is not None:
            feed.append(floats(r, *shape))
        add(
            f"scaled_dot_product_attention, {masked}",
            "ScaledDotProductAttentionTRT",
            [feed],
            attention,
            outputs=[(np.float32, 3), (np.float32, 3)],
        )


def add_images() -> None:
    r = random(4)
    for align, factors in ((0, [2.0, 3.0]), (1, [3.0, 2.0])):
        add(
            f"bicubic_interpolate, align_corners {align}",
            "TRTBicubicInterpolate",
            [[floats(r, n, 3, 9, 13)] for n in (2, 5)],
            bicubic,
            tolerance=1e-4,
            scale_factor=factors,
            align_corners=align,
        )
    for dtype in (np.float32, np.float16):
        feeds = [[floats(r, n, 5, 12, 17, dtype=dtype), floats(r, 5), floats(r, 5)] for n in (3, 1)]
        add(
            f"instance_norm, {np.dtype(dtype).name}",
            "TRTInstanceNormalization",
            feeds,
            instance_norm,
            tolerance=1e-5 if dtype == np.float32 else 3e-3,
            epsilon=1e-3,
        )
    empty = [np.zeros(n, np.float32) for n in (6, 11)]
    add(
        "grid_priors",
        "GridPriorsTRT",
        [[floats(r, 3, 4), *empty], [floats(r, 3, 4), *empty[::-1]]],
        grid_priors,
        stride_w=8,
        stride_h=16,
    )


def distinct_scores(r: np.random.Generator, *shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    return ((r.permutation(count) + 0.5) / count).reshape(shape).astype(np.float32)


def add_suppressions() -> None:
    r = random(5)
    fields = {"background_label_id": -1, "num_classes": 4, "topk": 40, "keep_topk": 25}
    fields |= {"score_threshold": 0.2, "iou_threshold": 0.45, "is_normalized": 1, "clip_boxes": 0}
    for sets, with_index, background in ((1, 1, -1), (4, 0, 0)):
        feeds = []
        for batches in (2, 1):
            plain = boxes_within(r, batches * 60 * sets, 10, 1).astype(np.float32)
            feeds.append([plain.reshape(batches, 60, sets, 4), distinct_scores(r, batches, 60, 4)])
        outputs = [(np.float32, 3), (np.int32, 2), (np.int32, 2)][: 2 + with_index]
        own = {**fields, "background_label_id": background, "return_index": with_index}
        add(f"batched_nms, {sets} sets", "TRTBatchedNMS", feeds, batched_nms, outputs, **own)
    turned = r.uniform([0, 0, 1, 1, -1.5], [10, 10, 5, 5, 1.5], (2, 60, 1, 5)).astype(np.float32)
    feeds = [[turned, distinct_scores(r, 2, 60, 4)]]
    outputs = [(np.float32, 3), (np.int32, 2)]
    add(
        "batched_rotated_nms", "TRTBatchedRotatedNMS", feeds, batched_rotated_nms, outputs, **fields
    )


# NVIDIA's circular padding. -------------------------------------------------------------------------------------


def add_circ_pads() -> None:
    from gpu_engines import wrap

    pads = [1, 2, 3, 1]

    def make(feed: Arrays, shapes: list[tuple[int, ...]]) -> Any:
        import opwright as trt

        net, inputs = typed_network(feed, shapes)
        creator = trt.get_plugin_registry().get_creator("CircPadPlugin", "1", "")
        plugin = creator.create_plugin("pad", int_field("pads", pads), trt.TensorRTPhase.BUILD)
        layer = net.add_plugin_v3(inputs, [], plugin)
        return net, [layer.get_output(0)]

    r = random(6)
    for dtype in (np.float32, np.float16):
        feeds = [[floats(r, n, 3, rows, 7, dtype=dtype)] for n, rows in ((2, 5), (1, 4), (4, 9))]
        CASES[f"circ_pad, {np.dtype(dtype).name}"] = Case(
            CIRC_PAD, "CircPadPlugin", make, feeds, lambda x: [wrap(x, pads).astype(np.float64)], 0
        )


# YOLOv8's decoder of wang-xinyu/tensorrtx. ----------------------------------------------------------------------

STRIDES = (8, 16, 32)
SIDES = (64, 96)  # rows and columns of the picture
LIMIT = 500
BOX, MASK, KEYPOINTS, ANGLE = slice(0, 6), slice(6, 38), slice(38, 89), slice(89, 90)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def decoded(*levels: np.ndarray, classes: int, kind: str) -> Arrays:
    """Detections of each picture, sorted: box, confidence, class, and what the kind adds."""
    pictures = []
    for batch in range(levels[0].shape[0]):
        found = []
        for stride, level in zip(STRIDES, levels):
            cells = level[batch].astype(np.float64).reshape(level.shape[1], -1)
            columns = SIDES[1] // stride
            for cell, values in enumerate(cells.T):
                row, column = divmod(cell, columns)
                label = int(np.argmax(values[4 : 4 + classes]))
                score = sigmoid(values[4 + label])
                if score < 0.1:
                    continue
                y, x = row + 0.5, column + 0.5
                box = [x - values[0], y - values[1], x + values[2], y + values[3]]
                more: list[float] = []
                rest = values[4 + classes :]
                if kind == "segmentation":
                    more = list(rest[:32])
                elif kind == "pose":
                    for u, v, sure in rest.reshape(17, 3):
                        u, v = 2 * u + column, 2 * v + row
                        inside = box[0] <= u <= box[2] and box[1] <= v <= box[3]
                        more += [u * stride, v * stride, sigmoid(sure)] if inside else [-1] * 3
                elif kind == "rotated":
                    angle = (sigmoid(rest[0]) - 0.25) * np.pi
                    u, v = (values[2] - values[0]) / 2, (values[3] - values[1]) / 2
                    centre = (
                        x + u * np.cos(angle) - v * np.sin(angle),
                        y + u * np.sin(angle) + v * np.cos(angle),
                    )
                    box = [*centre, values[0] + values[2], values[1] + values[3]]
                    more = [angle]
                found.append([*(stride * side for side in box), score, label, *more])
        pictures.append(np.array(sorted(found, key=lambda each: -each[4])))
    counts = np.array([len(found) for found in pictures], np.int32)
    return [counts, np.concatenate(pictures)]


def detections(kind: str) -> Callable[[Arrays], Arrays]:
    """The detections of the plugin's output in the reference's order: an atomic counter gives theirs. Other fields of
    a detection are not written."""
    more = {"plain": None, "segmentation": MASK, "pose": KEYPOINTS, "rotated": ANGLE}[kind]

    def read(outputs: Arrays) -> Arrays:
        counts, found = [], []
        for picture in outputs[0].reshape(len(outputs[0]), -1):
            counts.append(int(picture[0]))
            rows = picture[1:].reshape(LIMIT, -1)[: min(counts[-1], LIMIT)]
            rows = np.hstack([rows[:, BOX], rows[:, more] if more else rows[:, :0]])
            found.append(rows[np.argsort(-rows[:, 4], kind="stable")])
        return [np.array(counts, np.int32), np.concatenate(found)]

    return read


def add_yolos() -> None:
    r = random(7)
    for kind, classes, extra in (
        ("plain", 5, 0),
        ("segmentation", 3, 32),
        ("pose", 1, 51),
        ("rotated", 4, 1),
    ):
        chosen = [int(kind == each) for each in ("segmentation", "pose", "rotated")]
        numbers = [classes, 17, 0, SIDES[1], SIDES[0], LIMIT, *chosen, *STRIDES]

        def make(feed: Arrays, shapes: list[tuple[int, ...]], numbers: list[int] = numbers) -> Any:
            import opwright as trt

            net, inputs = typed_network(feed, shapes)
            creator = trt.get_plugin_registry().get_creator("YoloLayer_TRT", "1", "")
            plugin = creator.create_plugin("yolo", int_field("combinedInfo", numbers))
            return net, [net.add_plugin_v2(inputs, plugin).get_output(0)]

        levels = []
        for stride in STRIDES:
            level = floats(r, 2, 4 + classes + extra, SIDES[0] // stride * (SIDES[1] // stride))
            level[:, :4] = r.uniform(0.5, 6, level[:, :4].shape)
            level[:, 4 : 4 + classes] -= 2
            levels.append(level)

        def reference(*levels: np.ndarray, classes: int = classes, kind: str = kind) -> Arrays:
            return decoded(*levels, classes=classes, kind=kind)

        CASES[f"yolo, {kind}"] = Case(
            YOLO, "YoloLayer_TRT", make, [levels], reference, 1e-5, detections(kind)
        )


add_roi_aligns()
add_deform_convs()
add_attentions()
add_images()
add_suppressions()
add_circ_pads()
add_yolos()


# Runs, in a process of its own. ---------------------------------------------------------------------------------


def profile(case: Case) -> dict[str, Any]:
    """The profile of the inputs with open extents."""
    ranges = {}
    for i, shape in enumerate(case.shapes()):
        if -1 in shape:
            given = np.array([feed[i].shape for feed in case.feeds])
            ranges[f"x{i}"] = tuple(
                tuple(map(int, each)) for each in (given.min(0), given[0], given.max(0))
            )
    return ranges


def built(case: Case, **options: Any) -> Any:
    import opwright as trt
    from gpu_engines import mark

    made = case.make(case.feeds[0], case.shapes())
    model = mark(made[0], *made[1]) if isinstance(made, tuple) else made
    options = {"shapes": profile(case), "strongly_typed": isinstance(model, bytes), **options}
    return trt.build(model, device=trt.DeviceType.GPU, **options)


def run_engine(engine: Any, case: Case, stream: Any, repeat: int) -> list[list[Arrays]]:
    """One context computes all feeds, each `repeat` times, since a repeated run may be the replay of a graph. The
    outputs are filled before each run, so that nothing of the run before is read."""
    import opwright as trt
    from cuda_driver import DeviceArray

    context = engine.create_execution_context()
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    outputs = [n for n in names if engine.get_tensor_mode(n) == trt.TensorIOMode.OUTPUT]
    results = []
    for feed in case.feeds:
        inputs = [DeviceArray(x) for x in case.given(feed)]
        for i, buffer in enumerate(inputs):
            assert context.set_input_shape(f"x{i}", buffer.shape)
            assert context.set_tensor_address(f"x{i}", buffer.ptr)
        buffers = []
        for name in outputs:
            dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name)))
            buffers.append(DeviceArray(np.zeros(tuple(context.get_tensor_shape(name)), dtype)))
            assert context.set_tensor_address(name, buffers[-1].ptr)
        results.append([])
        for _ in range(repeat):
            for buffer in buffers:
                buffer.write(np.full(buffer.shape, 77, buffer.dtype))
            assert context.execute_async_v3(stream.handle if stream else 0)
            if stream:
                stream.synchronize()
            results[-1].append(case.results([b.numpy(wait=stream is None) for b in buffers]))
    return results


Results = dict[str, list[list[Arrays]]]


def run_case(case: Case, timing: bool) -> Results:
    """What each run of each feed gave. Without timing: of the built engine on a stream and on the default stream, and
    of the engine that was stored and loaded. With timing: of the built engine on a stream."""
    import opwright as trt
    from cuda_driver import Stream

    engine = built(case, timing=timing)
    stream = Stream()
    if timing:
        return {"timed": run_engine(engine.engine, case, stream, 2)}
    runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
    loaded = runtime.deserialize_cuda_engine(engine.engine.serialize())
    assert loaded is not None
    return {
        "on a stream": run_engine(engine.engine, case, stream, 6),
        "on the default stream": run_engine(engine.engine, case, None, 2),
        "stored and loaded": run_engine(loaded, case, stream, 2),
    }


def save(path: Path, results: Results) -> None:
    """Whole or not at all: the process may end at any time."""
    named = {
        f"{way}/{feed}/{run}/{output}": array
        for way, feeds in results.items()
        for feed, runs in enumerate(feeds)
        for run, arrays in enumerate(runs)
        for output, array in enumerate(arrays)
    }
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **named)
    part.rename(path)


def load(path: Path) -> Results:
    results: Results = {}
    with np.load(path) as stored:
        for name in stored.files:
            way, feed, run, _ = name.split("/")
            feeds = results.setdefault(way, [])
            if len(feeds) == int(feed):
                feeds.append([])
            if len(feeds[-1]) == int(run):
                feeds[-1].append([])
            feeds[-1][-1].append(stored[name])
    return results


#: The process's status after an error of a case. A GPU may be of no more use to this process.
FAILED = 3


def run(library: str, out: str, timing: bool, names: list[str]) -> int:
    """Runs the cases with a library, up to the first error. Of the case with number N it writes N.npz, or N.txt with
    the error, or N.none if the library has no such plugin."""
    import opwright as trt

    registry = trt.get_plugin_registry()
    assert registry.load_library(library) is not None, library
    for name in names:
        path = Path(out, f"{list(CASES).index(name)}.npz")
        if registry.get_creator(CASES[name].plugin, "1", "") is None:
            path.with_suffix(".none").touch()
            continue
        try:
            results = run_case(CASES[name], timing)
        except Exception as error:
            path.with_suffix(".txt").write_text(f"{type(error).__name__}: {error}")
            return FAILED
        save(path, results)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], sys.argv[3] == "timing", json.loads(sys.argv[4])))
