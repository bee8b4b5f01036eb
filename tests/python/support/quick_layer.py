"""A small layer of decorators on the classes of the Quick family."""

from __future__ import annotations

import inspect

import numpy as np

import opwright as trt

TYPES = {int: trt.PluginFieldType.INT64, float: trt.PluginFieldType.FLOAT64}
LINEAR, FLOAT, HALF = trt.TensorFormat.LINEAR, trt.float32, trt.float16


class Scalar(trt.ISymExpr):
    def __init__(self, expr, dtype=trt.PluginArgDataType.INT32):
        trt.ISymExpr.__init__(self)
        self.type, self.dtype, self.expr = trt.PluginArgType.INT, dtype, expr


class Base(trt.IPluginV3, trt.IPluginV3QuickCore):
    def __init__(self, spec, attrs):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3QuickCore.__init__(self)
        self.plugin_name, self.plugin_namespace, self.plugin_version = spec.name, "layer", "1"
        self.spec, self.attrs, self.num_outputs, self.tactic = spec, attrs, spec.num_outputs, None

    def get_capability_interface(self, type):
        return self

    def clone(self):
        made = self.__class__(self.spec, self.attrs)
        made.__dict__.update(self.__dict__)
        return made

    def get_output_data_types(self, input_types, ranks):
        self.spec.ranks = list(ranks)
        return self.spec.types(input_types)

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        self.extents = self.spec.shapes(exprBuilder, inputs, **self.attrs)
        return [trt.DimsExprs(list(extents)) for extents in self.extents]

    def configure_plugin(self, inputs, outputs):
        self.configured = [port.desc.type for port in [*inputs, *outputs]]

    def get_supported_format_combinations(self, in_out, num_inputs):
        combinations = self.spec.combinations or [[(p.desc.type, LINEAR) for p in in_out]]
        descs = [trt.PluginTensorDesc() for combination in combinations for _ in combination]
        for desc, (dtype, layout) in zip(descs, sum(combinations, []), strict=True):
            desc.type, desc.format = dtype, layout
        return descs

    def get_aliased_input(self, output_index):
        return self.spec.aliases.get(output_index, -1)

    def get_valid_tactics(self):
        return self.spec.tactics(self.configured[0])

    def set_tactic(self, tactic):
        self.tactic = tactic

    def get_fields_to_serialize(self):
        fields = [trt.PluginField(k, np.array([v]), TYPES[type(v)]) for k, v in self.attrs.items()]
        return trt.PluginFieldCollection(fields)


class JitPlugin(Base, trt.IPluginV3QuickBuild, trt.IPluginV3QuickRuntime):
    def enqueue(self, input_desc, output_desc, inputs, outputs, in_strides, out_strides, stream):
        ports = (input_desc, inputs, in_strides), (output_desc, outputs, out_strides)
        tensors = [view(*port) for side in ports for port in zip(*side, strict=True)]
        self.spec.run(*tensors, tactic=self.tactic, **self.attrs)


class AotPlugin(Base, trt.IPluginV3QuickAOTBuild):
    def get_launch_params(self, inputs, in_out, num_inputs, launchParams, symExprs, exprBuilder):
        one = exprBuilder.constant(1)
        self.code, grid, arguments = self.spec.compile(
            exprBuilder, self.extents, in_out, self.tactic, **self.attrs
        )
        for name, size in zip(("grid_x", "grid_y", "grid_z"), [*grid, one, one], strict=False):
            setattr(launchParams, name, Scalar(size))
        launchParams.block_x = launchParams.block_y = launchParams.block_z = Scalar(one)
        symExprs.nbSymExprs = len(arguments)
        for i, argument in enumerate(arguments):
            symExprs[i] = Scalar(argument)

    def get_kernel(self, inputDesc, outputDesc):
        return self.code.name, self.code


class Creator(trt.IPluginCreatorV3Quick):
    def __init__(self, spec, attributes):
        trt.IPluginCreatorV3Quick.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = spec.name, "layer", "1"
        fields = [trt.PluginField(k, np.array([]), TYPES[t]) for k, t in attributes.items()]
        self.field_names = trt.PluginFieldCollection(fields)
        self.spec, self.attributes, self.calls = spec, attributes, []

    def create_plugin(self, name, namespace, fc, phase, qpcr=None):
        assert (name, namespace) == (self.spec.name, "layer")
        self.calls.append((phase, qpcr))
        attrs = {field.name: self.attributes[field.name](field.data[0]) for field in fc}
        Request = trt.QuickPluginCreationRequest
        prefer_aot = qpcr in (Request.STRICT_AOT, Request.PREFER_AOT)
        aot = self.spec.compile is not None and (prefer_aot or self.spec.run is None)
        if (qpcr == Request.STRICT_AOT and not aot) or (not aot and self.spec.run is None):
            return None
        return (AotPlugin if aot else JitPlugin)(self.spec, attrs)


class Plugin:
    """The result of `define`. Set `run` and `compile`, and call it with tensors and attributes."""

    def __init__(self, name, shapes, num_outputs):
        self.name, self.shapes, self.num_outputs = name, shapes, num_outputs
        self.types = lambda input_types: [input_types[0]] * num_outputs
        self.tactics = lambda dtype: []
        self.combinations, self.aliases, self.run, self.compile = None, {}, None, None
        parameters = list(inspect.signature(shapes, eval_str=True).parameters.values())
        self.creator = Creator(self, {p.name: p.annotation for p in parameters[2:]})
        assert trt.get_plugin_registry().register_creator(self.creator, "layer")

    def __call__(self, *tensors, **attrs):
        def create(request):
            fields = Base(self, attrs).get_fields_to_serialize()
            creator = trt.get_plugin_registry().get_creator(self.name, "1", "layer")
            phase = trt.TensorRTPhase.BUILD
            return (
                list(tensors),
                [],
                creator.create_plugin(self.name, "layer", fields, phase, request),
            )

        return create


def define(name, num_outputs=1):
    """Decorates `shapes(expr_builder, inputs, attributes...)`, which returns the outputs'
    extents."""
    return lambda shapes: Plugin(name, shapes, num_outputs)


def view(desc, address, strides):
    """A tensor of a call as a NumPy array that shares its memory."""
    itemsize = np.dtype(trt.nptype(desc.type)).itemsize
    interface = {
        "version": 3,
        "shape": tuple(desc.dims),
        "typestr": np.dtype(trt.nptype(desc.type)).str,
        "data": (address, False),
        "strides": tuple(stride * itemsize for stride in strides),
    }
    return np.asarray(type("Memory", (), {"__array_interface__": interface})())
