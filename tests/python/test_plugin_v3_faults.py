"""What goes wrong in a V3 plugin is one error that names plugin, callback and rule, and no more."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref

import numpy as np
import pytest
from onnx import TensorProto, helper

import opwright as trt
from plugin_testing import network
from v3_plugins import Creator, Twice, registered

X = np.random.default_rng(0).random((2, 3), np.float32)
BUILD, RUNTIME, CORE = (
    trt.PluginCapabilityType.BUILD,
    trt.PluginCapabilityType.RUNTIME,
    trt.PluginCapabilityType.CORE,
)


class Faulty(Twice):
    """Twice, with other methods."""

    plugin_name = "Faulty"
    plugin_version = "7"


class OwnError(Exception):
    pass


def faulty(**members):
    return type("Faulty", (Faulty,), members)()


def build_and_run(plugin, x=X):
    net = network()
    layer = net.add_plugin_v3([net.add_input("x", trt.float32, x.shape)], [], plugin)
    layer.name = "the layer"
    layer.get_output(0).name = "y"
    net.mark_output(layer.get_output(0))
    return trt.build(net)(x)


@pytest.fixture(scope="module")
def healthy():
    """An engine of a plugin that works, built before the faults."""
    plugin = Twice()
    with registered(plugin):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], plugin)
        net.mark_output(layer.get_output(0))
        yield trt.build(net)


@pytest.fixture(autouse=True)
def others_go_on(healthy):
    yield
    np.testing.assert_array_equal(healthy(X), 2 * X)


# Wrong answers ---------------------------------------------------------------------------------


def returns(value):
    return lambda self, *args: value


def shape_of(make):
    """get_output_shapes that returns a list with what `make` makes of the first input."""
    return lambda self, inputs, shape_inputs, builder: [make(inputs[0], builder)]


def first_extent(extent):
    """get_output_shapes whose first extent is what `extent(input, builder, op)` gives."""

    def make(dims, builder):
        made = trt.DimsExprs(dims)
        made[0] = extent(dims, builder, trt.DimensionOperation)
        return made

    return shape_of(make)


def huge(dims, builder, op):
    return builder.operation(op.PROD, builder.constant(2**62), builder.constant(3))


def foreign_expression():
    kept = []

    def get_output_shapes(self, inputs, shape_inputs, builder):
        kept.append(inputs[0])
        return [kept[0]]

    return get_output_shapes


class NoCapability(trt.IPluginV3):
    """Has no parts."""

    plugin_name = "Faulty"

    def clone(self):
        return self


def without(*kinds):
    return {
        "get_capability_interface": lambda self, kind: None if kind in kinds else self,
    }


WRONG_ANSWERS = [
    # attributes of the core part
    ({"plugin_name": 3}, "plugin_name", "to be a str; it is 3"),
    ({"plugin_version": 3}, "plugin_version", "to be a str; it is 3"),
    ({"plugin_namespace": 3.5}, "plugin_namespace", "to be a str; it is 3.5"),
    # parts
    (without(CORE), "getCapabilityInterface", "no core part"),
    (without(BUILD), "getCapabilityInterface", "no build part"),
    (without(RUNTIME), "getCapabilityInterface", "no runtime part"),
    (
        {"get_capability_interface": lambda self, kind: 3 if kind == BUILD else self},
        "get_capability_interface",
        "expected an IPluginV3OneBuild; 3 came",
    ),
    (
        {"get_capability_interface": lambda self, kind: "x" if kind == RUNTIME else self},
        "get_capability_interface",
        "expected an IPluginV3OneRuntime; 'x' came",
    ),
    ({"clone": returns(None)}, "clone", "expected an IPluginV3, an object"),
    ({"clone": returns("copy")}, "clone", "clone; 'copy' came"),
    # attributes of the build part
    ({"num_outputs": None}, "num_outputs", "expected the number of outputs"),
    ({"num_outputs": "two"}, "num_outputs", "expected the number of outputs"),
    ({"num_outputs": 0}, "getNbOutputs", "there must be an output"),
    ({"num_outputs": -1}, "num_outputs", "must set num_outputs"),
    ({"num_outputs": 2**40}, "num_outputs", "expected the number of outputs"),
    ({"timing_cache_id": 3}, "timing_cache_id", "to be a str; it is 3"),
    ({"metadata_string": 3}, "metadata_string", "to be a str; it is 3"),
    ({"format_combination_limit": None}, "format_combination_limit", "None came"),
    ({"format_combination_limit": 0}, "format_combination_limit", "at least 1; 0 came"),
    # types
    ({"get_output_data_types": returns(None)}, "get_output_data_types", "list of DataType; None"),
    ({"get_output_data_types": returns([])}, "get_output_data_types", "list of 1 DataType"),
    (
        {"get_output_data_types": returns([trt.float32] * 2)},
        "get_output_data_types",
        "one for each output; 2 came",
    ),
    ({"get_output_data_types": returns(["FP32"])}, "get_output_data_types", "a DataType; 'FP32'"),
    ({"get_output_data_types": returns([3])}, "get_output_data_types", "a DataType; 3 came"),
    # shapes
    ({"get_output_shapes": returns(None)}, "get_output_shapes", "list of DimsExprs; None"),
    ({"get_output_shapes": returns([])}, "get_output_shapes", "list of 1 DimsExprs"),
    ({"get_output_shapes": returns([None])}, "get_output_shapes", "expected DimsExprs; None came"),
    ({"get_output_shapes": returns([(1, 2)])}, "get_output_shapes", "must be an IDimensionExpr"),
    ({"get_output_shapes": returns([trt.DimsExprs(2)])}, "get_output_shapes", "never set"),
    (
        {"get_output_shapes": first_extent(lambda d, b, op: b.constant(-5))},
        "getOutputShapes",
        "negative value -5",
    ),
    (
        {
            "get_output_shapes": first_extent(
                lambda d, b, op: b.operation(op.SUB, d[0], b.constant(9))
            )
        },
        "getOutputShapes",
        "negative value -7",
    ),
    ({"get_output_shapes": first_extent(huge)}, "getOutputShapes", "not fit 64 bits"),
    (
        {
            "get_output_shapes": first_extent(
                lambda d, b, op: b.operation(op.FLOOR_DIV, d[0], b.constant(0))
            )
        },
        "getOutputShapes",
        "by zero",
    ),
    (
        {"get_output_shapes": first_extent(lambda d, b, op: b.constant(2**70))},
        "get_output_shapes",
        "no 64-bit integer",
    ),
    (
        {
            "get_output_shapes": first_extent(
                lambda d, b, op: b.declare_size_tensor(4, b.constant(1), b.constant(2))
            )
        },
        "getOutputShapes",
        "output 4",
    ),
    # formats
    (
        {"supports_format_combination": returns(False)},
        "supportsFormatCombination",
        "accepts no combination",
    ),
    (
        {"supports_format_combination": returns(None)},
        "supportsFormatCombination",
        "accepts no combination",
    ),
    (
        {"supports_format_combination": returns("yes")},
        "supports_format_combination",
        "expected a bool; 'yes' came",
    ),
    (
        {
            "supports_format_combination": lambda self, pos, in_out, n: (
                in_out[pos].desc.type == trt.int4
            )
        },
        "supportsFormatCombination",
        "accepts no combination",
    ),
    # tactics
    ({"get_valid_tactics": returns(None)}, "get_valid_tactics", "expected a list of tactics"),
    ({"get_valid_tactics": returns(3)}, "get_valid_tactics", "expected a list of tactics"),
    ({"get_valid_tactics": returns(["a"])}, "get_valid_tactics", "an int; 'a' came"),
    ({"get_valid_tactics": returns([1.5])}, "get_valid_tactics", "an int; 1.5 came"),
    ({"get_valid_tactics": returns([2**40])}, "get_valid_tactics", "32-bit"),
    ({"get_valid_tactics": returns([0])}, "getValidTactics", "must be positive"),
    ({"get_valid_tactics": returns([-3])}, "getValidTactics", "must be positive"),
    ({"get_valid_tactics": returns([1, 1])}, "getValidTactics", "tactic 1 twice"),
    # workspace
    ({"get_workspace_size": returns(None)}, "get_workspace_size", "number of bytes, an int; None"),
    ({"get_workspace_size": returns("1")}, "get_workspace_size", "number of bytes, an int; '1'"),
    ({"get_workspace_size": returns(-1)}, "get_workspace_size", "number of bytes; -1 came"),
    ({"get_workspace_size": returns(2**70)}, "get_workspace_size", "no 64-bit integer"),
    ({"get_workspace_size": returns(2**60)}, "getWorkspaceSize", "which the device cannot provide"),
    # aliases
    ({"get_aliased_input": returns(None)}, "get_aliased_input", "the index of an input"),
    ({"get_aliased_input": returns(5)}, "getAliasedInput", "there are 1 inputs"),
    ({"get_aliased_input": returns(-2)}, "getAliasedInput", "there are 1 inputs"),
    # runtime
    ({"attach_to_context": returns(None)}, "attach_to_context", "expected an IPluginV3"),
    ({"attach_to_context": returns(3)}, "attach_to_context", "expected an IPluginV3"),
    (
        {"attach_to_context": lambda self, context: NoCapability()},
        "getCapabilityInterface",
        "no core part",
    ),
    ({"get_fields_to_serialize": returns(None)}, "get_fields_to_serialize", "None came"),
    ({"get_fields_to_serialize": returns("pads")}, "get_fields_to_serialize", "'pads' came"),
    ({"get_fields_to_serialize": returns([1])}, "get_fields_to_serialize", "it has 1"),
    # methods of the wrong signature and methods that are no methods
    ({"get_output_data_types": 3}, "get_output_data_types", "not callable"),
    ({"enqueue": lambda self: None}, "enqueue", "positional argument"),
]


def describe(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def case_name(case):
    members, callback, rule = case
    return f"{next(iter(members))}: {rule}"


@pytest.mark.parametrize("case", WRONG_ANSWERS, ids=case_name)
def test_wrong_answers(case):
    members, callback, rule = case
    plugin = faulty(**members)
    with registered(Faulty(), lambda phase: plugin), pytest.raises(Exception) as caught:
        build_and_run(plugin)
    message = describe(caught.value)
    assert isinstance(caught.value, (trt.Error, TypeError)), message
    if "plugin_name" not in members:
        assert "Faulty" in message
    assert callback in message and rule in message, message


def test_answers_that_tensorrt_takes_too():
    """Results of methods that return nothing are not looked at, NumPy's numbers are numbers."""
    plugin = faulty(
        configure_plugin=returns(3),
        on_shape_change=returns("x"),
        set_tactic=returns(False),
        num_outputs=np.int64(1),
        get_valid_tactics=lambda self: (np.int32(3),),
        get_workspace_size=returns(np.int64(64)),
        supports_format_combination=lambda self, pos, in_out, n: np.bool_(
            in_out[pos].desc.format == trt.TensorFormat.LINEAR
        ),
    )
    with registered(plugin):
        np.testing.assert_array_equal(build_and_run(plugin), 2 * X)


