"""Class-based plugins, IPluginV2DynamicExt and IPluginCreator, in Python.

The plugins compute with NumPy over the integer addresses that enqueue receives; the references are computed
another way. Where TensorRT leaves several outcomes open, each of them passes.
"""

import gc

import numpy as np
import pytest

import opwright as trt
from cases import (
    LOGGER,
    STRONGLY_TYPED,
    Boom,
    Log,
    Null,
    build,
    circular_pad,
    in_saved_engine,
    infer,
    load,
    mark,
    new_context,
    random,
    read,
    start,
    step,
    view,
)

EVENTS = []  # what happened in the callbacks, as (callback, detail) pairs


def events(name):
    return [detail for event, detail in EVENTS if event == name]


class Pad(trt.IPluginV2DynamicExt):
    """Circular padding. It serializes four bytes with zeros among them, then the tag and the pads as int32."""

    TYPE, MAGIC = "AcceptancePadV2", b"\x00P\xff\x00"

    def __init__(self, pads=(), tag=0):
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs = 1
        self.plugin_type, self.plugin_version, self.plugin_namespace = self.TYPE, "1", ""
        self.pads, self.tag = [int(p) for p in pads], int(tag)

    def clone(self):
        copy = type(self)(self.pads, self.tag)
        copy.__dict__.update(self.__dict__)
        return copy

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, builder):
        out = trt.DimsExprs(inputs[0])
        for i in range(len(self.pads) // 2):
            axis = len(out) - 1 - i
            extra = builder.constant(self.pads[2 * i] + self.pads[2 * i + 1])
            out[axis] = builder.operation(trt.DimensionOperation.SUM, inputs[0][axis], extra)
        return out

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == 1 and len(in_out) == 1 + self.num_outputs and 0 <= pos < len(in_out)
        types = (trt.float32, trt.float16) if pos == 0 else (in_out[0].type,)
        return in_out[pos].format == trt.TensorFormat.LINEAR and in_out[pos].type in types

    def configure_plugin(self, inputs, outputs):
        first = inputs[0]
        EVENTS.append(("configure", (tuple(first.desc.dims), tuple(first.min), tuple(first.max))))

    def serialize(self):
        return self.MAGIC + np.array([self.tag, *self.pads], np.int32).tobytes()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        EVENTS.append(("enqueue", (self.tag, input_desc[0].type)))
        assert stream == 0, f"the stream on the CPU is {stream}"
        dtype = trt.nptype(input_desc[0].type)
        x = view(inputs[0], input_desc[0].dims, dtype)
        widths = [(0, 0)] * x.ndim
        for i in range(len(self.pads) // 2):
            widths[x.ndim - 1 - i] = (self.pads[2 * i], self.pads[2 * i + 1])
        view(outputs[0], output_desc[0].dims, dtype)[...] = np.pad(x, widths, mode="wrap")
        return 0


class Creator(trt.IPluginCreator):
    """Creates and deserializes a plugin class."""

    def __init__(self, plugin_class, version="1", space=""):
        trt.IPluginCreator.__init__(self)
        self.plugin_class = plugin_class
        self.name, self.plugin_version, self.plugin_namespace = plugin_class.TYPE, version, space
        int32 = trt.PluginFieldType.INT32
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField(n, np.array([]), int32) for n in ("pads", "tag")]
        )

    def create_plugin(self, name, field_collection):
        EVENTS.append(("create", name))
        fields = {field.name: np.array(field.data, np.int32) for field in field_collection}
        return self.plugin_class(fields["pads"], fields["tag"][0])

    def deserialize_plugin(self, name, data):
        EVENTS.append(("deserialize", data))
        assert isinstance(data, bytes) and data[:4] == Pad.MAGIC, (
            f"deserialize_plugin received {data!r}"
        )
        tag, *pads = np.frombuffer(data[4:], np.int32)
        return self.plugin_class(pads, tag)


def creator_of(plugin_class, creator_class=Creator):
    creator = creator_class(plugin_class)
    assert trt.get_plugin_registry().register_creator(creator, "")
    return creator


PADS = [2, 1, 1, 3]


