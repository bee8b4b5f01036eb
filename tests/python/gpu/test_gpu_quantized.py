"""Models of QuantizeLinear and DequantizeLinear on a GPU, whose products are of FP8, INT8 or UINT8, against the
standard's reference implementation: every architecture's instructions on the emulated driver."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import emulated_gpu
import opwright

pytestmark = emulated_gpu.emulated_only

FP8 = ml_dtypes.float8_e4m3fn
TYPES = {"fp8": (FP8, FP8), "int8": (np.int8, np.int8), "uint8": (np.uint8, np.int8)}
LARGEST = {FP8: 448.0, np.int8: 127.0, np.uint8: 255.0}


@dataclass
class Model:
    """Nodes of a graph, and its constants."""

    kind: str
    dtype: type = np.float32  # of what is not quantized
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def constant(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attributes) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def zero(self, dtype, count: int | None = None, value: float = 0) -> str:
        return self.constant(np.full([] if count is None else [count], value).astype(dtype))

    def quantized(self, x: str, scale: float, zero_point: float = 0) -> str:
        """x, through the activations' type."""
        dtype = TYPES[self.kind][0]
        both = (self.constant(self.dtype(scale)), self.zero(dtype, value=zero_point))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *both), *both)

    def weights(self, shape, axis: int | None, quantize_in_model: bool = False) -> str:
        """Weights of the type of bytes or, with a node that quantizes them, of floating numbers; with a scale for each
        index of the axis, or one."""
        dtype = TYPES[self.kind][1]
        w = self.random.normal(size=shape)
        others = None if axis is None else tuple(i for i in range(len(shape)) if i != axis)
        scale = np.asarray(np.abs(w).max(axis=others) / LARGEST[dtype]).astype(self.dtype)
        both = (
            self.constant(scale),
            self.zero(dtype, None if axis is None else shape[axis]),
        )
        along = {} if axis is None else {"axis": axis}
        if quantize_in_model:
            stored = self.node(
                "QuantizeLinear", self.constant(w.astype(self.dtype)), *both, **along
            )
        else:
            wide = scale.astype("d")
            if axis is not None:
                wide = wide.reshape([-1 if i == axis else 1 for i in range(len(shape))])
            values = w / wide
            stored = self.constant((values if dtype is FP8 else np.rint(values)).astype(dtype))
        return self.node("DequantizeLinear", stored, *both, **along)

    def finish(self, *result: str, shape) -> bytes:
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            self.nodes,
            "quantized",
            [helper.make_tensor_value_info("x", dtype, shape)],
            [helper.make_tensor_value_info(name, dtype, None) for name in result],
            self.constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made).SerializeToString()


def reference(model: bytes, x: np.ndarray) -> np.ndarray:
    return np.asarray(ReferenceEvaluator(onnx.load_from_string(model)).run(None, {"x": x})[0])


def build(model: bytes, device: str = "cuda", **options):
    return opwright.build(model, device=device, timing=False, **options)


def agrees(result, expected: np.ndarray, step: float = 0) -> None:
    """Within rounding; what is quantized on the way may come out one step further, a few of a thousand times."""
    is_half = expected.dtype == np.float16
    result, expected = np.asarray(result).astype("d"), expected.astype("d")
    assert result.shape == expected.shape
    apart = np.abs(result - expected)
    far = apart > 2e-5 * np.maximum(1, np.abs(expected).max())
    if is_half:  # the reference sums in FP16
        assert apart.max() <= step
        return
    if step == 0:
        assert not far.any(), f"{far.sum()} of {far.size}, up to {apart.max()}"
        return
    assert far.mean() < 0.05 and apart.max() <= step, f"{far.mean()} apart, up to {apart.max()}"


