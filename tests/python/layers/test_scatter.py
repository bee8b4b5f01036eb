"""Scattering, by ONNX's operators and add_scatter, against ONNX's reference and NumPy."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import opwright as trt
from onnx_graphs import FLOAT, INT64, model

REDUCTIONS = ["none", "add", "mul", "min", "max"]
TYPES = {
    np.dtype(np.float32): trt.float32,
    np.dtype(np.float16): trt.float16,
    np.dtype(ml_dtypes.bfloat16): trt.bfloat16,
    np.dtype(np.int8): trt.int8,
    np.dtype(np.uint8): trt.uint8,
    np.dtype(np.int32): trt.int32,
    np.dtype(np.int64): trt.int64,
    np.dtype(bool): trt.bool,
}


def run(node, inputs, shapes=None, dtype=FLOAT, opset=18):
    """What the engine gives for a node over `data`, `indices` and `updates`."""
    types = {"data": dtype, "indices": INT64, "updates": dtype}
    ranges = shapes or {}
    made = model(
        [node],
        {
            name: (types[name], ["?"] * array.ndim if name in ranges else list(array.shape))
            for name, array in inputs.items()
        },
        ["y"],
        opset=opset,
    )
    for value in made.graph.input:
        for i, extent in enumerate(value.type.tensor_type.shape.dim):
            if value.name in ranges:
                extent.dim_param = f"{value.name}{i}"
    engine = trt.build(made.SerializeToString(), timing=False, shapes=shapes)
    want = ReferenceEvaluator(made).run(None, inputs)[0]
    return engine(**inputs), want


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements(axis, reduction):
    rng = np.random.default_rng(3)
    data = rng.standard_normal((5, 6, 7)).astype(np.float32)
    shape = (4, 3, 5)
    # Without a reduction no place may be met twice; half of the indices count from the end.
    places = np.argsort(rng.random(data.shape), axis)[tuple(slice(n) for n in shape)]
    indices = np.where(rng.random(shape) < 0.5, places, places - data.shape[axis])
    inputs = {
        "data": data,
        "indices": indices,
        "updates": rng.standard_normal(shape).astype(np.float32),
    }
    node = helper.make_node("ScatterElements", list(inputs), ["y"], axis=axis, reduction=reduction)
    got, want = run(node, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_tuples(depth, reduction):
    rng = np.random.default_rng(4)
    data = rng.standard_normal((6, 5, 4)).astype(np.float32)
    flat = rng.permutation(int(np.prod(data.shape[:depth])))[:6].reshape(2, 3)
    indices = np.stack(np.unravel_index(flat, data.shape[:depth]), -1)
    if reduction in ("add", "max"):
        indices[1] = indices[0]
    inputs = {
        "data": data,
        "indices": indices,
        "updates": rng.standard_normal((2, 3, *data.shape[depth:])).astype(np.float32),
    }
    node = helper.make_node("ScatterND", list(inputs), ["y"], reduction=reduction)
    got, want = run(node, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_many_updates_of_few_places():
    """Threads share the output; sums are those of one thread."""
    rng = np.random.default_rng(5)
    for slice_shape in ((), (3,), (5000,)):
        inputs = {
            "data": np.zeros((7, *slice_shape), np.float32),
            "indices": rng.integers(-7, 7, (4000 if slice_shape != (5000,) else 40, 1)),
        }
        count = inputs["indices"].shape[0]
        inputs["updates"] = rng.integers(-4, 5, (count, *slice_shape)).astype(np.float32)
        node = helper.make_node("ScatterND", list(inputs), ["y"], reduction="add")
        made = model(
            [node],
            {n: (INT64 if n == "indices" else FLOAT, list(a.shape)) for n, a in inputs.items()},
            ["y"],
        )
        want = np.zeros_like(inputs["data"])
        np.add.at(want, inputs["indices"][:, 0], inputs["updates"])
        engine = trt.build(made.SerializeToString(), timing=False)
        np.testing.assert_array_equal(engine(**inputs), want)


def test_the_last_of_several_updates_stays():
    inputs = {
        "data": np.zeros(3, np.float32),
        "indices": np.array([[1], [1], [1]]),
        "updates": np.float32([5, 6, 7]),
    }
    got, _ = run(helper.make_node("ScatterND", list(inputs), ["y"]), inputs)
    np.testing.assert_array_equal(got, [0, 7, 0])


@pytest.mark.parametrize("kind", ["ScatterElements", "ScatterND"])
def test_what_is_out_of_range_is_left_out(kind):
    indices = np.array([3, -4, 2**40, -(2**40), 1])
    inputs = {
        "data": np.float32([1, 2, 3]),
        "indices": indices[:, None] if kind == "ScatterND" else indices,
        "updates": np.float32([9, 9, 9, 9, 8]),
    }
    node = helper.make_node(kind, list(inputs), ["y"])
    made = model(
        [node],
        {n: (INT64 if n == "indices" else FLOAT, list(a.shape)) for n, a in inputs.items()},
        ["y"],
    )
    engine = trt.build(made.SerializeToString(), timing=False)
    np.testing.assert_array_equal(engine(**inputs), [1, 8, 3])


def test_dynamic_shapes_and_nothing():
    node = helper.make_node("ScatterND", ["data", "indices", "updates"], ["y"])
    shapes = {
        "data": ((1, 2), (4, 2), (8, 2)),
        "indices": ((0, 1), (2, 1), (5, 1)),
        "updates": ((0, 2), (2, 2), (5, 2)),
    }
    made = model(
        [node],
        {"data": (FLOAT, ["n", 2]), "indices": (INT64, ["k", 1]), "updates": (FLOAT, ["k", 2])},
        ["y"],
    )
    engine = trt.build(made.SerializeToString(), timing=False, shapes=shapes)
    for n, k in ((4, 2), (8, 5), (3, 0), (1, 1)):
        data = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        indices = np.arange(k).reshape(k, 1) % n
        updates = -np.ones((k, 2), np.float32)
        want = data.copy()
        want[indices[:, 0]] = -1
        np.testing.assert_array_equal(engine(data=data, indices=indices, updates=updates), want)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_the_layer(dtype, index_type):
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    data = network.add_input("data", TYPES[dtype], (4, 3))
    indices = network.add_input("indices", trt.DataType(TYPES[np.dtype(index_type)]), (2, 3))
    updates = network.add_input("updates", TYPES[dtype], (2, 3))
    layer = network.add_scatter(data, indices, updates, trt.ScatterMode.ELEMENT)
    assert layer.type == trt.LayerType.SCATTER
    assert (layer.mode, layer.axis) == (trt.ScatterMode.ELEMENT, 0)
    network.mark_output(layer.get_output(0))
    engine = trt.build(network, timing=False)
    x = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    at = np.array([[3, 0, 1], [0, 1, 2]], index_type)
    new = (np.arange(6).reshape(2, 3) % 3).astype(dtype)
    want = x.copy()
    np.put_along_axis(want, at.astype(np.int64), new, 0)
    got = engine(data=x, indices=at, updates=new)
    np.testing.assert_array_equal(np.asarray(got).astype(np.float32), want.astype(np.float32))
    layer.mode = trt.ScatterMode.ND
    with pytest.raises(trt.Error, match=r"last extent of input 1 .indices. must be in \[1, 2\]"):
        str(layer.get_output(0).shape)


def test_shapes_that_do_not_fit():
    network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
    data = network.add_input("data", trt.float32, (4, 3))
    indices = network.add_input("indices", trt.int32, (2, 4))
    updates = network.add_input("updates", trt.float32, (2, 4))
    layer = network.add_scatter(data, indices, updates, trt.ScatterMode.ELEMENT)
    with pytest.raises(trt.Error, match="exceeds input 0 .data. of shape .4, 3. on axis 1"):
        str(layer.get_output(0).shape)
    layer.axis = 1
    network.mark_output(layer.get_output(0))
    assert tuple(layer.get_output(0).shape) == (4, 3)
    layer.axis = 2
    with pytest.raises(trt.Error, match=r"the axis must be in \[0, 2\), but is 2"):
        str(layer.get_output(0).shape)


def test_shapes_are_followed_through_it():
    """Some exporters put an extent into a shape so."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ScatterND", ["shape", "where", "one"], ["new"]),
        helper.make_node("Reshape", ["x", "new"], ["y"]),
    ]
    made = model(
        nodes,
        {"x": (FLOAT, ["n", 6])},
        ["y"],
        {"where": np.array([[1]]), "one": np.array([-1])},
    )
    engine = trt.build(
        made.SerializeToString(), timing=False, shapes={"x": ((1, 6), (2, 6), (4, 6))}
    )
    x = np.arange(18, dtype=np.float32).reshape(3, 6)
    np.testing.assert_array_equal(engine(x), x)
