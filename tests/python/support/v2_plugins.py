"""V2 plugin classes whose results tests can change, and shared code of their tests."""

from __future__ import annotations

import contextlib

import numpy as np

import opwright as trt
from plugin_testing import network
from v3_plugins import as_array


class Twice(trt.IPluginV2DynamicExt):
    """y = 2 x in LINEAR and the network's type, written in TensorRT's style."""

    def __init__(self):
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_type = type(self).__name__
        self.plugin_version = "1"

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, expr_builder):
        return trt.DimsExprs(inputs[0])

    def serialize(self):
        return b""

    def configure_plugin(self, inp, out):
        pass

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos]
        return desc.format == trt.TensorFormat.LINEAR and desc.type == in_out[0].type

    def get_workspace_size(self, input_desc, output_desc):
        return 0

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        np.multiply(as_array(inputs[0], input_desc[0]), 2, out=as_array(outputs[0], output_desc[0]))

    def initialize(self):
        return 0

    def terminate(self):
        pass

    def destroy(self):
        pass

    def clone(self):
        made = type(self)()
        made.__dict__.update(self.__dict__)
        return made


class Creator(trt.IPluginCreator):
    """Makes plugins with a function of the fields or of the stored bytes."""

    def __init__(self, name, make, version="1"):
        trt.IPluginCreator.__init__(self)
        self.name = name
        self.plugin_namespace = ""
        self.plugin_version = version
        self.field_names = trt.PluginFieldCollection([])
        self.make = make

    def create_plugin(self, name, field_collection):
        return self.make(field_collection)

    def deserialize_plugin(self, name, data):
        return self.make(data)


@contextlib.contextmanager
def registered(creator):
    """The creator, or one of clones of the plugin, registered while the block runs."""
    if not isinstance(creator, trt.IPluginCreator):
        plugin = creator
        creator = Creator(plugin.plugin_type, lambda given: plugin.clone(), plugin.plugin_version)
    registry = trt.get_plugin_registry()
    assert registry.register_creator(creator, "")
    try:
        yield creator
    finally:
        registry.deregister_creator(creator)


def one_layer(plugin, shape, dtype=trt.float32):
    """A network of the plugin on an input x; the output is y."""
    net = network()
    layer = net.add_plugin_v2([net.add_input("x", dtype, shape)], plugin)
    layer.name = "the layer"
    layer.get_output(0).name = "y"
    net.mark_output(layer.get_output(0))
    return net, layer
