"""IPluginV2DynamicExt and IPluginCreator: Python classes, C++ libraries, networks and models."""

from __future__ import annotations

import gc
import json
import sys

import numpy as np
import pytest

import opwright as trt
from plugin_testing import network, wrap
from v2_plugins import Creator, Twice, as_array, one_layer, registered

X = np.random.default_rng(0).random((2, 3, 5, 7), np.float32)
PADS = [2, 1, 0, 3]


class CircPad(Twice):
    """Circular padding, written as TensorRT's samples are."""

    calls: list[str] = []

    def __init__(self, fc=None):
        Twice.__init__(self)
        self.pads = [0, 0]
        self.plugin_type = "CircPadV2"
        if fc is not None:
            assert fc[0].name == "pads"
            self.pads = [int(pad) for pad in fc[0].data]

    def note(self, call):
        CircPad.calls.append(call)

    def get_output_dimensions(self, output_index, inputs, expr_builder):
        self.note("get_output_dimensions")
        dims = trt.DimsExprs(inputs[0])
        for i in range(np.size(self.pads) // 2):
            dims[len(dims) - i - 1] = expr_builder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][len(dims) - i - 1],
                expr_builder.constant(self.pads[i * 2] + self.pads[i * 2 + 1]),
            )
        return dims

    def get_serialization_size(self):
        return len(json.dumps({"pads": self.pads}))

    def serialize(self):
        self.note("serialize")
        return json.dumps({"pads": self.pads})

    def configure_plugin(self, inp, out):
        self.note(f"configure_plugin {tuple(inp[0].desc.dims)} max {tuple(out[0].max)}")

    def initialize(self):
        self.note("initialize")

    def terminate(self):
        self.note("terminate")

    def attach_to_context(self, cudnn, cublas, allocator):
        assert cudnn == 0 and cublas == 0
        memory = allocator.allocate(1000, 64)
        assert memory % 64 == 0 and allocator.deallocate(memory)
        self.allocator = allocator
        self.note("attach_to_context")

    def detach_from_context(self):
        self.note("detach_from_context")

    def destroy(self):
        self.note("destroy")

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        assert stream == 0
        self.note("enqueue")
        x = as_array(inputs[0], input_desc[0])
        np.copyto(as_array(outputs[0], output_desc[0]), wrap(x, self.pads))


class CircPadCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name = "CircPadV2"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, fc):
        return CircPad(fc)

    def deserialize_plugin(self, name, data):
        assert isinstance(data, bytes)
        made = CircPad()
        made.__dict__.update(json.loads(data.decode("utf-8")))
        return made


@pytest.fixture
def creator():
    CircPad.calls.clear()
    with registered(CircPadCreator()) as made:
        yield made


def circ_pad():
    pads = trt.PluginField("pads", np.array(PADS, np.int32), trt.PluginFieldType.INT32)
    return CircPad(trt.PluginFieldCollection([pads]))


def take():
    """The calls since the last time; repetitions count once."""
    calls = [c for i, c in enumerate(CircPad.calls) if i == 0 or CircPad.calls[i - 1] != c]
    CircPad.calls.clear()
    return calls


def test_life_cycle(creator):
    plugin = circ_pad()
    net, layer = one_layer(plugin, (-1, 3, 5, 7))
    assert isinstance(layer, trt.IPluginV2Layer) and isinstance(layer.plugin, CircPad)
    assert layer.plugin is not plugin, "the network has its own clone"
    assert tuple(layer.get_output(0).shape) == (-1, 3, 8, 10)
    assert take() == ["get_output_dimensions"]
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3, 5, 7), (2, 3, 5, 7), (4, 3, 5, 7))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(net, config)
    range_told = "configure_plugin (-1, 3, 5, 7) max (4, 3, 8, 10)"
    timed = [
        "attach_to_context",
        "configure_plugin (2, 3, 5, 7) max (4, 3, 8, 10)",
        "enqueue",
        "detach_from_context",
        "destroy",
    ]
    stored = ["attach_to_context", "serialize", "detach_from_context", "destroy"]
    calls = take()
    assert calls[0] == "destroy", "the clone that was asked for formats"
    assert calls[1:] == [range_told, "initialize", *timed, *stored, "terminate", "destroy"]
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
    assert take() == ["initialize"]
    context = engine.create_execution_context()
    for batch in (2, 1):
        x, y = X[:batch].copy(), np.empty((batch, 3, 8, 10), np.float32)
        context.set_input_shape("x", x.shape)
        for name, array in (("x", x), ("y", y)):
            context.set_tensor_address(name, array.ctypes.data)
        for _ in range(2):
            assert context.execute_async_v3(0)
            np.testing.assert_array_equal(y, wrap(x, PADS))
        attached = ["attach_to_context"] if batch == 2 else []
        told = f"configure_plugin ({batch}, 3, 5, 7) max (4, 3, 8, 10)"
        assert take() == [*attached, told, "enqueue"]
    del context
    assert take() == ["detach_from_context", "destroy"]
    del engine
    assert take() == ["terminate", "destroy"]
    del net, layer, builder
    gc.collect()
    assert take() == ["destroy"], "the network's clone; not the user's plugin"


