"""Products of FP32 that may round to TF32: constant matrices lie along k, from which warpgroups
multiply. NumPy is the reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opwright as trt

pytestmark = pytest.mark.usefixtures("on_gpu")

RANDOM = np.random.default_rng(7)


def model_of(nodes, weights, shapes):
    """A model from x to y with these shapes."""
    value = helper.make_tensor_value_info
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, shapes[0])],
        [value("y", TensorProto.FLOAT, shapes[1])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def built(model: bytes, flags=(trt.BuilderFlag.TF32,)):
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    network = builder.create_network()
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.WARNING))
    assert parser.parse(model), parser.get_error(0).desc()
    config = builder.create_builder_config()
    config.builder_optimization_level = 0
    for flag in flags:
        config.set_flag(flag)
    return builder.build_engine_with_config(network, config)


def weights_of(*shape) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32) / np.float32(8)


def run(engine, x):
    return trt.Engine(engine)(x)


def tactics_of(engine, kind: str) -> list[str]:
    return [layer["TacticName"] for layer in trt.Engine(engine).layers if layer["LayerType"] == kind]


def check(y, expected) -> None:
    # TF32 has 10 bits of fraction; sums of both signs are about as large as their addends.
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("is_allowed", [False, True])
def test_rows_by_a_matrix_in_the_order_of_exporters(is_allowed):
    w, bias = weights_of(64, 96), weights_of(96)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    model = model_of(nodes, {"w": w, "bias": bias}, ([80, 64], [80, 96]))
    engine = built(model, (trt.BuilderFlag.TF32,) if is_allowed else ())
    (tactic,) = tactics_of(engine, "MatrixMultiply")
    assert tactic.startswith("TF32 warpgroup") == is_allowed, tactic
    x = weights_of(80, 64)
    check(run(engine, x), np.maximum(x @ w + bias, 0))


def test_one_matrix_of_two_products():
    w = weights_of(64, 64)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    engine = built(model_of(nodes, {"w": w}, ([72, 64], [72, 64])))
    assert all(tactic.startswith("TF32 warpgroup") for tactic in tactics_of(engine, "MatrixMultiply"))
    x = weights_of(72, 64)
    check(run(engine, x), np.maximum(x @ w, 0) @ w)


def test_a_stack_of_matrices():
    w = weights_of(3, 40, 72)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    engine = built(model_of(nodes, {"w": w}, ([3, 70, 40], [3, 70, 72])))
    x = weights_of(3, 70, 40)
    check(run(engine, x), x @ w)


def test_the_matrix_is_refitted():
    w, other = weights_of(64, 96), weights_of(64, 96)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"w": w}, ([80, 64], [80, 96]))
    engine = built(model, (trt.BuilderFlag.TF32, trt.BuilderFlag.REFIT))
    x = weights_of(80, 64)
    check(run(engine, x), x @ w)
    refitter = trt.Refitter(engine, trt.Logger(trt.Logger.WARNING))
    (name,) = refitter.get_all_weights()
    assert refitter.set_named_weights(name, trt.Weights(other))
    assert refitter.refit_cuda_engine()
    check(run(engine, x), x @ other)


@pytest.mark.parametrize(("groups", "stride", "channels"), [(1, 1, 32), (1, 2, 64), (2, 1, 64), (1, 1, 5)])
def test_convolutions(groups, stride, channels):
    torch = pytest.importorskip("torch")
    w, bias = weights_of(64, channels // groups, 3, 3), weights_of(64)
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "bias"], ["c"], pads=[1] * 4, strides=[stride] * 2, group=groups
        ),
        helper.make_node("Add", ["c", "c"], ["y"]),
    ]
    rows = (9 - 1) // stride + 1
    model = model_of(nodes, {"w": w, "bias": bias}, ([2, channels, 9, 9], [2, 64, rows, rows]))
    engine = built(model)
    x = weights_of(2, channels, 9, 9)
    tensors = [torch.from_numpy(array) for array in (x, w, bias)]
    expected = 2 * torch.nn.functional.conv2d(*tensors, stride=stride, padding=1, groups=groups)
    check(run(engine, x), expected.numpy())
