"""Tuning of plugins that functions define: combinations, types, formats, times, the timing cache."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import network, new_id, op_of
from v3_plugins import Log, layers_of

X = np.random.default_rng(0).standard_normal((2, 6, 4, 5)).astype(np.float32)
COPY = [trtp.AutoTuneCombination()]


class Tuned:
    """A plugin of one tensor in and one out that copies, unless `run` does something else."""

    def __init__(self, combinations=COPY):
        self.id = new_id("tuned")
        self.combinations = combinations
        self.calls: list = []
        """Types, format of the input and tactic of each call of impl."""

        @trtp.register(self.id)
        def desc(x: trtp.TensorDesc, k: int = 0) -> trtp.TensorDesc:
            return x.like()

        @trtp.autotune(self.id)
        def tune(x, k, outputs):
            return self.autotune(x, *outputs)

        @trtp.impl(self.id)
        def impl(x, k, outputs, stream, tactic):
            self.calls.append((x.dtype, outputs[0].dtype, x.format, tactic))
            self.run(x, outputs[0], tactic)

    def autotune(self, x, y):
        return self.combinations

    def run(self, x, y, tactic):
        np.copyto(np.asarray(y), np.asarray(x))

    def network(self, dtype=trt.float32, shape=X.shape, strong=False, ranges=(), **attributes):
        flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        net = network(1 << int(flag) if strong else 0)
        x = net.add_input("x", dtype, shape)
        layer = net.add_plugin(op_of(self.id)(x, **attributes))
        layer.name = "the layer"
        y = layer.get_output(0)
        y.name = "y"
        net.mark_output(y)
        for tensor, limit in zip((x, y), ranges):
            tensor.set_dynamic_range(-limit, limit)
        return net


def build(net, flags=(), log=None, cache=None, shapes=None, **settings):
    builder = trt.Builder(log or trt.Logger(trt.Logger.ERROR))
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    for name, value in settings.items():
        setattr(config, name, value)
    if cache is not None:
        config.set_timing_cache(cache, False)
    for ranges in shapes or ():
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *ranges)
        config.add_optimization_profile(profile)
    return trt.Engine(builder.build_engine_with_config(net, config))


def new_cache():
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    return builder.create_builder_config().create_timing_cache(b"")


def plugin_layer(engine):
    (layer,) = [layer for layer in layers_of(engine) if layer["LayerType"] == "FunctionPlugin"]
    return layer


def options(engine):
    """(types, tactic) of all candidates that could be chosen, and of the chosen ones."""
    candidates = plugin_layer(engine)["Candidates"]
    return [(c["Types"], c["TacticValue"]) for c in candidates], [
        (c["Types"], c["TacticValue"]) for c in candidates if c["Chosen"]
    ]


# ---------------------------------------------------------------------------------- combinations


def test_a_combination_can_be_read():
    given = trtp.AutoTuneCombination(" FP32|FP16 ,FP32|FP16", "LINEAR|HWC", [2, 5])
    assert given.io_types == "FP32|FP16, FP32|FP16" and given.layouts == "LINEAR|HWC"
    assert list(given.tactics) == [2, 5] and given.tactics == [2, 5] and given.tactics[1] == 5
    assert len(given.tactics) == 2
    text = 'io_types="FP32|FP16, FP32|FP16", layouts="LINEAR|HWC", tactics=[2, 5]'
    assert repr(given) == f"AutoTuneCombination({text})"
    assert repr(eval(repr(given), {"AutoTuneCombination": trtp.AutoTuneCombination})) == repr(given)
    given.tactics([7])
    assert given.tactics == [7]
    with pytest.raises(IndexError):
        given.tactics[1]

    empty = trtp.AutoTuneCombination()
    assert empty.io_types is None and empty.layouts is None and empty.tactics == []
    assert repr(empty) == "AutoTuneCombination()"
    empty.pos([0, 2], "FP32*FP16")
    empty.pos(1, "INT32", "HWC")
    assert empty.io_types == "FP32*FP16, INT32, FP32*FP16"
    assert empty.layouts == "LINEAR, HWC, LINEAR"


FORMATS = [name for name in dir(trt.TensorFormat) if name.isupper()]
TYPES = ["FP32", "FLOAT", "FP16", "HALF", "BF16", "FP8", "INT8", "INT32", "INT64", "BOOL", "UINT8"]
ALIASES = {"FLOAT": "FP32", "HALF": "FP16"}
FLOATING = ("FP32", "FP16", "BF16", "FP8", "INT8")
LOWER = ("FP16", "BF16", "FP8", "INT8")


def test_every_name_of_a_type_and_a_format_is_known():
    for name in TYPES + ["INT4", "FP4"]:
        assert trtp.AutoTuneCombination(f"{name}, {name.lower()}").io_types
    assert len(FORMATS) >= 13
    for name in FORMATS:
        assert trtp.AutoTuneCombination("FP32, FP32", name).layouts == name


def entries(names):
    """One entry of a list: a name, or several that move together or freely."""
    several = st.lists(st.sampled_from(names), min_size=2, max_size=3)
    return st.tuples(st.sampled_from("|*"), several) | st.tuples(
        st.just(""), st.lists(st.sampled_from(names), min_size=1, max_size=1)
    )


@st.composite
def lists(draw, names, count):
    """Entries for all ports; those that move together are of one length."""
    made = draw(st.lists(entries(names), min_size=count, max_size=count))
    length = min((len(v) for kind, v in made if kind == "|"), default=0)
    return [(kind, v[:length] if kind == "|" else v) for kind, v in made]


def text_of(made, spaces):
    blank = itertools.cycle(spaces)
    return ",".join(
        next(blank) + (next(blank) + kind + next(blank)).join(values) + next(blank)
        for kind, values in made
    )


def expand(made):
    """All choices, independently of the engine: one index for what moves together, one for each
    free entry."""
    tied = next((len(v) for kind, v in made if kind == "|"), 1)
    free = [i for i, (kind, _) in enumerate(made) if kind == "*"]
    for index in range(tied):
        for picked in itertools.product(*(made[i][1] for i in free)):
            choice = dict(zip(free, picked))
            yield tuple(
                choice[i] if i in choice else values[index if kind == "|" else 0]
                for i, (kind, values) in enumerate(made)
            )


class Two:
    """A plugin of two tensors in and one out, whose combinations a test sets."""

    combinations: list = []
    id = new_id("two")


@trtp.register(Two.id)
def two_desc(a: trtp.TensorDesc, b: trtp.TensorDesc) -> trtp.TensorDesc:
    return a.like()


@trtp.autotune(Two.id)
def two_tune(a, b, outputs):
    return Two.combinations


@trtp.impl(Two.id)
def two(a, b, outputs, stream):
    raise AssertionError("is not run")


def two_network():
    net = network()
    tensors = [net.add_input(name, trt.float32, X.shape) for name in "ab"]
    y = net.add_plugin(op_of(Two.id)(*tensors)).get_output(0)
    net.mark_output(y)
    for tensor in (*tensors, y):
        tensor.set_dynamic_range(-1, 1)
    return net


def shown(types, formats):
    ports = [t if f == "LINEAR" else f"{t}:{f}" for t, f in zip(types, formats)]
    return f"{', '.join(ports[:2])} -> {ports[2]}"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_grammar(data):
    """What the engine makes of a text is what an independent expansion gives, in any order; what
    the flags and ranks do not allow is dropped."""
    types = data.draw(lists(TYPES, 3))
    one_layout = data.draw(st.booleans())
    formats = data.draw(lists([f for f in FORMATS if "DLA" not in f], 1 if one_layout else 3))
    tactics = data.draw(st.lists(st.integers(1, 9), unique=True, max_size=2))
    flags = data.draw(st.sets(st.sampled_from(LOWER)))
    spaces = data.draw(st.lists(st.sampled_from(["", " ", "  "]), min_size=1, max_size=5))
    Two.combinations = [
        trtp.AutoTuneCombination(text_of(types, spaces), text_of(formats, spaces), tactics)
    ]
    allowed = {"FP32", *flags}
    five = {"DHWC8", "CDHW32", "DHWC"}
    if one_layout:
        formats = formats * 3  # stands for all ports
    expected = set()
    for chosen in expand(types):
        names = [ALIASES.get(t, t) for t in chosen]
        for layouts in expand(formats):
            if set(names) <= allowed and not set(layouts) & five:
                label = shown(names, layouts)
                expected |= {(label, tactic) for tactic in tactics or [0]}
    net = two_network()
    if not expected:
        with pytest.raises(trt.Error, match="no combination of types and layouts"):
            build(net, flags, timing=False)
        return
    found, chosen = options(build(net, flags, timing=False))
    assert len(found) == len(set(found)) and set(found) == expected


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: [], "empty list"),
        (lambda: [trtp.AutoTuneCombination("FP32")], 'types "FP32" have 1 entries, but there'),
        (
            lambda: [trtp.AutoTuneCombination("FP32, FP32", "HWC, HWC, HWC")],
            'layouts "HWC, HWC, HWC" have 3 entries',
        ),
        (lambda: [trtp.AutoTuneCombination("FP32|FP16*BF16, FP32")], '"FP32|FP16*BF16" mixes'),
        (
            lambda: [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16|BF16")],
            '"FP32|FP16" and "FP32|FP16|BF16" move together',
        ),
        (lambda: [trtp.AutoTuneCombination("FP32, FP23")], "'FP23': expected one of FP32"),
        (lambda: [trtp.AutoTuneCombination("FP32, FP32", "CHW5")], "'CHW5': expected one of"),
        (lambda: [trtp.AutoTuneCombination("FP32,, FP32")], '"FP32,, FP32": an entry'),
        (lambda: [trtp.AutoTuneCombination("FP32, FP32", "", [0])], "positive, but one is 0"),
        (lambda: [trtp.AutoTuneCombination("FP32, FP32", "", [2, 2])], "tactic 2 is there twice"),
        (lambda: [trtp.AutoTuneCombination("FP32, FP32", "", ["a"])], "must be integers; 'a'"),
    ],
)
def test_mistakes_are_named(make, message):
    plugin = Tuned()
    plugin.autotune = lambda x, y: make()
    with pytest.raises(trt.Error) as caught:
        build(plugin.network())
    assert message in str(caught.value)


def test_pos_twice_is_an_error():
    combination = trtp.AutoTuneCombination()
    combination.pos(0, "FP32")
    with pytest.raises(trt.Error, match='position 0 was set to "FP32" already'):
        combination.pos([0, 1], "FP16")


def test_duplicates_merge_their_tactics_and_the_impossible_is_explained():
    plugin = Tuned(
        [
            trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", [1, 2]),
            trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [2, 3]),
            trtp.AutoTuneCombination("FP32*INT64, FP32", "DHWC8"),
            trtp.AutoTuneCombination("INT8, FP32", "LINEAR"),
        ]
    )
    log = Log()
    engine = build(plugin.network(), ["INT8"], log)
    assert options(engine)[0] == [("FP32 -> FP32", t) for t in (1, 2, 3)]
    reasons = {d["Types"]: d["Reason"] for d in plugin_layer(engine)["Dropped"]}
    assert reasons == {
        "FP16 -> FP16": "input 0 is FP32 in the network, and FP16 needs BuilderFlag.FP16 in the "
        "builder config (and 1 more)",
        "FP32:DHWC8 -> FP32:DHWC8": "input 0 has rank 4, which the format DHWC8 cannot have",
        "INT64:DHWC8 -> FP32:DHWC8": "input 0 is FP32 in the network, which is not cast to INT64",
        "INT8 -> FP32": "input 0 is FP32 in the network, and INT8 needs a scale: give the tensor a "
        "dynamic range (ITensor.set_dynamic_range)",
    }
    (table,) = [text for text in log.verbose() if text.startswith("Layer 'the layer'")]
    for reason in reasons.values():
        assert f"dropped: {reason}" in table
        assert f"dropped: {reason}" in engine.inspect()


def test_nothing_left_gives_the_reasons():
    plugin = Tuned([trtp.AutoTuneCombination("FP16|BF16, FP16|BF16")])
    with pytest.raises(trt.Error) as caught:
        build(plugin.network())
    for part in ("the layer", plugin.id, "FP32 -> FP32", "needs BuilderFlag.FP16", "Flag.BF16"):
        assert part in str(caught.value)
    with pytest.raises(trt.Error, match="FP32 in the network, which is strongly typed"):
        build(plugin.network(strong=True), ["FP16", "BF16"])
    assert plugin.calls == []


# ------------------------------------------------------------------------------ types and formats


def quantized(x, scale):
    return np.clip(np.rint(x / np.float32(scale)), -128, 127).astype(np.int8)


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("FP16", np.float16),
        ("BF16", ml_dtypes.bfloat16),
        ("FP8", ml_dtypes.float8_e4m3fn),
    ],
)
def test_lower_precision_with_casts_by_the_engine(name, dtype):
    plugin = Tuned([trtp.AutoTuneCombination(f"{name}, {name}")])

    def run(x, y, tactic):
        a = np.asarray(x)
        assert a.dtype == dtype and np.asarray(y).dtype == dtype
        np.asarray(y)[...] = (3 * a.astype(np.float32)).astype(dtype)

    plugin.run = run
    with pytest.raises(trt.Error, match=f"needs BuilderFlag.{name}"):
        build(plugin.network(), set(LOWER) - {name})
    engine = build(plugin.network(), [name])
    y = engine(X)
    assert y.dtype == np.float32, "the network's outputs have the types that the user gave them"
    expected = (3 * X.astype(dtype).astype(np.float32)).astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(y, expected)
    with pytest.raises(trt.Error, match="strongly typed"):
        build(plugin.network(strong=True), [name])


def test_types_of_ports_may_differ():
    plugin = Tuned([trtp.AutoTuneCombination("FP16, FP32")])
    plugin.run = lambda x, y, tactic: np.copyto(np.asarray(y), 2 * np.asarray(x).astype("f4"))
    engine = build(plugin.network(), ["FP16"])
    np.testing.assert_array_equal(engine(X), 2 * X.astype(np.float16).astype(np.float32))
    assert {call[:2] for call in plugin.calls} == {(trt.float16, trt.float32)}


def test_a_strongly_typed_network_keeps_its_types():
    plugin = Tuned([trtp.AutoTuneCombination("FP32|FP16|BF16, FP32|FP16|BF16", "LINEAR|HWC")])
    engine = build(plugin.network(trt.float16, strong=True), ["BF16", "FP16"])
    assert options(engine)[0] == [("FP16 -> FP16", 0), ("FP16:HWC -> FP16:HWC", 0)]
    x = X.astype(np.float16)
    y = engine(x)
    np.testing.assert_array_equal(y, x)
    assert y.dtype == np.float16


@pytest.mark.parametrize("ranges, port", [((), "input 0"), ((2.54,), "output 0")])
def test_int8_without_a_scale_is_dropped(ranges, port):
    plugin = Tuned([trtp.AutoTuneCombination("FP32|INT8, FP32|INT8")])
    engine = build(plugin.network(ranges=ranges), ["INT8"])
    np.testing.assert_array_equal(engine(X), X)
    (dropped,) = plugin_layer(engine)["Dropped"]
    assert dropped["Types"] == "INT8 -> INT8"
    assert dropped["Reason"].startswith(f"{port} is FP32 in the network, and INT8 needs a scale")
    assert {call[0] for call in plugin.calls} == {trt.float32}


def test_ports_may_differ_in_format():
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR, HWC")])
    np.testing.assert_array_equal(build(plugin.network())(X), X)
    assert plugin_layer(build(plugin.network()))["Candidates"][0]["Types"] == "FP32 -> FP32:HWC"


def test_a_format_of_an_output_that_is_in_place_is_that_of_the_input():
    plugin_id = new_id("in_place")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.autotune(plugin_id)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR*HWC, LINEAR*HWC")]

    @trtp.impl(plugin_id)
    def impl(x, outputs, stream):
        np.asarray(x)[...] += 1

    net = network()
    y = net.add_plugin(op_of(plugin_id)(net.add_input("x", trt.float32, X.shape))).get_output(0)
    net.mark_output(y)
    engine = build(net)
    np.testing.assert_array_equal(engine(X.copy()), X + 1)
    types = ["FP32 -> FP32", "FP32:HWC -> FP32:HWC"]
    assert [t for t, _ in options(engine)[0]] == types
    reasons = [d["Reason"] for d in plugin_layer(engine)["Dropped"]]
    assert reasons == [
        "output 0 is FP32:HWC but aliased to input 0, which is FP32",
        "output 0 is FP32 but aliased to input 0, which is FP32:HWC",
    ]


# --------------------------------------------------------------------------------------- profiles


def test_autotune_and_the_timed_calls_see_the_profiles():
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])])
    seen, ran = [], []

    def autotune(x, y):
        for desc in (x, y):
            assert tuple(desc.shape) == (-1, 6, 4, 5) and desc.shape.is_dynamic
            seen.append(tuple(s[0] for s in (desc.shape.min, desc.shape.opt, desc.shape.max)))
        return plugin.combinations

    def run(x, y, tactic):
        a = np.asarray(x)
        ran.append(a.shape)
        assert 0 <= a.min() and a.max() < 1 and 0.2 < a.std() < 0.4, "random elements"
        np.copyto(np.asarray(y), a)

    plugin.autotune, plugin.run = autotune, run
    shapes = [[(n, 6, 4, 5) for n in ns] for ns in ((1, 4, 16), (16, 32, 64))]
    build(plugin.network(shape=(-1, 6, 4, 5)), shapes=shapes)
    assert sorted(seen) == [(1, 4, 16), (1, 4, 16), (16, 32, 64), (16, 32, 64)]
    assert set(ran) == {(4, 6, 4, 5), (32, 6, 4, 5)}, "timed at the opt shapes"


def test_aot_impl_sees_the_profile():
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "HWC", [3])])
    seen = []

    @trtp.aot_impl(plugin.id)
    def compiled(x, k, outputs, tactic):
        seen.append((x.dtype, x.format, tactic, k))
        for desc in (x, outputs[0]):
            assert [s[0] for s in (desc.shape.min, desc.shape.opt, desc.shape.max)] == [1, 4, 16]
        raise NotImplementedError("here")

    net = network()
    x = net.add_input("x", trt.float32, (-1, 6, 4, 5))
    net.mark_output(net.add_plugin(op_of(plugin.id)(x, k=5), aot=True).get_output(0))
    for timing in (True, False):
        with pytest.raises(NotImplementedError, match="here"):
            build(net, shapes=[[(n, 6, 4, 5) for n in (1, 4, 16)]], timing=timing)
    assert seen == [(trt.float32, trt.TensorFormat.HWC, 3, 5)] * 2


# ----------------------------------------------------------------------------------------- timing


@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_each_candidate_runs_as_often_as_the_config_says(iterations):
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR|HWC", [1, 2])])
    build(plugin.network(), avg_timing_iterations=iterations)
    assert len(plugin.calls) == 4 * (1 + iterations + 1), "to warm up, and to be compared"
    assert len(set(plugin.calls)) == 4


def slow(tactics):
    """A run function that takes a millisecond for all tactics but one."""

    def run(x, y, tactic):
        if tactic != tactics:
            time.sleep(0.001)
        np.copyto(np.asarray(y), np.asarray(x))

    return run


def test_the_table_in_the_log_and_the_inspector():
    plugin = Tuned([trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR", [1, 2])])
    faster = slow(2)

    def run(x, y, tactic):
        if np.asarray(x).dtype == np.float16:
            time.sleep(0.0003)
        faster(x, y, tactic)

    plugin.run = run
    log = Log()
    engine = build(plugin.network(), ["FP16"], log, avg_timing_iterations=10)
    layer = plugin_layer(engine)
    rows = [(c["Types"], c["TacticValue"], c["Chosen"]) for c in layer["Candidates"]]
    assert rows == [
        (types, tactic, types == "FP32 -> FP32" and tactic == 2)
        for types in ("FP32 -> FP32", "FP16 -> FP16")
        for tactic in (1, 2)
    ]
    for candidate in layer["Candidates"]:
        assert (candidate["TimeMs"] > 1) == (candidate["TacticValue"] == 1)
        assert (candidate["ReformatMs"] > 0) == candidate["Types"].startswith("FP16")
    assert layer["TacticValue"] == 2 and layer["Dropped"] == []

    (text,) = [text for text in log.verbose() if text.startswith("Layer 'the layer'")]
    head, title, *table = text.splitlines()
    assert head.endswith("4 candidates, 4 timed, 0 found in the timing cache")
    assert title.split() == ["types", "tactic", "time", "reformats"]
    assert [line.lstrip("* ").split("  ")[0] for line in table] == [t for t, *_ in rows]
    assert [line.lstrip().startswith("*") for line in table] == [False, True, False, False]
    shown = engine.inspect()
    assert "\n".join(table) in shown and "candidates of 'the layer'" in shown
    inspector = engine.engine.create_engine_inspector()
    line = inspector.get_layer_information(0, trt.LayerInformationFormat.ONELINE)
    assert line.startswith("the layer (FunctionPlugin): FP32 -> FP32, tactic 2 ")
    assert " of 4 candidates, " in line


def test_the_table_of_a_class(tmp_path, program):
    """Saved with the engine, and shown by the program, for plugins of all kinds."""
    from v3_plugins import Twice, registered

    class Choosy(Twice):
        plugin_name = "Choosy"

        def get_valid_tactics(self):
            return [4, 5]

    with registered(Choosy()):
        net = network()
        x = net.add_input("x", trt.float32, (4,))
        net.mark_output(net.add_plugin_v3([x], [], Choosy()).get_output(0))
        build(net).save(tmp_path / "engine")
    shown = subprocess.run(
        [program, "inspect", tmp_path / "engine"], check=True, capture_output=True, text=True
    ).stdout
    table = shown[shown.index("candidates of '") :].splitlines()[2:4]
    assert [row.lstrip("* ").split()[3] for row in table] == ["4", "5"]
    assert sum("*" in row for row in table) == 1


def test_without_timing_no_function_computes():
    plugin = Tuned([trtp.AutoTuneCombination("FP16|FP32, FP16|FP32", "HWC", [4, 1])])
    ran = []
    plugin.autotune = lambda x, y: ran.append(1) or plugin.combinations
    plugin.run = slow(1)
    for make in (
        lambda net: build(net, ["FP16"], timing=False),
        lambda net: trt.build(net, fp16=True, timing=False),
    ):
        ran.clear()
        engine = make(plugin.network())
        assert plugin.calls == [] and ran, "autotune runs, impl does not"
        assert options(engine) == (
            [(f"{t}:HWC -> {t}:HWC", tactic) for t in ("FP16", "FP32") for tactic in (4, 1)],
            [("FP16:HWC -> FP16:HWC", 4)],
        )
        assert all(c["TimeMs"] == 0 for c in plugin_layer(engine)["Candidates"])
        np.testing.assert_array_equal(engine(X), X.astype(np.float16).astype(np.float32))
        plugin.calls.clear()


def test_without_timing_the_cache_decides():
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2, 3])])
    plugin.run = slow(2)
    cache = new_cache()
    build(plugin.network(), cache=cache)
    plugin.calls.clear()
    engine = build(plugin.network(), cache=cache, timing=False)
    assert plugin.calls == [] and options(engine)[1] == [("FP32 -> FP32", 2)]
    other = build(plugin.network(k=1), cache=cache, timing=False)
    assert plugin.calls == [] and options(other)[1] == [("FP32 -> FP32", 1)], "not in the cache"
    with pytest.raises(trt.Error, match="not in the timing cache"):
        build(plugin.network(k=1), ["ERROR_ON_TIMING_CACHE_MISS"], cache=cache, timing=False)


# --------------------------------------------------------------------------------------- failures


def raises_for(*tactics):
    def run(x, y, tactic):
        if tactic in tactics:
            raise LookupError(f"not {tactic}\nmore of it")
        np.copyto(np.asarray(y), np.asarray(x))

    return run


def test_a_tactic_that_raises_is_left_out():
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2, 3])])
    plugin.run = raises_for(1, 3)
    log = Log()
    engine = build(plugin.network(), log=log)
    np.testing.assert_array_equal(engine(X), X)
    assert options(engine) == ([("FP32 -> FP32", 2)], [("FP32 -> FP32", 2)])
    dropped = [(d["TacticValue"], d["Reason"]) for d in plugin_layer(engine)["Dropped"]]
    assert dropped == [(1, "LookupError: not 1"), (3, "LookupError: not 3")]
    warnings = [text for severity, text in log.lines if severity == trt.Logger.WARNING]
    assert len(warnings) == 2 and "'the layer'" in warnings[0] and "tactic 1" in warnings[0]
    assert "not 1" in warnings[0] and "in raises_for" not in warnings[1]


def test_when_no_tactic_works_the_first_exception_arrives_with_all_reasons():
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])])
    plugin.run = raises_for(1, 2)
    with pytest.raises(LookupError, match="not 1") as caught:
        build(plugin.network())
    note = caught.value.__notes__[-1]
    for part in ("the layer", "none of its 2 candidates", "tactic 1: LookupError: not 1", "not 2"):
        assert part in note


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_the_build(exception):
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2, 3])])

    def run(x, y, tactic):
        raise exception

    plugin.run = run
    cache = new_cache()
    with pytest.raises(exception):
        build(plugin.network(), cache=cache)
    assert len(plugin.calls) == 1 and len(cache) == 0
    plugin.run = raises_for()
    np.testing.assert_array_equal(build(plugin.network())(X), X)


# ---------------------------------------------------------------------------------- timing cache


def test_a_second_build_runs_no_plugin():
    plugin = Tuned([trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR|HWC", [1, 2])])
    cache = new_cache()
    first = build(plugin.network(), ["FP16"], cache=cache)
    assert {call[3] for call in plugin.calls} == {1, 2}
    plugin.calls.clear()
    log = Log()
    second = build(plugin.network(), ["FP16"], log, cache)
    assert plugin.calls == [] and options(first) == options(second)
    assert plugin_layer(first)["Candidates"] == plugin_layer(second)["Candidates"]
    (text,) = [text for text in log.verbose() if text.startswith("Layer 'the layer'")]
    assert "8 candidates, 0 timed, 8 found in the timing cache" in text
    build(plugin.network(), ["FP16", "DISABLE_TIMING_CACHE"], cache=cache)
    assert plugin.calls


@pytest.mark.parametrize(
    "change",
    [{"shape": (2, 6, 4, 6)}, {"k": 1}, {"dtype": trt.float16}, {"ranges": (1, 1)}],
    ids=str,
)
def test_other_networks_are_timed_anew(change):
    plugin = Tuned([trtp.AutoTuneCombination("", "LINEAR", [1, 2])])
    cache = new_cache()
    build(plugin.network(), cache=cache)
    plugin.calls.clear()
    build(plugin.network(**change), cache=cache)
    # The range of a tensor makes no difference to what runs in FP32.
    assert len({call[3] for call in plugin.calls}) == (0 if "ranges" in change else 2)


def test_other_profiles_are_timed_anew():
    plugin = Tuned()
    cache = new_cache()
    for opt, maximum, is_timed in ((4, 8, True), (5, 8, True), (4, 9, True), (4, 8, False)):
        shapes = [[(n, 6, 4, 5) for n in (1, opt, maximum)]]
        plugin.calls.clear()
        build(plugin.network(shape=(-1, 6, 4, 5)), cache=cache, shapes=shapes)
        assert bool(plugin.calls) == is_timed


SCRIPT = """
    import sys
    import numpy as np
    import opwright as trt
    import opwright.plugin as trtp

    calls = []

    @trtp.register("test::across")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune("test::across")
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]

    @trtp.impl("test::across")
    def impl(x, outputs, stream, tactic):
        calls.append(tactic)
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    network = trt.Builder(trt.Logger()).create_network()
    x = network.add_input("x", trt.float32, (4,))
    network.mark_output(network.add_plugin(trtp.op.test.across(x)).get_output(0))
    trt.build(network, timing_cache=sys.argv[1])
    print(sorted(set(calls)))
