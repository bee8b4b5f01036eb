"""ONNX's own tests whose inputs or outputs are sequences or optionals. Engines have tensors, so that
sequences are put together of tensors at the models' beginnings and taken apart at their ends."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opwright
from onnx_graphs import as_list
from test_onnx_nodes import CASES, TYPES, operators


def kinds(case) -> set[str]:
    graph = case.model.graph
    return {value.type.WhichOneof("value") for value in (*graph.input, *graph.output)}


def is_case(case) -> bool:
    if case.model is None or len(case.data_sets) != 1 or kinds(case) <= {"tensor_type"}:
        return False
    return all(opwright.OnnxParser.supports_operator(op) for op in operators(case.model.graph))


SEQUENCE_CASES = [case for case in CASES if is_case(case)]


class Taken:
    """A model whose inputs and outputs are tensors."""

    def __init__(self, case):
        graph = case.model.graph
        inputs, outputs = case.data_sets[0]
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.wanted: list[np.ndarray] = []
        made = onnx.ModelProto()
        made.CopyFrom(case.model)
        for value, given in zip(graph.input, inputs):
            self.add_input(value, given)
        self.nodes.extend(graph.node)
        self.names: list[str] = []
        for value, given in zip(graph.output, outputs):
            self.add_output(value, given)
        del made.graph.node[:], made.graph.input[:], made.graph.output[:]
        made.graph.node.extend(self.nodes)
        made.graph.input.extend(self.inputs)
        made.graph.initializer.extend(self.constants)
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.names)
        self.model = made

    def add_tensor(self, name: str, array: np.ndarray) -> None:
        array = np.asarray(array)
        assert array.dtype in TYPES
        # Positions, parts, numbers of iterations and conditions are constants.
        if array.dtype.kind in "ib" and array.ndim <= 1:
            self.constants.append(numpy_helper.from_array(array, name))
            return
        self.arrays[name] = array
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, array.shape))

    def add_input(self, value: onnx.ValueInfoProto, given) -> None:
        kind = value.type.WhichOneof("value")
        if given is None:
            self.nodes.append(
                helper.make_node(
                    "Optional", [], [value.name], type=value.type.optional_type.elem_type
                )
            )
        elif isinstance(given, list):
            names = [f"{value.name}_{i}" for i in range(len(given))]
            for name, array in zip(names, given):
                self.add_tensor(name, array)
            operator = "SequenceConstruct" if names else "SequenceEmpty"
            self.nodes.append(helper.make_node(operator, names, [value.name]))
        else:
            self.add_tensor(value.name if kind == "tensor_type" else f"{value.name}_tensor", given)
            if kind == "optional_type":
                self.nodes.append(
                    helper.make_node("Optional", [f"{value.name}_tensor"], [value.name])
                )

    def add_output(self, value: onnx.ValueInfoProto, given) -> None:
        if not isinstance(given, list):
            self.names.append(value.name)
            self.wanted.append(np.asarray(given))
            return
        for i, array in enumerate(given):
            position, name = f"{value.name}_at_{i}", f"{value.name}_{i}"
            self.constants.append(numpy_helper.from_array(np.array(i, np.int64), position))
            self.nodes.append(helper.make_node("SequenceAt", [value.name, position], [name]))
            self.names.append(name)
            self.wanted.append(np.asarray(array))
        self.nodes.append(
            helper.make_node("SequenceLength", [value.name], [f"{value.name}_length"])
        )
        self.names.append(f"{value.name}_length")
        self.wanted.append(np.array(len(given), np.int64))


def test_there_are_cases():
    assert len(SEQUENCE_CASES) > 20


@pytest.mark.parametrize("case", SEQUENCE_CASES, ids=lambda case: case.name)
def test_node(case):
    with pytest.raises(opwright.Error):
        opwright.build(case.model.SerializeToString(), timing=False)
    taken = Taken(case)
    results = as_list(opwright.build(taken.model.SerializeToString(), timing=False)(**taken.arrays))
    assert len(results) == len(taken.wanted)
    for got, want in zip(results, taken.wanted):
        assert np.asarray(got).dtype == want.dtype
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)
