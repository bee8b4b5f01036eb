"""Plugins of every kind from one description: what they compute is a `Behaviour`, `make` writes it for an interface."""

from __future__ import annotations

import ctypes
import dataclasses
import inspect
import json
import operator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import build, network, new_id, op_of
from quick_layer import view

CLASSES = ("V3", "Quick", "V2")
KINDS = ("function", *CLASSES)
LINEAR = trt.TensorFormat.LINEAR
# Not the version that a creator has by default.
VERSION = "7"


@dataclasses.dataclass
class Port:
    """A tensor of a call."""

    type: trt.DataType
    format: trt.TensorFormat
    shape: tuple[int, ...]
    address: int
    tensor: Any
    """What NumPy makes a view of."""
    scale: float = 0

    @property
    def array(self) -> np.ndarray:
        return np.asarray(self.tensor)

    def memory(self, shape) -> np.ndarray:
        """The memory as an array of this shape."""
        dtype = np.dtype(trt.nptype(self.type))
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer((ctypes.c_byte * size).from_address(self.address), dtype).reshape(
            shape
        )


@dataclasses.dataclass
class Call:
    """A call of a plugin: its tensors, and what else the interface hands over."""

    ports_in: list[Port]
    ports_out: list[Port]
    stream: int
    tactic: int | None = None
    workspace: int | None = None
    """The address; None of kinds that have no workspace."""
    context: int | None = None
    """What `Behaviour.attach` said; None of kinds that hear of no context."""

    @property
    def inputs(self) -> list[np.ndarray]:
        return [port.array for port in self.ports_in]

    @property
    def outputs(self) -> list[np.ndarray]:
        return [port.array for port in self.ports_out]

    @property
    def ports(self) -> list[Port]:
        return [*self.ports_in, *self.ports_out]


class Behaviour:
    """y = 2 x in LINEAR and the network's type. A test overrides what it is about.

    `fields` are stored with the engine; `shapes` and `run` get them by name.
    """

    inputs = 1
    outputs = 1
    fields: dict[str, Any] = {}
    aliases: dict[int, int] = {}
    """The input whose memory an output shares."""
    combinations: list[list[tuple]] | None = None
    """Types and formats of all tensors, inputs first; None for LINEAR and the network's types."""
    tactics: tuple[int, ...] = ()

    def tactics_for(self, dtype):
        """The tactics of a combination that begins with this type."""
        return self.tactics

    def types(self, types):
        return [types[0]] * self.outputs

    def shapes(self, builder, *inputs, **fields):
        """The extents of each output. Shape inputs follow the inputs."""
        return [inputs[0]] * self.outputs

    def supports(self, ports):
        """Whether the last of these descriptors goes together with those before it."""
        here = [(port.type, port.format) for port in ports]
        if self.combinations is None:
            of = 0 if len(here) > self.inputs else -1
            return here[-1] == (here[of][0], LINEAR)
        return any(here == combination[: len(here)] for combination in self.combinations)

    def configure(self, inputs, outputs):
        """Types, formats and ranges of shapes."""

    def attach(self):
        """A number for an execution context."""

    def workspace(self, inputs, outputs):
        """Bytes, for these largest shapes."""
        return 0

    def run(self, call, **fields):
        np.multiply(call.inputs[0], 2, out=call.outputs[0])


TYPE_NAMES = {
    trt.float32: "FP32",
    trt.float16: "FP16",
    trt.int32: "INT32",
    trt.int64: "INT64",
    trt.int8: "INT8",
}
FIELD_TYPES = {
    int: trt.PluginFieldType.INT64,
    float: trt.PluginFieldType.FLOAT64,
    np.dtype(np.int32): trt.PluginFieldType.INT32,
}


def field_type(value):
    return FIELD_TYPES[value.dtype if isinstance(value, np.ndarray) else type(value)]


def collection(fields) -> trt.PluginFieldCollection:
    made = [trt.PluginField(k, np.atleast_1d(v), field_type(v)) for k, v in fields.items()]
    return trt.PluginFieldCollection(made)


def from_collection(does, given) -> dict[str, Any]:
    """The behaviour's fields with the values of a collection."""
    made = dict(does.fields)
    for field in given:
        like = does.fields[field.name]
        made[field.name] = field.data if isinstance(like, np.ndarray) else type(like)(field.data[0])
    return made


