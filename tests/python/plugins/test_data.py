"""What reaches a plugin of any kind: tensors of every size and type, shapes, memory, fields."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import opwright as trt
import plugin_kinds
from paths import SUPPORT
from plugin_kinds import CLASSES, KINDS, LINEAR, Behaviour
from plugin_testing import build, network, wrap

X = np.random.default_rng(0).random((2, 3, 5, 7), np.float32)
PADS = [2, 1, 0, 3]
STRONGLY_TYPED = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


class CircPad(Behaviour):
    """Circular padding of the last axes, TensorRT's sample."""

    fields = {"pads": np.array(PADS, np.int32)}

    def shapes(self, builder, dims, pads):
        dims = list(dims)
        for i in range(len(pads) // 2):
            extra = builder.constant(int(pads[2 * i]) + int(pads[2 * i + 1]))
            dims[-i - 1] = builder.operation(trt.DimensionOperation.SUM, dims[-i - 1], extra)
        return [dims]

    def __init__(self):
        self.configured = set()

    def configure(self, inputs, outputs):
        x, y = inputs[0], outputs[0]
        self.configured.add((tuple(x.desc.dims), tuple(x.min), tuple(x.opt), tuple(y.max)))

    def run(self, call, pads):
        assert call.stream == 0
        call.outputs[0][...] = wrap(call.inputs[0], pads)


SHAPES = {"x0": ((1, 3, 4, 4), X.shape, (4, 3, 9, 9))}
LAYERS = {"V3": trt.IPluginV3Layer, "Quick": trt.IPluginV3Layer, "V2": trt.IPluginV2Layer}


def test_dynamic_shapes_and_fields(kind, make_plugin, tmp_path):
    does = CircPad()
    made = make_plugin(kind, does)
    net, layer = made.network((-1, 3, -1, -1), pads=np.array([1, 2], np.int32))
    assert tuple(layer.get_output(0).shape) == (-1, 3, -1, -1)
    if kind in CLASSES:
        assert type(layer) is LAYERS[kind] and isinstance(layer.plugin, made.plugin_class)
    if kind == "Quick":
        assert does.ranks == [4]
    for engine, pads in (
        (build(net, layer.get_output(0), shapes=SHAPES), [1, 2]),
        (made.build((-1, 3, -1, -1), shapes=SHAPES), PADS),
    ):
        if kind in CLASSES:
            low, high = pads[0] + pads[1], sum(pads[2:])
            top = (4, 3, 9 + high, 9 + low)
            assert ((-1, 3, -1, -1), (1, 3, 4, 4), X.shape, top) in does.configured
        for shape in (X.shape, (4, 3, 9, 4), (1, 3, 4, 4), X.shape):
            x = np.random.default_rng(1).random(shape, np.float32)
            np.testing.assert_array_equal(engine(x), wrap(x, pads))
        engine.save(tmp_path / "engine")
        if kind in CLASSES:
            made.creator.calls.clear()
        loaded = trt.load(tmp_path / "engine")
        np.testing.assert_array_equal(loaded(X), wrap(X, pads))
        if kind in CLASSES:
            assert made.creator.calls == [trt.TensorRTPhase.RUNTIME]


def test_nodes_of_onnx(kind, make_plugin):
    made = make_plugin(kind, CircPad())
    model = made.model(X.shape, pads=[1, 2])
    np.testing.assert_array_equal(trt.build(model)(X), wrap(X, [1, 2]))
    if kind in CLASSES:
        assert made.creator.calls[0] == trt.TensorRTPhase.BUILD
        net = network()
        assert trt.OnnxParser(net, trt.Logger()).parse(model.SerializeToString())
        (layer,) = net
        assert type(layer) is LAYERS[kind] and isinstance(layer.plugin, made.plugin_class)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_registry_knows_creators(kind, make_plugin):
    made = make_plugin(kind)
    registry, creator, version = trt.get_plugin_registry(), made.creator, plugin_kinds.VERSION
    assert creator.plugin_namespace == made.namespace, "the creator is told where it is registered"
    assert registry.get_creator(made.name, version, made.namespace) is creator
    assert creator in registry.all_creators
    assert registry.get_creator(made.name, "1", made.namespace) is None
    assert registry.get_creator(made.name, version, "") is None
    assert not registry.register_creator(creator, made.namespace)
    same = type(creator)(made, None)
    assert not registry.register_creator(same, made.namespace), "name and version are taken"
    assert not registry.deregister_creator(same)
    with pytest.raises(TypeError, match="expected a creator"):
        registry.register_creator(object())


FRESH = """
import sys
sys.path[:] = {path!r}
import numpy as np
import opwright as trt
ids = {ids!r}
for kind in ids:
    try:
        trt.load(kind)
    except trt.Error as error:
        print(error)
    else:
        raise AssertionError("loaded without its plugin")
import plugin_kinds
from test_data import CircPad
for kind in ids:
    made = plugin_kinds.make(kind, CircPad(), plugin_id=ids[kind])
    np.save(f"{{kind}}.npy", trt.load(kind)(np.load("x.npy")))
    assert made.creator is None or made.creator.calls == [trt.TensorRTPhase.RUNTIME]
"""


def test_saved_and_loaded_in_a_fresh_process(make_plugin, tmp_path):
    pads, ids = np.array([1, 2, 3, 0], np.int32), {}
    for kind in KINDS:
        made = make_plugin(kind, CircPad())
        made.build(X.shape, fields={"pads": pads}).save(tmp_path / kind)
        ids[kind] = made.id
    np.save(tmp_path / "x.npy", X)
    path = [str(Path(__file__).parent), str(SUPPORT), *sys.path]
    program = FRESH.format(path=path, ids=ids)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for kind in KINDS:
        np.testing.assert_array_equal(np.load(tmp_path / f"{kind}.npy"), wrap(X, pads))
    assert ids["function"] in done.stdout and "import the module that defines it" in done.stdout
    assert "python -m opwright run --plugins module.py" in done.stdout
    for kind in CLASSES:
        namespace = ids[kind].split("::")[0]
        assert f"'Plugin' (version 7, namespace '{namespace}')" in done.stdout


class TopAndRest(Behaviour):
    """Two outputs of other types and shapes from two inputs, by way of a workspace."""

    inputs = outputs = 2
    combinations = [[(trt.float32, LINEAR), (trt.int32, LINEAR)] * 2]

    def types(self, types):
        assert list(types) == [trt.float32, trt.int32]
        return types

    def shapes(self, builder, x, i):
        whole = builder.operation(trt.DimensionOperation.SUM, x[0], i[0])
        return [[whole], [builder.constant(2)]]

    def workspace(self, inputs, outputs):
        assert inputs == [(6,), (2,)] and outputs == [(8,), (2,)], "the profile's maximum"
        return 4 * 6

    def run(self, call):
        (x, i), (y, j) = call.inputs, call.outputs
        scratch = np.empty_like(x)
        if call.workspace is not None:
            assert call.workspace != 0 and call.workspace % 64 == 0
            at = plugin_kinds.Port(trt.float32, LINEAR, x.shape, call.workspace, None)
            scratch = at.memory(x.shape)
        np.negative(x, out=scratch)
        y[: x.size], y[x.size :] = scratch, i
        j[:] = x.size, i.size


def test_several_inputs_and_outputs_and_a_workspace(kind, make_plugin):
    net = network()
    x, i = net.add_input("x", trt.float32, (-1,)), net.add_input("i", trt.int32, (2,))
    layer = make_plugin(kind, TopAndRest()).add(net, x, i)
    assert layer.num_outputs == 2
    outputs = layer.get_output(0), layer.get_output(1)
    engine = build(net, *outputs, shapes={"x": ((1,), (4,), (6,))})
    for size in (5, 6, 1):
        x, i = np.arange(size, dtype=np.float32), np.array([7, 8], np.int32)
        result = engine(x=x, i=i)
        np.testing.assert_array_equal(result["y0"], np.concatenate([-x, i]))
        np.testing.assert_array_equal(result["y1"], [size, 2])


class Tile(Behaviour):
    """Repeats the rows as often as a shape tensor says; gives the first row as well."""

    outputs = 2

    def types(self, types):
        assert list(types) == [trt.float32], "shape inputs are not among the types"
        return [trt.float32, trt.float32]

    def shapes(self, builder, x, times):
        assert len(times) == 2
        return [[builder.operation(trt.DimensionOperation.PROD, x[0], times[1]), x[1]], [x[1]]]

    def run(self, call):
        (x,), (y, first) = call.inputs, call.outputs
        y[...] = np.tile(x, (len(y) // len(x), 1))
        first[...] = x[0]


@pytest.mark.parametrize("kind", ["V3", "Quick"])
def test_shape_inputs(kind, make_plugin):
    made = make_plugin(kind, Tile())
    net = network()
    x, times = net.add_input("x", trt.float32, (-1, 3)), net.add_input("times", trt.int32, (2,))
    layer = made.add(net, x, shape_inputs=[times])
    values = {"times": ((1, 1), (1, 2), (1, 5))}
    outputs = layer.get_output(0), layer.get_output(1)
    engine = build(net, *outputs, shapes={"x": ((1, 3), (2, 3), (4, 3))}, values=values)
    for rows, count in ((2, 3), (4, 5), (1, 1)):
        data = np.random.default_rng(rows).random((rows, 3), np.float32)
        y = engine(x=data, times=np.array([1, count], np.int32))
        np.testing.assert_array_equal(y["y0"], np.tile(data, (count, 1)))
        np.testing.assert_array_equal(y["y1"], data[0])
    # A constant is known when the network is made.
    net = network()
    times = net.add_constant((2,), np.array([3, 4])).get_output(0)
    layer = made.add(net, net.add_input("x", trt.float32, (1, 3)), shape_inputs=[times])
    assert tuple(layer.get_output(0).shape) == (4, 3)
    data = np.arange(3, dtype=np.float32).reshape(1, 3)
    np.testing.assert_array_equal(build(net, layer.get_output(0))(data), np.tile(data, (4, 1)))


class NonZero(Behaviour):
    """The indices of a matrix's elements that are not 0, and their number, as in TensorRT's sample."""

    outputs = 2

    def types(self, types):
        return [trt.int32, trt.int32]

    def shapes(self, builder, x):
        op = trt.DimensionOperation
        upper = builder.operation(op.PROD, x[0], x[1])
        half = builder.operation(op.CEIL_DIV, upper, builder.constant(2))
        count = builder.declare_size_tensor(1, half, upper)
        if isinstance(count, trt.IDimensionExpr):
            assert count.is_size_tensor() and not upper.is_size_tensor()
        return [[count, builder.constant(2)], []]

    combinations = [[(trt.float32, LINEAR), (trt.int32, LINEAR), (trt.int32, LINEAR)]]

    def run(self, call):
        (x,), (indices, count) = call.inputs, call.outputs
        assert indices.shape == (x.size, 2), "the upper bound"
        found = np.argwhere(x)
        indices[: len(found)] = found
        count[...] = len(found)


@pytest.mark.parametrize("kind", ["function", "V3", "Quick"])
@pytest.mark.parametrize("with_count", [True, False])
def test_sizes_that_data_decide(kind, with_count, make_plugin):
    net, layer = make_plugin(kind, NonZero()).network((-1, 5))
    outputs = [layer.get_output(i) for i in range(2 if with_count else 1)]
    engine = build(net, *outputs, shapes={"x0": ((0, 5), (4, 5), (8, 5))})
    rng = np.random.default_rng(1)
    for rows, density in ((1, 0.5), (4, 0.3), (8, 1.0), (6, 0.0), (0, 0.0)):
        x = (rng.random((rows, 5)) < density).astype(np.float32)
        y = engine(x)
        if with_count:
            assert y["y1"] == np.count_nonzero(x)
            y = y["y0"]
        assert y.shape == (np.count_nonzero(x), 2)
        np.testing.assert_array_equal(y, np.argwhere(x))


class Watching(Behaviour):
    """Keeps the shapes and addresses of its calls."""

    def __init__(self):
        self.seen = []

    def run(self, call):
        self.seen.append([(port.shape, port.address) for port in call.ports])
        super().run(call)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 0, 0)])