def multiplies(engine, kind: str) -> bool:
    """Whether all products of the engine are of that kind."""
    name = {"fp8": "FP8", "int8": "INT8", "uint8": "UINT8"}[kind]
    products = [
        layer for layer in engine.layers if layer["LayerType"] in ("MatrixMultiply", "Convolution")
    ]
    assert products
    return all(str(layer["Inputs"][0]).find(f"'{name}") >= 0 for layer in products)


def perceptron(kind: str, dtype=np.float32, k: int = 72, quantize_in_model: bool = False) -> Model:
    m = Model(kind, dtype)
    y = m.node("MatMul", m.quantized("x", 0.03), m.weights((k, 40), 1, quantize_in_model))
    y = m.node("Add", y, m.constant(m.random.normal(size=40).astype(dtype)))
    y = m.quantized(m.node("Relu", y), 0.125)
    m.node("MatMul", y, m.weights((40, 24), None))
    return m


@pytest.mark.parametrize("quantize_in_model", [False, True])
@pytest.mark.parametrize("k", [72, 75])
@pytest.mark.parametrize("kind", TYPES)
def test_products(kind, k, quantize_in_model):
    """Per channel and per tensor, of K that is a multiple of something or not, in stacks; the second layer's
    quantization is the first one's epilogue."""
    m = perceptron(kind, k=k, quantize_in_model=quantize_in_model)
    model = m.finish(m.nodes[-1].output[0], shape=[2, 3, 5, k])
    x = m.random.normal(size=(2, 3, 5, k)).astype("f")
    engine = build(model)
    assert len(engine.layers) == 3 and multiplies(engine, kind), engine.layers
    agrees(engine(x), reference(model, x), step=0.6)
    agrees(build(model, device="cpu")(x), reference(model, x), step=0.6)


@pytest.mark.parametrize("kind", TYPES)
def test_half_precision(kind):
    m = perceptron(kind, np.float16)
    model = m.finish(m.nodes[-1].output[0], shape=[9, 72])
    x = m.random.normal(size=(9, 72)).astype(np.float16)
    engine = build(model)
    assert len(engine.layers) == 3, engine.layers
    agrees(engine(x), reference(model, x), step=1.2)


@pytest.mark.parametrize("kind", TYPES)
def test_open_extents(kind):
    m = perceptron(kind)
    model = m.finish(m.nodes[-1].output[0], shape=["batch", 72])
    engine = build(model, shapes={"x": ((1, 72), (64, 72), (300, 72))})
    for rows in (1, 17, 300):
        x = m.random.normal(size=(rows, 72)).astype("f")
        agrees(engine(x), reference(model, x), step=0.6)


@pytest.mark.parametrize("turned", ["Gemm", "Transpose"])
@pytest.mark.parametrize("kind", TYPES)
def test_weights_that_are_transposed(kind, turned):
    m = Model(kind)
    x, w = m.quantized("x", 0.03), m.weights((24, 72), 0)
    bias = m.constant(m.random.normal(size=24).astype("f"))
    if turned == "Gemm":
        y = m.node("Gemm", x, w, bias, transB=1)
    else:
        y = m.node("Add", m.node("MatMul", x, m.node("Transpose", w, perm=[1, 0])), bias)
    model = m.finish(y, shape=[33, 72])
    feed = m.random.normal(size=(33, 72)).astype("f")
    engine = build(model)
    assert len(engine.layers) == 2, engine.layers
    agrees(engine(feed), reference(model, feed))


