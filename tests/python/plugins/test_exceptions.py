"""What a plugin of any kind raises arrives with type, traceback and place, and nothing else is harmed by it."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref

import numpy as np
import pytest

import opwright as trt
import plugin_kinds
from plugin_kinds import CLASSES, KINDS, Behaviour

X = np.random.default_rng(0).random((2, 3), np.float32)

PARTS = ["get_capability_interface", "get_aliased_input", "get_valid_tactics", "set_tactic"]
SHARED = ["clone", "configure_plugin", "enqueue"]
METHODS = {
    "function": ["register", "autotune", "impl"],
    "V3": [
        *SHARED,
        *PARTS,
        "get_output_data_types",
        "get_output_shapes",
        "supports_format_combination",
        "get_workspace_size",
        "on_shape_change",
        "attach_to_context",
        "get_fields_to_serialize",
        # attributes
        "plugin_name",
        "num_outputs",
        "timing_cache_id",
        "format_combination_limit",
    ],
    "Quick": [
        *SHARED,
        *PARTS,
        "get_num_outputs",
        "get_output_data_types",
        "get_output_shapes",
        "get_supported_format_combinations",
        "get_timing_cache_id",
        "get_fields_to_serialize",
    ],
    "V2": [
        *SHARED,
        "get_output_datatype",
        "get_output_dimensions",
        "supports_format_combination",
        "get_workspace_size",
        "initialize",
        "attach_to_context",
        "serialize",
        "get_serialization_size",
    ],
}
ATTRIBUTES = ["plugin_name", "num_outputs", "timing_cache_id", "format_combination_limit"]


class OwnError(Exception):
    pass


class Stop(BaseException):
    """No Exception, as SystemExit."""


def raising(*args):
    raise OwnError("on purpose")


@pytest.fixture(scope="module")
def healthy():
    """Engines of plugins that work, built before the faults."""
    made = [plugin_kinds.make(kind) for kind in KINDS]
    yield [each.build(X.shape) for each in made]
    for each in made:
        each.deregister()


@pytest.fixture(autouse=True)
def others_go_on(healthy):
    yield
    for engine in healthy:
        np.testing.assert_array_equal(engine(X), 2 * X)


@pytest.mark.parametrize(
    "kind, method", [(kind, method) for kind in KINDS for method in METHODS[kind]]
)
def test_exceptions_keep_type_and_traceback(kind, method, make_plugin):
    member = property(raising) if method in ATTRIBUTES else raising
    made = make_plugin(kind, name="Faulty", **{method: member})
    with pytest.raises(OwnError) as caught:
        made.build(X.shape)(X)
    assert str(caught.value) == "on purpose"
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "raising"
    (note,) = caught.value.__notes__
    if kind == "function":
        assert f"{method} function of plugin '{made.id}'" in note
        return
    # What makes a part a core part is looked at with the part; serialize() is asked for the size.
    asked = {"plugin_name": "get_capability_interface", "get_serialization_size": "serialize"}
    assert f"{asked.get(method, method)}()" in note
    if method not in ("get_capability_interface", "plugin_name"):
        assert "plugin 'Faulty'" in note


class Failing(Behaviour):
    """Raises what it is told to, while it is told to."""

    error: type | None = None
    configure_error: type | None = None

    def configure(self, inputs, outputs):
        if self.configure_error is not None:
            raise self.configure_error("now")

    def run(self, call):
        if self.error is not None:
            raise self.error("now")
        super().run(call)


@pytest.mark.parametrize(
    "error", [OwnError, KeyboardInterrupt, SystemExit, GeneratorExit, Stop, MemoryError]
)
def test_an_engine_goes_on_after_a_run_that_raised(kind, error, make_plugin):
    does = Failing()
    engine = make_plugin(kind, does).build(X.shape)
    does.error = error
    with pytest.raises(error, match="now"):
        engine(X)
    does.error = None
    np.testing.assert_array_equal(engine(X), 2 * X)
    does.error = error
    with pytest.raises(error, match="now"):  # and where the tuner runs it
        make_plugin(kind, does).build(X.shape)


@pytest.mark.parametrize("kind", ["function", "V3", "Quick"])
@pytest.mark.parametrize("error", [OwnError, KeyboardInterrupt, SystemExit])
def test_a_tactic_that_raises_is_left_out_but_an_interrupt_ends_the_build(kind, error, make_plugin):
    class OneWorks(Behaviour):
        tactics = (1, 2)

        def run(self, call):
            if call.tactic == 1:
                raise error("only tactic 2 works")
            super().run(call)

    made = make_plugin(kind, OneWorks())
    if error is OwnError:
        np.testing.assert_array_equal(made.build(X.shape)(X), 2 * X)
    else:
        with pytest.raises(error, match="only tactic 2"):
            made.build(X.shape)


def run(context, x=X):
    y = np.empty_like(x)
    context.set_tensor_address("x0", x.ctypes.data)
    context.set_tensor_address("y0", y.ctypes.data)
    context.execute_async_v3(0)
    return y


@pytest.mark.parametrize("kind", ["V3", "V2"])
def test_other_contexts_of_the_engine_go_on(kind, make_plugin):
    class Moody(Behaviour):
        """Fails in the context that was made last."""

        contexts = 0
        fails = False

        def attach(self):
            self.contexts += 1
            return self.contexts

        def run(self, call):
            if self.fails and call.context == self.contexts:
                raise OwnError("moody")
            super().run(call)

    does = Moody()
    engine = make_plugin(kind, does).build(X.shape).engine
    first, second = engine.create_execution_context(), engine.create_execution_context()
    # A context's kernels are made with its first run: the second run's fail from now on.
    np.testing.assert_array_equal(run(first), 2 * X)
    np.testing.assert_array_equal(run(second), 2 * X)
    does.fails = True
    for _ in range(3):
        with pytest.raises(OwnError):
            run(second)
        np.testing.assert_array_equal(run(first), 2 * X)
    does.fails = False
    np.testing.assert_array_equal(run(second), 2 * X)


@pytest.mark.parametrize("kind", CLASSES)
def test_creators_that_raise(kind, make_plugin, tmp_path):
    fails = []

    def make(fields, phase):
        return raising() if fails else made.plugin_class(fields)

    made = make_plugin(kind, name="Faulty", make=make)
    trt.build(made.model(X.shape)).save(tmp_path / "engine")
    fails.append(True)
    for step in (lambda: trt.build(made.model(X.shape)), lambda: trt.load(tmp_path / "engine")):
        with pytest.raises(OwnError, match="on purpose") as caught:
            step()
        (note,) = caught.value.__notes__
        assert "Faulty" in note and "the node" in note


@pytest.mark.parametrize("kind", CLASSES)
def test_expressions_end_with_their_call(kind, make_plugin):
    class Keeping(Behaviour):
        def shapes(self, builder, dims):
            self.kept = dims[0], builder
            return [dims]

    does = Keeping()
    make_plugin(kind, does).network(X.shape)
    for use in (lambda: does.kept[0].is_constant(), lambda: does.kept[1].constant(3)):
        with pytest.raises(trt.Error, match="cannot be used after the call that it was"):
            use()


# What is freed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_no_plugin_outlives_its_engine(kind, make_plugin):
    """As many clones die as are made, over engines, contexts and failures."""
    alive, made_in_all = weakref.WeakSet(), []

    def init(self, fields=None):
        getattr(plugin_kinds, kind).__init__(self, fields)
        alive.add(self)
        made_in_all.append(None)

    does = Failing()
    made = make_plugin(kind, does, __init__=init)
    for errors in ((None, None), (OwnError, None), (None, OwnError)) * 2:
        does.error, does.configure_error = errors
        if errors == (None, None):
            np.testing.assert_array_equal(made.build(X.shape)(X), 2 * X)
        else:
            with pytest.raises(OwnError):
                made.build(X.shape)
    gc.collect()
    assert not alive and len(made_in_all) > 12


@pytest.mark.parametrize("kind", CLASSES)
def test_no_reference_is_lost_over_many_clones(kind, make_plugin):
    made = make_plugin(kind)
    plugin, creator = made.plugin_class(), made.creator
    registry, fields = trt.get_plugin_registry(), trt.PluginFieldCollection([])
    given = {
        "V3": ("name", fields, trt.TensorRTPhase.BUILD),
        "Quick": ("name", made.namespace, fields, trt.TensorRTPhase.BUILD),
        "V2": ("name", fields),
    }[kind]

    def cycle(times):
        for i in range(times):
            found = registry.get_creator(made.name, plugin_kinds.VERSION, made.namespace)
            one = found.create_plugin(*given).clone()
            if kind == "V2":  # makes a face of the plugin and ends it
                assert one.get_output_shape(0, [X.shape]) == X.shape
            if i % 10 == 0:
                made.network(X.shape, plugin=plugin)
        creator.calls.clear()
        del one, found
        gc.collect()
        watched = plugin, creator, made.plugin_class, trt.float32, None
        return [sys.getrefcount(each) for each in watched], len(gc.get_objects())

    before, objects = cycle(10)
    after, objects_after = cycle(10_000)
    # The interpreter's own caches may keep a few.
    assert all(abs(b - a) < 100 for a, b in zip(before, after, strict=True)), (before, after)
    assert abs(objects_after - objects) < 100
