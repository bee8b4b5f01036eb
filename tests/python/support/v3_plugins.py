"""A plugin class whose results tests can change, and shared code of its tests."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import json

import numpy as np

import opwright as trt


def as_array(address: int, desc: trt.PluginTensorDesc, shape=None) -> np.ndarray:
    """The memory at the address as an array with the descriptor's extents or with `shape`."""
    shape = tuple(desc.dims) if shape is None else shape
    dtype = np.dtype(trt.nptype(desc.type))
    memory = (ctypes.c_byte * (int(np.prod(shape)) * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


class Twice(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime):
    """y = 2 x in LINEAR and the network's type. The plugin class is all of its parts."""

    plugin_name = "Twice"
    num_outputs = 1
    timing_cache_id = ""
    tactic = None

    def clone(self):
        return copy.copy(self)

    def get_output_data_types(self, input_types):
        return [input_types[0]] * self.num_outputs

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [inputs[0]] * self.num_outputs

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == in_out[0].desc.type

    def set_tactic(self, tactic):
        self.tactic = tactic

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        np.multiply(as_array(inputs[0], input_desc[0]), 2, out=as_array(outputs[0], output_desc[0]))


class Creator(trt.IPluginCreatorV3One):
    """Makes plugins with a function of the phase."""

    def __init__(self, name, make):
        trt.IPluginCreatorV3One.__init__(self)
        self.name = name
        self.make = make

    def create_plugin(self, name, field_collection, phase):
        return self.make(phase)


@contextlib.contextmanager
def registered(plugin, make=None):
    """Registers a creator of clones of the plugin, or of results of `make(phase)`, while the block
    runs."""
    creator = Creator(plugin.plugin_name, make or (lambda phase: plugin.clone()))
    creator.plugin_version = getattr(plugin, "plugin_version", "1")
    registry = trt.get_plugin_registry()
    assert registry.register_creator(creator)
    try:
        yield creator
    finally:
        registry.deregister_creator(creator)


class Log(trt.ILogger):
    """Keeps its messages by severity."""

    def __init__(self):
        trt.ILogger.__init__(self)
        self.lines: list[tuple[trt.ILogger.Severity, str]] = []

    def log(self, severity, msg):
        self.lines.append((severity, msg))

    def verbose(self) -> list[str]:
        return [text for severity, text in self.lines if severity == trt.ILogger.VERBOSE]


def layers_of(engine) -> list[dict]:
    """The inspector's description of an engine's layers."""
    engine = getattr(engine, "engine", engine)
    inspector = engine.create_engine_inspector()
    return [
        json.loads(inspector.get_layer_information(i, trt.LayerInformationFormat.JSON))
        for i in range(engine.num_layers)
    ]