def ports_of(descs, addresses, strides=None):
    """The ports of a method's arguments; the views are of the strides, or of the format."""
    made = []
    for i, (desc, address) in enumerate(zip(descs, addresses, strict=True)):
        tensor = trtp.Tensor(desc, address) if strides is None else view(desc, address, strides[i])
        made.append(Port(desc.type, desc.format, tuple(desc.dims), address, tensor, desc.scale))
    return made


class _Class:
    """What plugin classes of all kinds share."""

    tactic = context = configured_type = None
    # Without it every instance is timed.
    timing_cache_id: str | None = ""
    does: Behaviour

    def __init__(self, fields=None):
        for base in self.bases:
            base.__init__(self)
        self.fields = dict(self.does.fields) if fields is None else fields

    def clone(self):
        made = type(self)(self.fields)
        made.__dict__.update(self.__dict__)
        return made

    def set_tactic(self, tactic):
        self.tactic = tactic

    def get_valid_tactics(self):
        return list(self.does.tactics_for(self.configured_type))

    def get_aliased_input(self, output):
        return self.does.aliases.get(output, -1)

    def get_fields_to_serialize(self):
        return collection(self.fields)

    def configure_plugin(self, inputs, outputs):
        self.configured_type = inputs[0].desc.type
        self.does.configure(inputs, outputs)

    def extents(self, builder, inputs, shape_inputs=()):
        made = self.does.shapes(builder, *inputs, *shape_inputs, **self.fields)
        return [trt.DimsExprs(list(extents)) for extents in made]

    def compute(self, inputs, outputs, stream, workspace=None):
        self.does.run(
            Call(inputs, outputs, stream, self.tactic, workspace, self.context), **self.fields
        )


class V3(
    _Class, trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime
):
    bases = trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime

    def get_output_data_types(self, input_types):
        return self.does.types(input_types)

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return self.extents(builder, inputs, shape_inputs)

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == self.does.inputs and len(in_out) == num_inputs + self.does.outputs
        return self.does.supports([port.desc for port in in_out[: pos + 1]])

    def get_workspace_size(self, inputs, outputs):
        shapes = [[tuple(port.max) for port in side] for side in (inputs, outputs)]
        return self.does.workspace(*shapes)

    def attach_to_context(self, resource_context):
        made = self.clone()
        made.context = self.does.attach()
        return made

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = ports_of(input_desc, inputs), ports_of(output_desc, outputs)
        self.compute(x, y, stream, workspace)


class Quick(
    _Class,
    trt.IPluginV3,
    trt.IPluginV3QuickCore,
    trt.IPluginV3QuickBuild,
    trt.IPluginV3QuickRuntime,
):
    bases = (
        trt.IPluginV3,
        trt.IPluginV3QuickCore,
        trt.IPluginV3QuickBuild,
        trt.IPluginV3QuickRuntime,
    )

    def get_output_data_types(self, input_types, ranks):
        self.does.ranks = list(ranks)
        return self.does.types(input_types)

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        return self.extents(exprBuilder, inputs, shape_inputs)

    def get_timing_cache_id(self):
        return self.timing_cache_id

    def get_supported_format_combinations(self, in_out, num_inputs):
        types = [port.desc.type for port in in_out]
        made = self.does.combinations or [[(dtype, LINEAR) for dtype in types]]
        descs = [trt.PluginTensorDesc() for combination in made for _ in combination]
        for desc, (dtype, layout) in zip(descs, sum(made, []), strict=True):
            desc.type, desc.format = dtype, layout
        return descs

    def enqueue(self, input_desc, output_desc, inputs, outputs, in_strides, out_strides, stream):
        x = ports_of(input_desc, inputs, in_strides)
        self.compute(x, ports_of(output_desc, outputs, out_strides), stream)


class V2(_Class, trt.IPluginV2DynamicExt):
    bases = (trt.IPluginV2DynamicExt,)

    def get_output_datatype(self, index, input_types):
        return self.does.types(input_types)[index]

    def get_output_dimensions(self, output_index, inputs, expr_builder):
        return self.extents(expr_builder, inputs)[output_index]

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == self.does.inputs and len(in_out) == num_inputs + self.does.outputs
        return self.does.supports(in_out[: pos + 1])

    def get_workspace_size(self, inputs, outputs):
        shapes = [[tuple(desc.dims) for desc in side] for side in (inputs, outputs)]
        return self.does.workspace(*shapes)

    def attach_to_context(self, cudnn, cublas, allocator):
        self.context = self.does.attach()

    def serialize(self):
        return json.dumps({k: np.asarray(v).tolist() for k, v in self.fields.items()}).encode()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = ports_of(input_desc, inputs), ports_of(output_desc, outputs)
        self.compute(x, y, stream, workspace)