@pytest.mark.parametrize("zero_point", [0, 7])
@pytest.mark.parametrize("kind", TYPES)
def test_convolutions(kind, zero_point):
    """With a bias, a residual and an activation; three channels first, then many, strides and groups."""
    if kind == "fp8" and zero_point:
        pytest.skip("FP8 has no zero points")
    m = Model(kind)
    bias = [m.constant(m.random.normal(size=32).astype("f")) for _ in range(3)]
    x = m.quantized("x", 0.03, zero_point)
    first = m.node(
        "Conv", x, m.weights((32, 3, 3, 3), 0, True), bias[0], pads=[1] * 4, strides=[2, 2]
    )
    first = m.quantized(m.node("Relu", first), 0.125, zero_point)
    y = m.node("Conv", first, m.weights((32, 32, 3, 3), 0), bias[1], pads=[1] * 4)
    y = m.quantized(m.node("Relu", m.node("Add", y, first)), 0.25, zero_point)
    y = m.node("Conv", y, m.weights((32, 16, 1, 1), None), bias[2], group=2)
    model = m.finish(y, shape=[2, 3, 14, 18])
    feed = m.random.normal(size=(2, 3, 14, 18)).astype("f")
    expected = reference(model, feed)
    agrees(build(model)(feed), expected, step=1.5)
    agrees(build(model, device="cpu")(feed), expected, step=1.5)


def test_numbers_that_are_none():
    """What is no number stays so, and what is too large is the largest."""
    m = Model("fp8")
    y = m.node("MatMul", m.quantized("x", 1), m.weights((32, 16), None))
    model = m.finish(y, shape=[4, 32])
    x = m.random.normal(size=(4, 32)).astype("f")
    x[1, 3], x[2, 5], x[3, 6] = np.nan, np.inf, -1e30
    result, expected = np.asarray(build(model)(x)), reference(model, np.nan_to_num(x, nan=0.0))
    assert np.isnan(result[1]).all()
    np.testing.assert_allclose(result[[0, 2, 3]], expected[[0, 2, 3]], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("architecture", [75, 80, 89, 90])
@pytest.mark.parametrize("kind", ["fp8", "uint8"])
def test_architectures(tmp_path, kind, architecture):
    """Without tensor cores; FP8 as FP16; instructions of FP8; warpgroups. NaN, too, in FP8."""
    m = perceptron(kind, k=160)
    model = m.finish(m.nodes[-1].output[0], shape=[70, 160])
    x = m.random.normal(size=(70, 160)).astype("f")
    expected = reference(model, x)
    if kind == "fp8":
        x[11, 7] = np.nan
    (tmp_path / "model.onnx").write_bytes(model)
    np.save(tmp_path / "x.npy", x)
    done = emulated_gpu.run_program(
        "import numpy, opwright, pathlib\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "engine = opwright.build((folder / 'model.onnx').read_bytes(), device='cuda', timing=False)\n"
        "numpy.save(folder / 'y.npy', numpy.asarray(engine(numpy.load(folder / 'x.npy'))))",
        OPWRIGHT_EMULATED_ARCHITECTURE=str(architecture),
    )
    assert done.returncode == 0, done.stderr
    y = np.load(tmp_path / "y.npy")
    if kind == "fp8":
        assert np.isnan(y[11]).all()
    keep = np.arange(70) != 11
    agrees(y[keep], expected[keep], step=0.8)


@pytest.mark.parametrize("kind", ["QFLOAT8E4M3FN", "QInt8", "QUInt8"])
def test_a_model_that_onnx_runtime_quantized(tmp_path, kind):
    """A residual network of convolutions with a classifier, calibrated and quantized by its static quantizer, against
    what ONNX Runtime computes of it on the CPU."""
    import onnxruntime
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    random = np.random.default_rng(11)
    sizes = {
        "w0": (16, 3, 3, 3),
        "w1": (16, 16, 3, 3),
        "w2": (16, 16, 3, 3),
        "w3": (32, 16, 1, 1),
        "m0": (32, 48),
        "m1": (10, 48),
    }
    tensors = {
        name: random.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))
        for name, shape in sizes.items()
    }
    tensors |= {
        f"b{i}": random.normal(size=n) * 0.2 for i, n in enumerate((16, 16, 16, 32, 48, 10))
    }
    layers = [
        ("Conv", ["x", "w0", "b0"], "c0", {"pads": [1] * 4, "strides": [2, 2]}),
        ("Relu", ["c0"], "r0", {}),
        ("Conv", ["r0", "w1", "b1"], "c1", {"pads": [1] * 4}),
        ("Relu", ["c1"], "r1", {}),
        ("Conv", ["r1", "w2", "b2"], "c2", {"pads": [1] * 4}),
        ("Add", ["c2", "r0"], "s", {}),
        ("Relu", ["s"], "r2", {}),
        ("Conv", ["r2", "w3", "b3"], "c3", {}),
        ("GlobalAveragePool", ["c3"], "p", {}),
        ("Flatten", ["p"], "f", {}),
        ("MatMul", ["f", "m0"], "h", {}),
        ("Add", ["h", "b4"], "hb", {}),
        ("Relu", ["hb"], "hr", {}),
        ("Gemm", ["hr", "m1", "b5"], "y", {"transB": 1}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, [out], name=out, **how) for op, names, out, how in layers],
        "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 20, 20])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(array.astype("f"), name) for name, array in tensors.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(made, tmp_path / "float.onnx")

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rest = [random.normal(size=(4, 3, 20, 20)).astype("f") for _ in range(3)]

        def get_next(self):
            return {"x": self.rest.pop()} if self.rest else None

    is_fp8 = kind == "QFLOAT8E4M3FN"
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "quantized.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType[kind],
        weight_type=QuantType.QFLOAT8E4M3FN if is_fp8 else QuantType.QInt8,
        per_channel=not is_fp8,
        calibrate_method=CalibrationMethod.Distribution if is_fp8 else CalibrationMethod.MinMax,
    )
    model = (tmp_path / "quantized.onnx").read_bytes()
    x = random.normal(size=(5, 3, 20, 20)).astype("f")
    options = onnxruntime.SessionOptions()
    # Its own fusions round elsewhere.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    engine = build(model, shapes={"x": ((1, 3, 20, 20), (4, 3, 20, 20), (8, 3, 20, 20))})
    step = np.abs(expected).max() / (8 if is_fp8 else 64)
    apart = np.abs(np.asarray(engine(x)) - expected)
    assert apart.max() <= step and apart.mean() <= step / 8, (apart.max(), apart.mean(), step)


