"""What tools/model_fuzzer.py found, each as small as it gets."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import opwright
from opwright import onnx_backend


def run(operator, inputs, constants=None, **attributes):
    """The node's first output; inputs and constants are in the node's order by name."""
    constants = constants or {}
    names = sorted({**inputs, **constants})
    made = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)],
        "found",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in inputs.items()
        ],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 22)])
    return onnx_backend.OpwrightRep(model, "cpu", timing=False).run(inputs)[0]


@pytest.mark.parametrize(
    ("dtype", "width"), [(np.uint8, 4), (np.int8, 4), (np.float16, 2), (np.float32, 1)]
)
def test_a_row_of_four_bytes_is_padded_with_every_element(dtype, width):
    x = np.arange(1, 3 * width + 1).reshape(3, width).astype(dtype)
    got = run("Pad", {"a": x, "c": np.array(7, dtype)}, {"b": np.array([1, 0, 1, 0])})
    np.testing.assert_array_equal(got, np.pad(x, [(1, 1), (0, 0)], constant_values=7))


@pytest.mark.parametrize("operator", ["Mul", "Div", "Pow"])
@pytest.mark.parametrize("first", [True, False])
def test_a_constant_of_one_element_gives_a_scalar_its_rank(operator, first):
    x, constant = np.array(2, np.float32), np.array([3], np.float32)
    if first:
        got, expected = run(operator, {"b": x}, {"a": constant}), (constant, x)
    else:
        got, expected = run(operator, {"a": x}, {"b": constant}), (x, constant)
    functions = {"Mul": np.multiply, "Div": np.divide, "Pow": np.power}
    np.testing.assert_allclose(got, functions[operator](*expected), rtol=1e-6)
    assert got.shape == (1,)


@pytest.mark.parametrize("far", [2**63 - 1, 2**31, 9, -9, -(2**63) + 1])
@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_slices_end_far_away_at_run_time(far, step):
    x = np.arange(5, dtype=np.float32)
    for start in (-7, -2, 0, 3, 9):
        got = run(
            "Slice", {"a": x, "b": np.array([start]), "c": np.array([far])},
            {"d": np.array([0]), "e": np.array([step])},
        )  # fmt: skip
        # Backwards, a start before the axis is its first element.
        first = max(start, -5) if step < 0 else start
        np.testing.assert_array_equal(got, x[first:far:step])


def test_a_slice_backwards_of_an_empty_axis_is_empty():
    x = np.zeros((0, 2), np.float32)
    got = run(
        "Slice",
        {"a": x},
        {"b": np.array([-1]), "c": np.array([-9]), "d": np.array([0]), "e": np.array([-1])},
    )
    assert got.shape == (0, 2)


def test_elements_that_cannot_be_are_not_found():
    assert run("NonZero", {"x": np.zeros((0,), np.float32)}).shape == (1, 0)
    got = run("Compress", {"a": np.zeros((0,), np.int64), "b": np.zeros((0,), bool)})
    assert got.shape == (0,)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_reductions_of_integers_are_truncated(operator, dtype):
    x = np.array([[3, 4, 12], [7, 24, 60]], dtype)
    real = x.astype(np.float64)
    expected = {
        "ReduceL2": np.sqrt((real**2).sum(1)),
        "ReduceLogSum": np.log(real.sum(1)),
        "ReduceLogSumExp": np.log(np.exp(real).sum(1)),
    }[operator]
    got = run(operator, {"a": x}, {"b": np.array([1])}, keepdims=0)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, (expected + 1e-9).astype(dtype))


@pytest.mark.parametrize("pads", [[-1, 1], [1, -1], [-2, 3], [3, -2], [-1, -1]])
def test_what_padding_takes_away_is_not_wrapped_to(pads):
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(pads, np.int64), "p")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
    x = np.arange(5, dtype=np.float32)
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(opwright.build(model, timing=False)(x), want)


@pytest.mark.parametrize(
    ("operator", "constants", "attributes"),
    [
        ("Slice", {"b": [0, 0], "c": [1, 1], "d": [1, -1]}, {}),
        ("Unsqueeze", {"b": [1, 1]}, {}),
        ("CenterCropPad", {"b": [1, 2]}, {"axes": [0, -2]}),
    ],
)
def test_an_axis_that_is_named_twice_is_refused(operator, constants, attributes):
    """The standard leaves it undefined, or calls it an error."""
    x = np.ones((2, 3), np.float32)
    arrays = {name: np.array(values) for name, values in constants.items()}
    with pytest.raises(opwright.Error, match=rf"\({operator}\): axes are \[.*\].* axis \d twice"):
        run(operator, {"a": x}, arrays, **attributes)


@pytest.mark.parametrize(
    ("starts", "ends", "shape"),
    [
        ([-9, -3], [-(2**63) + 1, 2**63 - 1], (1, 1, 0, 2)),
        ([-9, 5], [-9, -9], (1, 1, 3, 2)),
        ([9, 9], [-9, 0], (1, 2, 2, 2)),
    ],
)
def test_bounds_beyond_an_axis_are_clamped_as_the_standard_says(starts, ends, shape):
    """Where NumPy's slices, ONNX's reference and ONNX Runtime contradict each other."""
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)
    given = {"b": np.array(starts), "c": np.array(ends)}
    got = run("Slice", {"a": x}, {**given, "d": np.array([1, 2]), "e": np.array([-1, -1])})
    assert got.shape == shape
    np.testing.assert_array_equal(got, x[:, 1::-1][:, 2 - shape[1] :, ::-1][:, :, : shape[2]])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("policy", ["not_smaller", "not_larger"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_integers_are_resized_as_integers(mode, policy, dtype):
    from onnx.reference import ReferenceEvaluator

    # Cubic functions go beyond what these have.
    x = (np.arange(24).reshape(1, 2, 3, 4) % 5 * 63 - (128 if dtype == np.int8 else 0)).astype(
        dtype
    )
    attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": mode}
    made = helper.make_node("Resize", ["a", "", "", "d"], ["y"], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info("a", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array([7, 8]), "d")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (want,) = ReferenceEvaluator(model).run(None, {"a": x})
    got = opwright.build(model, timing=False)(x)
    assert got.dtype == dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("operator", ["ReduceSum", "Squeeze"])
def test_axes_of_reductions_are_a_set(operator):
    x = np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    got = run(operator, {"a": x}, {"b": np.array([1, -2])})
    np.testing.assert_array_equal(got, x if operator == "ReduceSum" else x[:, 0])


@pytest.mark.parametrize("shape", [[4, 1], [1, 4], [2, 2], [-1, 1], [0, -1]])
def test_products_of_what_an_input_shapes(shape):
    """What a shape that is an input means is decided at run time; a product was planned for 4 x 4."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    target = np.array([0, 2, 1, 1])
    made = -x[np.arange(4), target]
    made = made.reshape([4 if e == 0 else e for e in shape])
    b = rng.standard_normal((made.shape[1], 5)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["l"], reduction="none"),
            helper.make_node("Reshape", ["l", "shape"], ["r"]),
            helper.make_node("Gemm", ["r", "b"], ["y"]),
        ],
        "found",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
            helper.make_tensor_value_info("t", TensorProto.INT64, [4]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, b.shape),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    inputs = {"x": x, "t": target, "shape": np.array(shape), "b": b}
    got = onnx_backend.OpwrightRep(model, "cpu", timing=False).run(inputs)[0]
    np.testing.assert_allclose(got, made @ b, rtol=1e-5)
    # Any shape of a range, as long as it fits what follows.
    engine = opwright.build(model, values={"shape": ([-1, -1], shape, [4, 4])}, timing=False)
    np.testing.assert_allclose(engine(**inputs), made @ b, rtol=1e-5)
    with pytest.raises(opwright.Error):
        engine(**inputs | {"shape": np.array([3, 1])})


