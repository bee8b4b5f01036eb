"""What programs do with many inputs, layers, names or uses takes no time that grows by the square."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import opwright as trt

FLOAT = TensorProto.FLOAT


def info(name: str, shape):
    return helper.make_tensor_value_info(name, FLOAT, shape)


def model_of(nodes, inputs, outputs) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets).SerializeToString()


def taken(work, size: int) -> float:
    start = time.thread_time()
    work(size)
    return time.thread_time() - start


def require_no_square(work, size: int) -> None:
    """Four times as much takes less than ten times the time; by the square it is sixteen."""
    for _ in range(3):
        if taken(work, 4 * size) < 10 * max(taken(work, size), 0.01):
            return
    pytest.fail("the time grows by the square")


def test_inputs_are_given_shapes_names_and_types():
    def work(count: int) -> None:
        network = trt.Builder(trt.Logger()).create_network(0)
        inputs = [network.add_input(f"x{i}", trt.float32, (4, 4)) for i in range(count)]
        for tensor in inputs:
            tensor.shape = (-1, 4)
        for i, tensor in enumerate(inputs):
            tensor.set_dimension_name(0, "batch" if i % 2 else f"n{i}")
        for tensor in inputs:
            tensor.dtype = trt.float16
        assert all(tensor.shape == (-1, 4) for tensor in inputs)

    require_no_square(work, 500)


def test_extents_of_many_inputs_are_united():
    def work(count: int) -> None:
        inputs = [info(f"x{i}", [f"n{i}", 4]) for i in range(count)]
        names = [value.name for value in inputs]
        node = helper.make_node("Sum", names, ["y"])
        shapes = {name: ((2, 4), (3, 4), (5, 4)) for name in names}
        model = model_of([node], inputs, [info("y", None)])
        trt.build(model, device="cpu", timing=False, shapes=shapes)

    require_no_square(work, 250)


def test_operands_of_a_concatenation_and_many_concatenations():
    def wide(count: int) -> None:
        names = [f"y{i}" for i in range(count)]
        nodes = [helper.make_node("Split", ["x"], names, num_outputs=count)]
        nodes.append(helper.make_node("Concat", names[::-1], ["y"], axis=0))
        model = model_of(nodes, [info("x", [count])], [info("y", [count])])
        trt.build(model, device="cpu", timing=False)

    def many(count: int) -> None:
        nodes, last = [], "x"
        for i in range(count):
            nodes.append(helper.make_node("Softmax", [last], [f"a{i}"]))
            nodes.append(helper.make_node("Softmax", [f"a{i}"], [f"b{i}"]))
            nodes.append(helper.make_node("Concat", [f"a{i}", f"b{i}"], [f"c{i}"], axis=0))
            nodes.append(helper.make_node("ReduceSum", [f"c{i}"], [f"d{i}"]))
            last = f"d{i}"
        model = model_of(nodes, [info("x", [1, 64])], [info(last, None)])
        trt.build(model, device="cpu", timing=False)

    require_no_square(wide, 8000)
    require_no_square(many, 200)


def test_results_of_a_split_that_nobody_reads_make_no_layers():
    names = [f"y{i}" for i in range(1000)]
    node = helper.make_node("Split", ["x"], names, num_outputs=1000)
    builder = trt.Builder(trt.Logger())
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, trt.Logger())
    assert parser.parse(model_of([node], [info("x", [1000])], [info("y7", [1])]))
    assert network.num_layers == 1
    config = builder.create_builder_config()
    config.default_device_type, config.timing = trt.DeviceType.CPU, False
    runtime = trt.Runtime(trt.Logger())
    engine = trt.Engine(
        runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))
    )
    assert engine(np.arange(1000, dtype=np.float32)) == 7


def test_parts_of_a_split_that_do_not_fit_are_refused():
    parts = helper.make_tensor("parts", TensorProto.INT64, [2], [1, 5])
    node = helper.make_node("Split", ["x", "parts"], ["y", "z"], axis=0)
    graph = helper.make_graph([node], "g", [info("x", [4])], [info("y", [1])], [parts])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(trt.Error, match="the parts have 6 elements along axis 0; expected 4"):
        trt.build(model, device="cpu")