def pad_plan(plugin, shape=(2, 3, 8, 9), dtype=trt.float32, flags=0, profile=None):
    builder, network, config = start(flags)
    layer = network.add_plugin_v2([network.add_input("x", dtype, shape)], plugin)
    assert layer is not None, "add_plugin_v2 returned None"
    mark(network, layer.get_output(0), "y")
    if profile:
        limits = builder.create_optimization_profile()
        limits.set_shape("x", *profile)
        config.add_optimization_profile(limits)
    return build(builder, network, config)


# ---- cases: computing ----


def test_fp32():
    creator_of(Pad)
    x = random((2, 3, 8, 9))
    for flags in (0, STRONGLY_TYPED):
        y = infer(new_context(load(pad_plan(Pad(PADS), flags=flags))), {"x": x})["y"]
        np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_fp16():
    creator_of(Pad)
    x = random((2, 3, 8, 9), np.float16)
    engine = load(pad_plan(Pad(PADS), dtype=trt.float16, flags=STRONGLY_TYPED))
    assert engine.get_tensor_dtype("y") == trt.float16
    EVENTS.clear()
    y = infer(new_context(engine), {"x": x})["y"]
    assert y.dtype == np.float16 and events("enqueue") == [(0, trt.float16)], f"{events('enqueue')}"
    np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_dynamic_shapes():
    creator_of(Pad)
    low, middle, high = (1, 3, 4, 4), (4, 3, 16, 16), (8, 3, 32, 24)
    engine = load(pad_plan(Pad(PADS), (-1, 3, -1, -1), profile=(low, middle, high)))
    limits = {(first, last) for _, first, last in events("configure")}
    assert (low, high) in limits, f"configure_plugin saw the limits {limits}"
    assert tuple(engine.get_tensor_shape("y")) == (-1, 3, -1, -1)
    context = new_context(engine)
    for seed, shape in enumerate([low, middle, high, (2, 3, 5, 7), high]):
        EVENTS.clear()
        x = random(shape, seed=seed)
        y = infer(context, {"x": x})["y"]
        want = circular_pad(x, PADS)
        assert y.shape == want.shape, f"{shape} gave {y.shape}, expected {want.shape}"
        np.testing.assert_array_equal(y, want)
        assert events("configure")[-1][0] == shape, (
            f"configure_plugin saw {events('configure')} for {shape}"
        )


def test_two_instances_and_a_built_in_layer():
    creator_of(Pad)
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (2, 3, 8, 9))
    a = network.add_plugin_v2([x], Pad([2, 1, 1, 3], 1)).get_output(0)
    b = network.add_plugin_v2([x], Pad([0, 3, 4, 0], 2)).get_output(0)
    total = network.add_elementwise(a, b, trt.ElementWiseOperation.SUM).get_output(0)
    mark(network, network.add_plugin_v2([total], Pad([1, 1], 3)).get_output(0), "y")
    data, engine = random((2, 3, 8, 9)), load(build(builder, network, config))
    EVENTS.clear()
    y = infer(new_context(engine), {"x": data})["y"]
    want = circular_pad(circular_pad(data, [2, 1, 1, 3]) + circular_pad(data, [0, 3, 4, 0]), [1, 1])
    np.testing.assert_allclose(y, want, rtol=1e-6)
    assert sorted(tag for tag, _ in events("enqueue")) == [1, 2, 3]


def test_two_contexts():
    creator_of(Pad)
    engine = load(
        pad_plan(Pad(PADS), (-1, 3, 8, 8), profile=[(1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)])
    )
    first, second = new_context(engine), new_context(engine)
    for seed in range(3):
        a, b = random((1, 3, 8, 8), seed=seed), random((4, 3, 8, 8), seed=seed + 10)
        np.testing.assert_array_equal(infer(first, {"x": a})["y"], circular_pad(a, PADS))
        np.testing.assert_array_equal(infer(second, {"x": b})["y"], circular_pad(b, PADS))


class TwoOutputs(Pad):
    """The padded tensor in FP32, and again in FP16 with its first two axes exchanged."""

    TYPE = "AcceptanceTwoOutputsV2"

    def __init__(self, pads=(), tag=0):
        super().__init__(pads, tag)
        self.num_outputs = 2

    def get_output_datatype(self, index, input_types):
        return [trt.float32, trt.float16][index]

    def get_output_dimensions(self, output_index, inputs, builder):
        out = super().get_output_dimensions(output_index, inputs, builder)
        if output_index == 1:
            out[0], out[1] = out[1], out[0]
        return out

    def supports_format_combination(self, pos, in_out, num_inputs):
        types = [trt.float32, trt.float32, trt.float16]
        return in_out[pos].format == trt.TensorFormat.LINEAR and in_out[pos].type == types[pos]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        super().enqueue(input_desc, output_desc[:1], inputs, outputs[:1], workspace, stream)
        y = view(outputs[0], output_desc[0].dims, np.float32)
        view(outputs[1], output_desc[1].dims, np.float16)[...] = np.swapaxes(y, 0, 1)


