"""Class-based plugins, IPluginV3 and IPluginCreatorV3One, in Python.

The plugins compute with NumPy over the integer addresses that enqueue receives; the references are computed
another way. Where TensorRT leaves several outcomes open, each of them passes.
"""

import gc
import time
import weakref

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

BUILDING = False  # whether a build is under way: enqueue calls are then the tuner's
EVENTS = []  # what happened in the callbacks, as (callback, detail) pairs


def events(name):
    return [detail for event, detail in EVENTS if event == name]


def tuned_build(builder, network, config):
    global BUILDING
    BUILDING = True
    try:
        return build(builder, network, config)
    finally:
        BUILDING = False


class Plugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """What the plugins here share. A subclass sets NAME, OUTPUTS and FIELDS (all INT32) and overrides what it needs."""

    NAME, OUTPUTS, FIELDS = "Base", 1, ()

    def __init__(self, fields=None, phase=trt.TensorRTPhase.BUILD):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = self.NAME, "1", ""
        self.num_outputs = self.OUTPUTS
        self.phase, self.tactic, self.type, self.cache_id = phase, None, None, None
        self.values = {name: np.zeros(1, np.int32) for name in self.FIELDS}
        for field in fields or ():
            self.values[field.name] = np.array(field.data, np.int32)

    def get_capability_interface(self, type):
        return self

    def clone(self):
        copy = type(self)()
        copy.__dict__.update(self.__dict__)
        if copy.cache_id is not None:
            copy.timing_cache_id = copy.cache_id
        return copy

    def get_output_data_types(self, input_types):
        return [input_types[0]] * self.OUTPUTS

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [trt.DimsExprs(inputs[0]) for _ in range(self.OUTPUTS)]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        types = (trt.float32, trt.float16) if pos == 0 else (in_out[0].desc.type,)
        return desc.format == trt.TensorFormat.LINEAR and desc.type in types

    def configure_plugin(self, inputs, outputs):
        self.type = inputs[0].desc.type
        EVENTS.append(
            ("configure", (tuple(inputs[0].min), tuple(inputs[0].opt), tuple(inputs[0].max)))
        )

    def get_fields_to_serialize(self):
        int32 = trt.PluginFieldType.INT32
        return trt.PluginFieldCollection(
            [trt.PluginField(name, self.values[name], int32) for name in self.FIELDS]
        )

    def on_shape_change(self, inputs, outputs):
        EVENTS.append(("shape", (tuple(inputs[0].dims), tuple(outputs[0].dims))))

    def set_tactic(self, tactic):
        self.tactic = tactic
        EVENTS.append(("tactic", tactic))

    def attach_to_context(self, resource_context):
        EVENTS.append(("attach", None))
        return self.clone()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        raise NotImplementedError


def creator_of(plugin_class):
    """Registers a creator for a plugin class and returns it."""

    class Creator(trt.IPluginCreatorV3One):
        def __init__(self):
            trt.IPluginCreatorV3One.__init__(self)
            self.name, self.plugin_version, self.plugin_namespace = plugin_class.NAME, "1", ""
            self.field_names = trt.PluginFieldCollection(
                [
                    trt.PluginField(name, np.array([]), trt.PluginFieldType.INT32)
                    for name in plugin_class.FIELDS
                ]
            )

        def create_plugin(self, name, field_collection, phase):
            EVENTS.append(("create", phase))
            return plugin_class(field_collection, phase)

    creator = Creator()
    assert trt.get_plugin_registry().register_creator(creator, "")
    return creator


