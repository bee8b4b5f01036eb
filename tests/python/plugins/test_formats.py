"""Each format that a plugin of any kind may claim, against the same layout made by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from plugin_kinds import LINEAR, Behaviour
from v3_plugins import layers_of

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


def stored(x: np.ndarray, format, padding=0) -> np.ndarray:
    """The tensor as it lies in memory."""
    last, block = LAYOUTS[format]
    channels = -(-x.shape[1] // block) * block
    padded = np.full((x.shape[0], channels, *x.shape[2:]), padding, x.dtype)
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


class InFormats(Behaviour):
    """2 x in these formats of input and output; keeps what it read."""

    def __init__(self, formats, dtype):
        self.combinations = [[(dtype, format) for format in formats]]
        self.formats = formats

    def run(self, call):
        assert tuple(port.format for port in call.ports) == self.formats
        x, y = (
            port.memory(stored(np.empty(port.shape, np.int8), port.format).shape)
            for port in call.ports
        )
        self.seen = x.copy()
        logical = loaded(x, self.formats[0], call.ports_in[0].shape)
        if LAYOUTS[self.formats[0]][0]:  # strides describe it, the padding is left out
            np.testing.assert_array_equal(call.inputs[0], logical)
        elif isinstance(call.ports_in[0].tensor, trtp.Tensor):
            with pytest.raises(BufferError, match=f"{self.formats[0].name} cannot be described"):
                memoryview(call.ports_in[0].tensor)
        # The padding of an output holds anything.
        anything = np.nan if y.dtype.kind == "f" else 77
        y[...] = stored(2 * logical, self.formats[1], anything)


def example(format, dtype, channels=5):
    shape = (2, channels, 3, 4, 2) if format in VOLUMES else (2, channels, 3, 4)
    x = np.random.default_rng(0).integers(-20, 20, shape)
    return x.astype(trt.nptype(dtype))


@pytest.mark.parametrize("channels", [5, 32])
@pytest.mark.parametrize("dtype", [trt.float32, trt.float16, trt.int8], ids=str)
@pytest.mark.parametrize("format", LAYOUTS, ids=str)
def test_only_this_format(kind, format, dtype, channels, make_plugin):
    x = example(format, dtype, channels)
    does = InFormats((format, format), dtype)
    engine = make_plugin(kind, does).build(x.shape, dtype=dtype)
    np.testing.assert_array_equal(engine(x), 2 * x)
    np.testing.assert_array_equal(does.seen, stored(x, format))
    candidates = [c["Types"] for layer in layers_of(engine) for c in layer["Candidates"]]
    name = str(format).split(".")[-1]
    assert any(types.count(name) == 2 for types in candidates), candidates


@pytest.mark.parametrize("formats", [(F.HWC8, F.CHW4), (F.CHW32, F.HWC)], ids=str)
def test_another_format_at_the_output(kind, formats, make_plugin):
    x = example(formats[0], trt.float32)
    engine = make_plugin(kind, InFormats(formats, trt.float32)).build(x.shape)
    np.testing.assert_array_equal(engine(x), 2 * x)


@pytest.mark.parametrize("format", LAYOUTS, ids=str)
def test_a_format_of_lower_precision(kind, format, make_plugin):
    x = example(format, trt.float32)
    does = InFormats((format, format), trt.float16)
    engine = make_plugin(kind, does).build(x.shape, fp16=True)
    np.testing.assert_array_equal(engine(x), 2 * x)
    assert does.seen.dtype == np.float16


def test_a_format_of_a_dynamic_shape(kind, make_plugin):
    does = InFormats((F.CHW16, F.CHW16), trt.float32)
    shapes = {"x0": ((1, 1, 1, 1), (2, 5, 3, 4), (4, 40, 8, 8))}
    engine = make_plugin(kind, does).build((-1, -1, -1, -1), shapes=shapes)
    for shape in ((2, 5, 3, 4), (1, 1, 1, 1), (4, 40, 8, 8), (3, 17, 2, 5)):
        data = np.random.default_rng(1).random(shape, np.float32)
        np.testing.assert_array_equal(engine(data), 2 * data)
        np.testing.assert_array_equal(does.seen, stored(data, F.CHW16))


@pytest.mark.parametrize("format", [F.CHW4, F.HWC], ids=str)
def test_a_format_of_three_dimensions(kind, format, make_plugin):
    x = np.random.default_rng(0).random((2, 6, 4), np.float32)
    does = InFormats((format, format), trt.float32)
    np.testing.assert_array_equal(make_plugin(kind, does).build(x.shape)(x), 2 * x)
    np.testing.assert_array_equal(does.seen, stored(x, format))


def test_formats_that_the_rank_excludes(kind, make_plugin):
    made = make_plugin(kind, InFormats((F.CHW4, F.CHW4), trt.float32), "InFormats")
    with pytest.raises(trt.Error, match="InFormats.*no combination of types"):
        made.build((3, 4))


def test_linear_beside_another(kind, make_plugin):
    """Both are timed, and a view of either has the tensor's strides."""

    class Both(Behaviour):
        combinations = [[(trt.float32, f), (trt.float32, f)] for f in (LINEAR, F.HWC)]

        def __init__(self):
            self.seen = set()

        def run(self, call):
            assert call.ports_in[0].format == call.ports_out[0].format
            strides = {array.strides[1] for array in (*call.inputs, *call.outputs)}
            self.seen.add((call.ports_in[0].format, *strides))
            super().run(call)

    does, x = Both(), example(F.HWC, trt.float32)
    np.testing.assert_array_equal(make_plugin(kind, does).build(x.shape)(x), 2 * x)
    assert does.seen == {(LINEAR, 4 * 12), (F.HWC, 4)}