@pytest.mark.parametrize("operator", ["LpNormalization", "Celu", "Hardmax"])
def test_outputs_have_the_names_that_layers_give_theirs(operator):
    """Exporters call the output of a node NODE_output_0, and so does a network that of a layer."""
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["/a/node_output_0"], name="/a/node")],
        "found",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("/a/node_output_0")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    engine = opwright.build(model, device="cpu", timing=False)
    assert engine.outputs == ["/a/node_output_0"]


def test_outputs_may_have_names_that_other_nodes_layers_have():
    graph = helper.make_graph(
        [
            helper.make_node("Celu", ["x"], ["c"], name="first"),
            helper.make_node("Neg", ["c"], ["first_output_0"], name="second"),
        ],
        "found",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("first_output_0")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    engine = opwright.build(model, device="cpu", timing=False)
    assert engine.outputs == ["first_output_0"]
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_allclose(engine(x), -x)


def test_regions_are_as_many_as_their_images():
    """The number of images is fixed, that of regions open: a run with others would have no meaning."""
    graph = helper.make_graph(
        [
            helper.make_node("RoiAlign", ["x", "regions", "images"], ["r"]),
            helper.make_node("Shape", ["r"], ["y"]),
        ],
        "found",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 6, 6]),
            helper.make_tensor_value_info("regions", TensorProto.FLOAT, ["n", 4]),
        ],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.zeros(3, np.int64), "images")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    engine = opwright.build(
        model, shapes={"regions": ((1, 4), (3, 4), (5, 4))}, device="cpu", timing=False
    )
    x, regions = np.zeros((1, 1, 6, 6), np.float32), np.zeros((3, 4), np.float32)
    np.testing.assert_array_equal(engine(x=x, regions=regions), [3, 1, 1, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [-1, 0, 1])  # 1 is the default
def test_as_many_scales_as_there_will_be_elements(dtype, axis):
    graph = helper.make_graph(
        [
            helper.make_node("Unique", ["x"], ["u"]),
            helper.make_node("DequantizeLinear", ["u", "scale", "zero"], ["y"], axis=axis),
        ],
        "found",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [3])],
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(np.float32([0.25, 2]), "scale"),
            numpy_helper.from_array(np.array([8, 1], dtype), "zero"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    engine = opwright.build(model, device="cpu", timing=False)
    np.testing.assert_array_equal(engine(np.array([9, 2, 9], dtype)), [-1.5, 16])
    with pytest.raises(opwright.Error):
        engine(np.array([7, 8, 9], dtype))
    np.testing.assert_array_equal(engine(np.array([4, 4, 5], dtype)), [-1, 8])