class Pad(Plugin):
    """Circular padding."""

    NAME, FIELDS = "AcceptancePad", ("pads", "tag")

    @classmethod
    def make(cls, pads, tag=0, cache_id=None):
        plugin = cls()
        plugin.values = {"pads": np.array(pads, np.int32), "tag": np.array([tag], np.int32)}
        plugin.cache_id = cache_id
        return plugin.clone()

    def get_output_shapes(self, inputs, shape_inputs, builder):
        out, pads = trt.DimsExprs(inputs[0]), self.values["pads"]
        for i in range(len(pads) // 2):
            extra = builder.constant(int(pads[2 * i] + pads[2 * i + 1]))
            axis = len(out) - 1 - i
            out[axis] = builder.operation(trt.DimensionOperation.SUM, inputs[0][axis], extra)
        return [out]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        where = "timed" if BUILDING else "run"
        EVENTS.append((where, (int(self.values["tag"][0]), input_desc[0].type, self.tactic)))
        assert stream == 0, f"the stream on the CPU is {stream}"
        dtype = trt.nptype(input_desc[0].type)
        x = view(inputs[0], input_desc[0].dims, dtype)
        y = view(outputs[0], output_desc[0].dims, dtype)
        widths, pads = [(0, 0)] * x.ndim, self.values["pads"]
        for i in range(len(pads) // 2):
            widths[x.ndim - 1 - i] = (int(pads[2 * i]), int(pads[2 * i + 1]))
        y[...] = np.pad(x, widths, mode="wrap")


PADS = [2, 1, 1, 3]


def pad_engine(plugin, shape=(2, 3, 8, 9), dtype=trt.float32, flags=0, profile=None):
    builder, network, config = start(flags)
    layer = network.add_plugin_v3([network.add_input("x", dtype, shape)], [], plugin)
    assert layer is not None, "add_plugin_v3 returned None"
    mark(network, layer.get_output(0), "y")
    if profile:
        limits = builder.create_optimization_profile()
        limits.set_shape("x", *profile)
        config.add_optimization_profile(limits)
    return load(tuned_build(builder, network, config))


# ---- cases: computing ----


def test_fp32():
    creator_of(Pad)
    x = random((2, 3, 8, 9))
    y = infer(new_context(pad_engine(Pad.make(PADS))), {"x": x})["y"]
    np.testing.assert_array_equal(y, circular_pad(x, PADS))
    assert trt.TensorRTPhase.RUNTIME in events("create"), (
        "the engine was loaded without create_plugin(RUNTIME)"
    )


def test_fp32_strongly_typed():
    creator_of(Pad)
    x = random((2, 3, 8, 9))
    y = infer(new_context(pad_engine(Pad.make(PADS), flags=STRONGLY_TYPED)), {"x": x})["y"]
    np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_fp16():
    creator_of(Pad)
    x = random((2, 3, 8, 9), np.float16)
    engine = pad_engine(Pad.make(PADS), dtype=trt.float16, flags=STRONGLY_TYPED)
    assert engine.get_tensor_dtype("y") == trt.float16
    y = infer(new_context(engine), {"x": x})["y"]
    assert y.dtype == np.float16 and {kind for _, kind, _ in events("run")} == {trt.float16}
    np.testing.assert_array_equal(y, circular_pad(x, PADS))


def test_dynamic_shapes():
    creator_of(Pad)
    limits = [(1, 3, 4, 4), (4, 3, 16, 16), (8, 3, 32, 24)]
    engine = pad_engine(Pad.make(PADS), (-1, 3, -1, -1), profile=limits)
    assert tuple(limits) in events("configure"), f"configure_plugin saw {events('configure')}"
    assert tuple(engine.get_tensor_shape("x")) == (-1, 3, -1, -1)
    assert tuple(engine.get_tensor_shape("y")) == (-1, 3, -1, -1)
    context = new_context(engine)
    for seed, shape in enumerate([*limits, (2, 3, 5, 7), limits[2]]):
        EVENTS.clear()
        x = random(shape, seed=seed)
        y = infer(context, {"x": x})["y"]
        want = circular_pad(x, PADS)
        assert y.shape == want.shape, f"{shape} gave {y.shape}, expected {want.shape}"
        np.testing.assert_array_equal(y, want)
        assert events("shape")[-1] == (shape, want.shape), f"on_shape_change saw {events('shape')}"


def test_shape_outside_profile_refused():
    creator_of(Pad)
    engine = pad_engine(
        Pad.make(PADS), (-1, 3, 8, 8), profile=[(1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)]
    )
    context = new_context(engine)
    for shape in [(5, 3, 8, 8), (1, 3, 8, 9), (1, 3, 8)]:
        try:
            accepted = context.set_input_shape("x", shape)
        except Exception:
            accepted = False
        assert not accepted, f"the shape {shape} was accepted"
    x = random((4, 3, 8, 8))
    np.testing.assert_array_equal(infer(context, {"x": x})["y"], circular_pad(x, PADS))


def test_two_instances_and_a_built_in_layer():
    creator_of(Pad)
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (2, 3, 8, 9))
    a = network.add_plugin_v3([x], [], Pad.make([2, 1, 1, 3], tag=1)).get_output(0)
    b = network.add_plugin_v3([x], [], Pad.make([0, 3, 4, 0], tag=2)).get_output(0)
    total = network.add_elementwise(a, b, trt.ElementWiseOperation.SUM).get_output(0)
    c = network.add_plugin_v3([total], [], Pad.make([1, 1], tag=3)).get_output(0)
    mark(network, c, "y")
    data = random((2, 3, 8, 9))
    y = infer(new_context(load(build(builder, network, config))), {"x": data})["y"]
    want = circular_pad(circular_pad(data, [2, 1, 1, 3]) + circular_pad(data, [0, 3, 4, 0]), [1, 1])
    np.testing.assert_allclose(y, want, rtol=1e-6)
    assert {tag for tag, _, _ in events("run")} == {1, 2, 3}


def test_two_contexts():
    creator_of(Pad)
    engine = pad_engine(
        Pad.make(PADS), (-1, 3, 8, 8), profile=[(1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)]
    )
    EVENTS.clear()
    first, second = new_context(engine), new_context(engine)
    for seed in range(3):
        a, b = random((1, 3, 8, 8), seed=seed), random((4, 3, 8, 8), seed=seed + 10)
        np.testing.assert_array_equal(infer(first, {"x": a})["y"], circular_pad(a, PADS))
        np.testing.assert_array_equal(infer(second, {"x": b})["y"], circular_pad(b, PADS))
    assert len(events("attach")) >= 2, "attach_to_context was not called for each context"


class Workspace(Pad):
    NAME = "AcceptanceWorkspace"
    SIZE = 100_000

    def get_workspace_size(self, inputs, outputs):
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
        tensor = network.add_plugin_v3([tensor], [], Workspace.make(PADS)).get_output(0)
    mark(network, tensor, "y")
    y = infer(new_context(load(build(builder, network, config))), {"x": x})["y"]
    np.testing.assert_array_equal(y, circular_pad(circular_pad(x, PADS), PADS))


def test_onnx_node():
    from onnx import TensorProto, helper

    creator_of(Pad)
    node = helper.make_node(Pad.NAME, ["x"], ["y"], pads=PADS, tag=7)
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
    assert trt.TensorRTPhase.BUILD in events("create")
    x = random((2, 3, 8, 9))
    y = infer(new_context(load(build(builder, network, config))), {"x": x})["y"]
    np.testing.assert_array_equal(y, circular_pad(x, PADS))
    assert events("run")[-1][0] == 7, "the attribute tag did not reach the plugin"


# ---- cases: tactics and timing ----


class Tactics(Pad):
    """Tactic 1 is slow and tactic 2 is fast, and both are right."""

    NAME = "AcceptanceTactics"

    def get_valid_tactics(self):
        return [1, 2]

    def enqueue(self, *arguments):
        super().enqueue(*arguments)
        time.sleep(0.03 if self.tactic == 1 else 0)


def test_custom_tactics():
    creator_of(Tactics)
    x = random((2, 3, 8, 9))
    engine = pad_engine(Tactics.make(PADS))
    assert {tactic for _, _, tactic in events("timed")} == {1, 2}, f"timed: {events('timed')}"
    np.testing.assert_array_equal(infer(new_context(engine), {"x": x})["y"], circular_pad(x, PADS))
    assert {tactic for _, _, tactic in events("run")} == {2}, (
        f"run: {events('run')}, 2 is the fast tactic"
    )


def test_default_tactic_is_zero():
    creator_of(Pad)
    x = random((2, 3, 8, 9))
    infer(new_context(pad_engine(Pad.make(PADS))), {"x": x})
    assert events("run") == [(0, trt.float32, 0)], f"run: {events('run')}"


class TacticsPerType(Tactics):
    """FP16 has tactic 2 only."""

    NAME = "AcceptanceTacticsPerType"

    def get_valid_tactics(self):
        EVENTS.append(("asked for tactics after", self.type))
        return [2] if self.type == trt.float16 else [1, 2]


def test_tactics_per_type():
    creator_of(TacticsPerType)
    allowed = {(trt.float32, 1), (trt.float32, 2), (trt.float16, 2)}
    for dtype, kind, needed in [(trt.float32, np.float32, {1, 2}), (trt.float16, np.float16, {2})]:
        EVENTS.clear()
        engine = pad_engine(TacticsPerType.make(PADS), dtype=dtype, flags=STRONGLY_TYPED)
        assert dtype in events("asked for tactics after"), (
            "get_valid_tactics did not follow its configure_plugin"
        )
        x = random((2, 3, 8, 9), kind)
        np.testing.assert_array_equal(
            infer(new_context(engine), {"x": x})["y"], circular_pad(x, PADS)
        )
        seen = {(kind, tactic) for _, kind, tactic in events("timed") + events("run")}
        assert seen <= allowed, f"ran combinations that were not offered: {seen - allowed}"
        assert {tactic for k, tactic in seen if k == dtype} == needed, f"{dtype}: {seen}"


class Layouts(Tactics):
    """FP32 in LINEAR with tactics 1 and 2 or, where the engine asks for it, in HWC with tactic 3. Input = output."""

    NAME = "AcceptanceLayouts"

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        formats = (
            (trt.TensorFormat.LINEAR, trt.TensorFormat.HWC)
            if pos == 0
            else (in_out[0].desc.format,)
        )
        return desc.type == trt.float32 and desc.format in formats

    def configure_plugin(self, inputs, outputs):
        self.layout = inputs[0].desc.format

    def get_valid_tactics(self):
        return [3] if self.layout == trt.TensorFormat.HWC else [1, 2]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        EVENTS.append(("pair", (input_desc[0].format, output_desc[0].format, self.tactic)))
        x = view(
            inputs[0], input_desc[0].dims, np.float32
        )  # both sides have one layout: the bytes are enough
        view(outputs[0], output_desc[0].dims, np.float32)[...] = -x


def test_tactics_per_layout():
    creator_of(Layouts)
    linear, hwc = trt.TensorFormat.LINEAR, trt.TensorFormat.HWC
    x = random((2, 3, 8, 9))
    y = infer(new_context(pad_engine(Layouts.make(PADS), flags=STRONGLY_TYPED)), {"x": x})["y"]
    np.testing.assert_array_equal(y, -x)
    pairs = set(events("pair"))
    assert pairs <= {(linear, linear, 1), (linear, linear, 2), (hwc, hwc, 3)}, f"{pairs}"
    assert {(linear, linear, 1), (linear, linear, 2)} <= pairs, f"LINEAR was not tuned: {pairs}"


def timed_tags(ids, cache=None):
    """Builds a network with an instance for each timing cache ID and returns the tags of those timed, by tactic."""
    builder, network, config = start()
    if cache is not None:
        assert config.set_timing_cache(config.create_timing_cache(cache), False)
    for tag, name in enumerate(ids):
        x = network.add_input(f"x{tag}", trt.float32, (2, 3, 8, 9))
        layer = network.add_plugin_v3([x], [], Tactics.make(PADS, tag, cache_id=name))
        mark(network, layer.get_output(0), f"y{tag}")
    EVENTS.clear()
    plan = tuned_build(builder, network, config)
    timed = {t: {tag for tag, _, tactic in events("timed") if tactic == t} for t in (1, 2)}
    inputs = {f"x{tag}": random((2, 3, 8, 9), seed=tag) for tag in range(len(ids))}
    outputs = infer(new_context(load(plan)), inputs)
    for tag in range(len(ids)):
        np.testing.assert_array_equal(outputs[f"y{tag}"], circular_pad(inputs[f"x{tag}"], PADS))
    used = config.get_timing_cache()
    return timed, None if used is None else bytes(used.serialize())


def test_timing_cache_id_shared():
    creator_of(Tactics)
    timed, _ = timed_tags(["same", "same"])
    assert [len(tags) for tags in timed.values()] == [1, 1], (
        f"identical instances were timed apart: {timed}"
    )


def test_timing_cache_id_empty_is_an_id():
    creator_of(Tactics)
    timed, _ = timed_tags(["", ""])
    assert [len(tags) for tags in timed.values()] == [1, 1], (
        f"identical instances were timed apart: {timed}"
    )


def test_timing_cache_id_different_or_missing():
    creator_of(Tactics)
    for ids in (["a", "b"], [None, None]):
        timed, _ = timed_tags(ids)
        assert [len(tags) for tags in timed.values()] == [2, 2], f"IDs {ids}: {timed}"


def test_timing_cache_reused():
    creator_of(Tactics)
    timed, cache = timed_tags(["same"], b"")
    assert [len(tags) for tags in timed.values()] == [1, 1] and cache
    timed, _ = timed_tags(["same"], cache)
    assert [len(tags) for tags in timed.values()] == [0, 0], (
        "a build with a filled timing cache timed the plugin"
    )


# ---- cases: serialization ----

FIELD_VALUES = {
    "i8": (trt.PluginFieldType.INT8, np.array([-128, 0, 127], np.int8)),
    "i16": (trt.PluginFieldType.INT16, np.array([-32768, 5, 32767], np.int16)),
    "i32": (trt.PluginFieldType.INT32, np.array([-(2**31), 0, 2**31 - 1], np.int32)),
    "i64": (trt.PluginFieldType.INT64, np.array([-(2**63), -1, 2**63 - 1], np.int64)),
    "f32": (trt.PluginFieldType.FLOAT32, np.array([0.1, -0.0, np.inf, np.nan, 1e-45], np.float32)),
    "f64": (
        trt.PluginFieldType.FLOAT64,
        np.array([0.1, -0.0, -np.inf, np.nan, 5e-324], np.float64),
    ),
    "text": (trt.PluginFieldType.CHAR, "naïve text".encode()),
    "raw": (trt.PluginFieldType.UNKNOWN, bytes(range(256))),
}
FIELD_BYTES = {
    name: bytes(memoryview(value).cast("B")).hex() for name, (_, value) in FIELD_VALUES.items()
}


class Fields(Plugin):
    """Copies its input and carries a field of each type."""

    NAME, received = "AcceptanceFields", {}

    def __init__(self, fields=None, phase=trt.TensorRTPhase.BUILD):
        super().__init__(None, phase)
        if phase == trt.TensorRTPhase.RUNTIME:
            Fields.received = {f.name: (f.type, f.size, np.array(f.data)) for f in fields}

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection(
            [trt.PluginField(n, v, t) for n, (t, v) in FIELD_VALUES.items()]
        )

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = view(inputs[0], input_desc[0].dims, np.float32)
        view(outputs[0], output_desc[0].dims, np.float32)[...] = x


def check_fields():
    assert set(Fields.received) == set(FIELD_VALUES), (
        f"the fields that came back: {set(Fields.received)}"
    )
    for name, (kind, value) in FIELD_VALUES.items():
        got_kind, size, data = Fields.received[name]
        assert got_kind == kind and size == len(value), f"{name}: {got_kind}, {size} entries"
        assert data.tobytes().hex() == FIELD_BYTES[name], f"{name} changed: {data}"
        if isinstance(value, np.ndarray):
            assert data.dtype == value.dtype, f"{name} came as {data.dtype}"


def run_fields(path):
    creator_of(Fields)
    engine = load(read(path))
    x = random((4, 5))
    np.testing.assert_array_equal(infer(new_context(engine), {"x": x})["y"], x)
    check_fields()


def test_fields_round_trip():
    creator_of(Fields)
    builder, network, config = start()
    layer = network.add_plugin_v3([network.add_input("x", trt.float32, (4, 5))], [], Fields())
    mark(network, layer.get_output(0), "y")
    plan = build(builder, network, config)
    load(plan)
    check_fields()
    in_saved_engine(plan, run_fields)


def test_engine_serialize_again():
    creator_of(Pad)
    x = random((2, 3, 8, 9))
    again = load(bytes(pad_engine(Pad.make(PADS)).serialize()))
    np.testing.assert_array_equal(infer(new_context(again), {"x": x})["y"], circular_pad(x, PADS))


def test_missing_creator_fails_at_load_and_is_named():
    creator = creator_of(Pad)
    builder, network, config = start()
    layer = network.add_plugin_v3(
        [network.add_input("x", trt.float32, (2, 3, 8, 9))], [], Pad.make(PADS)
    )
    mark(network, layer.get_output(0), "y")
    plan = bytes(build(builder, network, config))
    assert trt.get_plugin_registry().deregister_creator(creator)
    log = Log()
    try:
        engine = trt.Runtime(log).deserialize_cuda_engine(plan)
        message = " ".join(text for _, text in log.lines)
    except Exception as problem:
        engine, message = None, str(problem)
    assert engine is None, "an engine loaded although its plugin's creator is gone"
    assert Pad.NAME in message, f"the message does not name the plugin: {message!r}"


# ---- cases: outputs whose shape depends on data ----


class NonZero(Plugin):
    """Indices of the non-zero elements of a matrix, and their number as a size tensor."""

    NAME, OUTPUTS, COUNT = "AcceptanceNonZero", 2, trt.int64

    def get_output_data_types(self, input_types):
        return [trt.int32, self.COUNT]

    def get_output_shapes(self, inputs, shape_inputs, builder):
        upper = builder.operation(trt.DimensionOperation.PROD, inputs[0][0], inputs[0][1])
        half = builder.operation(trt.DimensionOperation.FLOOR_DIV, upper, builder.constant(2))
        rows = builder.declare_size_tensor(1, half, upper)
        return [trt.DimsExprs([rows, builder.constant(2)]), trt.DimsExprs(0)]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        types = [(trt.float32, trt.float16), (trt.int32,), (self.COUNT,)]
        return desc.format == trt.TensorFormat.LINEAR and desc.type in types[pos]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = view(inputs[0], input_desc[0].dims, trt.nptype(input_desc[0].type))
        found = np.argwhere(x).astype(np.int32)
        view(outputs[0], (x.size, 2), np.int32)[: len(found)] = found
        view(outputs[1], (), trt.nptype(self.COUNT))[...] = len(found)


class NonZero32(NonZero):
    NAME, COUNT = "AcceptanceNonZero32", trt.int32


def sparse(shape, share, seed=0):
    """A matrix in which about `share` of the elements are non-zero, and where they are."""
    generator = np.random.default_rng(seed)
    x = np.where(generator.random(shape) < share, generator.normal(size=shape) + 3, 0).astype(
        np.float32
    )
    return x, np.transpose(np.nonzero(x))


def non_zero_engine(plugin, downstream=False):
    builder, network, config = start()
    layer = network.add_plugin_v3([network.add_input("x", trt.float32, (-1, -1))], [], plugin)
    indices, count = layer.get_output(0), layer.get_output(1)
    if downstream:
        indices = network.add_elementwise(
            indices, indices, trt.ElementWiseOperation.SUM
        ).get_output(0)
    mark(network, indices, "indices")
    mark(network, count, "count")
    limits = builder.create_optimization_profile()
    limits.set_shape("x", (1, 1), (16, 16), (64, 48))
    config.add_optimization_profile(limits)
    return load(build(builder, network, config))


def check_non_zero(plugin, factor=1, downstream=False):
    context = new_context(non_zero_engine(plugin, downstream))
    for seed, (shape, share) in enumerate(
        [((16, 16), 0.5), ((64, 48), 1), ((5, 7), 0), ((33, 3), 0.1)]
    ):
        x, want = sparse(shape, share, seed)
        outputs = infer(context, {"x": x}, {"indices": (x.size, 2)})
        count = int(outputs["count"])
        assert outputs["count"].shape == () and count == len(want), (
            f"{shape}: {count}, expected {len(want)}"
        )
        np.testing.assert_array_equal(outputs["indices"][:count], factor * want)
        assert context.get_max_output_size("indices") >= x.size * 2 * 4


def test_data_dependent_output():
    creator_of(NonZero)
    check_non_zero(NonZero())


def test_data_dependent_output_int32_count():
    creator_of(NonZero32)
    check_non_zero(NonZero32())


def test_data_dependent_output_feeds_a_layer():
    creator_of(NonZero)
    check_non_zero(NonZero(), factor=2, downstream=True)


def test_data_dependent_output_allocator():
    class Allocator(trt.IOutputAllocator):
        def __init__(self):
            trt.IOutputAllocator.__init__(self)
            self.memory, self.address, self.shape = None, None, None

        def reallocate_output(self, tensor_name, memory, size, alignment):
            assert tensor_name == "indices" and size > 0
            self.memory = np.zeros(size + alignment, np.uint8)
            self.address = self.memory.ctypes.data + -self.memory.ctypes.data % alignment
            return self.address

        def reallocate_output_async(self, tensor_name, memory, size, alignment, stream):
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name, shape):
            self.shape = tuple(shape)

    creator_of(NonZero)
    context, allocator = new_context(non_zero_engine(NonZero())), Allocator()
    assert context.set_output_allocator("indices", allocator)
    for share in (0.3, 0.9, 0.0):
        x, want = sparse((16, 20), share)
        count = np.zeros((), np.int64)
        assert context.set_input_shape("x", x.shape)
        assert context.set_tensor_address("x", x.ctypes.data) and context.set_tensor_address(
            "count", count.ctypes.data
        )
        assert context.execute_async_v3(0)
        assert allocator.shape == want.shape, (
            f"notify_shape said {allocator.shape}, expected {want.shape}"
        )
        assert int(count) == len(want)
        np.testing.assert_array_equal(view(allocator.address, want.shape, np.int32), want)