def test_a_constructor_need_not_call_its_bases():
    class Forgetful(Twice):
        plugin_name = "Forgetful"

        def __init__(self):
            self.made = True

    with registered(Forgetful()):
        np.testing.assert_array_equal(build_and_run(Forgetful()), 2 * X)


# Exceptions ------------------------------------------------------------------------------------

METHODS = [
    "get_capability_interface",
    "clone",
    "configure_plugin",
    "get_output_data_types",
    "get_output_shapes",
    "supports_format_combination",
    "get_workspace_size",
    "get_valid_tactics",
    "get_aliased_input",
    "set_tactic",
    "on_shape_change",
    "enqueue",
    "attach_to_context",
    "get_fields_to_serialize",
]
ATTRIBUTES = ["plugin_name", "num_outputs", "timing_cache_id", "format_combination_limit"]


def raising(self, *args):
    raise OwnError("on purpose")


@pytest.mark.parametrize("method", METHODS + ATTRIBUTES)
def test_exceptions_keep_type_and_traceback(method):
    member = property(raising) if method in ATTRIBUTES else raising
    plugin = faulty(**{method: member})
    with registered(Faulty(), lambda phase: plugin), pytest.raises(OwnError) as caught:
        build_and_run(plugin)
    assert str(caught.value) == "on purpose"
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "raising"
    (note,) = caught.value.__notes__
    if method == "plugin_name":  # what makes a part a core part is looked at with the part
        assert "get_capability_interface()" in note
        return
    assert f"{method}()" in note
    if method != "get_capability_interface":
        assert "plugin 'Faulty'" in note


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_exceptions_of_the_interpreter(kind):
    def enqueue(self, *args):
        raise kind

    with registered(Faulty(), lambda phase: faulty(enqueue=enqueue)), pytest.raises(kind):
        build_and_run(faulty(enqueue=enqueue))


