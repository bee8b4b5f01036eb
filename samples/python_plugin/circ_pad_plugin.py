"""What all circular padding plugins have in common; the scripts add the computation.

The plugin's one field is `pads` (INT32): pads[2 i] and pads[2 i + 1] are the numbers of elements that
are added before and after the i-th last axis.
"""

from __future__ import annotations

from typing import Type

import numpy as np

import opwright as trt

NAME, VERSION, NAMESPACE = "CircPadPlugin", "1", ""


def fields(pads=()) -> trt.PluginFieldCollection:
    """The plugin's fields: without values as a creator declares them, with values to be stored."""
    pads = np.asarray(pads, np.int32)
    return trt.PluginFieldCollection([trt.PluginField("pads", pads, trt.PluginFieldType.INT32)])


def pads_of(field_collection: trt.PluginFieldCollection) -> np.ndarray:
    return {field.name: field.data for field in field_collection}["pads"]


def padded(dims: trt.DimsExprs, pads: np.ndarray, expr_builder: trt.IExprBuilder) -> trt.DimsExprs:
    """The extents of the output, as expressions over those of the input."""
    result = trt.DimsExprs(dims)
    for i in range(len(pads) // 2):
        axis = len(dims) - i - 1
        added = expr_builder.constant(int(pads[2 * i] + pads[2 * i + 1]))
        result[axis] = expr_builder.operation(trt.DimensionOperation.SUM, dims[axis], added)
    return result


def is_supported(pos: int, in_out: list[trt.PluginTensorDesc]) -> bool:
    """FP32 or FP16, the same for input and output, and the last axis contiguous."""
    if in_out[pos].format != trt.TensorFormat.LINEAR:
        return False
    if pos == 0:
        return in_out[0].type in (trt.DataType.FLOAT, trt.DataType.HALF)
    return in_out[pos].type == in_out[0].type


def as_four_axes(x: trt.PluginTensorDesc, y: trt.PluginTensorDesc, pads: np.ndarray):
    """The extents of x and of y and what is added before each axis, as the kernels take them."""

    def four(values, fill):
        return (fill,) * (4 - len(values)) + tuple(map(int, values))

    return four(x.dims, 1), four(y.dims, 1), four(pads[0::2][::-1], 0)


class CircPadPluginV2(trt.IPluginV2DynamicExt):
    """Everything but `enqueue`."""

    def __init__(self, pads=()):
        trt.IPluginV2DynamicExt.__init__(self)
        self.pads = np.asarray(pads, np.int32)
        self.num_outputs = 1
        self.plugin_type = NAME
        self.plugin_version = VERSION
        self.plugin_namespace = NAMESPACE

    def clone(self):
        cloned = type(self)()
        cloned.__dict__.update(self.__dict__)
        return cloned

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, expr_builder):
        return padded(inputs[0], self.pads, expr_builder)

    def supports_format_combination(self, pos, in_out, num_inputs):
        return is_supported(pos, in_out)

    def serialize(self):
        return self.pads.tobytes()


class CircPadCreatorV2(trt.IPluginCreator):
    """Makes plugins of a class, for a network and, from what `serialize` returned, for an engine."""

    def __init__(self, plugin_class: Type[CircPadPluginV2]):
        trt.IPluginCreator.__init__(self)
        self.plugin_class = plugin_class
        self.name = NAME
        self.plugin_version = VERSION
        self.plugin_namespace = NAMESPACE
        self.field_names = fields()

    def create_plugin(self, name, field_collection):
        return self.plugin_class(pads_of(field_collection))

    def deserialize_plugin(self, name, serialized_plugin):
        return self.plugin_class(np.frombuffer(serialized_plugin, np.int32))