def test_two_outputs():
    creator_of(TwoOutputs)
    builder, network, config = start(STRONGLY_TYPED)
    layer = network.add_plugin_v2(
        [network.add_input("x", trt.float32, (2, 3, 8, 9))], TwoOutputs(PADS)
    )
    assert layer.num_outputs == 2
    mark(network, layer.get_output(0), "y")
    mark(network, layer.get_output(1), "z")
    x = random((2, 3, 8, 9))
    outputs = infer(new_context(load(build(builder, network, config))), {"x": x})
    want = circular_pad(x, PADS)
    np.testing.assert_array_equal(outputs["y"], want)
    np.testing.assert_array_equal(outputs["z"], np.swapaxes(want, 0, 1).astype(np.float16))


class Workspace(Pad):
    TYPE, SIZE = "AcceptanceWorkspaceV2", 100_000

    def get_workspace_size(self, inputs, outputs):
        assert tuple(inputs[0].dims) and outputs[0].type == inputs[0].type
        return self.SIZE

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        assert workspace, "no workspace was given"
        scratch = view(workspace, (self.SIZE,), np.uint8)
        scratch[...] = 0x3C
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        assert (scratch == 0x3C).all(), "the workspace overlaps the tensors"


def test_workspace():
    creator_of(Workspace)
    x = random((2, 3, 8, 9))
    builder, network, config = start()
    tensor = network.add_input("x", trt.float32, x.shape)
    for _ in range(2):
        tensor = network.add_plugin_v2([tensor], Workspace(PADS)).get_output(0)
    mark(network, tensor, "y")
    y = infer(new_context(load(build(builder, network, config))), {"x": x})["y"]
    np.testing.assert_array_equal(y, circular_pad(circular_pad(x, PADS), PADS))


class Queries(Pad):
    """Records which positions it was asked about, and that everything before the position is supported already."""

    TYPE, asked = "AcceptanceQueriesV2", set()

    def supports_format_combination(self, pos, in_out, num_inputs):
        for earlier in range(pos):
            assert super().supports_format_combination(earlier, in_out, num_inputs), (
                "asked after a refusal"
            )
        Queries.asked.add((pos, num_inputs, len(in_out)))
        return super().supports_format_combination(pos, in_out, num_inputs)


def test_supports_format_combination():
    creator_of(Queries)
    x = random((2, 3, 8, 9))
    y = infer(new_context(load(pad_plan(Queries(PADS)))), {"x": x})["y"]
    np.testing.assert_array_equal(y, circular_pad(x, PADS))
    assert Queries.asked == {(0, 1, 2), (1, 1, 2)}, f"asked: {Queries.asked}"


class Nothing(Pad):
    TYPE = "AcceptanceNothingV2"

    def supports_format_combination(self, pos, in_out, num_inputs):
        return False


def test_no_supported_format_is_an_error():
    creator_of(Nothing)
    builder, network, config = start()
    layer = network.add_plugin_v2(
        [network.add_input("x", trt.float32, (2, 3, 8, 9))], Nothing(PADS)
    )
    try:
        mark(network, layer.get_output(0), "y")
        plan = builder.build_serialized_network(network, config)
    except Exception:
        plan = None
    assert plan is None, "a plugin that supports no format was built"


def test_onnx_node():
    from onnx import TensorProto, helper

    creator_of(Pad)
    node = helper.make_node(Pad.TYPE, ["x"], ["y"], pads=PADS, tag=7)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = min(model.ir_version, 8)
    builder, network, config = start()
    parser = trt.OnnxParser(network, LOGGER)
    errors = (
        []
        if parser.parse(model.SerializeToString())
        else [parser.get_error(i) for i in range(parser.num_errors)]
    )
    assert not errors and network.num_outputs == 1, f"the parser says {[str(e) for e in errors]}"
    assert events("create"), "create_plugin was not called"
    x, engine = random((2, 3, 8, 9)), load(build(builder, network, config))
    EVENTS.clear()
    np.testing.assert_array_equal(infer(new_context(engine), {"x": x})["y"], circular_pad(x, PADS))
    assert events("enqueue") == [(7, trt.float32)], f"{events('enqueue')}"


