"""INT8 in V3 plugins: the scale of a tensor, and conversions that quantize, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from plugin_testing import network
from v3_plugins import Twice, as_array, layers_of, registered

X = np.random.default_rng(0).uniform(-3, 3, (2, 5, 3, 4)).astype(np.float32)
IN, OUT = np.float32(2.54) / np.float32(127), np.float32(6.35) / np.float32(127)


def quantized(x, scale):
    """Rounded to nearest, ties to even, and saturated."""
    return np.clip(np.rint(x / scale), -128, 127).astype(np.int8)


def expected(x):
    twice = 2 * quantized(x, IN).astype(np.float32) * IN
    return quantized(twice, OUT).astype(np.float32) * OUT


class Quantized(Twice):
    """y = 2 x on INT8 elements with scales."""

    plugin_name = "Quantized"
    formats = (trt.TensorFormat.LINEAR,)
    types = (trt.int8,)
    asked: list = []
    scales: list = []

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        Quantized.asked.append((desc.type, desc.scale))
        same = (desc.type, desc.format) == (in_out[0].desc.type, in_out[0].desc.format)
        return desc.type in self.types and desc.format in self.formats and same

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        if input_desc[0].type != trt.int8:
            np.multiply(x, 2, out=y)
            return
        a, b = np.float32(input_desc[0].scale), np.float32(output_desc[0].scale)
        Quantized.scales.append((a, b))
        y[...] = quantized(2 * x.astype(np.float32) * a, b) if b > 0 else 2 * x


@pytest.fixture(autouse=True)
def fresh():
    Quantized.asked.clear()
    Quantized.scales.clear()


def build(plugin, dtype=trt.float32, ranges=((-2.0, 2.54), (-6.35, 1.0)), int8=True, strong=False):
    flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    net = network(1 << int(flag) if strong else 0)
    x = net.add_input("x", dtype, X.shape)
    layer = net.add_plugin_v3([x], [], plugin)
    y = layer.get_output(0)
    for tensor, limits in zip((x, y), ranges or (), strict=False):
        assert tensor.set_dynamic_range(*limits) and tensor.dynamic_range == pytest.approx(limits)
    y.name = "y"
    net.mark_output(y)
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    if int8:
        config.set_flag(trt.BuilderFlag.INT8)
    return trt.Engine(builder.build_engine_with_config(net, config))


def test_conversions_quantize(tmp_path):
    with registered(Quantized()):
        engine = build(Quantized())
        np.testing.assert_array_equal(engine(X), expected(X))
        assert set(Quantized.scales) == {(IN, OUT)}
        engine.save(tmp_path / "engine")
        Quantized.scales.clear()
        np.testing.assert_array_equal(trt.load(tmp_path / "engine")(X), expected(X))
        assert set(Quantized.scales) == {(IN, OUT)}, "scales are stored"


def test_conversions_quantize_and_change_the_format():
    class InBlocks(Quantized):
        formats = (trt.TensorFormat.HWC,)

        def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
            n, c, h, w = input_desc[0].dims
            x = as_array(inputs[0], input_desc[0], (n, h, w, c))
            y = as_array(outputs[0], output_desc[0], (n, h, w, c))
            y[...] = quantized(2 * x.astype(np.float32) * IN, OUT)

    with registered(InBlocks()):
        np.testing.assert_array_equal(build(InBlocks())(X), expected(X))


def test_ties_go_to_even_and_the_rest_saturates():
    class Through(Quantized):
        def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
            as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])

    x = np.zeros(X.shape, np.float32)
    x.flat[:7] = [0.5, 1.5, 2.5, -0.5, -1.5, 1000, -1000]
    with registered(Through()):
        y = build(Through(), ranges=((-127, 127), (-127, 127)))(x)
    np.testing.assert_array_equal(y.flat[:7], [0, 2, 2, 0, -2, 127, -128])


def test_both_types_are_timed():
    class Either(Quantized):
        types = (trt.float32, trt.int8)

    with registered(Either()):
        engine = build(Either())
    (candidates,) = [
        layer["Candidates"] for layer in layers_of(engine) if layer["LayerType"] == "PluginV3"
    ]
    assert {c["Types"] for c in candidates} == {"FP32 -> FP32", "INT8 -> INT8"}


@pytest.mark.parametrize(
    "options",
    [{"int8": False}, {"ranges": None}, {"strong": True}],
    ids=["not allowed", "no range", "strongly typed"],
)
def test_int8_is_only_asked_for_where_it_can_be(options):
    with registered(Quantized()), pytest.raises(trt.Error, match="Quantized.*no combination"):
        build(Quantized(), **options)
    assert trt.int8 not in {type for type, _ in Quantized.asked}


@pytest.mark.parametrize("ranges, scale", [(None, -1.0), (((-2.54, 1), (-6.35, 1)), IN)])
def test_scale_of_a_tensor_that_is_int8(ranges, scale):
    """Of a network tensor of type INT8 the scale is that of its range; -1 says that it has none."""
    with registered(Quantized()):
        engine = build(Quantized(), trt.int8, ranges, int8=False)
        x = np.ones(X.shape, np.int8)
        engine(x)
    assert {type for type, _ in Quantized.asked} == {trt.int8}
    assert Quantized.scales[0][0] == pytest.approx(scale)


def test_ranges_that_cannot_be():
    x = network().add_input("x", trt.float32, (1,))
    for limits in ((1, -1), (0, 0), (float("nan"), 1), (0, float("inf"))):
        with pytest.raises(trt.Error, match="dynamic range"):
            x.set_dynamic_range(*limits)
    x.set_dynamic_range(-1, 1)
    x.reset_dynamic_range()
    assert x.dynamic_range is None
