"""A wrong answer of a plugin of any kind is one error that names plugin, callback and rule, and no more."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import opwright as trt
import plugin_kinds
from plugin_kinds import CLASSES

X = np.random.default_rng(0).random((2, 3), np.float32)
V3, QUICK, V2 = CLASSES
BUILD, RUNTIME = trt.PluginCapabilityType.BUILD, trt.PluginCapabilityType.RUNTIME
# Names of a method or attribute, where the kinds do not agree.
NAMES = {
    "types": ("get_output_data_types", "get_output_data_types", "get_output_datatype"),
    "shapes": ("get_output_shapes", "get_output_shapes", "get_output_dimensions"),
    "formats": (
        "supports_format_combination",
        "get_supported_format_combinations",
        "supports_format_combination",
    ),
    "name": ("plugin_name", "plugin_name", "plugin_type"),
    "num_outputs()": ("num_outputs", "get_num_outputs", "num_outputs"),
}


def name_of(member, kind):
    return NAMES[member][CLASSES.index(kind)] if member in NAMES else member


def describe(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def in_cpp(name):
    """The name of a method as the engine's own messages have it."""
    return re.sub("_(.)", lambda m: m[1].upper(), name)


def returns(value):
    return lambda self, *args: value


class Each(NamedTuple):
    """An answer for one output: V2 plugins give it as it is, the others in a list."""

    value: Any


class Extent(NamedTuple):
    """An answer whose first extent is what `make(input, builder, op)` gives."""

    make: Any


class Case(NamedTuple):
    member: str
    answer: Any
    rule: str
    where: str | None = None
    """What the message names: the member, else this text, or `CPP` for the method's name in C++."""


CPP = "C++"


def huge(dims, builder, op):
    return builder.operation(op.PROD, builder.constant(2**62), builder.constant(3))


def size_of(output):
    return Extent(lambda d, b, op: b.declare_size_tensor(output, b.constant(1), b.constant(2)))


def part(**answers):
    """get_capability_interface with other answers for BUILD, RUNTIME, CORE."""
    return lambda self, kind: answers.get(kind.name, self)


class NoPart(trt.IPluginV3):
    """Has no parts."""

    def clone(self):
        return self


