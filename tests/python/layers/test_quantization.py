"""ONNX's quantization: conversions, products and convolutions of bytes, against NumPy and ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnx_graphs
import opwright
from processor import LARGEST_WEIGHT

BYTES = {np.uint8: (0, 255), np.int8: (-128, 127)}


def node_model(op, arrays, constants=(), outputs=1, opset=21, shapes=None, **attributes):
    """One node; arrays are its inputs in order, None for an absent one."""
    names = [f"i{i}" if a is not None else "" for i, a in enumerate(arrays)]
    given = {n: np.asarray(a) for n, a in zip(names, arrays) if a is not None}
    inputs = {
        n: (helper.np_dtype_to_tensor_dtype(a.dtype), (shapes or {}).get(n, list(a.shape)))
        for n, a in given.items()
        if n not in constants
    }
    results = [f"o{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attributes)],
        "graph",
        [helper.make_tensor_value_info(n, *spec) for n, spec in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in results],
        [numpy_helper.from_array(given[n], n) for n in constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made), {n: given[n] for n in inputs}


def run(made, inputs, **options):
    engine = opwright.build(made.SerializeToString(), timing=False, **options)
    return onnx_graphs.as_list(engine(**inputs))


def any_bytes(rng, dtype, *shape):
    low, high = BYTES[dtype]
    return rng.integers(low, high + 1, shape).astype(dtype)


def quantize(x, scale, zero_point, dtype):
    low, high = BYTES[dtype]
    return np.clip(np.rint(x / scale) + zero_point, low, high).astype(dtype)


@pytest.mark.parametrize("dtype", BYTES)
def test_quantize_saturates_and_rounds_half_to_even(dtype):
    x = np.float32([-1e30, -300, -2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 127.5, 300, 1e30, np.inf])
    made, inputs = node_model("QuantizeLinear", [x, np.float32(1), dtype(3)])
    np.testing.assert_array_equal(run(made, inputs)[0], quantize(x, np.float32(1), 3, dtype))


@pytest.mark.parametrize("constants", [(), ("i1", "i2")])
@pytest.mark.parametrize("source", [np.float32, np.float16])
@pytest.mark.parametrize("dtype", BYTES)
def test_there_and_back(dtype, source, constants):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((3, 4, 5)) * 20).astype(source)
    for shape, attributes in (
        ((), {}),
        ((1,), {}),
        ((4,), {"axis": 1}),
        ((5,), {"axis": -1}),
        ((3, 2, 5), {"axis": 1, "block_size": 2}),
        ((3, 4, 2), {"axis": 2, "block_size": 3}),
    ):
        scale = (rng.random(shape) + 0.1).astype(source)
        zero_point = any_bytes(rng, dtype, *shape)
        wide_scale, wide_zero = scale, zero_point
        if attributes.get("block_size"):
            axis, block = attributes["axis"], attributes["block_size"]
            wide_scale, wide_zero = (
                np.repeat(a, block, axis).take(range(x.shape[axis]), axis)
                for a in (scale, zero_point)
            )
        elif shape not in ((), (1,)):
            along = [1] * 3
            along[attributes["axis"]] = -1
            wide_scale, wide_zero = scale.reshape(along), zero_point.reshape(along)
        made, inputs = node_model("QuantizeLinear", [x, scale, zero_point], constants, **attributes)
        wide = [a.astype(np.float32) for a in (x, wide_scale, wide_zero)]
        want = quantize(*wide, dtype)
        np.testing.assert_array_equal(run(made, inputs)[0], want)
        made, inputs = node_model(
            "DequantizeLinear", [want, scale, zero_point], constants, **attributes
        )
        got = run(made, inputs)[0]
        assert got.dtype == source
        tolerance = 1e-6 if source is np.float32 else 2e-3
        back = (want.astype(np.float32) - wide[2]) * wide[1]
        np.testing.assert_allclose(got.astype(np.float32), back, rtol=tolerance, atol=1e-3)


def test_int32_is_dequantized_exactly():
    x = np.int32([2**31 - 1, -(2**31), 2**24 + 1, 5])
    made, inputs = node_model("DequantizeLinear", [x, np.float32(0.5), np.int32(2**24)])
    difference = x.astype(np.int64) - 2**24
    difference = difference.astype(np.int32).astype(np.float32)
    np.testing.assert_array_equal(run(made, inputs)[0], difference * np.float32(0.5))


def test_fp8():
    x = np.float32([0.3, -5, 600, -1e9, 448])
    zero = np.array(0, ml_dtypes.float8_e4m3fn)
    made, inputs = node_model("QuantizeLinear", [x, np.float32(2), zero], ("i2",))
    got = run(made, inputs)[0]
    want = np.clip(x / 2, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(np.asarray(got).view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("scale", [1, 0.3])
def test_fp8_is_rounded_where_nothing_but_elements_is_computed(scale):
    x = np.linspace(-3, 500, 97, dtype=np.float32)
    zero = np.array(0, ml_dtypes.float8_e4m3fn)
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [97])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [97])],
        [numpy_helper.from_array(np.float32(scale), "s"), numpy_helper.from_array(zero, "z")],
    )
    opset = [helper.make_opsetid("", 21)]
    got = run(helper.make_model(graph, opset_imports=opset, ir_version=10), {"x": x})[0]
    scale = np.float32(scale)
    want = np.clip(np.abs(x) / scale, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(got, -(want.astype(np.float32) * scale))


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
def test_opsets(opset):
    x = np.float32([[-3, 1, 300], [0.5, 7, -9]])
    made, inputs = node_model("QuantizeLinear", [x, np.float32(0.5), np.uint8(9)], opset=opset)
    np.testing.assert_array_equal(run(made, inputs)[0], quantize(x, np.float32(0.5), 9, np.uint8))


def test_the_type_of_the_output():
    x = np.float32([-300, -1, 0, 1, 300])
    for element, dtype in ((TensorProto.INT8, np.int8), (TensorProto.UINT8, np.uint8)):
        made, inputs = node_model("QuantizeLinear", [x, np.float32(1)], output_dtype=element)
        np.testing.assert_array_equal(run(made, inputs)[0], quantize(x, np.float32(1), 0, dtype))
    made, inputs = node_model("QuantizeLinear", [x, np.float32(1)])
    assert run(made, inputs)[0].dtype == np.uint8


@pytest.mark.parametrize(
    "values", [[0, 2, -3, -2.5, 1.34, 0.5], [-1, -2.1, -1.3, -2.5, -3.34, -4.0], [1, 2, 9], [0, 0]]
)
def test_dynamic_quantization(values):
    made, inputs = node_model("DynamicQuantizeLinear", [np.float32(values)], outputs=3)
    want = onnx_graphs.reference_session(made).run(None, inputs)
    for got, expected in zip(run(made, inputs), want):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_products_of_integers(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a_type, b_type = (data.draw(st.sampled_from(list(BYTES))) for _ in "ab")
    m, k, n = (data.draw(st.integers(1, most)) for most in (9, 300, 40))
    stack = data.draw(st.sampled_from([(), (2,), (3, 1)]))
    a = any_bytes(rng, a_type, *stack, m, k)
    b = any_bytes(rng, b_type, *(stack if data.draw(st.booleans()) else ()), k, n)
    za = zb = None
    kinds = data.draw(st.sampled_from(["none", "scalar", "vector"]))
    if kinds != "none":
        za = any_bytes(rng, a_type, *(() if kinds == "scalar" else (m,)))
        zb = any_bytes(rng, b_type, *(() if kinds == "scalar" else (n,)))
    constants = data.draw(st.sampled_from([(), ("i1",)]))
    if kinds != "none" and constants:
        constants = ("i1", "i2", "i3")
    made, inputs = node_model("MatMulInteger", [a, b, za, zb], constants)
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    if za is not None:
        wide_a -= za.astype(np.int64).reshape(-1, 1) if za.ndim else int(za)
        wide_b -= zb.astype(np.int64)
    np.testing.assert_array_equal(run(made, inputs)[0], wide_a @ wide_b)


def test_products_of_integers_with_vectors():
    rng = np.random.default_rng(2)
    a, b = any_bytes(rng, np.uint8, 3, 7), any_bytes(rng, np.int8, 7)
    for left, right in ((a, b), (a[0], b), (a[0], any_bytes(rng, np.int8, 7, 4))):
        made, inputs = node_model("MatMulInteger", [left, right, np.uint8(7), np.int8(-3)])
        want = (left.astype(np.int32) - 7) @ (right.astype(np.int32) + 3)
        np.testing.assert_array_equal(run(made, inputs)[0], want)


def test_open_extents_and_empty_products():
    rng = np.random.default_rng(3)
    b = any_bytes(rng, np.int8, 33, 20)
    a = any_bytes(rng, np.uint8, 4, 33)
    made, _ = node_model(
        "MatMulInteger",
        [a, b, np.uint8(3), np.int8(1)],
        ("i1", "i2", "i3"),
        shapes={"i0": ["m", 33]},
    )
    shapes = {"i0": ((0, 33), (4, 33), (70, 33))}
    engine = opwright.build(made.SerializeToString(), timing=False, shapes=shapes)
    for m in (4, 1, 0, 70, 7):
        a = any_bytes(rng, np.uint8, m, 33)
        want = (a.astype(np.int32) - 3) @ (b.astype(np.int32) - 1)
        np.testing.assert_array_equal(engine(a), want)
    made, inputs = node_model(
        "MatMulInteger", [np.zeros((3, 0), np.uint8), np.zeros((0, 4), np.int8)]
    )
    np.testing.assert_array_equal(run(made, inputs)[0], np.zeros((3, 4)))


def convolve(x, w, zx, zw, pads, strides, dilations, groups):
    """In 64 bits, by torch's unfold of what is padded with zeros behind the subtraction."""
    import torch

    x = torch.from_numpy(x.astype(np.float64) - zx)
    along = np.asarray(zw, np.float64).reshape(-1, *[1] * (w.ndim - 1))
    w = torch.from_numpy(w.astype(np.float64) - along)
    spatial = x.ndim - 2
    around = []
    for axis in reversed(range(spatial)):
        around += [pads[axis], pads[axis + spatial]]
    x = torch.nn.functional.pad(x, around)
    function = getattr(torch.nn.functional, f"conv{spatial}d")
    return function(x, w, None, strides, 0, dilations, groups).numpy().astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_convolutions_of_integers(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x_type, w_type = (data.draw(st.sampled_from(list(BYTES))) for _ in "xw")
    spatial = data.draw(st.integers(1, 3))
    groups = data.draw(st.sampled_from([1, 1, 2, 4]))
    channels, maps = (groups * data.draw(st.integers(1, 9)) for _ in "cm")
    window = [data.draw(st.integers(1, 3)) for _ in range(spatial)]
    strides = [data.draw(st.integers(1, 2)) for _ in range(spatial)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(spatial)]
    pads = [data.draw(st.integers(0, 2)) for _ in range(2 * spatial)]
    extents = [data.draw(st.integers(5, 9)) for _ in range(spatial)]
    x = any_bytes(rng, x_type, 2, channels, *extents)
    w = any_bytes(rng, w_type, maps, channels // groups, *window)
    zx = zw = None
    if data.draw(st.booleans()):
        zx = any_bytes(rng, x_type)
        zw = any_bytes(rng, w_type, *data.draw(st.sampled_from([(), (maps,)])))
    made, inputs = node_model(
        "ConvInteger",
        [x, w, zx, zw],
        ("i1", "i2", "i3") if zx is not None else ("i1",),
        pads=pads,
        strides=strides,
        dilations=dilations,
        group=groups,
    )
    want = convolve(
        x, w, 0 if zx is None else zx, 0 if zw is None else zw, pads, strides, dilations, groups
    )
    np.testing.assert_array_equal(run(made, inputs)[0], want)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding_is_the_zero_point(auto_pad):
    rng = np.random.default_rng(4)
    arrays = [
        any_bytes(rng, np.uint8, 1, 3, 7, 8),
        any_bytes(rng, np.uint8, 4, 3, 3, 2),
        np.uint8(9),
    ]
    made, inputs = node_model(
        "ConvInteger", arrays, ("i1", "i2"), auto_pad=auto_pad, strides=[2, 2]
    )
    want = onnx_graphs.reference_session(made).run(None, inputs)[0]
    np.testing.assert_array_equal(run(made, inputs)[0], want)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    "x_type, w_type", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)]
)
def test_quantized_convolution_and_product(x_type, w_type, per_channel):
    rng = np.random.default_rng(5)
    maps = 6
    scales = lambda *shape: (rng.random(shape) * 0.02 + 0.01).astype(np.float32)  # noqa: E731
    zw = np.zeros(maps, w_type) if per_channel else any_bytes(rng, w_type)

    def weights(*shape):
        limits = (0, 255) if w_type == np.uint8 else (-LARGEST_WEIGHT - 1, LARGEST_WEIGHT)
        return np.clip(any_bytes(rng, w_type, *shape), *limits)

    conv = [
        any_bytes(rng, x_type, 2, 4, 9, 8),
        scales(),
        any_bytes(rng, x_type),
        weights(maps, 4, 3, 3),
        scales(maps) if per_channel else scales(),
        zw,
        np.float32(0.4),
        any_bytes(rng, x_type),
        rng.integers(-9999, 9999, maps).astype(np.int32),
    ]
    product = [
        any_bytes(rng, x_type, 5, 40),
        scales(),
        any_bytes(rng, x_type),
        weights(40, maps),
        scales(maps) if per_channel else scales(),
        zw,
        np.float32(0.3),
        any_bytes(rng, x_type),
    ]
    for op, arrays in (("QLinearConv", conv), ("QLinearMatMul", product)):
        constants = tuple(f"i{i}" for i in range(1, len(arrays)))
        attributes = {"pads": [1, 1, 1, 1]} if op == "QLinearConv" else {}
        made, inputs = node_model(op, arrays, constants, **attributes)
        want = onnx_graphs.reference_session(made).run(None, inputs)[0]
        got = run(made, inputs)[0]
        assert got.dtype == want.dtype
        # The last bit of a scale may round the other way.
        difference = np.abs(got.astype(np.int32) - want.astype(np.int32))
        assert difference.max() <= 1 and (difference > 0).mean() < 0.01