def test_an_interrupt_ends_a_build_whatever_else_could_be_tried():
    def enqueue(self, *args):
        if self.tactic == 1:
            raise KeyboardInterrupt
        Twice.enqueue(self, *args)

    members = {"enqueue": enqueue, "get_valid_tactics": returns([1, 2])}
    with registered(Faulty(), lambda phase: faulty(**members)), pytest.raises(KeyboardInterrupt):
        build_and_run(faulty(**members))


def test_a_tactic_that_raises_is_left_out():
    def enqueue(self, *args):
        if self.tactic == 1:
            raise OwnError("only tactic 2 works")
        Twice.enqueue(self, *args)

    members = {"enqueue": enqueue, "get_valid_tactics": returns([1, 2])}
    with registered(Faulty(), lambda phase: faulty(**members)):
        np.testing.assert_array_equal(build_and_run(faulty(**members)), 2 * X)


def run(context, x=X):
    y = np.empty_like(x)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    context.execute_async_v3(0)
    return y


def test_other_contexts_of_the_engine_go_on():
    class Moody(Faulty):
        """Fails in the context that was made second."""

        contexts = 0
        fails = False

        def attach_to_context(self, context):
            Moody.contexts += 1
            made = self.clone()
            made.number = Moody.contexts
            return made

        def enqueue(self, *args):
            if Moody.fails and self.number == Moody.contexts:
                raise OwnError("moody")
            super().enqueue(*args)

    plugin = Moody()
    with registered(plugin):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], plugin)
        layer.get_output(0).name = "y"
        net.mark_output(layer.get_output(0))
        builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        engine = builder.build_engine_with_config(net, builder.create_builder_config())
        first, second = engine.create_execution_context(), engine.create_execution_context()
        # A context's kernels are made with its first run: the second run's fail from now on.
        np.testing.assert_array_equal(run(first), 2 * X)
        np.testing.assert_array_equal(run(second), 2 * X)
        Moody.fails = True
        for _ in range(3):
            with pytest.raises(OwnError):
                run(second)
            np.testing.assert_array_equal(run(first), 2 * X)
        Moody.fails = False
        np.testing.assert_array_equal(run(second), 2 * X)