EVERY_KIND = [
    Case("name", 3, "to be a str; it is 3"),
    Case("plugin_version", 3, "to be a str; it is 3"),
    Case("plugin_namespace", 3.5, "to be a str; it is 3.5"),
    Case("plugin_namespace", b"x", "to be a str; it is b'x'"),
    Case("clone", returns(None), "None came"),
    Case("clone", returns("copy"), "clone(): expected an IPluginV"),
    Case("clone", returns("copy"), "'copy' came"),
    Case("num_outputs", None, "expected the number of outputs, an int; None", "num_outputs()"),
    Case("num_outputs", "two", "expected the number of outputs, an int; 'two'", "num_outputs()"),
    Case("num_outputs", 0, "returned 0; there must be an output", "getNbOutputs"),
    Case("num_outputs", 2**40, "expected the number of outputs, a 32-bit", "num_outputs()"),
    # types
    Case("types", Each(None), "expected a DataType; None came"),
    Case("types", Each("FP32"), "expected a DataType; 'FP32' came"),
    Case("types", Each(3), "expected a DataType; 3 came"),
    Case("types", Each(3.5), "expected a DataType; 3.5 came"),
    # shapes
    Case("shapes", Each(None), "expected DimsExprs; None came"),
    Case("shapes", Each(3), "expected DimsExprs; 3 came"),
    Case("shapes", Each((1, 2)), "must be an IDimensionExpr"),
    Case("shapes", Each(trt.DimsExprs(2)), "never set"),
    Case("shapes", Extent(lambda d, b, op: b.constant(-5)), "negative value -5", CPP),
    Case(
        "shapes",
        Extent(lambda d, b, op: b.operation(op.SUB, d[0], b.constant(9))),
        "negative value -7",
        CPP,
    ),
    Case("shapes", Extent(huge), "does not fit 64 bits", CPP),
    Case(
        "shapes",
        Extent(lambda d, b, op: b.operation(op.FLOOR_DIV, d[0], b.constant(0))),
        "by zero",
        CPP,
    ),
    Case("shapes", Extent(lambda d, b, op: b.constant(2**70)), "no 64-bit integer"),
    # methods of the wrong signature and methods that are no methods
    Case("types", 3, "not callable"),
    Case("configure_plugin", 3, "not callable"),
    Case("configure_plugin", lambda self: None, "positional argument"),
    Case("enqueue", lambda self: None, "positional argument"),
]
V3_AND_QUICK = [
    # parts
    Case("get_capability_interface", part(CORE=None), "no core part", CPP),
    Case("get_capability_interface", part(BUILD=None), "no build part", CPP),
    Case("get_capability_interface", part(RUNTIME=None), "no runtime part", CPP),
    Case("get_capability_interface", returns(None), "no core part", CPP),
    # lists of types and shapes
    Case("types", returns(None), "expected a list of DataType; None"),
    Case("types", returns([]), "list of 1 DataType, one for each output; 0 came"),
    Case("types", returns([trt.float32] * 2), "one for each output; 2 came"),
    Case("shapes", returns(None), "expected a list of DimsExprs; None"),
    Case("shapes", returns([]), "expected a list of 1 DimsExprs"),
    Case("shapes", returns([[], []]), "one for each output; 2 came"),
    Case("shapes", size_of(4), "declareSizeTensor() was called for output 4", CPP),
    Case("shapes", size_of(0), "so its rank must be 0, but it is 2", "output 0"),
    # tactics
    Case("get_valid_tactics", returns(None), "expected a list of tactics"),
    Case("get_valid_tactics", returns(3), "expected a list of tactics"),
    Case("get_valid_tactics", returns(["a"]), "an int; 'a' came"),
    Case("get_valid_tactics", returns([1.5]), "an int; 1.5 came"),
    Case("get_valid_tactics", returns([2**40]), "32-bit"),
    Case("get_valid_tactics", returns([0]), "gave tactic 0, but tactics must be positive", CPP),
    Case("get_valid_tactics", returns([-3]), "gave tactic -3, but tactics must be positive", CPP),
    Case("get_valid_tactics", returns([1, 1]), "tactic 1 twice", CPP),
    # aliases
    Case("get_aliased_input", returns(None), "the index of an input, or -1 for none, an int; None"),
    Case("get_aliased_input", returns("x"), "the index of an input, or -1 for none, an int; 'x'"),
    Case("get_aliased_input", returns(5), "returned 5, but there are 1 inputs", CPP),
    Case("get_aliased_input", returns(-2), "returned -2, but there are 1 inputs", CPP),
    # fields
    Case("get_fields_to_serialize", returns(None), "list of PluginField; None came"),
    Case("get_fields_to_serialize", returns("pads"), "list of PluginField; 'pads' came"),
    Case("get_fields_to_serialize", returns(3), "list of PluginField; 3 came"),
    Case("get_fields_to_serialize", returns([1]), "it has 1"),
]
V3_AND_V2 = [
    Case("num_outputs", -1, "must set num_outputs"),
    Case("formats", returns(False), "accepts no combination", CPP),
    Case("formats", returns(None), "accepts no combination", CPP),
    Case("formats", returns("yes"), "expected a bool; 'yes' came"),
    Case("get_workspace_size", returns(None), "number of bytes, an int; None"),
    Case("get_workspace_size", returns("1"), "number of bytes, an int; '1'"),
    Case("get_workspace_size", returns(-1), "number of bytes; -1 came"),
    Case("get_workspace_size", returns(2**70), "no 64-bit integer"),
    Case("get_workspace_size", returns(2**60), "which the device cannot provide", CPP),
    Case("attach_to_context", lambda self: None, "positional argument"),
]
ONE_KIND = {
    V3: [
        Case("get_capability_interface", part(BUILD=3), "expected an IPluginV3OneBuild; 3 came"),
        Case(
            "get_capability_interface",
            part(RUNTIME="x"),
            "expected an IPluginV3OneRuntime; 'x' came",
        ),
        Case("timing_cache_id", 3, "to be a str; it is 3"),
        Case("metadata_string", 3, "to be a str; it is 3"),
        Case("format_combination_limit", None, "None came"),
        Case("format_combination_limit", 0, "at least 1; 0 came"),
        Case(
            "formats",
            lambda self, pos, in_out, n: in_out[pos].desc.type == trt.int4,
            "accepts no combination",
            CPP,
        ),
        Case("attach_to_context", returns(None), "expected an IPluginV3"),
        Case("attach_to_context", returns(3), "expected an IPluginV3"),
        Case("attach_to_context", returns(NoPart()), "no core part", "getCapabilityInterface"),
    ],
    QUICK: [
        Case("num_outputs", -1, "returned -1; there must be an output", "getNbOutputs"),
        Case("get_num_outputs", returns(None), "an int; None came"),
        Case("get_num_outputs", returns(0), "returned 0", "getNbOutputs"),
        Case("formats", returns(None), "list of PluginTensorDesc; None"),
        Case("formats", returns([]), "2 inputs and outputs of each combination; 0 came"),
        Case("formats", returns([trt.PluginTensorDesc()]), "of each combination; 1 came"),
        Case("formats", returns([1, 2]), "expected a PluginTensorDesc; 1 came"),
        Case("get_timing_cache_id", returns(3), "expected a str or None; 3 came"),
        Case("get_metadata_string", returns(3), "expected a str or None; 3 came"),
    ],
    V2: [
        Case("types", returns([trt.float32]), "expected a DataType"),
        Case("shapes", size_of(0), "V2 plugins cannot have size tensors", CPP),
        Case(
            "formats",
            lambda self, pos, in_out, n: in_out[pos].type == trt.int4,
            "accepts no combination",
            CPP,
        ),
        # life cycle
        Case("initialize", returns(3), "returned 3 instead of 0"),
        Case("initialize", returns("ok"), "0 for success, an int; 'ok' came"),
        Case("serialize", returns(None), "expected bytes"),
        Case("serialize", returns(bytearray(b"x")), "expected bytes"),
        Case(
            "get_serialization_size",
            returns(5),
            "returned 5, but serialize() returned 2",
            "serialize",
        ),
        Case("get_serialization_size", returns("5"), "'5' came", "serialize"),
    ],
}
CASES = [
    *((kind, case) for kind in CLASSES for case in EVERY_KIND + ONE_KIND[kind]),
    *((kind, case) for kind in (V3, QUICK) for case in V3_AND_QUICK),
    *((kind, case) for kind in (V3, V2) for case in V3_AND_V2),
]