# ---- cases: shape inputs, aliased inputs ----


class Tile(Plugin):
    """Repeats a vector to fill a matrix whose shape is the value of a shape input."""

    NAME = "AcceptanceTile"

    def get_output_shapes(self, inputs, shape_inputs, builder):
        assert len(shape_inputs) == 1 and len(shape_inputs[0]) == 2
        return [trt.DimsExprs([shape_inputs[0][0], shape_inputs[0][1]])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and (
            desc.type == trt.float32 or 0 < pos < num_inputs
        )

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = view(inputs[0], input_desc[0].dims, np.float32)
        y = view(outputs[0], output_desc[0].dims, np.float32)
        y[...] = np.resize(x, y.shape)


def tiled(x, shape):
    return x[np.arange(shape[0] * shape[1]) % len(x)].reshape(shape)


def test_shape_input_constant():
    creator_of(Tile)
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (5,))
    extents = np.array([3, 4], np.int64)  # a network refers to its constants until it is built
    shape = network.add_constant((2,), extents).get_output(0)
    layer = network.add_plugin_v3([x], [shape], Tile())
    mark(network, layer.get_output(0), "y")
    engine, data = load(build(builder, network, config)), random((5,))
    assert tuple(engine.get_tensor_shape("y")) == (3, 4), (
        "a constant shape input gives a constant shape"
    )
    y = infer(new_context(engine), {"x": data})["y"]
    np.testing.assert_array_equal(y, tiled(data, (3, 4)))