"""


def test_the_cache_holds_across_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    runs = [
        subprocess.run(
            [sys.executable, script, tmp_path / "cache"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert runs == ["[1, 2]", "[]"]


def test_times_can_be_edited():
    """What a build without timing then chooses, and one that finds all times."""
    plugin = Tuned([trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2, 3])])
    plugin.run = slow(2)
    cache = new_cache()
    build(plugin.network(), cache=cache)
    keys = [key for key in cache.queryKeys() if plugin.id in str(key)]
    assert [cache.query(key).tacticHash for key in keys] == [1, 2, 3]
    for key in keys:
        value = cache.query(key)
        assert (value.timingMSec > 1) == (value.tacticHash != 2)
        assert trt.TimingCacheKey.parse(str(key)) == key
    assert cache.update(keys[2], trt.TimingCacheValue(3, 1e-7))
    assert cache.query(keys[2]).timingMSec == pytest.approx(1e-7)
    assert not cache.update(keys[2], trt.TimingCacheValue(2, 1e-7)), "another tactic's value"
    assert not cache.update(keys[2], trt.TimingCacheValue(3, -1))
    assert not cache.update(trt.TimingCacheKey.parse("unknown"), trt.TimingCacheValue(0, 1))
    assert cache.query(trt.TimingCacheKey.parse("unknown")) is None
    plugin.calls.clear()
    for timing in (True, False):
        engine = build(plugin.network(), cache=cache, timing=timing)
        assert options(engine)[1] == [("FP32 -> FP32", 3)] and plugin.calls == []