@pytest.mark.parametrize("size", [lambda text: len(text), lambda text: len(text.encode())])
def test_text_is_stored_as_utf8(size):
    class Named(Twice):
        name = "größe"

        def serialize(self):
            return self.name

        def get_serialization_size(self):
            return size(self.name)

    stored = []
    net, _ = one_layer(Named(), X.shape)
    with registered(Creator("Named", lambda given: stored.append(given) or Named())):
        np.testing.assert_array_equal(trt.build(net)(X), 2 * X)
    assert stored == ["größe".encode()]


def test_the_spelling_of_tensorrts_v2ext_comes_first():
    class Spelled(Twice):
        def get_output_datatype(self, index, input_types):
            return trt.int32

        def get_output_data_type(self, index, input_types):
            assert index == 0 and list(input_types) == [trt.float32]
            return trt.float32

    with registered(Spelled()):
        net, layer = one_layer(Spelled(), X.shape)
        assert layer.get_output(0).dtype == trt.float32
        np.testing.assert_array_equal(trt.build(net)(X), 2 * X)


def test_allocators_end_with_their_context(creator):
    net, layer = one_layer(circ_pad(), X.shape)
    seen = []

    class Keeper(CircPad):
        def attach_to_context(self, cudnn, cublas, allocator):
            seen.append(allocator)

    layer.plugin.__class__ = Keeper
    trt.build(net)
    with pytest.raises(trt.Error, match="has ended with its plugin"):
        seen[0].allocate(64)


def test_answers_of_a_plugin_for_fixed_shapes():
    plugin = circ_pad()
    assert plugin.get_output_shape(0, [(1, 3, 4, 5)]) == (1, 3, 7, 8)
    assert not plugin.supports_format(trt.float32, trt.TensorFormat.LINEAR)
    assert plugin.execute_async(1, [], [], 0, 0) == 1
    assert plugin.serialization_size == len(plugin.serialize())
    assert plugin.tensorrt_version >= 100000
    assert plugin.FORMAT_COMBINATION_LIMIT == 100


# Faults that only V2 plugins have ---------------------------------------------------------------


class OwnError(Exception):
    pass


def faulty(**members):
    """A Twice whose class has these members besides."""

    def init(self):
        Twice.__init__(self)
        self.plugin_type, self.plugin_version = "Faulty", "7"
        self.__dict__.update({k: v for k, v in members.items() if not callable(v)})

    return type("Faulty", (Twice,), {"__init__": init, **members})()


def build_and_run(plugin, creator=None):
    with registered(creator or Creator("Faulty", lambda given: plugin, "7")):
        net, _ = one_layer(plugin, X.shape)
        return trt.build(net)(X)


def returns(value):
    return lambda self, *args: value


def raising(self, *args):
    raise OwnError("on purpose")


def test_wrong_answers_once_the_engine_is_loaded(tmp_path):
    """What only a loaded plugin answers wrongly: the engine is built of one that works."""
    cases = [
        ({"initialize": returns(-1)}, "initialize() returned -1 instead of 0"),
        ({"clone": returns(None)}, "expected an IPluginV2DynamicExt; None came"),
        ({"plugin_type": 3}, "to be a str; it is 3"),
    ]
    net, _ = one_layer(faulty(), X.shape)
    path = tmp_path / "engine"
    with registered(Creator("Faulty", lambda given: faulty(), "7")):
        trt.build(net).save(path)
    loaded = []
    with registered(Creator("Faulty", lambda given: loaded[0], "7")):
        for members, message in cases:
            loaded[:] = [faulty(**members)]
            with pytest.raises(trt.Error) as caught:
                trt.load(path)(X)
            assert message in str(caught.value) and "the layer" in str(caught.value)


def test_what_is_no_plugin():
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    with pytest.raises(TypeError, match="expected an IPluginV2DynamicExt.*None came"):
        net.add_plugin_v2([x], None)

    class V3(trt.IPluginV3):
        enqueue = clone = supports_format_combination = returns(None)

    with pytest.raises(TypeError, match="which is an IPluginV3"):
        net.add_plugin_v2([x], V3())
    with pytest.raises(trt.Error, match="add_plugin_v2: inputs has 3"):
        net.add_plugin_v2([3], Twice())
    with pytest.raises(trt.Error, match="inputs must be a list"):
        net.add_plugin_v2(3, Twice())


