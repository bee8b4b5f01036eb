"""Shapes that exporters compute through FP32: against ONNX Runtime, with open extents."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opwright


def compare(text: str, ranges: dict, *cases: dict):
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    engine = opwright.build(data, shapes=ranges, timing=False)
    for inputs in cases:
        want = session.run(None, inputs)[0]
        got = engine(**inputs)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


RANGES = {"x": ((1, 1, 2, 2), (1, 1, 16, 16), (1, 1, 64, 64))}
IMAGES = [{"x": image(1, 1, *shape)} for shape in ((16, 16), (7, 31), (2, 64), (33, 2))]


@pytest.mark.parametrize("arithmetic", [
    "scaled = Mul(extent, half) rounded = Floor(scaled)",
    "scaled = Mul(extent, half) rounded = Ceil(scaled)",
    "scaled = Div(extent, three) rounded = Ceil(scaled)",
    "scaled = Add(extent, half) rounded = Floor(scaled)",
    "sum = Sub(extent, half) scaled = Max(sum, three) rounded = Floor(scaled)",
    "is_small = Less(extent, sixteen) scaled = Where(is_small, extent, sixteen) rounded = Ceil(scaled)",
])  # fmt: skip
def test_sizes_through_fp32(arithmetic):
    compare(
        """g (float[1, 1, h, w] x) => (float[1, 1, a, b] y) {
            half = Constant <value_float = 0.5> ()
            three = Constant <value_float = 3.0> ()
            sixteen = Constant <value_float = 16.0> ()
            shape = Shape <start = 2> (x)
            extent = Cast <to = 1> (shape)
            """
        + arithmetic
        + """
            sizes = Cast <to = 7> (rounded)
            leading = Constant <value_ints = [1, 1]> ()
            all = Concat <axis = 0> (leading, sizes)
            y = Resize <mode = "nearest"> (x, , , all)
        }""",
        RANGES,
        *IMAGES,
    )


def test_range_with_a_limit_through_fp32():
    compare(
        """g (float[1, 1, h, w] x) => (float[n] y) {
            shape = Shape (x)
            two = Constant <value_int = 2> ()
            height = Gather (shape, two)
            limit = Cast <to = 1> (height)
            zero = Constant <value_float = 0.0> ()
            step = Constant <value_float = 0.5> ()
            y = Range (zero, limit, step)
        }""",
        RANGES,
        *IMAGES,
    )


def test_scales_that_are_quotients_of_extents():
    compare(
        """g (float[1, 1, h, w] x) => (float[1, 1, a, b] y) {
            shape = Shape <start = 2> (x)
            extents = Cast <to = 1> (shape)
            two = Constant <value_float = 2.0> ()
            doubled = Mul (extents, two)
            factors = Div (doubled, extents)
            ones = Constant <value_floats = [1.0, 1.0]> ()
            scales = Concat <axis = 0> (ones, factors)
            y = Resize <mode = "linear"> (x, , scales)
        }""",
        RANGES,
        *IMAGES,
    )


@settings(max_examples=60, deadline=None)
@given(
    extent=st.integers(1, 4000),
    scale=st.floats(0.0625, 8, width=32),
    rounding=st.sampled_from(["Floor", "Ceil", "Round"]),
)
def test_constants_are_rounded_as_fp32_rounds(extent, scale, rounding):
    compare(
        f"""g (float[n] x) => (float[m] y) {{
            shape = Shape (x)
            extents = Cast <to = 1> (shape)
            scale = Constant <value_float = {scale!r}> ()
            scaled = Mul (extents, scale)
            rounded = {rounding} (scaled)
            sizes = Cast <to = 7> (rounded)
            y = ConstantOfShape (sizes)
        }}""",
        {"x": (extent,)},
        {"x": image(extent)},
    )


def test_squeeze_without_axes_where_the_shape_is_given():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[n, 3, m] x) => (float[r] y) '
        "{ y = Squeeze (x) }"
    ).SerializeToString()
    engine = opwright.build(model, shapes={"x": (1, 3, 1)}, timing=False)
    assert engine(x=image(1, 3, 1)).shape == (3,)
    with pytest.raises(opwright.Error, match="Squeeze.*needs constant extents"):
        opwright.build(model, shapes={"x": ((1, 3, 1), (2, 3, 1), (4, 3, 1))}, timing=False)


def test_reshape_by_an_input_that_infers_or_copies():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2, 3, 4] x, int64[2] shape) => '
        "(float[a, b] y) { y = Reshape (x, shape) }"
    ).SerializeToString()
    engine = opwright.build(model, values={"shape": ((-1, -1), (4, 6), (24, 24))}, timing=False)
    x = image(2, 3, 4)
    for shape in ((4, 6), (-1, 6), (8, -1), (0, -1), (-1, 24)):
        want = (2, 12) if shape == (0, -1) else np.reshape(x, shape).shape
        got = engine(x=x, shape=np.array(shape))
        np.testing.assert_array_equal(got, x.reshape(want))