def test_empty_tensors_have_addresses(kind, shape, make_plugin):
    does = Watching()
    made = make_plugin(kind, does)
    net = network()
    x = net.add_input("x", trt.float32, (-1, -1, -1))
    x = made.add(net, made.add(net, x).get_output(0)).get_output(0)
    engine = build(net, x, shapes={"x": ((0, 0, 0), (2, 3, 4), (2, 3, 4))})
    x = np.random.default_rng(0).random((2, 3, 4), np.float32)
    np.testing.assert_array_equal(engine(x), 4 * x)
    does.seen.clear()
    assert engine(np.empty(shape, np.float32)).shape == shape
    assert [[dims for dims, _ in call] for call in does.seen] == [[shape, shape]] * 2
    assert all(address != 0 for call in does.seen for _, address in call)


class AddInPlace(Behaviour):
    aliases = {0: 0}
    fields = {"delta": 1}

    def run(self, call, delta):
        assert call.ports_in[0].address == call.ports_out[0].address
        call.outputs[0][...] += delta


@pytest.mark.parametrize("kind", ["function", "V3", "Quick"])
def test_outputs_in_the_memory_of_inputs(kind, make_plugin):
    """The chain of two in-place additions of TensorRT's sample; and what others read is copied."""
    made = make_plugin(kind, AddInPlace())
    data = np.arange(X.size, dtype=np.float32).reshape(X.shape)
    net = network()
    first = made.add(net, net.add_input("x", trt.float32, X.shape))
    engine = build(net, made.add(net, first.get_output(0), delta=10).get_output(0))
    np.testing.assert_array_equal(engine(data), data + 11)
    memory, context = data.copy(), engine.engine.create_execution_context()
    for name in ("x", "y0"):
        context.set_tensor_address(name, memory.ctypes.data)
    context.execute_async_v3(0)
    np.testing.assert_array_equal(memory, data + 11)

    net = network()
    x = net.add_input("x", trt.float32, X.shape)
    total = trt.ElementWiseOperation.SUM
    doubled = net.add_elementwise(x, x, total).get_output(0)
    added = made.add(net, doubled, delta=100).get_output(0)
    engine = build(net, net.add_elementwise(added, doubled, total).get_output(0))
    np.testing.assert_array_equal(engine(data), 4 * data + 100)


