"""IPluginV3 implemented by Python classes, creators, registry, C++ plugin libraries."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opwright as trt
from plugin_testing import build, network, wrap

X = np.random.default_rng(0).random((2, 3, 5, 7), np.float32)
PADS = [2, 1, 0, 3]


def as_array(address: int, desc: trt.PluginTensorDesc) -> np.ndarray:
    shape, dtype = tuple(desc.dims), np.dtype(trt.nptype(desc.type))
    size = int(np.prod(shape)) * dtype.itemsize
    memory = (ctypes.c_byte * size).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


class CircPad(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """Circular padding with two tactics, written as for TensorRT."""

    seen: list[tuple[str, object]] = []

    def __init__(self, fc=None, phase=None):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.pads = np.zeros(0, np.int32)
        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_name = "PyCircPad"
        self.plugin_version = "1"
        self.timing_cache_id = None
        self.tactic = None
        if fc is not None:
            assert fc[0].name == "pads"
            self.pads = fc[0].data

    def note(self, method, value=None):
        CircPad.seen.append((method, value))

    def get_capability_interface(self, type):
        return self

    def get_output_data_types(self, input_types):
        self.note("get_output_data_types")
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        self.note("get_output_shapes")
        dims = trt.DimsExprs(inputs[0])
        for i in range(np.size(self.pads) // 2):
            dims[len(dims) - i - 1] = expr_builder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][len(dims) - i - 1],
                expr_builder.constant(self.pads[i * 2] + self.pads[i * 2 + 1]),
            )
        return [dims]

    def get_fields_to_serialize(self):
        self.note("get_fields_to_serialize")
        return trt.PluginFieldCollection(
            [trt.PluginField("pads", self.pads, trt.PluginFieldType.INT32)]
        )

    def configure_plugin(self, inp, out):
        self.note("configure_plugin", (tuple(inp[0].desc.dims), tuple(out[0].max)))

    def on_shape_change(self, inp, out):
        self.note("on_shape_change", tuple(inp[0].dims))

    def supports_format_combination(self, pos, in_out, num_inputs):
        self.note("supports_format_combination")
        assert num_inputs == 1 and pos < len(in_out)
        desc = in_out[pos].desc
        if desc.format != trt.TensorFormat.LINEAR:
            return False
        if pos == 0:
            return desc.type in (trt.DataType.FLOAT, trt.DataType.HALF)
        return in_out[0].desc.type == desc.type

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        self.note("enqueue", self.tactic)
        assert stream == 0
        x = as_array(inputs[0], input_desc[0])
        y = as_array(outputs[0], output_desc[0])
        np.copyto(y, wrap(x, self.pads))

    def attach_to_context(self, context):
        self.note("attach_to_context")
        return self.clone()

    def get_valid_tactics(self):
        return [1, 2]

    def set_tactic(self, tactic):
        self.note("set_tactic", tactic)
        self.tactic = tactic

    def clone(self):
        self.note("clone")
        made = CircPad()
        made.__dict__.update(self.__dict__)
        return made


class CircPadCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name = "PyCircPad"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)]
        )
        self.phases = []

    def create_plugin(self, name, fc, phase):
        self.phases.append(phase)
        return CircPad(fc, phase)


@pytest.fixture
def creator():
    CircPad.seen.clear()
    made = CircPadCreator()
    registry = trt.get_plugin_registry()
    assert registry.register_creator(made, "")
    yield made
    assert registry.deregister_creator(made)


def make_plugin():
    pads = trt.PluginField("pads", np.array(PADS, np.int32), trt.PluginFieldType.INT32)
    return CircPad(trt.PluginFieldCollection([pads]))


def padded_network(plugin, shape=X.shape):
    net = network()
    layer = net.add_plugin_v3([net.add_input("x", trt.float32, shape)], [], plugin)
    return net, layer


def test_python_class_end_to_end(creator, tmp_path):
    net, layer = padded_network(make_plugin(), (-1, 3, -1, -1))
    assert isinstance(layer.plugin, CircPad) and isinstance(layer, trt.IPluginV3Layer)
    assert tuple(layer.get_output(0).shape) == (-1, 3, -1, -1)
    shapes = {"x": ((1, 3, 4, 4), X.shape, (4, 3, 9, 9))}
    engine = build(net, layer.get_output(0), shapes=shapes)
    seen = dict(CircPad.seen)
    assert seen["configure_plugin"] == ((-1, 3, -1, -1), (4, 3, 12, 12))
    tactics = {value for method, value in CircPad.seen if method == "enqueue"}
    assert tactics == {1, 2}, "both tactics are timed"
    np.testing.assert_array_equal(engine(X), wrap(X, PADS))
    other = np.ones((4, 3, 9, 4), np.float32)
    np.testing.assert_array_equal(engine(other), wrap(other, PADS))

    engine.save(tmp_path / "engine")
    creator.phases.clear()
    loaded = trt.load(tmp_path / "engine")
    assert creator.phases == [trt.TensorRTPhase.RUNTIME]
    np.testing.assert_array_equal(loaded(X), wrap(X, PADS))


def test_from_onnx(creator):
    node = helper.make_node("PyCircPad", ["x"], ["y"], pads=PADS, plugin_version="1")
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    np.testing.assert_array_equal(trt.build(model)(X), wrap(X, PADS))
    assert trt.TensorRTPhase.BUILD in creator.phases


def test_missing_methods_are_named(creator):
    class Incomplete(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild):
        num_outputs = 1
        plugin_name = "Incomplete"

        def clone(self):
            return self

    with pytest.raises(trt.Error, match="Incomplete.*|runtime"):
        padded_network(Incomplete())

    class NoShapes(Incomplete, trt.IPluginV3OneRuntime):
        pass

    with pytest.raises(NotImplementedError, match="NoShapes must define get_output_data_types"):
        padded_network(NoShapes())
    with pytest.raises(TypeError, match="expected an IPluginV3"):
        padded_network(object())


class AddInPlace(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime
):
    num_outputs = 1
    plugin_name = "AddInPlace"

    def clone(self):
        return AddInPlace()

    def get_output_data_types(self, types):
        return types

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [inputs[0]]

    def get_aliased_input(self, output):
        return 0

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == trt.float32

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        assert inputs[0] == outputs[0]
        as_array(outputs[0], output_desc[0])[...] += 1


class AddInPlaceCreator(trt.IPluginCreatorV3One):
    name = "AddInPlace"

    def create_plugin(self, name, fields, phase):
        return AddInPlace()


@pytest.fixture
def add_in_place():
    made = AddInPlaceCreator()
    assert trt.get_plugin_registry().register_creator(made)
    yield
    trt.get_plugin_registry().deregister_creator(made)


def test_aliased_output_and_inherited_defaults(add_in_place):
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    doubled = net.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    layer = net.add_plugin_v3([doubled], [], AddInPlace())
    np.testing.assert_array_equal(build(net, layer.get_output(0))(X), 2 * X + 1)


# Registry and fields ---------------------------------------------------------------------------


def test_registry_knows_python_creators(creator):
    registry = trt.get_plugin_registry()
    assert registry.get_creator("PyCircPad", "1", "") is creator
    assert creator in registry.all_creators
    assert registry.get_creator("PyCircPad", "2", "") is None
    assert not registry.register_creator(creator, "")
    assert not registry.register_creator(CircPadCreator(), ""), "name and version are taken"
    with pytest.raises(TypeError, match="expected a creator"):
        registry.register_creator(object())
    assert not registry.deregister_creator(CircPadCreator())


@pytest.mark.parametrize(
    "data, type, expected",
    [
        (np.array([1, 2], np.int32), None, np.array([1, 2], np.int32)),
        (np.array([1, 2], np.int64), trt.PluginFieldType.INT32, np.array([1, 2], np.int32)),
        (np.array([1.5], np.float16), None, np.array([1.5], np.float16)),
        ([1, 2], trt.PluginFieldType.INT8, np.array([1, 2], np.int8)),
        (3, trt.PluginFieldType.INT64, np.array([3])),
        ("text", None, np.frombuffer(b"text", np.int8)),
        (b"text", trt.PluginFieldType.CHAR, np.frombuffer(b"text", np.int8)),
        (b"\1\2", None, np.array([1, 2], np.int8)),
        (np.array([1.5], np.float16).tobytes(), None, np.array([0, 62], np.int8)),
        (np.array([]), trt.PluginFieldType.INT32, np.array([], np.int32)),
    ],
)
def test_field_data(data, type, expected):
    field = trt.PluginField("name", data, type)
    assert field.name == "name" and field.size == len(expected)
    assert field.data.dtype == expected.dtype
    np.testing.assert_array_equal(field.data, expected)


def test_field_data_that_does_not_fit():
    with pytest.raises(trt.Error, match="PluginField 'f' must be INT32, but is FLOAT64"):
        trt.PluginField("f", np.array([1.5]), trt.PluginFieldType.INT32)
    with pytest.raises(trt.Error, match="must be INT32 .*, but is 1099511627776"):
        trt.PluginField("f", np.array([2**40]), trt.PluginFieldType.INT32)
    with pytest.raises(trt.Error, match="no whole number of elements"):
        trt.PluginField("f", b"123", trt.PluginFieldType.INT32)


def test_field_collections_are_sequences():
    fields = trt.PluginFieldCollection([trt.PluginField("a", 1.0), trt.PluginField("b", "x")])
    assert len(fields) == 2 and [f.name for f in fields] == ["a", "b"] and fields[-1].name == "b"
    with pytest.raises(IndexError):
        fields[2]
    with pytest.raises(trt.Error, match="list of PluginField"):
        trt.PluginFieldCollection([1])
    fields.append(trt.PluginField("c"))
    fields.extend([trt.PluginField("d"), trt.PluginField("e")])
    fields.extend(trt.PluginFieldCollection([trt.PluginField("f")]))
    fields[0] = fields[-1]
    del fields[-2]
    assert [f.name for f in fields] == ["f", "b", "c", "d", "f"]
    with pytest.raises(IndexError):
        del fields[5]
    with pytest.raises(trt.Error, match="extend: expected .* list of PluginField"):
        fields.extend(3)
    assert trt.PluginField("d", trt.Dims((1, 2)), trt.PluginFieldType.DIMS).data == [(1, 2)]


# C++ libraries ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library():
    root = Path(__file__).resolve().parents[2] / "build" / "dev" / "tests" / "cpp" / "plugins"
    folder = Path(os.environ.get("OPWRIGHT_TEST_PLUGIN_DIR", root))
    path = folder / "circ_pad_plugin.so"
    if not path.exists():
        pytest.skip(f"{path} was not built (ninja test_plugins)")
    registry = trt.get_plugin_registry()
    handle = registry.load_library(path)
    yield path
    registry.deregister_library(handle)
    assert registry.get_creator("circ_pad_plugin", "1", "") is None


def cpp_plugin():
    creator = trt.get_plugin_registry().get_creator("circ_pad_plugin", "1", "")
    assert isinstance(creator, trt.IPluginCreatorV3One)
    assert [field.name for field in creator.field_names] == ["pads"]
    pads = trt.PluginField("pads", np.array(PADS, np.int32), trt.PluginFieldType.INT32)
    return creator.create_plugin("pad", trt.PluginFieldCollection([pads]), trt.TensorRTPhase.BUILD)


def test_cpp_plugin_end_to_end(library, tmp_path):
    plugin = cpp_plugin()
    assert isinstance(plugin, trt.IPluginV3) and plugin.plugin_name == "circ_pad_plugin"
    runtime = plugin.get_capability_interface(trt.PluginCapabilityType.RUNTIME)
    fields = runtime.get_fields_to_serialize()
    np.testing.assert_array_equal(fields[0].data, PADS)
    net, layer = padded_network(plugin)
    assert layer.plugin.plugin_name == "circ_pad_plugin"
    engine = build(net, layer.get_output(0))
    np.testing.assert_array_equal(engine(X), wrap(X, PADS))
    engine.save(tmp_path / "engine")
    np.testing.assert_array_equal(trt.load(tmp_path / "engine")(X), wrap(X, PADS))


def test_cpp_plugin_from_onnx(library):
    node = helper.make_node("circ_pad_plugin", ["x"], ["y"], pads=PADS)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 19)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    np.testing.assert_array_equal(trt.build(model)(X), wrap(X, PADS))


def test_clones_of_cpp_plugins(library):

    plugin = cpp_plugin()
    copy = plugin.clone()
    assert copy is not plugin and copy.plugin_name == "circ_pad_plugin"
    net, layer = padded_network(copy)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(X), wrap(X, PADS))


def test_what_is_no_library(tmp_path):
    registry = trt.get_plugin_registry()
    (tmp_path / "text.so").write_text("not a library")
    for path in (tmp_path / "text.so", tmp_path / "missing.so"):
        with pytest.raises(trt.Error, match=path.name):
            registry.load_library(path)


@pytest.mark.parametrize(
    ("name", "kind", "major"),
    [
        ("IPluginV3", "PLUGIN", 1),
        ("IPluginV3OneCore", "PLUGIN_V3ONE_CORE", 1),
        ("IPluginV3OneBuild", "PLUGIN_V3ONE_BUILD", 1),
        ("IPluginV3OneBuildV2", "PLUGIN_V3ONE_BUILD", 2),
        ("IPluginV3OneRuntime", "PLUGIN_V3ONE_RUNTIME", 1),
        ("IPluginV3QuickCore", "PLUGIN_V3QUICK_CORE", 1),
        ("IPluginV3QuickBuild", "PLUGIN_V3QUICK_BUILD", 1),
        ("IPluginV3QuickAOTBuild", "PLUGIN_V3QUICKAOT_BUILD", 1),
        ("IPluginV3QuickRuntime", "PLUGIN_V3QUICK_RUNTIME", 1),
        ("IPluginCreator", "PLUGIN CREATOR_V1", 1),
        ("IPluginCreatorV3One", "PLUGIN CREATOR_V3ONE", 1),
        ("IPluginCreatorV3Quick", "PLUGIN CREATOR_V3QUICK", 1),
        ("IPluginResource", "IPluginResource", 1),
        ("IErrorRecorder", "IErrorRecorder", 1),
    ],
)
def test_classes_say_which_interface_they_implement(name, kind, major):
    instance = getattr(trt, name)()
    assert instance.interface_info == trt.InterfaceInfo(kind, major, 0)
    assert instance.api_language == trt.APILanguage.PYTHON


def test_plugins_of_libraries_are_in_cpp(plugin_dir):
    registry = trt.get_plugin_registry()
    library = registry.load_library(plugin_dir / "identity_plugin.so")
    creator = registry.get_creator("identity_plugin", "1", "")
    assert creator.api_language == trt.APILanguage.CPP
    assert creator.interface_info.kind == "PLUGIN CREATOR_V3ONE"
    fields = trt.PluginFieldCollection([])
    plugin = creator.create_plugin("x", fields, trt.TensorRTPhase.BUILD)
    assert plugin.api_language == trt.APILanguage.CPP
    runtime = plugin.get_capability_interface(trt.PluginCapabilityType.RUNTIME)
    assert runtime.api_language == trt.APILanguage.CPP
    registry.deregister_library(library)