# ---- cases: serialization ----


def run_saved(path):
    creator_of(Pad)
    engine = load(read(path))
    x = random((2, 3, 8, 9))
    np.testing.assert_array_equal(infer(new_context(engine), {"x": x})["y"], circular_pad(x, PADS))
    assert set(events("deserialize")) == {Pad(PADS, 9).serialize()}
    assert {tag for tag, _ in events("enqueue")} == {9} and not events("create")


def test_serialize_and_deserialize_in_a_new_process():
    in_saved_engine(pad_plan(Pad(PADS, 9)), run_saved)


def test_deserialize_receives_what_serialize_returned():
    creator_of(Pad)
    load(pad_plan(Pad(PADS, 5)))
    assert set(events("deserialize")) == {Pad(PADS, 5).serialize()}, f"{events('deserialize')}"


class Text(Pad):
    """Serializes to text, as NVIDIA's samples do, and states the size."""

    TYPE = "AcceptanceTextV2"

    def serialize(self):
        return ",".join(map(str, [self.tag, *self.pads]))

    def get_serialization_size(self):
        return len(self.serialize())


class TextCreator(Creator):
    def deserialize_plugin(self, name, data):
        tag, *pads = data.decode("utf-8").split(",")
        return self.plugin_class(pads, tag)


def test_serialize_to_text():
    creator_of(Text, TextCreator)
    x = random((2, 3, 8, 9))
    y = infer(new_context(load(pad_plan(Text(PADS, 3)))), {"x": x})["y"]
    np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_missing_creator_fails_at_load_and_is_named():
    plan, log = bytes(pad_plan(Pad(PADS))), Log()
    try:
        engine = trt.Runtime(log).deserialize_cuda_engine(plan)
        message = " ".join(text for _, text in log.lines)
    except Exception as problem:
        engine, message = None, str(problem)
    assert engine is None, "an engine loaded although its plugin has no creator"
    assert Pad.TYPE in message, f"the message does not name the plugin: {message!r}"


# ---- cases: lifetimes ----


class Counted(Pad):
    """Counts what is done to each object. A clone of an initialized object counts as initialized."""

    TYPE, objects = "AcceptanceCountedV2", []

    def __init__(self, pads=(), tag=0):
        super().__init__(pads, tag)
        self.ready = False
        self.life = {
            "made by": "user",
            "initialize": 0,
            "terminate": 0,
            "destroy": 0,
            "after destroy": [],
        }
        Counted.objects.append(self.life)

    def used_for(self, what):
        if self.life["destroy"]:
            self.life["after destroy"].append(what)

    def clone(self):
        copy = Counted(self.pads, self.tag)
        copy.ready, copy.life["made by"] = self.ready, "clone"
        return copy

    def initialize(self):
        self.used_for("initialize")
        self.life["initialize"] += 1
        self.ready = True

    def terminate(self):
        self.used_for("terminate")
        self.life["terminate"] += 1
        self.ready = False

    def destroy(self):
        self.life["destroy"] += 1

    def enqueue(self, *arguments):
        self.used_for("enqueue")
        assert self.ready, f"enqueue on an object that was {self.life}"
        return super().enqueue(*arguments)


class CountedCreator(Creator):
    def create_plugin(self, name, field_collection):
        plugin = super().create_plugin(name, field_collection)
        plugin.life["made by"] = "creator"
        return plugin

    def deserialize_plugin(self, name, data):
        plugin = super().deserialize_plugin(name, data)
        plugin.life["made by"] = "creator"
        return plugin


def check_lives():
    gc.collect()
    lives = Counted.objects
    made_by_the_engine = [life for life in lives if life["made by"] != "user"]
    assert made_by_the_engine, "no clone and no deserialized object was made"
    bad = [life for life in made_by_the_engine if life["destroy"] != 1]
    assert not bad, (
        f"{len(bad)} of {len(made_by_the_engine)} objects were not destroyed exactly once: {bad[0]}"
    )
    assert all(life["destroy"] <= 1 for life in lives), (
        "an object of the user's was destroyed twice"
    )
    assert not any(life["after destroy"] for life in lives), "an object was used after destroy"
    started = sum(life["initialize"] for life in lives)
    ended = sum(life["terminate"] for life in lives)
    assert started >= 1 and started == ended, f"{started} calls of initialize, {ended} of terminate"


