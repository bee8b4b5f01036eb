"""Quantized operators of the domain com.microsoft, against ONNX Runtime, which defines them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opwright
from processor import LARGEST_WEIGHT

U8, I8 = np.uint8, np.int8
TYPE = TensorProto


def compare(operator, arrays, outputs=("y",), out_type=None, constants=(), steps=1, **attributes):
    """`arrays` by name in the order of the inputs; None is one that is absent. Bytes may differ by `steps`, where
    a sum lies between two."""
    given = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    node = helper.make_node(
        operator,
        [name if array is not None else "" for name, array in arrays.items()],
        list(outputs),
        domain="com.microsoft",
        **attributes,
    )
    elements = lambda array: helper.np_dtype_to_tensor_dtype(array.dtype)  # noqa: E731
    inputs = {name: array for name, array in given.items() if name not in constants}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, elements(a), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, out_type or TYPE.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(given[name], name) for name in constants],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    wanted = dict(zip(outputs, session.run(None, inputs)))
    got = opwright.build(data, timing=False)(**inputs)
    got = got if isinstance(got, dict) else {outputs[0]: got}
    for name, array in wanted.items():
        assert got[name].shape == array.shape
        assert got[name].dtype == array.dtype
        if array.dtype in (U8, I8):
            apart = np.abs(got[name].astype(int) - array.astype(int))
            assert apart.max(initial=0) <= steps
            assert np.mean(apart > 0) < 0.05
        else:
            np.testing.assert_allclose(got[name], array, rtol=2e-4, atol=2e-5)


def data(dtype, *shape):
    info = np.iinfo(dtype)
    random = np.random.default_rng(sum(shape))
    return random.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(dtype, *shape):
    values = data(dtype, *shape)
    return np.clip(values, -LARGEST_WEIGHT - 1, LARGEST_WEIGHT) if dtype == I8 else values


def f32(value):
    return np.array(value, np.float32)


def zero(dtype, value):
    return np.array(value + (128 if dtype == U8 else 0), dtype)


def element(dtype):
    return TYPE.UINT8 if dtype == U8 else TYPE.INT8


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shape", [(3, 5, 16), (16,), ()])
def test_elementwise(operator, dtype, shape):
    arrays = {"a": data(dtype, 3, 5, 16), "as": f32(0.02), "az": zero(dtype, 3)}
    arrays |= {"b": data(dtype, *shape), "bs": f32(0.03), "bz": zero(dtype, -7)}
    arrays |= {"ys": f32(0.05), "yz": zero(dtype, 9)}
    compare(
        operator, arrays, out_type=element(dtype), constants=("as", "bs", "ys", "az", "bz", "yz")
    )


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("operator", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_activations(operator, dtype):
    arrays = {"x": data(dtype, 4, 33), "xs": f32(0.04), "xz": zero(dtype, 5)}
    arrays |= {"ys": f32(1 / 256 if operator == "QLinearSigmoid" else 0.03), "yz": zero(dtype, -9)}
    attributes = {"alpha": 0.2} if operator == "QLinearLeakyRelu" else {}
    names = ("xs", "xz", "ys", "yz")
    compare(operator, arrays, out_type=element(dtype), constants=names, **attributes)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(dtype, last):
    arrays = {"x": data(dtype, 2, 6, 7, 5), "xs": f32(0.04), "xz": zero(dtype, 5)}
    arrays |= {"ys": f32(0.03), "yz": zero(dtype, -9)}
    names = ("xs", "xz", "ys", "yz")
    compare(
        "QLinearGlobalAveragePool",
        arrays,
        out_type=element(dtype),
        constants=names,
        channels_last=last,
    )


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("counts", [0, 1])
def test_average_pool(last, counts):
    arrays = {"x": data(U8, 2, 8, 8, 8), "xs": f32(0.04), "xz": zero(U8, 5)}
    arrays |= {"ys": f32(0.03), "yz": zero(U8, -9)}
    compare(
        "QLinearAveragePool",
        arrays,
        out_type=TYPE.UINT8,
        constants=("xs", "xz", "ys", "yz"),
        channels_last=last,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=counts,
    )


def test_max_pool_of_channels_last():
    compare(
        "NhwcMaxPool",
        {"x": data(U8, 2, 8, 9, 3)},
        out_type=TYPE.UINT8,
        kernel_shape=[3, 2],
        steps=0,
    )


def test_concat():
    arrays = {"ys": f32(0.04), "yz": zero(U8, 2)}
    for i, count in enumerate((3, 5)):
        arrays |= {
            f"x{i}": data(U8, 2, count, 4),
            f"s{i}": f32(0.02 * (i + 1)),
            f"z{i}": zero(U8, i),
        }
    names = ("ys", "yz", "s0", "z0", "s1", "z1")
    compare("QLinearConcat", arrays, out_type=TYPE.UINT8, constants=names, axis=1)


def test_where():
    arrays = {"c": data(U8, 3, 4) > 100}
    arrays |= {"x": data(U8, 3, 4), "xs": f32(0.02), "xz": zero(U8, 3)}
    arrays |= {"b": data(U8, 1, 4), "bs": f32(0.03), "bz": zero(U8, -3), "ys": f32(0.04)}
    arrays |= {"yz": zero(U8, 1)}
    names = ("xs", "xz", "bs", "bz", "ys", "yz")
    compare("QLinearWhere", arrays, out_type=TYPE.UINT8, constants=names)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (12, 1)])
def test_softmax(dtype, opset, axis):
    arrays = {"x": data(dtype, 3, 5, 8), "xs": f32(0.05), "xz": zero(dtype, 3)}
    arrays |= {"ys": f32(1 / 256), "yz": zero(dtype, -128)}
    names = ("xs", "xz", "ys", "yz")
    kwargs = {"opset": opset, "axis": axis}
    compare("QLinearSoftmax", arrays, out_type=element(dtype), constants=names, **kwargs)


@pytest.mark.parametrize("last", [0, 1])
def test_convolution(last):
    image = data(U8, 1, 9, 8, 4) if last else data(U8, 1, 4, 9, 8)
    arrays = {"x": image, "xs": f32(0.02), "xz": zero(U8, 3)}
    arrays |= {"w": weights(I8, 6, 4, 3, 3), "ws": f32(0.01), "wz": zero(I8, 0)}
    arrays |= {"ys": f32(0.3), "yz": zero(U8, 4), "b": data(I8, 6).astype(np.int32)}
    names = tuple(name for name in arrays if name != "x")
    kwargs = {"channels_last": last, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    compare("QLinearConv", arrays, out_type=TYPE.UINT8, constants=names, **kwargs)


@pytest.mark.parametrize("columns", [(), (6,)])
@pytest.mark.parametrize("quantized", [True, False])
def test_gemm(columns, quantized):
    arrays = {"a": data(U8, 8, 5), "as": f32(0.02), "az": zero(U8, 3)}
    scales = np.broadcast_to(f32(0.01), columns).copy()
    zeros = np.zeros(columns, I8)
    arrays |= {"b": weights(I8, 6, 8), "bs": scales, "bz": zeros, "c": data(I8, 6).astype(np.int32)}
    if quantized:
        arrays |= {"ys": f32(0.1), "yz": zero(U8, 4)}
    names = tuple(name for name in arrays if name != "a")
    out = TYPE.UINT8 if quantized else TYPE.FLOAT
    compare("QGemm", arrays, out_type=out, constants=names, transA=1, transB=1, alpha=0.5)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("columns", [(1,), (6,)])
@pytest.mark.parametrize("bias", [True, False])
def test_dynamically_quantized_product(dtype, columns, bias):
    a = np.random.default_rng(1).normal(size=(2, 4, 8)).astype(np.float32)
    arrays = {"a": a, "b": weights(dtype, 8, 6), "bs": np.full(columns, 0.02, np.float32)}
    arrays |= {"bz": np.full(columns, zero(dtype, 2))}
    if bias:
        arrays |= {"bias": np.linspace(-1, 1, 6, dtype=np.float32)}
    names = tuple(name for name in arrays if name != "a")
    compare("DynamicQuantizeMatMul", arrays, constants=names)


def test_product_of_integers_to_float():
    arrays = {"a": data(U8, 2, 4, 8), "b": weights(I8, 8, 6), "as": f32(0.02), "bs": f32(0.03)}
    arrays |= {
        "az": zero(U8, 3),
        "bz": zero(I8, 0),
        "bias": np.linspace(-1, 1, 6, dtype=np.float32),
    }
    compare("MatMulIntegerToFloat", arrays, constants=tuple(n for n in arrays if n != "a"))


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("past", [True, False])
def test_attention(unidirectional, past):
    random = np.random.default_rng(5)
    arrays = {"x": data(U8, 2, 3, 8), "w": weights(I8, 8, 24)}
    arrays |= {"b": random.normal(size=24).astype(np.float32), "xs": f32(0.02), "ws": f32(0.02)}
    arrays |= {"mask": np.array([3, 2], np.int32) if not past else None, "xz": zero(U8, 3)}
    arrays |= {"wz": zero(I8, 0)}
    outputs = ("y",)
    if past:
        arrays["past"] = random.normal(size=(2, 2, 2, 4, 4)).astype(np.float32)
        outputs = ("y", "present")
    names = ("w", "b", "xs", "ws", "xz", "wz")
    kwargs = {"num_heads": 2, "unidirectional": unidirectional}
    compare("QAttention", arrays, outputs, constants=names, **kwargs)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("columns", [False, True])
def test_dynamically_quantized_lstm(direction, columns):
    """ONNX Runtime rounds inputs and states to bytes in each step; the engine does not: so both are compared with an
    LSTM of the widened weights."""
    directions = 1 if direction == "forward" else 2
    random = np.random.default_rng(6)
    inputs, hidden = 12, 8
    w = random.integers(
        -LARGEST_WEIGHT, LARGEST_WEIGHT + 1, (directions, inputs, 4 * hidden)
    ).astype(I8)
    r = random.integers(
        -LARGEST_WEIGHT, LARGEST_WEIGHT + 1, (directions, hidden, 4 * hidden)
    ).astype(I8)
    per = (directions, 4 * hidden) if columns else (directions,)
    scale = random.uniform(0.001, 0.003, per).astype(np.float32)
    arrays = {
        "x": random.normal(size=(5, 2, inputs)).astype(np.float32),
        "w": w,
        "r": r,
        "b": random.normal(size=(directions, 8 * hidden)).astype(np.float32),
    }
    names = [*arrays, "", "", "", "", "ws", "wz", "rs", "rz"]
    arrays |= {"ws": scale, "wz": np.zeros(per, I8), "rs": scale, "rz": np.zeros(per, I8)}

    def model(node, constants):
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [node],
            "g",
            [value("x", TYPE.FLOAT, arrays["x"].shape)],
            [value(name, TYPE.FLOAT, None) for name in ("y", "h", "c")],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()

    attributes = {"hidden_size": hidden, "direction": direction}
    quantized = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "h", "c"], domain="com.microsoft", **attributes
    )
    constants = {name: array for name, array in arrays.items() if name != "x"}
    data = model(quantized, constants)
    got = opwright.build(data, timing=False)(arrays["x"])

    along = scale[:, None, :] if columns else scale[:, None, None]
    widened = {"w": (w * along).transpose(0, 2, 1), "r": (r * along).transpose(0, 2, 1)}
    plain = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], **attributes)
    exact = onnxruntime.InferenceSession(model(plain, {**widened, "b": arrays["b"]}))
    rounded = onnxruntime.InferenceSession(data)
    for name, wanted, near in zip(
        ("y", "h", "c"), exact.run(None, {"x": arrays["x"]}), rounded.run(None, {"x": arrays["x"]})
    ):
        np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got[name], near, atol=0.02)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [True, False])
def test_gather_of_blocks(bits, zeros):
    rows, columns, block = 7, 64, 16
    random = np.random.default_rng(7)
    arrays = {"data": random.integers(0, 256, (rows, columns * bits // 8)).astype(U8)}
    arrays |= {"i": np.array([[3, 0], [6, 2]], np.int64)}
    arrays |= {"scales": random.uniform(0.1, 1, (rows, columns // block)).astype(np.float32)}
    if zeros:
        arrays |= {
            "zeros": random.integers(0, 256, (rows, columns // block * bits // 8)).astype(U8)
        }
    names = tuple(name for name in arrays if name != "i")
    kwargs = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
    compare("GatherBlockQuantized", arrays, constants=names, **kwargs)


@pytest.mark.parametrize(("axes", "keeps"), [([1, 2], 1), ([-1], 0), (None, 1)])
def test_mean(axes, keeps):
    """ONNX Runtime's CPU has no kernel of it: as its documentation defines it."""
    x = data(U8, 2, 3, 5)
    names = ["x", "xs", "xz", "ys", "yz"]
    attributes = {"keepdims": keeps} | ({"axes": axes} if axes else {})
    node = helper.make_node("QLinearReduceMean", names, ["y"], domain="com.microsoft", **attributes)
    constants = {"xs": f32(0.04), "xz": zero(U8, 5), "ys": f32(0.02), "yz": zero(U8, 0)}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TYPE.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TYPE.UINT8, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    got = opwright.build(model, timing=False)(x)
    real = (x.astype(float) - 133) * 0.04
    mean = real.mean(tuple(axes) if axes else None, keepdims=bool(keeps))
    want = np.clip(np.round(mean / 0.02) + 128, 0, 255)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1