def test_shape_input_from_the_caller():
    creator_of(Tile)
    builder, network, config = start()
    x = network.add_input("x", trt.float32, (5,))
    layer = network.add_plugin_v3([x], [network.add_input("shape", trt.int64, (2,))], Tile())
    mark(network, layer.get_output(0), "y")
    limits = builder.create_optimization_profile()
    limits.set_shape_input("shape", (1, 1), (4, 8), (16, 32))
    config.add_optimization_profile(limits)
    engine = load(build(builder, network, config))
    assert engine.is_shape_inference_io("shape")
    context, data = new_context(engine), random((5,))
    for shape in [(4, 8), (1, 1), (16, 32), (3, 5)]:
        y = infer(context, {"x": data, "shape": np.array(shape, np.int64)})["y"]
        np.testing.assert_array_equal(y, tiled(data, shape))


class AddInPlace(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime
):
    """Adds a value to its input, in place: its output is aliased to the input."""

    NAME = "AcceptanceAddInPlace"

    def __init__(self, delta=0.0):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuildV2.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = self.NAME, "1", ""
        self.num_outputs, self.delta = 1, delta

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return AddInPlace(self.delta)

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return (
            in_out[pos].desc.format == trt.TensorFormat.LINEAR
            and in_out[pos].desc.type == trt.float32
        )

    def configure_plugin(self, inputs, outputs):
        pass

    def on_shape_change(self, inputs, outputs):
        pass

    def set_tactic(self, tactic):
        pass

    def attach_to_context(self, resource_context):
        return self.clone()

    def get_aliased_input(self, output_index):
        return 0 if output_index == 0 else -1

    def get_fields_to_serialize(self):
        delta = np.array([self.delta], np.float32)
        return trt.PluginFieldCollection(
            [trt.PluginField("delta", delta, trt.PluginFieldType.FLOAT32)]
        )

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        assert inputs[0] == outputs[0], "an aliased output has another address than its input"
        view(inputs[0], input_desc[0].dims, np.float32)[...] += np.float32(self.delta)


class AddInPlaceCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = AddInPlace.NAME, "1", ""
        field = trt.PluginField("delta", np.array([]), trt.PluginFieldType.FLOAT32)
        self.field_names = trt.PluginFieldCollection([field])

    def create_plugin(self, name, field_collection, phase):
        return AddInPlace(float(field_collection[0].data[0]))


def start_aliased():
    creator = AddInPlaceCreator()
    assert trt.get_plugin_registry().register_creator(creator, "")
    builder, network, config = start()
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    return builder, network, config


def test_aliased_io():
    builder, network, config = start_aliased()
    tensor = network.add_input("x", trt.float32, (4, 6))
    for delta in (2, 4):
        tensor = network.add_plugin_v3([tensor], [], AddInPlace(delta)).get_output(0)
    mark(network, tensor, "y")
    context = new_context(load(build(builder, network, config)))
    x = random((4, 6))
    before = x.copy()
    assert context.set_tensor_address("x", x.ctypes.data) and context.set_tensor_address(
        "y", x.ctypes.data
    )
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(x, before + 6, rtol=1e-6)
    # with addresses of their own the output is the same; the input may or may not have been changed
    x = before.copy()
    np.testing.assert_allclose(infer(context, {"x": x})["y"], before + 6, rtol=1e-6)


