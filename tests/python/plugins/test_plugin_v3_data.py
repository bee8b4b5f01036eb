"""What reaches a V3 plugin: descriptors, addresses, shapes, empty tensors, memory; C++ plugins seen from Python."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import build, network, wrap
from v3_plugins import Twice, layers_of, registered

X = np.random.default_rng(0).random((2, 3, 4), np.float32)


def test_lists_are_made_once_and_kept_ones_stay():
    """The lists of enqueue are reused; one that the plugin keeps or changes is left to it."""

    class Keeping(Twice):
        plugin_name = "Keeping"
        keep, spoil = False, False
        seen: list = []
        ids: list = []

        def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
            super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
            Keeping.ids.append((id(inputs), id(input_desc)))
            if self.keep:
                Keeping.seen.append((inputs, list(inputs)))
            if self.spoil:
                inputs.clear()
                outputs[0] = 0

    with registered(Keeping()):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], Keeping())
        layer.get_output(0).name = "y"
        net.mark_output(layer.get_output(0))
        builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        engine = builder.build_engine_with_config(net, builder.create_builder_config())
        context = engine.create_execution_context()

        def run(x):
            y = np.empty_like(x)
            context.set_tensor_address("x", x.ctypes.data)
            context.set_tensor_address("y", y.ctypes.data)
            context.execute_async_v3(0)
            np.testing.assert_array_equal(y, 2 * x)

        arrays = [X + i for i in range(4)]
        Keeping.ids.clear()
        for x in arrays:
            run(x)
        assert len(set(Keeping.ids)) == 1
        Keeping.keep = True
        for x in arrays:
            run(x)
        assert [kept for kept, _ in Keeping.seen] == [[x.ctypes.data] for x in arrays]
        assert all(kept == then for kept, then in Keeping.seen)
        Keeping.keep, Keeping.spoil = False, True
        for x in arrays:
            run(x)


def test_shape_changes_and_descriptors():
    class Watching(Twice):
        plugin_name = "Watching"
        seen: list = []

        def configure_plugin(self, inputs, outputs):
            Watching.seen.append(
                (
                    "configure",
                    tuple(inputs[0].desc.dims),
                    tuple(inputs[0].min),
                    tuple(inputs[0].opt),
                )
            )

        def on_shape_change(self, inputs, outputs):
            Watching.seen.append(("shape", tuple(inputs[0].dims), tuple(outputs[0].dims)))

        def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
            Watching.seen.append(("enqueue", tuple(input_desc[0].dims), stream))
            super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)

    with registered(Watching()):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, (-1, 3))], [], Watching())
        engine = build(net, layer.get_output(0), shapes={"x": ((1, 3), (2, 3), (4, 3))})
        assert ("configure", (-1, 3), (1, 3), (2, 3)) in Watching.seen
        Watching.seen.clear()
        for rows in (2, 2, 4, 2):
            x = np.ones((rows, 3), np.float32)
            np.testing.assert_array_equal(engine(x), 2 * x)
        assert Watching.seen == [
            ("shape", (2, 3), (2, 3)),
            ("enqueue", (2, 3), 0),
            ("enqueue", (2, 3), 0),
            ("shape", (4, 3), (4, 3)),
            ("enqueue", (4, 3), 0),
            ("shape", (2, 3), (2, 3)),
            ("enqueue", (2, 3), 0),
        ]


def test_parts_that_are_objects_of_their_own():
    class Core(trt.IPluginV3OneCore):
        plugin_name = "Parts"

    class Build(trt.IPluginV3OneBuild):
        num_outputs = 1
        get_output_data_types = Twice.get_output_data_types
        get_output_shapes = Twice.get_output_shapes
        supports_format_combination = Twice.supports_format_combination

    class Runtime(trt.IPluginV3OneRuntime):
        enqueue = Twice.enqueue

        def attach_to_context(self, context):
            return Parts()

    class Parts(trt.IPluginV3):
        def __init__(self):
            kind = trt.PluginCapabilityType
            self.parts = {kind.CORE: Core(), kind.BUILD: Build(), kind.RUNTIME: Runtime()}

        def get_capability_interface(self, type):
            return self.parts[type]

        def clone(self):
            return Parts()

    Parts.plugin_name = "Parts"
    with registered(Parts()):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], Parts())
        assert isinstance(layer, trt.IPluginV3Layer) and isinstance(layer.plugin, Parts)
        np.testing.assert_array_equal(build(net, layer.get_output(0))(X), 2 * X)


def test_metadata_is_shown_by_the_inspector():
    class Described(Twice):
        plugin_name = "Described"
        metadata_string = "made of stars"

    with registered(Described()):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], Described())
        engine = build(net, layer.get_output(0))
        assert layers_of(engine)[0]["Metadata"] == "made of stars"
    with registered(Described()):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], Described())
        layer.metadata = "of the user"
        engine = build(net, layer.get_output(0))
        assert layers_of(engine)[0]["Metadata"] == "of the user; made of stars"


def test_only_plugin_layers_are_plugin_layers():
    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    relu = net.add_activation(x, trt.ActivationType.RELU)
    assert not isinstance(relu, trt.IPluginV3Layer) and not hasattr(relu, "plugin")
    layer = net.add_plugin_v3([relu.get_output(0)], [], Twice())
    for one in (layer, net.get_layer(1), net[1]):
        assert type(one) is trt.IPluginV3Layer and isinstance(one, trt.ILayer)
        assert isinstance(one.plugin, Twice)


# trtp.Tensor -----------------------------------------------------------------------------------


def desc_of(dims, dtype=trt.float32, format=trt.TensorFormat.LINEAR):
    desc = trt.PluginTensorDesc()
    desc.dims, desc.type, desc.format = dims, dtype, format
    return desc


def test_tensor_of_a_descriptor_and_an_address():
    x = X.copy()
    tensor = trtp.Tensor(desc_of(x.shape), x.ctypes.data)
    view = np.asarray(tensor)
    assert view.ctypes.data == x.ctypes.data and view.dtype == np.float32
    np.testing.assert_array_equal(view, x)
    view[0, 0, 0] = 7
    assert x[0, 0, 0] == 7
    assert tensor.shape == x.shape and tensor.dtype == trt.float32
    np.testing.assert_array_equal(np.from_dlpack(tensor), x)
    constant = trtp.Tensor(desc_of(x.shape), address=x.ctypes.data, read_only=True)
    assert not np.asarray(constant).flags.writeable


def test_tensor_of_a_channels_last_format():
    memory = np.arange(2 * 4 * 5 * 8, dtype=np.float32).reshape(2, 4, 5, 8)
    tensor = trtp.Tensor(desc_of((2, 3, 4, 5), format=trt.TensorFormat.HWC8), memory.ctypes.data)
    expected = memory[..., :3].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(np.asarray(tensor), expected)
    np.testing.assert_array_equal(np.from_dlpack(tensor), expected)


def test_tensor_of_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(6, dtype=np.float32).reshape(2, 3).astype(ml_dtypes.bfloat16)
    tensor = trtp.Tensor(desc_of(x.shape, trt.bfloat16), x.ctypes.data)
    view = np.asarray(tensor)
    assert view.dtype == ml_dtypes.bfloat16 and view.ctypes.data == x.ctypes.data
    np.testing.assert_array_equal(view.astype(np.float32), x.astype(np.float32))


def test_tensor_in_torch():
    torch = pytest.importorskip("torch")
    x = X.copy()
    view = torch.as_tensor(trtp.Tensor(desc_of(x.shape), x.ctypes.data))
    assert view.data_ptr() == x.ctypes.data
    bits = np.arange(6, dtype=np.int16).reshape(2, 3)
    view = torch.from_dlpack(trtp.Tensor(desc_of(bits.shape, trt.bfloat16), bits.ctypes.data))
    assert view.dtype == torch.bfloat16 and view.data_ptr() == bits.ctypes.data


def test_tensors_that_cannot_be():
    with pytest.raises(trt.Error, match="extents"):
        trtp.Tensor(desc_of((-1, 3)), 64)
    with pytest.raises(trt.Error, match="address is 0"):
        trtp.Tensor(desc_of((1, 3)), 0)


def test_tensor_in_enqueue():
    class WithTensor(Twice):
        plugin_name = "WithTensor"

        def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
            x = trtp.Tensor(input_desc[0], inputs[0], read_only=True)
            np.multiply(x, 2, out=np.asarray(trtp.Tensor(output_desc[0], outputs[0])))

    with registered(WithTensor()):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], WithTensor())
        np.testing.assert_array_equal(build(net, layer.get_output(0))(X), 2 * X)


# C++ plugins seen from Python ------------------------------------------------------------------

PADS = [2, 1, 0, 3]


@pytest.fixture(scope="module")
def cpp_creator(plugin_dir):
    # The library stays: what failing tests keep of its plugins ends after them.
    registry = trt.get_plugin_registry()
    registry.load_library(plugin_dir / "circ_pad_plugin.so")
    return registry.get_creator("circ_pad_plugin", "1", "")


@pytest.fixture
def cpp_plugin(cpp_creator):
    pads = trt.PluginField("pads", np.array(PADS, np.int32), trt.PluginFieldType.INT32)
    fields = trt.PluginFieldCollection([pads])
    return cpp_creator.create_plugin("pad", fields, trt.TensorRTPhase.BUILD)


def dynamic_desc(dims, dtype=trt.float32, format=trt.TensorFormat.LINEAR):
    desc = trt.DynamicPluginTensorDesc()
    desc.desc = desc_of(dims, dtype, format)
    desc.min = desc.opt = desc.max = dims
    return desc


def test_parts_of_a_cpp_plugin(cpp_plugin):
    kind = trt.PluginCapabilityType
    core = cpp_plugin.get_capability_interface(kind.CORE)
    assert isinstance(core, trt.IPluginV3OneCore)
    assert (core.plugin_name, core.plugin_version, core.plugin_namespace) == (
        "circ_pad_plugin",
        "1",
        "",
    )

    part = cpp_plugin.get_capability_interface(kind.BUILD)
    assert isinstance(part, trt.IPluginV3OneBuild)
    assert part.num_outputs == 1 and part.format_combination_limit == 100
    assert part.get_output_data_types([trt.float16]) == [trt.float16]
    ports = [dynamic_desc(X.shape), dynamic_desc(X.shape)]
    assert part.supports_format_combination(0, ports, 1)
    assert part.supports_format_combination(1, ports, 1)
    mixed = [ports[0], dynamic_desc(X.shape, trt.float16)]
    assert not part.supports_format_combination(1, mixed, 1)
    part.configure_plugin(ports[:1], ports[1:])
    assert part.get_workspace_size(ports[:1], ports[1:]) >= 0
    assert isinstance(part.get_valid_tactics(), list)
    assert part.timing_cache_id is None or isinstance(part.timing_cache_id, str)
    assert part.metadata_string is None or isinstance(part.metadata_string, str)
    with pytest.raises(trt.Error, match="pos is 2"):
        part.supports_format_combination(2, ports, 1)
    with pytest.raises(trt.Error, match="list of DataType"):
        part.get_output_data_types(3)

    runtime = cpp_plugin.get_capability_interface(kind.RUNTIME)
    assert isinstance(runtime, trt.IPluginV3OneRuntime)
    np.testing.assert_array_equal(runtime.get_fields_to_serialize()[0].data, PADS)
    y = np.empty_like(wrap(X, PADS))
    ins, outs = [desc_of(X.shape)], [desc_of(y.shape)]
    runtime.set_tactic(0)
    runtime.on_shape_change(ins, outs)
    runtime.enqueue(ins, outs, [X.ctypes.data], [y.ctypes.data], 0, 0)
    np.testing.assert_array_equal(y, wrap(X, PADS))
    with pytest.raises(trt.Error, match="1 descriptors came with 0|descriptors came with"):
        runtime.enqueue(ins, outs, [], [y.ctypes.data], 0, 0)


def test_a_python_plugin_around_a_cpp_plugin(cpp_plugin):
    """Every callback of the engine goes through Python to the C++ parts."""
    kind = trt.PluginCapabilityType
    calls = set()

    class Around(trt.IPluginV3):
        plugin_name = "circ_pad_plugin_around"

        def __init__(self, inner):
            self.inner = inner

        def clone(self):
            return Around(self.inner.clone())

        def get_capability_interface(self, type):
            part = self.inner.get_capability_interface(type)
            if type == kind.CORE:
                return self
            return Recording(part, self)

    class Recording:
        def __init__(self, part, owner):
            self.part, self.owner = part, owner

        def __getattr__(self, name):
            calls.add(name)
            return getattr(self.part, name)

        def attach_to_context(self, context):
            calls.add("attach_to_context")
            return Around(self.part.attach_to_context(context))

    with registered(Around(cpp_plugin)):
        net = network()
        plugin = Around(cpp_plugin)
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], plugin)
        engine = build(net, layer.get_output(0))
        np.testing.assert_array_equal(engine(X), wrap(X, PADS))
        del engine
    assert calls >= {
        "get_output_data_types",
        "get_output_shapes",
        "supports_format_combination",
        "configure_plugin",
        "get_workspace_size",
        "get_valid_tactics",
        "set_tactic",
        "on_shape_change",
        "enqueue",
        "attach_to_context",
        "get_fields_to_serialize",
    }