@pytest.mark.parametrize("method", ["terminate", "detach_from_context", "destroy"])
def test_exceptions_of_an_end_are_reported_as_those_of_del(method, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_type))
    np.testing.assert_array_equal(build_and_run(faulty(**{method: raising})), 2 * X)
    gc.collect()  # all that raises is gone before the hook is
    assert set(reported) == {OwnError}


# C++ libraries ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(plugin_dir):
    registry = trt.get_plugin_registry()
    handle = registry.load_library(plugin_dir / "circ_pad_v2_plugin.so")
    yield
    registry.deregister_library(handle)
    assert registry.get_creator("circ_pad_v2_plugin", "1", "") is None


def cpp_plugin():
    creator = trt.get_plugin_registry().get_creator("circ_pad_v2_plugin", "1", "")
    assert isinstance(creator, trt.IPluginCreator)
    assert [field.name for field in creator.field_names] == ["pads"]
    pads = trt.PluginField("pads", np.array(PADS, np.int32), trt.PluginFieldType.INT32)
    return creator, creator.create_plugin("pad", trt.PluginFieldCollection([pads]))


def test_every_method_of_a_cpp_plugin(library):
    creator, plugin = cpp_plugin()
    assert plugin.plugin_version == "1" and plugin.num_outputs == 1
    plugin.plugin_namespace = "ns"
    assert plugin.plugin_namespace == "ns" and plugin.clone().plugin_namespace == "ns"
    assert plugin.tensorrt_version >= 100000
    assert plugin.get_output_datatype(0, [trt.float16]) == trt.float16
    assert plugin.get_output_shape(0, [(1, 3, 4, 5)]) == (1, 3, 7, 8)
    assert not plugin.supports_format(trt.float32, trt.TensorFormat.LINEAR)

    x, y = X.copy(), np.empty_like(wrap(X, PADS))

    def desc(array):
        made = trt.PluginTensorDesc()
        made.dims, made.type, made.format = array.shape, trt.float32, trt.TensorFormat.LINEAR
        return made

    def dynamic(array):
        made = trt.DynamicPluginTensorDesc()
        made.desc, made.min, made.opt, made.max = desc(array), *[array.shape] * 3
        return made

    assert plugin.supports_format_combination(0, [desc(x), desc(y)], 1)
    with pytest.raises(trt.Error, match="pos is 2"):
        plugin.supports_format_combination(2, [desc(x), desc(y)], 1)
    plugin.configure_plugin([dynamic(x)], [dynamic(y)])
    assert plugin.get_workspace_size([desc(x)], [desc(y)]) == 0
    assert plugin.initialize() == 0
    plugin.attach_to_context(0, 0, None)
    plugin.enqueue([desc(x)], [desc(y)], [x.ctypes.data], [y.ctypes.data], 0, 0)
    np.testing.assert_array_equal(y, wrap(x, PADS))
    with pytest.raises(trt.Error, match="1 and 1 descriptors came with 1 and 0 addresses"):
        plugin.enqueue([desc(x)], [desc(y)], [x.ctypes.data], [], 0, 0)
    assert plugin.execute_async(1, [x.ctypes.data], [y.ctypes.data], 0, 0) == 1
    plugin.detach_from_context()
    plugin.terminate()

    data = plugin.serialize()
    assert len(data) == plugin.serialization_size == plugin.get_serialization_size()
    copy = creator.deserialize_plugin("pad", data)
    assert copy.serialize() == data and copy is not plugin
    with pytest.raises(trt.Error, match="deserializePlugin.. refused"):
        creator.deserialize_plugin("pad", b"123")
    with pytest.raises(trt.Error, match="createPlugin.. refused"):
        creator.create_plugin("pad", [])
    copy.destroy()
    with pytest.raises(trt.Error, match="was destroyed"):
        copy.serialize()

    seen = []

    class Delegates(Twice):
        def get_output_dimensions(self, output_index, inputs, expr_builder):
            seen.append(plugin.get_output_dimensions(output_index, inputs, expr_builder))
            return seen[-1]

    with registered(Delegates()):
        _, layer = one_layer(Delegates(), X.shape)
        assert tuple(layer.get_output(0).shape) == y.shape
    assert isinstance(seen[0], trt.DimsExprs)


def test_creators_of_a_library_compare_equal(library):
    registry = trt.get_plugin_registry()
    first, second = (registry.get_creator("circ_pad_v2_plugin", "1", "") for _ in range(2))
    assert first == second and hash(first) == hash(second) and "circ_pad_v2" in repr(first)