def test_aliased_io_with_another_reader():
    builder, network, config = start_aliased()
    x = network.add_input("x", trt.float32, (4, 6))
    negative = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    mark(network, network.add_plugin_v3([negative], [], AddInPlace(10)).get_output(0), "added")
    mark(
        network,
        network.add_elementwise(negative, x, trt.ElementWiseOperation.PROD).get_output(0),
        "product",
    )
    data = random((4, 6))
    outputs = infer(new_context(load(build(builder, network, config))), {"x": data.copy()})
    np.testing.assert_allclose(outputs["added"], 10 - data, rtol=1e-6)
    np.testing.assert_allclose(outputs["product"], -data * data, rtol=1e-6)


# ---- cases: errors ----


class Breakable(Pad):
    """Raises from the callback named BROKEN."""

    NAME, BROKEN, called = "AcceptanceBreakable", None, 0

    def get_valid_tactics(self):
        return [1, 2]

    def get_workspace_size(self, inputs, outputs):
        return 64


def breakable(callback):
    original = getattr(Breakable, callback)

    def wrapper(self, *arguments):
        if Breakable.BROKEN == callback:
            Breakable.called += 1
            raise Boom(f"raised on purpose in {callback}")
        return original(self, *arguments)

    setattr(Breakable, callback, wrapper)