def test_e5m2_is_refused_by_name():
    m = Model("fp8")
    zero = m.constant(np.zeros([], ml_dtypes.float8_e5m2))
    y = m.node("QuantizeLinear", "x", m.constant(np.float32(1)), zero)
    y = m.node("DequantizeLinear", y, m.constant(np.float32(1)), zero)
    with pytest.raises(opwright.Error, match="FLOAT8E4M3FN"):
        build(m.finish(y, shape=[4]))


def types_between(engine) -> set[str]:
    """The types of what the engine's steps hand each other."""
    ports = [port for layer in engine.layers[:-1] for port in layer["Outputs"]]
    return {str(port["Format/Datatype"]).split()[0] for port in ports}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("kind", TYPES)
def test_bytes_are_moved_as_they_are(kind, device):
    """What quantizers write around pooling, reshapes and the like, with the scale that was there before."""
    m = Model(kind)
    if kind == "fp8" and device == "cpu":
        pytest.skip("products of FP8 are for GPUs")
    x = m.quantized("x", 0.03)
    pooled = m.quantized(
        m.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 0.03
    )
    turned = m.quantized(m.node("Transpose", pooled, perm=[0, 2, 3, 1]), 0.03)
    both = m.quantized(m.node("Concat", turned, turned, axis=1), 0.03)
    flat = m.quantized(m.node("Flatten", both, axis=3), 0.03)
    model = m.finish(m.node("MatMul", flat, m.weights((16, 8), 1)), shape=[2, 16, 9, 11])
    engine = build(model, device)
    name = {"fp8": "FP8", "int8": "INT8", "uint8": "UINT8"}[kind]
    assert device == "cpu" or types_between(engine) == {name}, engine.layers
    feed = m.random.normal(size=(2, 16, 9, 11)).astype("f")
    agrees(engine(feed), reference(model, feed))