TYPES = [
    trt.float32,
    trt.float16,
    trt.bfloat16,
    trt.fp8,
    trt.int8,
    trt.uint8,
    trt.int32,
    trt.int64,
    trt.bool,
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_types(kind, dtype, make_plugin):
    """Strongly typed, each tensor comes in its own type."""

    class Through(Behaviour):
        def run(self, call):
            assert [port.type for port in call.ports] == [dtype, dtype]
            if kind == "Quick":  # its strides are viewed by an interface that lacks some types
                x, y = (port.memory(port.shape) for port in call.ports)
            else:
                (x,), (y,) = call.inputs, call.outputs
            assert x.dtype == y.dtype == trt.nptype(dtype)
            y[...] = x

    made = make_plugin(kind, Through())
    x = np.arange(8).reshape(2, 4).astype(trt.nptype(dtype))
    engine = made.build(x.shape, dtype=dtype, flags=STRONGLY_TYPED, strongly_typed=True)
    y = engine(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.astype(np.float32), x.astype(np.float32))


# Tuning ----------------------------------------------------------------------------------------


def test_lower_precision_is_only_tried_where_it_is_allowed(kind, make_plugin):
    class Halves(Behaviour):
        combinations = [[(t, LINEAR)] * 2 for t in (trt.float32, trt.float16)]

        def run(self, call):
            seen.add(tuple(port.type for port in call.ports))
            super().run(call)

    made = make_plugin(kind, Halves())
    for fp16 in (False, True):
        seen: set = set()
        engine = made.build(X.shape, fp16=fp16)
        np.testing.assert_allclose(engine(X), 2 * X, rtol=1e-3)
        both = {(trt.float32,) * 2, (trt.float16,) * 2}
        assert seen == (both if fp16 else {(trt.float32,) * 2})


@pytest.mark.parametrize("kind", ["function", "V3", "Quick"])
def test_the_fastest_tactic_is_chosen(kind, make_plugin):
    class Sleepy(Behaviour):
        tactics = (1, 2, 3)

        def run(self, call):
            seen.append(call.tactic)
            if call.tactic != 2:
                threading.Event().wait(0.01)
            super().run(call)

    seen: list = []
    engine = make_plugin(kind, Sleepy()).build(X.shape)
    assert set(seen) == {1, 2, 3}
    seen.clear()
    np.testing.assert_array_equal(engine(X), 2 * X)
    assert seen == [2]


# Engines at once -------------------------------------------------------------------------------


def test_threads_may_share_an_engine(kind, make_plugin):
    engine = make_plugin(kind).build(X.shape)

    def agrees(number):
        x = np.full(X.shape, number, np.float32)
        return all(np.array_equal(engine(x), 2 * x) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(agrees, range(4)))


def test_a_plugin_may_run_another_engine(kind, make_plugin):
    class Outer(Behaviour):
        def run(self, call):
            call.outputs[0][...] = inner(call.inputs[0].copy()) + 1

    inner = make_plugin(kind).build(X.shape)
    np.testing.assert_array_equal(make_plugin(kind, Outer()).build(X.shape)(X), 2 * X + 1)


# What is no plugin -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_missing_methods_are_named(kind):
    bases = getattr(plugin_kinds, kind).bases
    members = {"num_outputs": 1, "plugin_name": "Incomplete", "clone": lambda self: self}
    if kind == "V2":
        members |= {"plugin_type": "Incomplete"}
    method = "get_output_dimensions" if kind == "V2" else "get_output_data_types"
    net = network()
    x = net.add_input("x", trt.float32, X.shape)

    def add(plugin):
        return (
            net.add_plugin_v2([x], plugin) if kind == "V2" else net.add_plugin_v3([x], [], plugin)
        )

    with pytest.raises(NotImplementedError, match=f"Incomplete must define {method}"):
        add(type("Incomplete", bases, members)())
    for no_plugin in (object(), None):
        with pytest.raises(TypeError, match="expected an IPluginV"):
            add(no_plugin)


# Plugins of C++ libraries ----------------------------------------------------------------------

SCALE = trt.PluginField("scale", np.array([2.5], np.float32), trt.PluginFieldType.FLOAT32)
PAD = trt.PluginField("pads", np.array(PADS, np.int32), trt.PluginFieldType.INT32)
# The library and creator, the field, the computation.
LIBRARIES = {
    "V3": ("circ_pad_plugin", PAD, lambda x: wrap(x, PADS)),
    "Quick": ("quick_scale", SCALE, lambda x: np.float32(2.5) * x),
    "V2": ("circ_pad_v2_plugin", PAD, lambda x: wrap(x, PADS)),
}


@pytest.fixture
def libraries(plugin_dir):
    """The libraries, loaded while the test runs."""
    registry = trt.get_plugin_registry()
    names = [name.removesuffix("_plugin") for name, _, _ in LIBRARIES.values()]
    handles = [registry.load_library(plugin_dir / f"{name}_plugin.so") for name in names]
    yield
    gc.collect()
    for handle in handles:
        registry.deregister_library(handle)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("kind", CLASSES)
def test_a_plugin_of_a_library(kind, tmp_path):
    name, field, expected = LIBRARIES[kind]
    creator = trt.get_plugin_registry().get_creator(name, "1", "")
    base = {"V3": "IPluginCreatorV3One", "Quick": "IPluginCreatorV3Quick", "V2": "IPluginCreator"}
    assert isinstance(creator, getattr(trt, base[kind]))
    assert [each.name for each in creator.field_names] == [field.name]
    fields, phase = trt.PluginFieldCollection([field]), trt.TensorRTPhase.BUILD
    request = trt.QuickPluginCreationRequest.STRICT_JIT
    arguments = {
        "V3": (name, fields, phase),
        "Quick": (name, "", fields, phase, request),
        "V2": (name, fields),
    }
    plugin = creator.create_plugin(*arguments[kind])
    base = {"V3": "IPluginV3", "Quick": "IPluginV3QuickCore", "V2": "IPluginV2DynamicExt"}
    assert isinstance(plugin, getattr(trt, base[kind]))
    copy = plugin.clone()
    assert copy is not plugin
    for each in (plugin, copy):
        net = network()
        x = net.add_input("x", trt.float32, (-1, 3, 5, 7))
        if kind == "V2":
            layer = net.add_plugin_v2([x], each)
        else:
            layer = net.add_plugin_v3([x], [], each)
        held = layer.plugin.plugin_type if kind == "V2" else layer.plugin.plugin_name
        assert held == name
        shapes = {"x": ((1, 3, 5, 7), X.shape, (4, 3, 5, 7))}
        engine = build(net, layer.get_output(0), shapes=shapes)
        for x in (X, X[:1]):
            np.testing.assert_array_equal(engine(x), expected(x))
    engine.save(tmp_path / "engine")
    np.testing.assert_array_equal(trt.load(tmp_path / "engine")(X), expected(X))
    values = {field.name: PADS if kind != "Quick" else [2.5]}
    node = helper.make_node(name, ["x"], ["y"], **values)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "graph", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    np.testing.assert_array_equal(trt.build(model)(X), expected(X))