def test_overflow_that_only_the_shape_shows():
    def power(dims, builder, op):
        extent = dims[0]
        for _ in range(5):
            extent = builder.operation(op.PROD, extent, extent)
        return builder.operation(op.MIN, dims[0], extent)

    plugin = faulty(get_output_shapes=first_extent(power))
    with registered(plugin), pytest.raises(trt.Error, match="does not fit 64 bits"):
        net = network()
        layer = net.add_plugin_v3([net.add_input("x", trt.float32, (-1, 3))], [], plugin)
        net.mark_output(layer.get_output(0))
        trt.build(net, shapes={"x": ((1, 3), (4, 3), (4, 3))})


# Creators --------------------------------------------------------------------------------------


def model():
    node = helper.make_node("Faulty", ["x"], ["y"], name="the node", plugin_version="7")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "graph",
        [value("x", TensorProto.FLOAT, X.shape)],
        [value("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


class FaultyCreator(Creator):
    plugin_version = "7"


@pytest.mark.parametrize(
    "make, rule",
    [
        (lambda: None, "refused|could not make it"),
        (lambda: 3, "expected an IPluginV3"),
        (NoCapability, "no core part"),
        (lambda: faulty(**without(RUNTIME)), "no runtime part"),
        (lambda: raising(None), "on purpose"),
    ],
    ids=["None", "int", "no part", "no runtime part", "raises"],
)
@pytest.mark.parametrize("phase", [trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME])
def test_creators(make, rule, phase):
    registry = trt.get_plugin_registry()
    state = {}
    creator = FaultyCreator("Faulty", lambda p: make() if p == state["phase"] else Faulty())
    assert registry.register_creator(creator)
    try:
        with pytest.raises(Exception, match=rule) as caught:
            state["phase"] = phase
            trt.build(model())
    finally:
        registry.deregister_creator(creator)
    message = describe(caught.value)
    assert "Faulty" in message and "the node" in message, message
    if make is NoCapability:
        assert isinstance(caught.value, trt.Error)


# Leaks -----------------------------------------------------------------------------------------


def test_plugins_are_freed():
    """As many clones die as are made, over engines, contexts and failures."""
    alive = weakref.WeakSet()

    class Counted(Twice):
        plugin_name = "Counted"
        fails = False

        def __init__(self):
            alive.add(self)

        def clone(self):
            return Counted()

        def get_workspace_size(self, inputs, outputs):
            if Counted.fails:
                raise OwnError("counted")
            return 64

    with registered(Counted, lambda phase: Counted()):
        for fails in (False, True) * 3:
            Counted.fails = fails
            if fails:
                with pytest.raises(OwnError):
                    build_and_run(Counted())
            else:
                build_and_run(Counted())
        gc.collect()
        assert not alive


def test_no_reference_is_lost_over_many_clones():
    class Copied(Twice):
        plugin_name = "Copied"

    plugin = Copied()
    registry = trt.get_plugin_registry()
    desc = trt.PluginTensorDesc()
    with registered(plugin) as creator:
        net = network()
        x = net.add_input("x", trt.float32, X.shape)
        net.add_plugin_v3([x], [], plugin)
        gc.collect()
        before = [sys.getrefcount(o) for o in (plugin, creator, Copied, desc, trt.float32, None)]
        objects = len(gc.get_objects())
        for _ in range(10_000):
            made = registry.get_creator("Copied", "1", "").create_plugin(
                "name", trt.PluginFieldCollection(), trt.TensorRTPhase.BUILD
            )
            del made
        for _ in range(1000):
            one = network()
            one.add_plugin_v3([one.add_input("x", trt.float32, X.shape)], [], plugin)
            del one
        gc.collect()
        after = [sys.getrefcount(o) for o in (plugin, creator, Copied, desc, trt.float32, None)]
        # The interpreter's own caches may keep a few.
        assert all(abs(b - a) < 100 for a, b in zip(before, after, strict=True)), (before, after)
        assert abs(len(gc.get_objects()) - objects) < 100