def test_of_a_table_of_bytes_picked_rows_are_dequantized():
    m = Model("int8")
    table = m.constant(m.random.integers(-127, 128, (1000, 32)).astype(np.int8))
    scale = (m.constant(np.float32(0.02)), m.zero(np.int8))
    rows = m.node("Cast", "x", to=onnx.TensorProto.INT64)
    model = m.finish(m.node("Gather", m.node("DequantizeLinear", table, *scale), rows), shape=[5])
    engine = build(model)
    assert all(layer["Outputs"][0]["Dimensions"][0] == 5 for layer in engine.layers)
    x = np.array([3, 999, 0, -1, 512], "f")
    np.testing.assert_allclose(engine(x), reference(model, x), rtol=1e-6)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("kind,zero_point", [("int8", -128), ("uint8", 128)])
def test_zero_points_of_the_other_type(kind, zero_point, device):
    """What comes from an activation has its zero at the range's end: bytes of the other sign have it at 0, where
    windows beyond the borders are zeros."""
    m = Model(kind)
    y = m.node("Relu", "x") if kind == "int8" else "x"
    y = m.node("Conv", m.quantized(y, 0.03, zero_point), m.weights((24, 32, 3, 3), 0), pads=[1] * 4)
    model = m.finish(y, shape=[2, 32, 7, 9])
    engine = build(model, device)
    (product,) = [layer for layer in engine.layers if layer["LayerType"] == "Convolution"]
    other = "UINT8" if kind == "int8" else "'INT8"
    if device == "cuda":
        assert product["TacticName"].startswith(("tensor", "warpgroup"))
    assert other in str(product["Inputs"][0])
    feed = m.random.normal(size=(2, 32, 7, 9)).astype("f")
    agrees(engine(feed), reference(model, feed))


