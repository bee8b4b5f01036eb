"""Layers in which an extent that data decides has to be that of weights: against ONNX Runtime and onnx's reference."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import emulated_gpu
import opwright as trt

RNG = np.random.default_rng(0)
MOST, WANTED = 17, 10


def w(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return np.abs(w(*shape)) + np.float32(0.1)


# The shape in which data picks 0 to 17 along the axis, the nodes that read it as d, their weights, and whether 1 of
# those broadcasts.
LAYERS = {
    "LayerNormalization": ([4, 17], 1, "y = LayerNormalization(d, w, b)", dict(w=w(10), b=w(10)), False),
    "LayerNormalization of a vector": ([17], 0, "y = LayerNormalization(d, w)", dict(w=w(10)), False),
    "LayerNormalization of two axes": (
        [4, 17, 3], 1, "y = LayerNormalization<axis = 1>(d, w)", dict(w=w(10, 3)), False,
    ),
    "RMSNormalization": ([4, 17], 1, "y = RMSNormalization(d, w)", dict(w=w(10)), False),
    "InstanceNormalization": (
        [2, 17, 5], 1, "y = InstanceNormalization(d, w, b)", dict(w=w(10), b=w(10)), False,
    ),
    "GroupNormalization": (
        [2, 17, 5], 1, "y = GroupNormalization<num_groups = 2>(d, w, b)", dict(w=w(10), b=w(10)), False,
    ),
    "BatchNormalization": (
        [2, 17, 5], 1, "y = BatchNormalization(d, w, b, m, v)",
        dict(w=w(10), b=w(10), m=w(10), v=positive(10)), False,
    ),
    "PRelu": ([3, 17], 1, "y = PRelu(d, w)", dict(w=w(10)), False),
    "QuantizeLinear": (
        [3, 17], 1, "y = QuantizeLinear<axis = 1>(d, s, z)", dict(s=positive(10), z=np.zeros(10, np.int8)), False,
    ),
    "QuantizeLinear and back": (
        [3, 17], 1, "q = QuantizeLinear<axis = 1>(d, s, z) y = DequantizeLinear<axis = 1>(q, s, z)",
        dict(s=positive(10), z=np.zeros(10, np.int8)), False,
    ),
    "a chain": (
        [3, 17], 1, "n = LayerNormalization(d, w) m = Mul(n, w) s = Softmax(m) y = LayerNormalization(s, w)",
        dict(w=w(10)), False,
    ),
    "Add": ([3, 17], 1, "y = Add(d, w)", dict(w=w(10)), True),
    "Mul and Softmax": ([3, 17], 1, "m = Mul(d, w) y = Softmax(m)", dict(w=w(10)), True),
    "Where": (
        [3, 17], 1, "z = Constant<value = float {0}>() c = Less(d, z) y = Where(c, w, d)", dict(w=w(10)), True,
    ),
    "Expand": ([3, 17], 1, "y = Expand(d, s)", dict(s=np.int64([2, 3, 10])), True),
    "MatMul": ([3, 17], 1, "y = MatMul(d, w)", dict(w=w(10, 6)), False),
    "MatMul of stacks": ([17, 3, 4], 0, "y = MatMul(d, w)", dict(w=w(10, 4, 5)), True),
    "MatMul of rows with a sum": ([17, 4], 0, "m = MatMul(d, w) y = Add(m, b)", dict(w=w(4, 6), b=w(10, 1)), True),
    "Gemm": ([3, 17], 1, "y = Gemm(d, w, b)", dict(w=w(10, 6), b=w(6)), False),
    "Conv": ([2, 17, 8], 1, "y = Conv(d, w)", dict(w=w(6, 10, 3)), False),
    "ConvTranspose": ([2, 17, 8], 1, "y = ConvTranspose(d, w)", dict(w=w(10, 6, 3)), False),
    "Concat": ([3, 17], 1, "y = Concat<axis = 0>(d, w)", dict(w=w(2, 10)), False),
    "Attention": ([1, 2, 17, 8], 2, "y = Attention(q, d, v)", dict(q=w(1, 2, 5, 8), v=w(1, 2, 10, 8)), False),
    "LSTM": ([4, 2, 17], 2, "y = LSTM<hidden_size = 3>(d, w, r)", dict(w=w(1, 12, 10), r=w(1, 12, 3)), False),
    "GRU of a batch": (
        [4, 17, 3], 1, "y = GRU<hidden_size = 3>(d, w, r, , , h)", dict(w=w(1, 9, 3), r=w(1, 9, 3), h=w(1, 10, 3)),
        False,
    ),
    "GridSample": ([17, 2, 4, 4], 0, "y = GridSample(d, g)", dict(g=w(10, 3, 3, 2)), False),
}  # fmt: skip
ON_GPU = [
    "LayerNormalization",
    "BatchNormalization",
    "QuantizeLinear",
    "Expand",
    "MatMul of stacks",
    "GRU of a batch",
]
CASES = [
    *(pytest.param(name, "cpu", False, id=f"{name}-cpu-untimed") for name in LAYERS),
    *(pytest.param(name, "cpu", True, id=f"{name}-cpu-timed") for name in LAYERS),
    *(
        pytest.param(name, "cuda", True, id=f"{name}-gpu", marks=emulated_gpu.required)
        for name in ON_GPU
    ),
]


def model_of(shape, axis, nodes, weights, dtype="float") -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        '<ir_version: 11, opset_import: ["": 23]> net '
        f"({dtype}[{','.join(map(str, shape))}] x, bool[{MOST}] mask) => (float y) "
        f"{{ d = Compress<axis = {axis}>(x, mask) {nodes} }}"
    )
    made.graph.initializer.extend(numpy_helper.from_array(v, key) for key, v in weights.items())
    made.graph.output[0].ClearField("type")
    return made


def expected(made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = onnx.shape_inference.infer_shapes(made).SerializeToString()
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # it has no such operator yet
        return ReferenceEvaluator(made).run(None, feeds)[0]
    return session.run(None, feeds)[0]


@pytest.mark.parametrize(("name", "device", "timing"), CASES)
def test_an_extent_of_data_that_weights_decide(name, device, timing):
    shape, axis, nodes, weights, broadcasts = LAYERS[name]
    fits = {WANTED, 1} if broadcasts else {WANTED}
    x = RNG.standard_normal(shape).astype(np.float32)
    check(model_of(shape, axis, nodes, weights), x, fits, device=device, timing=timing)


def check(made, x, fits, **options):
    """Runs with several extents. Those that do not fit are refused."""
    engine = trt.build(made, **options)
    for count in (WANTED, 1, 7, MOST, 0):
        mask = np.zeros(MOST, bool)
        mask[RNG.permutation(MOST)[:count]] = True
        feeds = {"x": x, "mask": mask}
        if count not in fits:
            with pytest.raises(trt.Error):
                engine(**feeds)
            continue
        got, want = engine(**feeds), expected(made, feeds)
        got = np.asarray(got)
        assert got.shape == want.shape
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-4, atol=1e-4)


def indices(*shape: int) -> np.ndarray:
    return RNG.integers(0, 3, shape)


# As above; the extent has to be 10 or more, or 10 or less.
ORDERED = {
    "GatherElements": ([4, 17], 1, "y = GatherElements<axis = 0>(d, i)", dict(i=indices(2, 10)), {WANTED, MOST}),
    "GatherElements of more": (
        [4, 17], 1, "c = Concat<axis = 1>(d, e, d) y = GatherElements<axis = 0>(c, i)",
        dict(e=w(4, 2), i=indices(2, 16)), {WANTED, MOST, 7},
    ),
    "ScatterElements": (
        [4, 17], 1, "y = ScatterElements<axis = 0, reduction = \"add\">(d, i, u)",
        dict(i=indices(2, 10), u=w(2, 10)), {WANTED, MOST},
    ),
    "TopK": ([4, 17], 1, "y, z = TopK<axis = 1>(d, k)", dict(k=np.int64([10])), {WANTED, MOST}),
    "GatherElements by many": ([2, 17], 1, "y = GatherElements<axis = 0>(w, d)", dict(w=w(3, 10)), {WANTED, 7, 1, 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize(
    ("device", "timing"),
    [("cpu", False), ("cpu", True), pytest.param("cuda", True, marks=emulated_gpu.required)],
)
def test_an_extent_of_data_that_weights_bound(name, device, timing):
    shape, axis, nodes, weights, fits = ORDERED[name]
    is_index = name == "GatherElements by many"
    made = model_of(shape, axis, nodes, weights, "int64" if is_index else "float")
    x = indices(*shape) if is_index else RNG.standard_normal(shape).astype(np.float32)
    check(made, x, fits, device=device, timing=timing)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)])
def test_a_slice_of_an_extent_of_data_that_may_not_leave_it(device):
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (MOST,))
    found = network.add_non_zero(x).get_output(0)
    network.mark_output(network.add_slice(found, (0, 2), (1, 4), (1, 2)).get_output(0))
    engine = trt.build(network, device=device)
    for count in (9, MOST, 8, 0):
        x = np.zeros(MOST, np.float32)
        x[:count] = 1
        if count < 9:
            with pytest.raises(trt.Error):
                engine(x=x)
        else:
            np.testing.assert_array_equal(np.asarray(engine(x=x)), [[2, 4, 6, 8]])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)])
@pytest.mark.parametrize("name", ["LayerNormalization", "MatMul", "Concat"])
def test_a_refusal_names_the_weight(name, device):
    shape, axis, nodes, weights, _ = LAYERS[name]
    engine = trt.build(model_of(shape, axis, nodes, weights), device=device, timing=False)
    mask = np.arange(MOST) < 7
    with pytest.raises(trt.Error, match=f"layer '{name}_1 .*extent 10 on axis 1, as weight 'w' has it"):
        engine(x=np.ones(shape, np.float32), mask=mask)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=emulated_gpu.required)])
@pytest.mark.parametrize("timing", [False, True])
def test_a_scale_of_all_elements_decides_an_extent_of_data(device, timing):
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (MOST,))
    found = network.add_non_zero(x).get_output(0)  # [1, count]
    values = network.add_cast(found, trt.float32).get_output(0)
    column = network.add_shuffle(values)
    column.reshape_dims = (1, 1, -1, 1)
    scale = RNG.standard_normal(WANTED).astype(np.float32)
    scaled = network.add_scale(column.get_output(0), trt.ScaleMode.ELEMENTWISE, None, scale, None)
    network.mark_output(scaled.get_output(0))
    engine = trt.build(network, device=device, timing=timing)
    for count in (WANTED, MOST, 7):
        x = (np.arange(MOST) < count).astype(np.float32)
        if count != WANTED:
            with pytest.raises(trt.Error):
                engine(x=x)
        else:
            got = np.asarray(engine(x=x)).ravel()
            np.testing.assert_allclose(got, scale * np.arange(WANTED), rtol=1e-6)


def test_a_scale_that_no_extent_fits_is_refused():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    x = network.add_input("x", trt.float32, (1, 3, -1))
    network.add_scale(x, trt.ScaleMode.ELEMENTWISE, None, np.ones(10, np.float32), None)
    with pytest.raises(trt.Error, match="cannot have as many elements .* as the scale, 10"):
        network.mark_output(network.get_layer(0).get_output(0))
        trt.build(network, shapes={"x": [(1, 3, 1), (1, 3, 3), (1, 3, 9)]}, device="cpu")