CALLBACKS = """get_capability_interface get_output_data_types get_output_shapes supports_format_combination
    configure_plugin get_valid_tactics get_workspace_size get_fields_to_serialize clone attach_to_context
    set_tactic on_shape_change enqueue""".split()
MAY_BE_SKIPPED = {"clone"}  # an engine that needs no clone need not ask for one
for callback in CALLBACKS:
    breakable(callback)


def whole_way(logger):
    """From the network to an output; raises Null where a step yields nothing."""
    builder = trt.Builder(logger)
    network, config = builder.create_network(0), builder.create_builder_config()
    tensor = network.add_input("x", trt.float32, (2, 3, 8, 9))
    layer = step("add_plugin_v3", network.add_plugin_v3([tensor], [], Breakable.make(PADS)))
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


def check_broken(callback, called):
    """A broken callback gives an exception, or a null with an error in the log; then a good build works."""
    log = Log()
    try:
        whole_way(log)
    except Null as nothing:
        assert log.errors(), f"{nothing} gave a null and the logger saw no error"
    except AssertionError as wrong:
        raise AssertionError(f"the engine ran and its output is wrong: {wrong}") from None
    except Exception:
        pass
    else:
        assert called() == 0, f"{callback} went wrong and nobody was told"
        assert callback in MAY_BE_SKIPPED, f"{callback} was never called"


@pytest.mark.parametrize("callback", CALLBACKS)
def test_error_in(callback):
    creator_of(Breakable)
    whole_way(LOGGER)
    for _ in range(2):
        Breakable.BROKEN = callback
        check_broken(callback, lambda: Breakable.called)
        Breakable.BROKEN = None
        whole_way(LOGGER)


def test_error_in_create_plugin():
    state = {"broken": False, "called": 0}

    class Creator(trt.IPluginCreatorV3One):
        def __init__(self):
            trt.IPluginCreatorV3One.__init__(self)
            self.name, self.plugin_version, self.plugin_namespace = Breakable.NAME, "1", ""
            self.field_names = trt.PluginFieldCollection([])

        def create_plugin(self, name, field_collection, phase):
            if state["broken"]:
                state["called"] += 1
                raise Boom("raised on purpose in create_plugin")
            return Breakable(field_collection, phase)

    creator = Creator()
    assert trt.get_plugin_registry().register_creator(creator, "")
    whole_way(LOGGER)
    state["broken"] = True
    check_broken("create_plugin", lambda: state["called"])
    state["broken"] = False
    whole_way(LOGGER)


def test_error_in_enqueue_leaves_the_context_usable():
    creator_of(Breakable)
    context = new_context(pad_engine(Breakable.make(PADS)))
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
    """A callback that returns something of a wrong type or length is an error, not a crash."""
    wrong = {
        "get_output_data_types": [None, [], [trt.float32, trt.float32], ["float"], 7],
        "get_output_shapes": [None, [], [None], [7], "shape"],
        "get_valid_tactics": [["one"], 3, "tactics"],
        "get_fields_to_serialize": [[1], "fields"],
        "attach_to_context": [None, 3],
        "get_capability_interface": [None, 1],
        "clone": [None, "copy"],
    }
    creator_of(Breakable)
    for callback, values in wrong.items():
        original = getattr(Breakable, callback)
        for value in values:
            called = []
            setattr(
                Breakable,
                callback,
                lambda self, *_, value=value, called=called: (called.append(1), value)[1],
            )
            try:
                check_broken(callback, lambda called=called: len(called))
            except AssertionError as problem:
                raise AssertionError(f"{callback} -> {value!r}: {problem}") from None
            setattr(Breakable, callback, original)
            whole_way(LOGGER)


def test_error_recorder():
    class Recorder(trt.IErrorRecorder):
        def __init__(self):
            trt.IErrorRecorder.__init__(self)
            self.errors = []

        def num_errors(self):
            return len(self.errors)

        get_num_errors = num_errors

        def get_error_code(self, index):
            return self.errors[index][0]

        def get_error_desc(self, index):
            return self.errors[index][1]

        def has_overflowed(self):
            return False

        def clear(self):
            self.errors.clear()

        def report_error(self, code, description):
            self.errors.append((code, description))
            return False

    recorder = Recorder()
    runtime = trt.Runtime(LOGGER)
    runtime.error_recorder = recorder
    try:
        engine = runtime.deserialize_cuda_engine(b"this is not an engine" * 10)
    except Exception:
        engine = None
    assert engine is None, "garbage was deserialized"
    assert recorder.errors, "the runtime's error recorder saw nothing"
    code, description = recorder.errors[0]
    assert code != trt.ErrorCodeTRT.SUCCESS and description


# ---- cases: the registry, lifetimes ----


