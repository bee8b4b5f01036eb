"""INT8 in plugins of every kind: the scale of a tensor, and conversions that quantize, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from plugin_kinds import CLASSES, LINEAR, Behaviour
from plugin_testing import network
from v3_plugins import layers_of

X = np.random.default_rng(0).uniform(-3, 3, (2, 5, 3, 4)).astype(np.float32)
IN, OUT = np.float32(2.54) / np.float32(127), np.float32(6.35) / np.float32(127)
HWC = trt.TensorFormat.HWC


def quantized(x, scale):
    """Rounded to nearest, ties to even, and saturated."""
    return np.clip(np.rint(x / scale), -128, 127).astype(np.int8)


def expected(x):
    twice = 2 * quantized(x, IN).astype(np.float32) * IN
    return quantized(twice, OUT).astype(np.float32) * OUT


class Quantized(Behaviour):
    """y = 2 x on INT8 elements with scales."""

    combinations = [[(trt.int8, LINEAR)] * 2]

    def __init__(self):
        self.scales = []

    def run(self, call):
        a, b = (np.float32(port.scale) for port in call.ports)
        self.scales.append((a, b))
        (x,), (y,) = call.inputs, call.outputs
        if x.dtype != np.int8:
            np.multiply(x, 2, out=y)
        else:
            y[...] = quantized(2 * x.astype(np.float32) * a, b)


def build(made, dtype=trt.float32, ranges=((-2.0, 2.54), (-6.35, 1.0)), int8=True, strong=False):
    flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    net = network(1 << int(flag) if strong else 0)
    x = net.add_input("x", dtype, X.shape)
    y = made.add(net, x).get_output(0)
    for tensor, limits in zip((x, y), ranges or (), strict=False):
        assert tensor.set_dynamic_range(*limits) and tensor.dynamic_range == pytest.approx(limits)
    y.name = "y"
    net.mark_output(y)
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    if int8:
        config.set_flag(trt.BuilderFlag.INT8)
    return trt.Engine(builder.build_engine_with_config(net, config))


def test_conversions_quantize(kind, make_plugin, tmp_path):
    does = Quantized()
    engine = build(make_plugin(kind, does))
    np.testing.assert_array_equal(engine(X), expected(X))
    assert set(does.scales) == {(IN, OUT)}
    engine.save(tmp_path / "engine")
    does.scales.clear()
    np.testing.assert_array_equal(trt.load(tmp_path / "engine")(X), expected(X))
    assert set(does.scales) == {(IN, OUT)}, "scales are stored"


def test_conversions_quantize_and_change_the_format(kind, make_plugin):
    class InBlocks(Quantized):
        combinations = [[(trt.int8, HWC)] * 2]

        def run(self, call):
            n, c, h, w = call.ports_in[0].shape
            x, y = (port.memory((n, h, w, c)) for port in call.ports)
            y[...] = quantized(2 * x.astype(np.float32) * IN, OUT)

    np.testing.assert_array_equal(build(make_plugin(kind, InBlocks()))(X), expected(X))


def test_ties_go_to_even_and_the_rest_saturates(kind, make_plugin):
    class Through(Quantized):
        def run(self, call):
            call.outputs[0][...] = call.inputs[0]

    x = np.zeros(X.shape, np.float32)
    x.flat[:7] = [0.5, 1.5, 2.5, -0.5, -1.5, 1000, -1000]
    y = build(make_plugin(kind, Through()), ranges=((-127, 127), (-127, 127)))(x)
    np.testing.assert_array_equal(y.flat[:7], [0, 2, 2, 0, -2, 127, -128])


def test_both_types_are_timed(kind, make_plugin):
    class Either(Quantized):
        combinations = [[(t, LINEAR)] * 2 for t in (trt.float32, trt.int8)]

    engine = build(make_plugin(kind, Either(), name="Either"))
    (candidates,) = [
        layer["Candidates"] for layer in layers_of(engine) if "Plugin" in layer["LayerType"]
    ]
    assert {c["Types"] for c in candidates} == {"FP32 -> FP32", "INT8 -> INT8"}


@pytest.mark.parametrize(
    "options",
    [{"int8": False}, {"ranges": None}, {"strong": True}],
    ids=["not allowed", "no range", "strongly typed"],
)
def test_int8_is_only_asked_for_where_it_can_be(kind, options, make_plugin):
    class Asked(Quantized):
        def supports(self, ports):
            asked.update(port.type for port in ports)
            return super().supports(ports)

    asked: set = set()
    with pytest.raises(trt.Error, match="Quantized.*no combination"):
        build(make_plugin(kind, Asked(), name="Quantized"), **options)
    if kind in ("V3", "V2"):
        assert asked == {trt.float32}


@pytest.mark.parametrize("ranges", [None, ((-2.54, 1), (-6.35, 1))], ids=["no range", "range"])
def test_scale_of_a_tensor_that_is_int8(kind, ranges, make_plugin):
    """Of a network tensor of type INT8 the scale is that of its range; without one it is -1, or 1 for
    functions, whose elements are values then."""

    class Shifted(Quantized):
        def run(self, call):
            self.scales.append([port.scale for port in call.ports])
            call.outputs[0][...] = call.inputs[0] // 2

    does = Shifted()
    engine = build(make_plugin(kind, does), trt.int8, ranges, int8=False)
    x = np.arange(-60, 60, dtype=np.int8).reshape(X.shape)
    np.testing.assert_array_equal(engine(x), x // 2)
    none = [-1, -1] if kind in CLASSES else [1, 1]
    assert does.scales[-1] == pytest.approx([IN, OUT] if ranges else none)


def test_ranges_that_cannot_be():
    x = network().add_input("x", trt.float32, (1,))
    for limits in ((1, -1), (0, 0), (float("nan"), 1), (0, float("inf"))):
        with pytest.raises(trt.Error, match="dynamic range"):
            x.set_dynamic_range(*limits)
    x.set_dynamic_range(-1, 1)
    x.reset_dynamic_range()
    assert x.dynamic_range is None
