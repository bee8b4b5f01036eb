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


def test_weights_of_a_network_are_named_and_marked():
    def work(count: int) -> None:
        network = trt.Builder(trt.Logger()).create_network(0)
        arrays = [np.full((1, 4), i, np.float32) for i in range(count)]
        last = network.add_input("x", trt.float32, (1, 4))
        for array in arrays:
            constant = network.add_constant((1, 4), array).get_output(0)
            last = network.add_elementwise(last, constant, trt.ElementWiseOperation.SUM)
            last = last.get_output(0)
        for i, array in enumerate(arrays):
            assert network.set_weights_name(array, f"w{i}")
        for i in range(count):
            assert network.mark_weights_refittable(f"w{i}")
            assert network.are_weights_marked_refittable(f"w{i}")
            assert network.unmark_weights_refittable(f"w{i}")
            assert not network.are_weights_marked_refittable(f"w{i}")

    require_no_square(work, 1500)


def test_weights_of_a_refitter_are_set_by_name_and_by_role():
    def refitter_of(count: int) -> tuple[trt.Refitter, list[str], object]:
        logger = trt.Logger()
        builder = trt.Builder(logger)
        network = builder.create_network(0)
        last = network.add_input("x", trt.float32, (1, 4))
        for i in range(count):
            constant = network.add_constant((1, 4), np.full((1, 4), i, np.float32))
            constant.name = f"constant {i}"
            last = network.add_elementwise(
                last, constant.get_output(0), trt.ElementWiseOperation.SUM
            ).get_output(0)
        network.mark_output(last)
        config = builder.create_builder_config()
        config.default_device_type, config.timing = trt.DeviceType.CPU, False
        config.set_flag(trt.BuilderFlag.REFIT)
        plan = builder.build_serialized_network(network, config)
        engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
        refitter = trt.Refitter(engine, logger)
        return refitter, refitter.get_all_weights(), engine

    made = {count: refitter_of(count) for count in (1500, 6000)}
    array = np.ones((1, 4), np.float32)

    def work(count: int) -> None:
        refitter, names, _ = made[count]
        assert len(names) == count
        for name in names:
            assert refitter.set_named_weights(name, array)
            refitter.get_weights_location(name)
        for layer, role in zip(*refitter.get_all()):
            assert refitter.set_weights(layer, role, array)

    require_no_square(work, 1500)