def test_of_two_products_the_summand_is_stored_as_bytes():
    m = Model("int8")
    x = m.quantized("x", 0.03)
    bias = [m.constant(m.random.normal(size=48).astype("f")) for _ in range(2)]
    shortcut = m.quantized(m.node("Conv", x, m.weights((48, 32, 1, 1), 0), bias[0]), 0.05)
    y = m.quantized(
        m.node("Relu", m.node("Conv", x, m.weights((32, 32, 3, 3), 0), pads=[1] * 4)), 0.1
    )
    y = m.quantized(m.node("Conv", y, m.weights((48, 32, 1, 1), 0), bias[1]), 0.1)
    y = m.quantized(m.node("Relu", m.quantized(m.node("Add", y, shortcut), 0.2)), 0.15)
    model = m.finish(m.node("Conv", y, m.weights((16, 48, 1, 1), 0)), shape=[2, 32, 7, 9])
    engine = build(model)
    assert len(engine.layers) == 5 and types_between(engine) == {"INT8"}, engine.layers
    feed = m.random.normal(size=(2, 32, 7, 9)).astype("f")
    agrees(engine(feed), reference(model, feed), step=1.0)


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", TYPES)
def test_what_is_normalized_is_quantized_at_once(kind, dtype, is_read):
    """The sum behind reads what is normalized, the product its bytes; without a sum there are only bytes."""
    m = Model(kind, dtype)
    factors = [m.constant(m.random.normal(size=72).astype(dtype)) for _ in range(2)]
    normal = m.node("LayerNormalization", "x", *factors, axis=-1)
    zero_point = 0 if kind == "fp8" else 9
    y = m.node("MatMul", m.quantized(normal, 0.05, zero_point), m.weights((72, 72), 1))
    model = m.finish(m.node("Add", y, normal) if is_read else y, shape=[5, 11, 72])
    engine = build(model)
    kinds = [layer["LayerType"] for layer in engine.layers]
    assert kinds == ["QuantizedNormalization", "MatrixMultiply"], kinds
    assert len(engine.layers[0]["Outputs"]) == 1 + is_read
    feed = m.random.normal(size=(5, 11, 72)).astype(dtype)
    agrees(engine(feed), reference(model, feed), step=0.6)


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_projections_to_queries_keys_and_values_are_one_product(kind):
    """What follows the attention is quantized by it."""
    heads, size, length = 2, 16, 12
    width = heads * size
    m = Model(kind, np.float16)
    x, parts = m.quantized("x", 0.003), []
    split = m.constant(np.array([1, length, heads, size]))
    for name in "qkv":
        y = m.node("MatMul", x, m.weights((width, width), 1 if kind == "int8" else None))
        y = m.node("Add", y, m.constant(m.random.normal(size=width).astype(np.float16)))
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        parts.append(m.node("Transpose", m.node("Reshape", y, split), perm=perm))
    scores = m.node("Mul", m.node("MatMul", parts[0], parts[1]), m.constant(np.float16(size**-0.5)))
    y = m.node("MatMul", m.node("Softmax", scores, axis=-1), parts[2])
    y = m.node("Transpose", y, perm=[0, 2, 1, 3])
    y = m.node("Reshape", y, m.constant(np.array([1, length, width])))
    y = m.node("MatMul", m.quantized(y, 0.02), m.weights((width, 24), None))
    model = m.finish(y, shape=[1, length, width])
    engine = build(model)
    kinds = [layer["LayerType"] for layer in engine.layers]
    assert kinds == ["Pointwise", "MatrixMultiply", "FusedAttention", "MatrixMultiply"], kinds
    feed = (m.random.normal(size=(1, length, width)) * 0.1).astype(np.float16)
    agrees(engine(feed), reference(model, feed), step=0.15 if kind == "int8" else 0.4)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("zero_point", [0, 5])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_activations_between_equal_quantizations(kind, zero_point, device):
    """Bytes below 0 become 0; with a zero point elsewhere they are numbers first."""
    m = Model(kind)
    y = m.node("Conv", m.quantized("x", 0.03), m.weights((24, 32, 1, 1), 0))
    y = m.quantized(m.node("Relu", m.quantized(y, 0.05, zero_point)), 0.05, zero_point)
    model = m.finish(m.node("Conv", y, m.weights((16, 24, 1, 1), 0)), shape=[2, 32, 7, 9])
    engine = build(model, device)
    assert device == "cpu" or len(engine.layers) == 3, engine.layers
    feed = m.random.normal(size=(2, 32, 7, 9)).astype("f")
    agrees(engine(feed), reference(model, feed), step=0.5)


def test_layers_that_differ_in_scales_are_timed_once():
    """A cache that knows one model's times has those of the other, whose scales are others."""
    logger = opwright.Logger(opwright.Logger.ERROR)
    cache = None
    for scale in (0.05, 0.07):
        m = Model("int8")
        y = m.node("MatMul", m.quantized("x", scale), m.weights((72, 40), 1))
        y = m.quantized(m.node("Relu", y), scale * 3)
        model = m.finish(m.node("MatMul", y, m.weights((40, 24), 1)), shape=[9, 72])
        builder = opwright.Builder(logger)
        network = builder.create_network()
        assert opwright.OnnxParser(network, logger).parse(model)
        config = builder.create_builder_config()
        config.default_device_type = opwright.DeviceType.GPU
        if cache is not None:
            config.set_flag(opwright.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
        times = config.create_timing_cache(bytes(cache.serialize()) if cache else b"")
        assert config.set_timing_cache(times, False)
        engine = builder.build_engine_with_config(network, config)
        assert engine is not None
        cache = config.get_timing_cache()
        x = m.random.normal(size=(9, 72)).astype("f")
        agrees(opwright.Engine(engine)(x), reference(model, x), step=0.6)
