"""A plugin class and its creator, and other code that the tests of registries and recorders
share."""

from __future__ import annotations

import contextlib
import copy

import numpy as np
from onnx import TensorProto, helper

import opwright as trt
from v3_plugins import as_array

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Recorder(trt.IErrorRecorder):
    def __init__(self):
        trt.IErrorRecorder.__init__(self)
        self.errors = []

    def report_error(self, code, desc):
        self.errors.append((code, desc))
        return False


class Add(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """y = x + amount."""

    num_outputs = 1
    timing_cache_id = ""

    def __init__(self, name="Add", version="1", namespace="", amount=1):
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = name, version, namespace
        self.amount = amount

    def clone(self):
        return copy.copy(self)

    def get_output_data_types(self, types):
        return types

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return inputs

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == trt.float32

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        np.add(
            as_array(inputs[0], input_desc[0]),
            self.amount,
            out=as_array(outputs[0], output_desc[0]),
        )


class Creator(trt.IPluginCreatorV3One):
    def __init__(self, name="Add", version="1", namespace="", amount=1):
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = name, version, namespace
        self.amount = amount

    def create_plugin(self, name, fields, phase):
        return Add(self.name, self.plugin_version, self.plugin_namespace, self.amount)


@contextlib.contextmanager
def registered(*creators, registry=None):
    registry = registry or trt.get_plugin_registry()
    for creator in creators:
        assert registry.register_creator(creator, creator.plugin_namespace)
    try:
        yield
    finally:
        for creator in creators:
            registry.deregister_creator(creator)


def onnx_model(**attributes) -> bytes:
    node = helper.make_node("RegistryAdd", ["x"], ["y"], **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, X.shape) for n in "xy"]
    graph = helper.make_graph([node], "graph", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