def test_initialize_terminate_destroy():
    creator_of(Counted, CountedCreator)

    def use():
        engine = load(pad_plan(Counted(PADS)))
        x = random((2, 3, 8, 9))
        for context in (new_context(engine), new_context(engine)):
            np.testing.assert_array_equal(infer(context, {"x": x})["y"], circular_pad(x, PADS))

    for _ in range(3):
        use()
    check_lives()


def test_network_thrown_away():
    """Objects of a network that is never built are destroyed as well."""
    creator_of(Counted, CountedCreator)

    def use():
        builder, network, config = start()
        layer = network.add_plugin_v2(
            [network.add_input("x", trt.float32, (2, 3, 8, 9))], Counted(PADS)
        )
        assert tuple(layer.get_output(0).shape) == (2, 3, 12, 12)

    use()
    gc.collect()
    made_by_the_engine = [life for life in Counted.objects if life["made by"] != "user"]
    assert all(life["destroy"] == 1 for life in made_by_the_engine), f"{made_by_the_engine}"
    assert sum(life["initialize"] - life["terminate"] for life in Counted.objects) == 0


# ---- cases: errors ----


class Breakable(Pad):
    """Raises from the callback named BROKEN."""

    TYPE, BROKEN, called = "AcceptanceBreakableV2", None, 0

    def initialize(self):
        pass

    def terminate(self):
        pass

    def destroy(self):
        pass

    def get_workspace_size(self, inputs, outputs):
        return 64


class BreakableCreator(Creator):
    pass


def breakable(owner, callback):
    original = getattr(owner, callback)

    def wrapper(self, *arguments):
        if Breakable.BROKEN == callback:
            Breakable.called += 1
            raise Boom(f"raised on purpose in {callback}")
        return original(self, *arguments)

    setattr(owner, callback, wrapper)


CALLBACKS = """get_output_datatype get_output_dimensions supports_format_combination configure_plugin
    get_workspace_size initialize enqueue serialize clone terminate destroy""".split()
# An engine that needs no clone need not ask for one; the last two may run where no caller can be told.
MAY_GO_UNREPORTED = {"clone", "terminate", "destroy"}
for callback in CALLBACKS:
    breakable(Breakable, callback)
breakable(BreakableCreator, "deserialize_plugin")
CALLBACKS.append("deserialize_plugin")


def whole_way(logger):
    """From the network to an output; raises Null where a step yields nothing."""
    builder = trt.Builder(logger)
    network, config = builder.create_network(0), builder.create_builder_config()
    tensor = network.add_input("x", trt.float32, (2, 3, 8, 9))
    layer = step("add_plugin_v2", network.add_plugin_v2([tensor], Breakable(PADS)))
    mark(network, layer.get_output(0), "y")
    plan = step("build", builder.build_serialized_network(network, config))
    engine = step("deserialize", trt.Runtime(logger).deserialize_cuda_engine(plan))
    context = step("context", engine.create_execution_context())
    x = random((2, 3, 8, 9))
    y = np.zeros((2, 3, 12, 12), np.float32)
    step("shape", context.set_input_shape("x", x.shape))
    step("input", context.set_tensor_address("x", x.ctypes.data))
    step("output", context.set_tensor_address("y", y.ctypes.data))
    step("execute", context.execute_async_v3(0))
    np.testing.assert_array_equal(y, circular_pad(x, PADS))


def check_broken(callback):
    """A broken callback gives an exception, or a null with an error in the log."""
    log, before = Log(), Breakable.called
    try:
        whole_way(log)
    except Null as nothing:
        assert log.errors(), f"{nothing} gave a null and the logger saw no error"
    except AssertionError as wrong:
        raise AssertionError(f"the engine ran and its output is wrong: {wrong}") from None
    except Exception:
        pass
    else:
        if callback not in MAY_GO_UNREPORTED:
            assert Breakable.called > before, f"{callback} was never called"
            raise AssertionError(f"{callback} raised and nobody was told")


@pytest.mark.parametrize("callback", CALLBACKS)
def test_error_in(callback):
    creator_of(Breakable, BreakableCreator)
    whole_way(LOGGER)
    for _ in range(2):
        Breakable.BROKEN = callback
        check_broken(callback)
        gc.collect()
        Breakable.BROKEN = None
        whole_way(LOGGER)