def test_registry():
    registry = trt.get_plugin_registry()
    assert registry.get_creator(Pad.NAME, "1", "") is None

    class Creator(trt.IPluginCreatorV3One):
        def __init__(self, version, space):
            trt.IPluginCreatorV3One.__init__(self)
            self.name, self.plugin_version, self.plugin_namespace = Pad.NAME, version, space
            field = trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)
            self.field_names = trt.PluginFieldCollection([field])

        def create_plugin(self, name, field_collection, phase):
            return Pad(field_collection, phase)

    first, second, third = Creator("1", ""), Creator("2", ""), Creator("1", "other")
    for creator, space in [(first, ""), (second, ""), (third, "other")]:
        assert registry.register_creator(creator, space)
    try:
        again = registry.register_creator(Creator("1", ""), "")
    except Exception:
        again = False
    assert not again, "a second creator with the same name, version and namespace was accepted"
    for version, space in [("1", ""), ("2", ""), ("1", "other")]:
        found = registry.get_creator(Pad.NAME, version, space)
        assert found is not None, f"version {version} in namespace {space!r} is not found"
        assert (found.name, found.plugin_version, found.plugin_namespace) == (
            Pad.NAME,
            version,
            space,
        )
        assert [field.name for field in found.field_names] == ["pads"]
        assert found.field_names[0].type == trt.PluginFieldType.INT32
    for version, space in [("3", ""), ("2", "other"), ("1", "nowhere")]:
        assert registry.get_creator(Pad.NAME, version, space) is None
    listed = [(c.name, c.plugin_version, c.plugin_namespace) for c in registry.all_creators]
    for version, space in [("1", ""), ("2", ""), ("1", "other")]:
        assert listed.count((Pad.NAME, version, space)) == 1, f"all_creators: {listed}"
    every = [c.name for c in registry.all_creators_recursive]
    assert every.count(Pad.NAME) >= 3
    pads = trt.PluginField("pads", np.array(PADS, np.int32), trt.PluginFieldType.INT32)
    made = registry.get_creator(Pad.NAME, "1", "").create_plugin(
        "made", trt.PluginFieldCollection([pads]), trt.TensorRTPhase.BUILD
    )
    assert isinstance(made, Pad) and list(made.values["pads"]) == PADS
    assert registry.deregister_creator(second)
    assert (
        registry.get_creator(Pad.NAME, "2", "") is None
        and registry.get_creator(Pad.NAME, "1", "") is not None
    )
    try:
        gone = registry.deregister_creator(second)
    except Exception:
        gone = False
    assert not gone, "a creator was deregistered twice"
    assert registry.register_creator(second, "")
    assert registry.parent_search_enabled in (True, False)
    try:
        handle = registry.load_library("no_such_folder/libno_such_plugin.so")
    except Exception:
        handle = None
    assert handle is None, "a library that does not exist was loaded"


def test_registry_resources():
    events = []

    class Resource(trt.IPluginResource):
        def __init__(self, text):
            trt.IPluginResource.__init__(self)
            self.text = text

        def clone(self):
            events.append("clone")
            return Resource(self.text + " (registered)")

        def release(self):
            events.append("release")

    registry = trt.get_plugin_registry()
    first = registry.acquire_plugin_resource("key", Resource("one"))
    second = registry.acquire_plugin_resource("key", Resource("two"))
    assert first.text == "one (registered)" and second.text == "one (registered)"
    assert events == ["clone"], f"{events}"
    registry.release_plugin_resource("key")
    assert events == ["clone"], "released while it was still in use"
    registry.release_plugin_resource("key")
    assert events == ["clone", "release"], f"{events}"
    third = registry.acquire_plugin_resource("key", Resource("three"))
    assert third.text == "three (registered)"
    registry.release_plugin_resource("key")
    assert events == ["clone", "release"] * 2, f"{events}"


def test_plugins_are_freed():
    alive = []

    class Counted(Pad):
        NAME = "AcceptanceCounted"

        def __init__(self, fields=None, phase=trt.TensorRTPhase.BUILD):
            super().__init__(fields, phase)
            alive.append(weakref.ref(self))

    def use():
        engine = pad_engine(Counted.make(PADS))
        x = random((2, 3, 8, 9))
        for context in (new_context(engine), new_context(engine)):
            np.testing.assert_array_equal(infer(context, {"x": x})["y"], circular_pad(x, PADS))

    creator_of(Counted)
    for _ in range(5):
        use()
    gc.collect()
    left = sum(reference() is not None for reference in alive)
    assert left == 0, f"{left} of {len(alive)} plugin objects are still alive after their engines"


def test_layer_gives_its_plugin():
    creator_of(Pad)
    builder, network, config = start()
    layer = network.add_plugin_v3(
        [network.add_input("x", trt.float32, (2, 3, 8, 9))], [], Pad.make(PADS)
    )
    assert (
        layer.type == trt.LayerType.PLUGIN_V3 and layer.num_inputs == 1 and layer.num_outputs == 1
    )
    assert tuple(layer.get_output(0).shape) == (2, 3, 12, 12), f"{tuple(layer.get_output(0).shape)}"
    assert layer.get_output(0).dtype == trt.float32
    core = layer.plugin.get_capability_interface(trt.PluginCapabilityType.CORE)
    assert (core.plugin_name, core.plugin_version, core.plugin_namespace) == (Pad.NAME, "1", "")