def members_of(case, kind):
    """What the faulty class has in the place of the right member."""
    answer = case.answer
    if isinstance(answer, Each):
        answer = returns(answer.value if kind == V2 else [answer.value])
    elif isinstance(answer, Extent):
        make = answer.make

        def answer(self, *args):
            # V2 hands the output's index first.
            inputs, builder = args[1 if kind == V2 else 0], args[-1]
            dims = trt.DimsExprs(inputs[0])
            dims[0] = make(inputs[0], builder, trt.DimensionOperation)
            return dims if kind == V2 else [dims]

    return {name_of(case.member, kind): answer}


@pytest.fixture(scope="module")
def healthy():
    """Engines of plugins that work, built before the faults."""
    made = [plugin_kinds.make(kind) for kind in CLASSES]
    yield [each.build(X.shape) for each in made]
    for each in made:
        each.deregister()


@pytest.mark.parametrize(
    "kind, case", CASES, ids=[f"{kind} {case.member}: {case.rule}" for kind, case in CASES]
)
def test_wrong_answers(kind, case, healthy, make_plugin):
    made = make_plugin(kind, name="Faulty", **members_of(case, kind))
    with pytest.raises((trt.Error, TypeError)) as caught:
        made.build(X.shape)(X)
    message = describe(caught.value)
    if case.where == CPP:
        callback = in_cpp(name_of(case.member, kind))
    else:
        callback = name_of(case.where or case.member, kind)
    assert callback in message and case.rule in message, message
    # Without its name or its core part nobody knows who the plugin is.
    if case.member not in (
        "name",
        "plugin_version",
        "plugin_namespace",
        "get_capability_interface",
    ):
        assert "'Faulty'" in message, message
    for engine in healthy:
        np.testing.assert_array_equal(engine(X), 2 * X)