class _Creator:
    """What creators of all kinds share. `make` is a function of what the creator was given."""

    def __init__(self, made, make):
        self.name, self.plugin_namespace, self.plugin_version = made.name, made.namespace, VERSION
        empty = {k: np.array([], np.asarray(v).dtype) for k, v in made.does.fields.items()}
        types = {k: field_type(v) for k, v in made.does.fields.items()}
        fields = [trt.PluginField(k, v, types[k]) for k, v in empty.items()]
        self.field_names = trt.PluginFieldCollection(fields)
        self.make, self.does, self.calls = make, made.does, []

    def from_fields(self, given, phase=None):
        self.calls.append(phase)
        return self.make(from_collection(self.does, given), phase)


class CreatorV3(_Creator, trt.IPluginCreatorV3One):
    def create_plugin(self, name, fields, phase):
        return self.from_fields(fields, phase)


class CreatorQuick(_Creator, trt.IPluginCreatorV3Quick):
    def create_plugin(self, name, namespace, fields, phase, request=None):
        return self.from_fields(fields, phase)


class CreatorV2(_Creator, trt.IPluginCreator):
    def __init__(self, made, make):
        super().__init__(made, make)
        self.plugin_namespace = ""  # registration tells it

    def create_plugin(self, name, fields):
        return self.from_fields(fields, trt.TensorRTPhase.BUILD)

    def deserialize_plugin(self, name, data):
        assert isinstance(data, bytes)
        self.calls.append(trt.TensorRTPhase.RUNTIME)
        stored, does = json.loads(data.decode()), self.does
        fields = {
            k: np.array(stored[k], v.dtype) if isinstance(v, np.ndarray) else type(v)(stored[k])
            for k, v in does.fields.items()
        }
        return self.make(fields, trt.TensorRTPhase.RUNTIME)


class _Symbols:
    """An IExprBuilder in little, for functions, whose extents have operators."""

    OPERATIONS = {"SUM": operator.add, "SUB": operator.sub, "PROD": operator.mul}
    OPERATIONS |= {"FLOOR_DIV": operator.floordiv, "CEIL_DIV": trtp.cdiv}

    def __init__(self):
        self.sizes = {}

    def constant(self, value):
        return trtp.ShapeExpr(value)

    def operation(self, operation, first, second):
        return self.OPERATIONS[operation.name](first, second)

    def declare_size_tensor(self, output, opt, upper):
        self.sizes[output] = trtp.size_tensor(opt, upper)
        return self.sizes[output].expr()


def _signed(function, parameters, returned=inspect.Signature.empty):
    """The function with a signature of these names and hints."""
    kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    made = [inspect.Parameter(k, kind, annotation=v or empty) for k, v in parameters.items()]
    function.__signature__ = inspect.Signature(made, return_annotation=returned)
    function.__annotations__ = {k: v for k, v in parameters.items() if v}
    if returned is not inspect.Signature.empty:
        function.__annotations__["return"] = returned
    return function


def _define_function(made, members):
    """Registers a plugin of functions; members replace `register`, `autotune` and `impl`."""
    does, plugin_id = made.does, f"{made.namespace}::{made.name}"
    inputs = [f"x{i}" for i in range(does.inputs)]
    hints = {
        k: np.ndarray[Any, np.dtype[v.dtype.type]] if isinstance(v, np.ndarray) else type(v)
        for k, v in does.fields.items()
    }

    def register(*args):
        if "register" in members:
            return members["register"](*args)
        descs, symbols = args[: does.inputs], _Symbols()
        fields = dict(zip(does.fields, args[does.inputs :], strict=True))
        shapes = does.shapes(symbols, *(list(desc.shape_expr) for desc in descs), **fields)
        types = does.types([desc.dtype for desc in descs])
        outputs = [
            descs[does.aliases[i]].aliased()
            if i in does.aliases
            else symbols.sizes.get(i) or trtp.from_shape_expr(tuple(shape), dtype)
            for i, (shape, dtype) in enumerate(zip(shapes, types, strict=True))
        ]
        return outputs[0] if does.outputs == 1 else tuple(outputs)

    def run(args, tactic=None):
        if "impl" in members:
            return members["impl"](*args)
        *args, outputs, stream = args
        fields = dict(zip(does.fields, args[does.inputs :], strict=True))
        sides = [
            [Port(t.dtype, t.format, tuple(t.shape), t.data_ptr, t, t.scale) for t in side]
            for side in (args[: does.inputs], outputs)
        ]
        made = Call(*sides, stream, tactic)
        return does.run(made, **fields)

    def autotune(*args):
        if "autotune" in members:
            return members["autotune"](*args)
        descs = [*args[: does.inputs], *args[-1]]
        same = [[(desc.dtype, LINEAR) for desc in descs]]
        return [
            trtp.AutoTuneCombination(
                ", ".join(TYPE_NAMES[dtype] for dtype, _ in combination),
                ", ".join(layout.name for _, layout in combination),
                list(does.tactics_for(combination[0][0])) or None,
            )
            for combination in does.combinations or same
        ]

    desc = trtp.TensorDesc
    returned = desc if does.outputs == 1 else tuple[(desc,) * does.outputs]
    trtp.register(plugin_id)(_signed(register, dict.fromkeys(inputs, desc) | hints, returned))
    names = dict.fromkeys([*inputs, *hints, "outputs", "stream"])
    if does.tactics:
        impl = _signed(lambda *args: run(args[:-1], args[-1]), names | {"tactic": None})
    else:
        impl = _signed(lambda *args: run(args), names)
    trtp.impl(plugin_id)(impl)
    if does.combinations or does.tactics or "autotune" in members:
        names = dict.fromkeys([*inputs, *hints, "outputs"])
        trtp.autotune(plugin_id)(_signed(autotune, names))


