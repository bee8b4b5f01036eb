"""Each format that a V3 plugin may claim, against the same layout made by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
from plugin_testing import build, network
from v3_plugins import Twice, as_array, layers_of, registered

F = trt.TensorFormat
# Channels last or in blocks, and the multiple that channels are padded to.
LAYOUTS = {
    F.CHW2: (False, 2),
    F.CHW4: (False, 4),
    F.CHW16: (False, 16),
    F.CHW32: (False, 32),
    F.CDHW32: (False, 32),
    F.HWC: (True, 1),
    F.HWC8: (True, 8),
    F.HWC16: (True, 16),
    F.DHWC: (True, 1),
    F.DHWC8: (True, 8),
}
VOLUMES = (F.CDHW32, F.DHWC, F.DHWC8)


def stored(x: np.ndarray, format) -> np.ndarray:
    """The tensor as it lies in memory, padding of channels 0."""
    last, block = LAYOUTS[format]
    channels = -(-x.shape[1] // block) * block
    padded = np.zeros((x.shape[0], channels, *x.shape[2:]), x.dtype)
    padded[:, : x.shape[1]] = x
    if last:
        return np.moveaxis(padded, 1, -1).copy()
    blocks = padded.reshape(x.shape[0], channels // block, block, *x.shape[2:])
    return np.moveaxis(blocks, 2, -1).copy()


def loaded(memory: np.ndarray, format, shape) -> np.ndarray:
    """The way back."""
    last, _ = LAYOUTS[format]
    if last:
        return np.moveaxis(memory, -1, 1)[:, : shape[1]]
    blocks = np.moveaxis(memory, -1, 2)
    return blocks.reshape(shape[0], -1, *shape[2:])[:, : shape[1]]


class InFormat(Twice):
    """2 x in one format; keeps what it read."""

    plugin_name = "InFormat"
    formats = (F.HWC, F.HWC)
    type = trt.float32
    seen: np.ndarray | None = None

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.format == self.formats[pos] and in_out[pos].desc.type == self.type

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        def memory(address, desc):
            shape = stored(np.empty(tuple(desc.dims), np.int8), desc.format).shape
            return as_array(address, desc, shape)

        x = memory(inputs[0], input_desc[0])
        InFormat.seen = x.copy()
        logical = loaded(x, input_desc[0].format, tuple(input_desc[0].dims))
        out = memory(outputs[0], output_desc[0])
        out[...] = stored(2 * logical, output_desc[0].format)


def example(format, dtype, channels=5):
    shape = (2, channels, 3, 4, 2) if format in VOLUMES else (2, channels, 3, 4)
    x = np.random.default_rng(0).integers(-20, 20, shape)
    return x.astype(trt.nptype(dtype))


def in_format(formats, x, dtype, **options):
    """The engine of one plugin with these formats of input and output."""
    plugin = InFormat()
    plugin.formats, plugin.type = formats, options.pop("plugin_type", dtype)
    with registered(plugin):
        net = network()
        shape = options.pop("shape", x.shape)
        layer = net.add_plugin_v3([net.add_input("x", dtype, shape)], [], plugin)
        return build(net, layer.get_output(0), **options)


@pytest.mark.parametrize("channels", [5, 32])
@pytest.mark.parametrize("dtype", [trt.float32, trt.float16, trt.int8], ids=str)
@pytest.mark.parametrize("format", LAYOUTS, ids=str)
def test_only_this_format(format, dtype, channels):
    x = example(format, dtype, channels)
    engine = in_format((format, format), x, dtype)
    np.testing.assert_array_equal(engine(x), 2 * x)
    np.testing.assert_array_equal(InFormat.seen, stored(x, format))
    candidates = [c["Types"] for layer in layers_of(engine) for c in layer["Candidates"]]
    name = str(format).split(".")[-1]
    assert any(types.count(name) == 2 for types in candidates), candidates


@pytest.mark.parametrize("formats", [(F.HWC8, F.CHW4), (F.CHW32, F.HWC)], ids=str)
def test_another_format_at_the_output(formats):
    x = example(formats[0], trt.float32)
    engine = in_format(formats, x, trt.float32)
    np.testing.assert_array_equal(engine(x), 2 * x)


def test_a_format_of_lower_precision():
    x = example(F.HWC8, trt.float32)
    engine = in_format((F.HWC8, F.HWC8), x, trt.float32, plugin_type=trt.float16, fp16=True)
    np.testing.assert_array_equal(engine(x), 2 * x)
    assert InFormat.seen.dtype == np.float16


def test_a_format_of_a_dynamic_shape():
    x = example(F.CHW16, trt.float32)
    shapes = {"x": ((1, 1, 1, 1), x.shape, (4, 40, 8, 8))}
    engine = in_format((F.CHW16, F.CHW16), x, trt.float32, shape=(-1, -1, -1, -1), shapes=shapes)
    for shape in (x.shape, (1, 1, 1, 1), (4, 40, 8, 8), (3, 17, 2, 5)):
        data = np.random.default_rng(1).random(shape, np.float32)
        np.testing.assert_array_equal(engine(data), 2 * data)
        np.testing.assert_array_equal(InFormat.seen, stored(data, F.CHW16))


def test_formats_that_the_rank_excludes():
    with pytest.raises(trt.Error, match="InFormat.*accepts no combination"):
        in_format((F.CHW4, F.CHW4), np.ones((3, 4), np.float32), trt.float32)
