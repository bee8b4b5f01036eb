"""Weights that a model stores narrow, in the spellings of exporters: the engine unpacks them during the build, and of
a table only the rows that are picked."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opwright

ROWS, COLUMNS = 600, 640  # FP32 has more than one megabyte


class Writer:
    """Collects the nodes and constants of a model with the input x."""

    def __init__(self):
        self.random = np.random.default_rng(7)
        self.nodes, self.constants = [], []

    def constant(self, array) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op: str, *inputs: str, **attributes) -> str:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def finish(self, y: str, x: np.ndarray) -> onnx.ModelProto:
        given = helper.make_tensor_value_info(
            "x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        result = onnx.ValueInfoProto(name=y)
        graph = helper.make_graph(self.nodes, "narrow", [given], [result], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)

    def codes(self, dtype=np.int8, shape=(ROWS, COLUMNS)) -> np.ndarray:
        info = np.iinfo(dtype)
        return self.random.integers(info.min, info.max + 1, shape).astype(dtype)

    def scales(self, *shape: int) -> np.ndarray:
        return self.random.uniform(0.001, 0.01, shape).astype(np.float32)


def cast_and_multiply(w: Writer, *shape: int) -> str:
    real = w.node("Cast", w.constant(w.codes()), to=onnx.TensorProto.FLOAT)
    return w.node("Mul", real, w.constant(w.scales(*shape)))


def subtract_before(w: Writer) -> str:
    """A zero point for each column, subtracted as INT32."""
    wide = [
        w.node("Cast", w.constant(codes), to=onnx.TensorProto.INT32)
        for codes in (w.codes(np.uint8), w.codes(np.uint8, (COLUMNS,)))
    ]
    real = w.node("Cast", w.node("Sub", *wide), to=onnx.TensorProto.FLOAT)
    return w.node("Mul", real, w.constant(w.scales(COLUMNS)))


def turned(w: Writer) -> str:
    real = w.node("Cast", w.constant(w.codes(shape=(COLUMNS, ROWS))), to=onnx.TensorProto.FLOAT)
    return w.node("Transpose", w.node("Mul", real, w.constant(w.scales(COLUMNS, 1))), perm=[1, 0])


def dequantize(w: Writer, scale: tuple[int, ...], zero_point: bool, **attributes) -> str:
    inputs = [w.constant(w.codes(np.uint8)), w.constant(w.scales(*scale))]
    if zero_point:
        inputs.append(w.constant(w.codes(np.uint8, scale)))
    return w.node("DequantizeLinear", *inputs, **attributes)


TABLES = {
    "Cast and Mul": lambda w: cast_and_multiply(w),
    "a scale for each column": lambda w: cast_and_multiply(w, COLUMNS),
    "a scale for each row": lambda w: cast_and_multiply(w, ROWS, 1),
    "Mul from the left": lambda w: w.node(
        "Mul",
        w.constant(w.scales(1, COLUMNS)),
        w.node("Cast", w.constant(w.codes()), to=onnx.TensorProto.FLOAT),
    ),
    "zero points": subtract_before,
    "DequantizeLinear": lambda w: dequantize(w, (), False),
    "DequantizeLinear, zero point": lambda w: dequantize(w, (), True),
    "DequantizeLinear, columns": lambda w: dequantize(w, (COLUMNS,), True, axis=1),
    "DequantizeLinear, rows": lambda w: dequantize(w, (ROWS,), True, axis=0),
    "DequantizeLinear, blocks": lambda w: dequantize(
        w, (ROWS, COLUMNS // 32), True, axis=1, block_size=32
    ),
}


# The whole table is computed, since rows that are out of range are zeros and not minus the zero points.
ZEROS_OF_COLUMNS = ("zero points", "DequantizeLinear, columns")


def four_bits(w: Writer, is_signed: bool, fields: bool = False) -> str:
    """Weights of four bits in blocks of 32 rows, and their zero points."""
    kind = onnx.TensorProto.INT4 if is_signed else onnx.TensorProto.UINT4
    low, high = (-8, 8) if is_signed else (0, 16)

    def packed(*shape: int) -> str:
        codes = w.random.integers(low, high, shape).ravel()
        name = f"c{len(w.constants)}"
        if fields:
            tensor = helper.make_tensor(name, kind, shape, codes)
        else:
            pairs = np.resize(codes, codes.size + codes.size % 2).reshape(-1, 2) & 15
            data = (pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8).tobytes()
            tensor = helper.make_tensor(name, kind, shape, data, raw=True)
        w.constants.append(tensor)
        return name

    inputs = [packed(608, 333), w.constant(w.scales(19, 333)), packed(19, 333)]
    return w.node("DequantizeLinear", *inputs, axis=0, block_size=32)


@pytest.mark.parametrize("fields", [False, True])
@pytest.mark.parametrize("is_signed", [False, True])
def test_weights_of_four_bits(is_signed, fields):
    w = Writer()
    x = w.random.standard_normal((3, 608)).astype(np.float32)
    model = w.finish(w.node("MatMul", "x", four_bits(w, is_signed, fields)), x)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    assert [layer["LayerType"] for layer in engine.layers] == ["MatrixMultiply"]
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def test_four_bits_where_they_would_have_to_stay():
    """A zero point of four bits says to which type QuantizeLinear rounds."""
    w = Writer()
    w.constants.append(helper.make_tensor("zero", onnx.TensorProto.INT4, [], [0]))
    q = w.node("QuantizeLinear", "x", w.constant(np.float32(0.1)), "zero")
    model = w.finish(w.node("DequantizeLinear", q, w.constant(np.float32(0.1))), np.zeros(4, "f"))
    with pytest.raises(
        opwright.Error, match="'zero', which node '' .QuantizeLinear. reads, has el"
    ):
        opwright.build(model.SerializeToString(), device="cpu", timing=False)
    w = Writer()
    w.constants.append(helper.make_tensor("short", onnx.TensorProto.INT4, [5], b"abc", raw=True))
    w.constants[-1].raw_data = b"ab"
    sum = w.node("Add", "x", w.node("Cast", "short", to=onnx.TensorProto.FLOAT))
    model = w.finish(sum, np.zeros(5, "f"))
    with pytest.raises(opwright.Error, match="'short' has 2 bytes; its shape .* needs 3"):
        opwright.build(model.SerializeToString(), device="cpu", timing=False)


@pytest.mark.parametrize("spelling", [*TABLES, "turned"])
def test_weights_of_a_product_are_unpacked_during_the_build(spelling):
    w = Writer()
    x = w.random.standard_normal((3, ROWS)).astype(np.float32)
    model = w.finish(w.node("MatMul", "x", {**TABLES, "turned": turned}[spelling](w)), x)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    assert [layer["LayerType"] for layer in engine.layers] == ["MatrixMultiply"]
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
@pytest.mark.parametrize("spelling", TABLES)
def test_of_a_table_the_picked_rows_are_unpacked(spelling, shape):
    w = Writer()
    x = w.random.integers(-ROWS, ROWS, shape)
    model = w.finish(w.node("Gather", TABLES[spelling](w), "x"), x)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=1e-6, atol=1e-7)
    for layer in engine.layers if spelling not in ZEROS_OF_COLUMNS else []:
        (y,) = layer["Outputs"]
        assert np.prod(y["Dimensions"]) <= np.prod(shape) * COLUMNS, layer["Name"]
    # Where an index is out of range the row has zeros.
    np.testing.assert_array_equal(engine(np.full(shape, ROWS + 7)), np.zeros_like(wanted))


def test_columns_that_are_picked():
    w = Writer()
    x = np.array([3, 639, 3])
    model = w.finish(w.node("Gather", cast_and_multiply(w, ROWS, 1), "x", axis=1), x)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=1e-6)
    assert all(layer["Outputs"][0]["Dimensions"][1] == 3 for layer in engine.layers)


def test_a_table_that_is_also_a_weight():
    """Word embeddings that are tied to the last product."""
    w = Writer()
    x = np.array([[5, 1, 599]])
    table = cast_and_multiply(w, ROWS, 1)
    back = w.node("Transpose", table, perm=[1, 0])
    model = w.finish(w.node("MatMul", w.node("Gather", table, "x"), back), x)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    assert all(3 in layer["Outputs"][0]["Dimensions"] for layer in engine.layers)


def test_weights_of_a_recurrent_layer():
    w = Writer()
    hidden, inputs = 300, 200
    x = w.random.standard_normal((7, 1, inputs)).astype(np.float32)
    real = [
        w.node("Cast", w.constant(w.codes(shape=(1, 4 * hidden, n))), to=onnx.TensorProto.FLOAT)
        for n in (inputs, hidden)
    ]
    weights = [w.node("Mul", a, w.constant(w.scales(1, 4 * hidden, 1))) for a in real]
    model = w.finish(w.node("LSTM", "x", *weights, hidden_size=hidden), x)
    engine = opwright.build(model.SerializeToString(), device="cpu", timing=False)
    assert "Pointwise" not in [layer["LayerType"] for layer in engine.layers]
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(engine(x), wanted, rtol=0, atol=1e-5)