class Made:
    """A plugin of a kind, which is registered: `add` makes a layer of it."""

    def __init__(self, kind, does, plugin_id, make, members):
        self.kind, self.does = kind, does
        self.id = plugin_id
        self.namespace, self.name = plugin_id.split("::")
        self.creator = None
        if kind == "function":
            _define_function(self, members)
            return
        name = {"V2": "plugin_type"}.get(kind, "plugin_name")
        known = {name: self.name, "plugin_version": VERSION, "plugin_namespace": self.namespace}
        known |= {"num_outputs": does.outputs, "does": does}
        base, creator = {
            "V3": (V3, CreatorV3),
            "Quick": (Quick, CreatorQuick),
            "V2": (V2, CreatorV2),
        }[kind]
        self.plugin_class = type("Plugin", (base,), known | members)
        self.creator = creator(self, make or (lambda fields, phase: self.plugin_class(fields)))
        assert trt.get_plugin_registry().register_creator(self.creator, self.namespace)

    def deregister(self):
        if self.creator is not None:
            trt.get_plugin_registry().deregister_creator(self.creator)

    def add(self, net, *inputs, shape_inputs=(), plugin=None, **fields):
        """A layer of the plugin with these fields."""
        fields = self.does.fields | fields
        if self.kind == "function":
            layer = net.add_plugin(op_of(self.id)(*inputs, **fields))
        else:
            plugin = self.plugin_class(fields) if plugin is None else plugin
            if self.kind == "V2":
                layer = net.add_plugin_v2(list(inputs), plugin)
            else:
                layer = net.add_plugin_v3(list(inputs), list(shape_inputs), plugin)
        layer.name = "the layer"
        return layer

    def network(self, *shapes, dtype=trt.float32, flags=0, **fields):
        """A network of one layer on inputs x0, x1... of these shapes, and the layer."""
        net = network(flags)
        inputs = [net.add_input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
        return net, self.add(net, *inputs, **fields)

    def build(self, *shapes, dtype=trt.float32, flags=0, fields=None, **options) -> trt.Engine:
        """The engine of that network; the outputs are y0, y1..."""
        net, layer = self.network(*shapes, dtype=dtype, flags=flags, **(fields or {}))
        return build(net, *(layer.get_output(i) for i in range(layer.num_outputs)), **options)

    def node(self, inputs=("x",), outputs=("y",), **attributes):
        version = {} if self.kind == "function" else {"plugin_version": VERSION}
        attributes |= version
        namespace = self.namespace
        return helper.make_node(
            self.name, inputs, outputs, "the node", plugin_namespace=namespace, **attributes
        )

    def model(self, shape, **attributes):
        """An ONNX model of one node on x."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([self.node(**attributes)], "graph", [x], [y])
        opsets = [helper.make_opsetid("", 19)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def make(kind, does=None, name="Plugin", *, plugin_id=None, make=None, **members) -> Made:
    """A plugin of the kind, registered in a namespace of its own.

    `members` take the place of the plugin class's, of a function plugin's `register`, `autotune` and
    `impl`. `make(fields, phase)` is what the creator gives instead of the plugin.
    """
    return Made(kind, does or Behaviour(), plugin_id or new_id(name), make, members)