def test_a_saved_engine_of_bytes(tmp_path):
    rng = np.random.default_rng(6)
    arrays = [any_bytes(rng, np.int8, 5, 64), any_bytes(rng, np.int8, 64, 48)]
    made, inputs = node_model("MatMulInteger", arrays, ("i1",))
    opwright.build(made.SerializeToString(), timing=False).save(tmp_path / "product.engine")
    got = opwright.load(tmp_path / "product.engine")(arrays[0])
    np.testing.assert_array_equal(got, arrays[0].astype(np.int32) @ arrays[1].astype(np.int32))


def test_a_model_that_onnx_runtime_quantized(tmp_path):
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    rng = np.random.default_rng(7)
    weights = {
        "w": (rng.standard_normal((8, 3, 3, 3)) * 0.2).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
        "m": (rng.standard_normal((8, 10)) * 0.3).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    made = onnx_graphs.model(nodes, {"x": (TensorProto.FLOAT, ["n", 3, 16, 16])}, ["y"], weights)
    onnx.save(made, tmp_path / "float.onnx")

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rest = [rng.standard_normal((2, 3, 16, 16)).astype(np.float32) for _ in range(3)]

        def get_next(self):
            return {"x": self.rest.pop()} if self.rest else None

    x = rng.standard_normal((4, 3, 16, 16)).astype(np.float32)
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        for per_channel in (False, True):
            quantize_static(
                tmp_path / "float.onnx",
                tmp_path / "bytes.onnx",
                Reader(),
                quant_format=form,
                per_channel=per_channel,
                weight_type=QuantType.QInt8,
            )
            model = onnx.load(tmp_path / "bytes.onnx")
            if any(node.domain not in ("", "ai.onnx") for node in model.graph.node):
                continue
            shapes = {"x": ((1, 3, 16, 16), (4, 3, 16, 16), (8, 3, 16, 16))}
            engine = opwright.build(model.SerializeToString(), timing=False, shapes=shapes)
            want = onnx_graphs.reference_session(model).run(None, {"x": x})[0]
            step = np.abs(want).max() / 127
            np.testing.assert_allclose(engine(x), want, rtol=0, atol=2.5 * step)
            engine.save(tmp_path / "bytes.engine")
            again = opwright.load(tmp_path / "bytes.engine")
            np.testing.assert_array_equal(again(x), engine(x))


@pytest.mark.parametrize(
    "op, arrays, attributes, message",
    [
        (
            "QuantizeLinear",
            [np.zeros(3, np.float32), np.float32(1), np.array(0, ml_dtypes.int4)],
            {},
            "element type 22",
        ),
        (
            "QuantizeLinear",
            [np.zeros(3, np.float32), np.float32(1), np.uint16(0)],
            {},
            "element type 4",
        ),
        (
            "QuantizeLinear",
            [np.zeros(3, np.float32), np.float32(1)],
            {"output_dtype": 21},
            "type 21",
        ),
        (
            "QuantizeLinear",
            [np.zeros((2, 3), np.float32), np.ones(2, np.float32)],
            {"axis": 1},
            "has 2 elements; expected 1 or 3, the extent of axis 1",
        ),
        (
            "QuantizeLinear",
            [np.zeros((2, 3), np.float32), np.ones((2, 1), np.float32)],
            {},
            "block_size",
        ),
        ("DequantizeLinear", [np.zeros(3, np.int64), np.float32(1)], {}, "dequantizes from INT64"),
    ],
)
def test_errors(op, arrays, attributes, message):
    constants = tuple(f"i{i}" for i in range(1, len(arrays)))
    names = [f"i{i}" for i in range(len(arrays))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "graph",
        [
            helper.make_tensor_value_info(
                "i0", helper.np_dtype_to_tensor_dtype(arrays[0].dtype), arrays[0].shape
            )
        ],
        [onnx.ValueInfoProto(name="y")],
        [
            numpy_helper.from_array(np.asarray(a), n)
            for n, a in zip(names, arrays)
            if n in constants
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(opwright.Error, match=message):
        opwright.build(made.SerializeToString(), timing=False)


def test_layers_of_the_network():
    rng = np.random.default_rng(8)
    x = (rng.standard_normal((4, 6, 5)) * 30).astype(np.float32)
    for shape, axis in (((), -1), ((1,), -1), ((6,), 1), ((4, 3, 5), -1), ((2, 2, 1), -1)):
        network = opwright.Builder(opwright.Logger(opwright.Logger.ERROR)).create_network()
        scale = (rng.random(shape) + 0.2).astype(np.float32)
        given = network.add_input("x", opwright.float32, x.shape)
        factor = network.add_constant(shape, scale).get_output(0)
        quantize_layer = network.add_quantize(given, factor, opwright.int8)
        assert (quantize_layer.axis, quantize_layer.to_type) == (-1, opwright.int8)
        assert quantize_layer.type == opwright.LayerType.QUANTIZE
        back_layer = network.add_dequantize(quantize_layer.get_output(0), factor, opwright.float32)
        assert back_layer.type == opwright.LayerType.DEQUANTIZE
        quantize_layer.axis = back_layer.axis = axis
        for layer in (quantize_layer, back_layer):
            network.mark_output(layer.get_output(0))
        got = onnx_graphs.as_list(opwright.build(network, timing=False)(x))
        wide = scale
        if shape == (6,):
            wide = scale.reshape(1, 6, 1)
        elif len(shape) == 3:
            for a in range(3):
                wide = np.repeat(wide, x.shape[a] // wide.shape[a], a)
        want = quantize(x, wide, 0, np.int8)
        np.testing.assert_array_equal(got[0], want)
        np.testing.assert_allclose(got[1], want * wide, rtol=1e-6)


def test_a_scale_that_does_not_fit():
    network = opwright.Builder(opwright.Logger(opwright.Logger.ERROR)).create_network()
    x = network.add_input("x", opwright.float32, (4, 6))
    factor = network.add_constant((6,), np.ones(6, np.float32)).get_output(0)
    layer = network.add_quantize(x, factor, opwright.int8)
    with pytest.raises(opwright.Error, match="so the axis must be in"):
        str(layer.get_output(0).shape)
    layer.axis = 0
    with pytest.raises(
        opwright.Error, match="has 6 elements; expected 1 or 4, the extent of axis 0"
    ):
        str(layer.get_output(0).shape)
    layer.axis = 1
    assert tuple(layer.get_output(0).shape) == (4, 6)


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
def test_a_scale_along_an_open_axis(operator):
    """The axis' extent is the vector's, which nothing says before the engine runs."""
    quantizes = operator == "QuantizeLinear"
    scale, zero = np.float32([0.5, 0.25, 0.125]), np.uint8([1, 8, 7])
    types = TensorProto.FLOAT, TensorProto.UINT8
    taken, made = types if quantizes else types[::-1]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "s", "z"], ["y"], axis=-1)],
        "g",
        [helper.make_tensor_value_info("x", taken, ["n", "m"])],
        [helper.make_tensor_value_info("y", made, None)],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    engine = opwright.build(model, shapes={"x": ((1, 3), (2, 3), (4, 3))}, timing=False)
    reference = ReferenceEvaluator(model)
    for rows in (1, 4):
        x = np.linspace(-20, 20, rows * 3).reshape(rows, 3)
        x = x.astype(np.float32) if quantizes else (x + 20).astype(np.uint8)
        np.testing.assert_array_equal(engine(x), reference.run(None, {"x": x})[0])
