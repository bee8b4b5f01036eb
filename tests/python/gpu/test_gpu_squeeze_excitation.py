"""Gates of channels (squeeze and excitation): one step from the mean to the multiplied image."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import opwright as trt
from cuda_driver import DeviceArray

pytestmark = pytest.mark.usefixtures("on_gpu")

CHANNELS, HIDDEN = 48, 12
RNG = np.random.default_rng(0)
REDUCE, EXPAND = (RNG.standard_normal(s) for s in ((HIDDEN, CHANNELS), (CHANNELS, HIDDEN)))
BIASES = [RNG.standard_normal(n) for n in (HIDDEN, CHANNELS)]

CONVOLUTIONS = """m = GlobalAveragePool(x)
    a = Conv(m, reduce, b0)
    h = {hidden}
    b = Conv(h, expand, b1)
    g = {gate}"""
PRODUCTS = """m = ReduceMean<keepdims=0>(x, pixels)
    a = Gemm<transB=1>(m, reduce, b0)
    h = {hidden}
    b = Gemm<transB=1>(h, expand, b1)
    f = {gate}
    g = Unsqueeze(f, pixels)"""
TURNED = """m = ReduceMean<keepdims=0>(x, pixels)
    p = MatMul(m, reduce)
    a = Add(p, b0)
    h = {hidden}
    q = MatMul(h, expand)
    b = Add(q, b1)
    f = {gate}
    g = Unsqueeze(f, pixels)"""


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


HIDDENS = {
    "Relu(a)": lambda a: np.maximum(a, 0),
    "HardSwish(a)": lambda a: a * np.clip(a / 6 + 0.5, 0, 1),
    "Swish(a)": lambda a: a * sigmoid(a),
}
GATES = {
    "Sigmoid(b)": sigmoid,
    "HardSigmoid<alpha=0.16666667>(b)": lambda b: np.clip(b / 6 + 0.5, 0, 1),
}


def model(text, shape="n,48,h,w", dtype=np.float32, factor=1):
    """A model of `text`, which computes y from x of CHANNELS channels."""
    kind = {np.float32: "float", np.float16: "float16"}[dtype]
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 24]>
        g ({kind}[{shape}] x) => ({kind}[k,c,i,j] y) {{ {text} }}"""
    )
    matrices = [m.T if "MatMul" in text else m for m in (REDUCE, EXPAND)]
    if "Conv" in text:
        matrices = [m[:, :, None, None] for m in matrices]
    names = ("reduce", "expand", "b0", "b1")
    for name, array in zip(names, [*matrices, *BIASES], strict=True):
        array = np.ascontiguousarray(factor * array, dtype)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3]), "pixels"))
    return made


def build(text, images=4, pixels=12, **options):
    """An engine of open extents, for as many images of pixels x pixels."""
    optimum, most = (images, CHANNELS, pixels, pixels), (8, CHANNELS, 400, 400)
    shapes = {"x": ((1, CHANNELS, 1, 1), optimum, most)}
    return trt.build(model(text, **options), device="cuda", timing=False, shapes=shapes)


def gates(x, hidden="Relu(a)", gate="Sigmoid(b)"):
    x = x.astype(np.float64)
    results = HIDDENS[hidden](x.mean((2, 3)) @ REDUCE.T + BIASES[0])
    return GATES[gate](results @ EXPAND.T + BIASES[1])[:, :, None, None]


def kinds(engine) -> list[str]:
    views = ("Reshape", "Reformat")
    return [each["LayerType"] for each in engine.layers if each["LayerType"] not in views]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("hidden", HIDDENS)
@pytest.mark.parametrize("layers", [CONVOLUTIONS, PRODUCTS, TURNED])
def test_every_spelling_is_one_step(layers, hidden, gate):
    engine = build(layers.format(hidden=hidden, gate=gate) + "\ny = Mul(x, g)")
    assert kinds(engine) == ["SqueezeExcitation"]
    for images, height, width in ((4, 12, 12), (1, 7, 9)):
        x = RNG.standard_normal((images, CHANNELS, height, width)).astype(np.float32) + 0.5
        np.testing.assert_allclose(engine(x), x * gates(x, hidden, gate), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype, limit", [(np.float32, 1e-5), (np.float16, 3e-3)])
def test_other_readers_of_the_gates(dtype, limit):
    text = CONVOLUTIONS.format(hidden="Relu(a)", gate="Sigmoid(b)")
    engine = build(text + "\nz = Mul(x, g)\ns = Add(z, x)\ny = Relu(s)", dtype=dtype)
    assert kinds(engine) == ["SqueezeExcitation", "Pointwise"]
    x = RNG.standard_normal((2, CHANNELS, 5, 8)).astype(dtype)
    expected = np.maximum(x * gates(x) + x, 0)
    np.testing.assert_allclose(engine(x), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize(
    "text",
    [
        "m2 = Add(g, m)\ny = Mul(x, m2)",  # the mean is read by others
        "h2 = ReduceMax(h, one)\ns = Add(g, h2)\ny = Mul(x, s)",  # and the first product
    ],
)
def test_what_others_read_stays(text):
    layers = CONVOLUTIONS.format(hidden="Relu(a)", gate="Sigmoid(b)")
    constant = "one = Constant<value_ints=[1]>()\n"
    engine = build(layers + "\n" + constant + text)
    assert "SqueezeExcitation" not in kinds(engine)
    x = RNG.standard_normal((2, CHANNELS, 4, 6)).astype(np.float32)
    means = x.astype(np.float64).mean((2, 3), keepdims=True)
    results = np.maximum(means[:, :, 0, 0] @ REDUCE.T + BIASES[0], 0).max(1)
    more = means if "m2" in text else results[:, None, None, None]
    np.testing.assert_allclose(engine(x), x * (gates(x) + more), rtol=1e-5, atol=1e-5)


def test_one_large_image_keeps_its_steps():
    text = CONVOLUTIONS.format(hidden="Relu(a)", gate="Sigmoid(b)") + "\ny = Mul(x, g)"
    assert "SqueezeExcitation" not in kinds(build(text, 1, 300))
    assert "SqueezeExcitation" in kinds(build(text, 8, 300))


@pytest.mark.parametrize("layers", [PRODUCTS, TURNED])
def test_refitted_weights(layers):
    text = layers.format(hidden="Relu(a)", gate="Sigmoid(b)") + "\ny = Mul(x, g)"
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.set_flag(trt.BuilderFlag.REFIT)
    network = builder.create_network(0)
    given = model(text, "2,48,6,6").SerializeToString()
    assert trt.OnnxParser(network, logger).parse(given)
    engine = trt.Runtime(logger).deserialize_cuda_engine(
        builder.build_serialized_network(network, config)
    )
    assert engine.num_layers == 1
    refitter = trt.Refitter(engine, logger)
    other = model(text, "2,48,6,6", factor=-0.5).SerializeToString()
    assert trt.OnnxParserRefitter(refitter, logger).refit_from_bytes(other)
    assert refitter.refit_cuda_engine()
    x = RNG.standard_normal((2, CHANNELS, 6, 6)).astype(np.float32)
    results = np.maximum(-0.5 * (x.astype(np.float64).mean((2, 3)) @ REDUCE.T + BIASES[0]), 0)
    expected = x * sigmoid(-0.5 * (results @ EXPAND.T + BIASES[1]))[:, :, None, None]
    source, target = DeviceArray(x), DeviceArray(np.zeros_like(x))
    context = engine.create_execution_context()
    context.set_tensor_address("x", source.ptr)
    context.set_tensor_address("y", target.ptr)
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(target.numpy(), expected, rtol=1e-5, atol=1e-5)