def test_error_in_enqueue_leaves_the_context_usable():
    creator_of(Breakable, BreakableCreator)
    context = new_context(load(pad_plan(Breakable(PADS))))
    x = random((2, 3, 8, 9))
    for _ in range(3):
        np.testing.assert_array_equal(infer(context, {"x": x})["y"], circular_pad(x, PADS))
        Breakable.BROKEN = "enqueue"
        try:
            infer(context, {"x": x})
        except AssertionError as told:
            assert "execute_async_v3 returned False" in str(told), told
        except Exception:
            pass
        else:
            raise AssertionError("enqueue raised and execute_async_v3 returned True")
        Breakable.BROKEN = None
    np.testing.assert_array_equal(infer(context, {"x": x})["y"], circular_pad(x, PADS))


def test_wrong_results_from_callbacks():
    """A callback that returns something of a wrong type gives an error or, where TensorRT has a default, that."""
    wrong = {
        "get_output_datatype": [None, 3.5, "FLOAT"],
        "get_output_dimensions": [None, [1, 2], "shape"],
        "get_workspace_size": ["much", -1, None],
        "serialize": [None, 17, [1]],
        "clone": [None, "copy"],
    }
    creator_of(Breakable, BreakableCreator)
    for callback, values in wrong.items():
        original = getattr(Breakable, callback)
        for value in values:
            setattr(Breakable, callback, lambda self, *_, value=value: value)
            try:
                whole_way(Log())
            except AssertionError as problem:
                raise AssertionError(f"{callback} -> {value!r}: {problem}") from None
            except Exception:
                pass
            setattr(Breakable, callback, original)
            whole_way(LOGGER)


# ---- cases: the registry ----


def test_registry():
    registry = trt.get_plugin_registry()
    assert registry.get_creator(Pad.TYPE, "1", "") is None
    first, second, third = Creator(Pad, "1", ""), Creator(Pad, "2", ""), Creator(Pad, "1", "other")
    for creator, space in [(first, ""), (second, ""), (third, "other")]:
        assert registry.register_creator(creator, space)
    for version, space in [("1", ""), ("2", ""), ("1", "other")]:
        found = registry.get_creator(Pad.TYPE, version, space)
        assert found is not None, f"version {version} in namespace {space!r} is not found"
        assert (found.name, found.plugin_version, found.plugin_namespace) == (
            Pad.TYPE,
            version,
            space,
        )
        assert [field.name for field in found.field_names] == ["pads", "tag"]
    assert registry.get_creator(Pad.TYPE, "3", "") is None
    listed = [(c.name, c.plugin_version, c.plugin_namespace) for c in registry.all_creators]
    assert listed.count((Pad.TYPE, "1", "other")) == 1
    values = {"pads": np.array(PADS, np.int32), "tag": np.array([4], np.int32)}
    fields = [
        trt.PluginField(name, value, trt.PluginFieldType.INT32) for name, value in values.items()
    ]
    made = registry.get_creator(Pad.TYPE, "1", "").create_plugin(
        "made", trt.PluginFieldCollection(fields)
    )
    assert isinstance(made, Pad) and (made.pads, made.tag) == (PADS, 4)
    again = registry.get_creator(Pad.TYPE, "1", "").deserialize_plugin("again", made.serialize())
    assert isinstance(again, Pad) and (again.pads, again.tag) == (PADS, 4)
    assert registry.deregister_creator(first) and registry.get_creator(Pad.TYPE, "1", "") is None
    assert registry.get_creator(Pad.TYPE, "1", "other") is not None


def test_layer_gives_its_plugin():
    creator_of(Pad)
    builder, network, config = start()
    layer = network.add_plugin_v2([network.add_input("x", trt.float32, (2, 3, 8, 9))], Pad(PADS))
    assert (
        layer.type == trt.LayerType.PLUGIN_V2 and layer.num_inputs == 1 and layer.num_outputs == 1
    )
    assert tuple(layer.get_output(0).shape) == (2, 3, 12, 12), f"{tuple(layer.get_output(0).shape)}"
    plugin = layer.plugin
    assert (plugin.plugin_type, plugin.plugin_version, plugin.num_outputs) == (Pad.TYPE, "1", 1)