@pytest.mark.parametrize("kind", CLASSES)
def test_answers_that_tensorrt_takes_too(kind, make_plugin):
    """Results of methods that return nothing are not looked at, NumPy's numbers are numbers."""
    members = {
        "configure_plugin": returns(3),
        "on_shape_change": returns("x"),
        "terminate": returns("x"),
        "num_outputs": np.int64(1),
        "get_valid_tactics": lambda self: (np.int32(3),),
        "get_workspace_size": returns(np.int64(64)),
        "initialize": returns(np.int32(0)),
    }
    if kind == V2:
        members["attach_to_context"] = returns(1)
    if kind != QUICK:
        right = getattr(plugin_kinds, kind).supports_format_combination
        members["supports_format_combination"] = lambda *args: np.bool_(right(*args))
    if kind == V3:
        members["set_tactic"] = returns(False)
    made = make_plugin(kind, **members)
    np.testing.assert_array_equal(made.build(X.shape)(X), 2 * X)


@pytest.mark.parametrize("kind", CLASSES)
def test_overflow_that_only_the_shape_shows(kind, make_plugin):
    class Power(plugin_kinds.Behaviour):
        def shapes(self, builder, dims):
            op, extent = trt.DimensionOperation, dims[0]
            for _ in range(5):
                extent = builder.operation(op.PROD, extent, extent)
            return [[builder.operation(op.MIN, dims[0], extent), dims[1]]]

    made = make_plugin(kind, Power())
    with pytest.raises(trt.Error, match="does not fit 64 bits"):
        made.build((-1, 3), shapes={"x0": ((1, 3), (4, 3), (4, 3))})


@pytest.mark.parametrize("kind", CLASSES)
def test_a_constructor_need_not_call_its_bases(kind, make_plugin):
    def forgetful(self, fields=None):
        self.fields = {}

    made = make_plugin(kind, __init__=forgetful)
    np.testing.assert_array_equal(made.build(X.shape)(X), 2 * X)


# Creators --------------------------------------------------------------------------------------


def only_clone():
    return type("OnlyClone", (), {"clone": returns(None)})()


def without(kind):
    """A plugin that lacks the part."""

    def answer(made):
        plugin = made.plugin_class()
        plugin.get_capability_interface = lambda asked: None if asked == kind else plugin
        return plugin

    return answer


BUILDS, LOADS = trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME
NO_PLUGINS = [
    (CLASSES, lambda made: None, "refused|could not make it"),
    (CLASSES, lambda made: 3, "expected an IPluginV"),
    ((V2,), lambda made: object(), "expected an IPluginV2DynamicExt with clone"),
    ((V2,), lambda made: only_clone(), "with clone, enqueue"),
    ((V3, QUICK), lambda made: NoPart(), "no core part"),
    ((V3, QUICK), without(RUNTIME), "no runtime part"),
]


MADE = [
    *(
        (kind, phase, answer, rule)
        for kinds, answer, rule in NO_PLUGINS
        for kind in kinds
        for phase in (BUILDS, LOADS)
    ),
    *((kind, BUILDS, without(BUILD), "no build part") for kind in (V3, QUICK)),
]


@pytest.mark.parametrize(
    "kind, phase, answer, rule", MADE, ids=[f"{k} {p.name} {rule}" for k, p, _, rule in MADE]
)
def test_creators_that_make_no_plugin(kind, phase, answer, rule, make_plugin, tmp_path):
    """For a node of a model while it is built, for a stored plugin while an engine is loaded."""

    def make(fields, now):
        return answer(made) if now == phase and broken else made.plugin_class(fields)

    broken = phase == BUILDS
    made = make_plugin(kind, name="Faulty", make=make)
    model = made.model(X.shape)
    if phase == LOADS:
        trt.build(model).save(tmp_path / "engine")
        broken = True
    with pytest.raises(trt.Error, match=rule) as caught:
        if phase == BUILDS:
            trt.build(model)
        else:
            trt.load(tmp_path / "engine")
    assert "Faulty" in describe(caught.value)
    assert "the node" in describe(caught.value)
