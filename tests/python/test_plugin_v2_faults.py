"""What goes wrong in a V2 plugin is one error that names plugin, callback and rule, and no more."""

from __future__ import annotations

import gc
import sys
import traceback

import numpy as np
import pytest
from onnx import TensorProto, helper

import opwright as trt
from plugin_testing import network
from v2_plugins import Creator, Twice, one_layer, registered

X = np.random.default_rng(0).random((2, 3), np.float32)


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


@pytest.fixture(scope="module")
def healthy():
    """An engine of a plugin that works, built before the faults."""
    with registered(Twice()):
        net, _ = one_layer(Twice(), X.shape)
        yield trt.build(net)


@pytest.fixture(autouse=True)
def others_go_on(healthy):
    yield
    np.testing.assert_array_equal(healthy(X), 2 * X)


def describe(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


# Wrong answers ---------------------------------------------------------------------------------


def returns(value):
    return lambda self, *args: value


def first_extent(extent):
    """get_output_dimensions whose first extent is what `extent(input, builder, op)` gives."""

    def get_output_dimensions(self, output_index, inputs, builder):
        dims = trt.DimsExprs(inputs[0])
        dims[0] = extent(inputs[0], builder, trt.DimensionOperation)
        return dims

    return {"get_output_dimensions": get_output_dimensions}


def huge(dims, builder, op):
    return builder.operation(op.PROD, builder.constant(2**62), builder.constant(3))


def size_tensor(dims, builder, op):
    return builder.declare_size_tensor(0, builder.constant(1), builder.constant(2))


WRONG_ANSWERS = [
    # attributes
    ({"plugin_type": 3}, "plugin_type", "to be a str; it is 3"),
    ({"plugin_version": 3}, "plugin_version", "to be a str; it is 3"),
    ({"plugin_namespace": b"x"}, "plugin_namespace", "to be a str; it is b'x'"),
    ({"num_outputs": None}, "num_outputs", "expected the number of outputs"),
    ({"num_outputs": "two"}, "num_outputs", "expected the number of outputs"),
    ({"num_outputs": 0}, "getNbOutputs", "there must be an output"),
    ({"num_outputs": -1}, "num_outputs", "must set num_outputs"),
    ({"num_outputs": 2**40}, "num_outputs", "expected the number of outputs"),
    ({"clone": returns(None)}, "clone", "expected an IPluginV2DynamicExt; None came"),
    ({"clone": returns("copy")}, "clone", "expected an IPluginV2DynamicExt; 'copy' came"),
    # types
    ({"get_output_datatype": returns(None)}, "get_output_datatype", "a DataType; None came"),
    ({"get_output_datatype": returns(3)}, "get_output_datatype", "a DataType; 3 came"),
    ({"get_output_datatype": returns([trt.float32])}, "get_output_datatype", "expected a DataType"),
    # shapes
    ({"get_output_dimensions": returns(None)}, "get_output_dimensions", "DimsExprs; None came"),
    ({"get_output_dimensions": returns(3)}, "get_output_dimensions", "DimsExprs; 3 came"),
    ({"get_output_dimensions": returns((1, 2))}, "get_output_dimensions", "an IDimensionExpr"),
    ({"get_output_dimensions": returns(trt.DimsExprs(2))}, "get_output_dimensions", "never set"),
    (first_extent(lambda d, b, op: b.constant(-5)), "getOutputDimensions", "negative value -5"),
    (first_extent(huge), "getOutputDimensions", "64 bits"),
    (
        first_extent(lambda d, b, op: b.operation(op.FLOOR_DIV, d[0], b.constant(0))),
        "getOutputDimensions",
        "by zero",
    ),
    (
        first_extent(lambda d, b, op: b.constant(2**70)),
        "get_output_dimensions",
        "no 64-bit integer",
    ),
    (first_extent(size_tensor), "getOutputDimensions", "V2 plugins cannot have size tensors"),
    # formats
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
        {"supports_format_combination": lambda self, pos, in_out, n: in_out[pos].type == trt.int4},
        "supportsFormatCombination",
        "accepts no combination",
    ),
    # workspace
    ({"get_workspace_size": returns(None)}, "get_workspace_size", "number of bytes, an int; None"),
    ({"get_workspace_size": returns("1")}, "get_workspace_size", "number of bytes, an int; '1'"),
    ({"get_workspace_size": returns(-1)}, "get_workspace_size", "number of bytes; -1 came"),
    ({"get_workspace_size": returns(2**70)}, "get_workspace_size", "no 64-bit integer"),
    ({"get_workspace_size": returns(2**60)}, "getWorkspaceSize", "the device cannot provide"),
    # life cycle
    ({"initialize": returns(3)}, "initialize", "returned 3 instead of 0"),
    ({"initialize": returns("ok")}, "initialize", "0 for success, an int; 'ok' came"),
    ({"serialize": returns(None)}, "serialize", "expected bytes"),
    ({"serialize": returns(bytearray(b"x"))}, "serialize", "expected bytes"),
    ({"get_serialization_size": returns(5)}, "serialize", "returned 5, but serialize() returned 0"),
    ({"get_serialization_size": returns("5")}, "serialize", "'5' came"),
    # methods of the wrong signature and methods that are no methods
    ({"get_output_datatype": 3}, "get_output_datatype", "not callable"),
    ({"configure_plugin": lambda self: None}, "configure_plugin", "positional argument"),
    ({"attach_to_context": lambda self: None}, "attach_to_context", "positional argument"),
    ({"enqueue": lambda self: None}, "enqueue", "positional argument"),
]


def case_name(case):
    members, _, rule = case
    return f"{next(iter(members))}: {rule}"


@pytest.mark.parametrize("case", WRONG_ANSWERS, ids=case_name)
def test_wrong_answers(case):
    members, callback, rule = case
    with pytest.raises(Exception) as caught:
        build_and_run(faulty(**members))
    message = describe(caught.value)
    assert isinstance(caught.value, (trt.Error, TypeError)), message
    assert callback in message and rule in message, message
    if "plugin_type" not in members:
        assert "Faulty" in message, message


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


def test_answers_that_tensorrt_takes_too():
    """Results of methods that return nothing are not looked at, NumPy's numbers are numbers."""
    plugin = faulty(
        configure_plugin=returns(3),
        terminate=returns("x"),
        attach_to_context=returns(1),
        initialize=returns(np.int32(0)),
        num_outputs=np.int64(1),
        get_workspace_size=returns(np.int64(64)),
        supports_format_combination=lambda self, pos, in_out, n: np.bool_(
            in_out[pos].format == trt.TensorFormat.LINEAR
        ),
    )
    np.testing.assert_array_equal(build_and_run(plugin), 2 * X)


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

    class Incomplete(trt.IPluginV2DynamicExt):
        num_outputs = 1
        plugin_type = "Incomplete"

        def clone(self):
            return self

    with pytest.raises(NotImplementedError, match="Incomplete must define get_output_dimensions"):
        net.add_plugin_v2([x], Incomplete())


# Creators --------------------------------------------------------------------------------------


def model():
    graph = helper.make_graph(
        [helper.make_node("Faulty", ["x"], ["y"], plugin_version="7")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize(
    "result, message",
    [
        (None, "refused"),
        ("plugin", "expected an IPluginV2DynamicExt with clone.*'plugin' came"),
        (object(), "expected an IPluginV2DynamicExt with clone"),
        (type("OnlyClone", (), {"clone": returns(None)})(), "with clone, enqueue"),
    ],
)
def test_creators_that_make_no_plugin(result, message, tmp_path):
    """create_plugin for a node of a model, deserialize_plugin for a stored engine."""
    path = tmp_path / "engine"
    with registered(Creator("Faulty", lambda given: faulty(), "7")):
        trt.build(model()).save(path)
    with registered(Creator("Faulty", lambda given: result, "7")):
        with pytest.raises((trt.Error, TypeError), match=message):
            trt.build(model())
        expected = "could not make it from the 0 bytes" if result is None else message
        with pytest.raises((trt.Error, TypeError), match=expected):
            trt.load(path)


def test_creators_that_raise():
    def make(given):
        raise OwnError("from the creator")

    with registered(Creator("Faulty", make, "7")):
        with pytest.raises(OwnError, match="from the creator"):
            trt.build(model())
        with pytest.raises(OwnError, match="from the creator"):
            build_and_run(faulty(), Creator("Faulty", make, "8"))


# Exceptions ------------------------------------------------------------------------------------

METHODS = [
    "clone",
    "get_output_datatype",
    "get_output_dimensions",
    "supports_format_combination",
    "configure_plugin",
    "get_workspace_size",
    "initialize",
    "attach_to_context",
    "enqueue",
    "serialize",
    "get_serialization_size",
]


def raising(self, *args):
    raise OwnError("on purpose")


@pytest.mark.parametrize("method", METHODS)
def test_exceptions_keep_type_and_traceback(method):
    with pytest.raises(OwnError, match="on purpose") as caught:
        build_and_run(faulty(**{method: raising}))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "raising"
    note = describe(caught.value)
    callback = "serialize" if method == "get_serialization_size" else method
    assert f"{callback}()" in note and "plugin 'Faulty'" in note


@pytest.mark.parametrize("method", ["terminate", "detach_from_context", "destroy"])
def test_exceptions_of_an_end_are_reported_as_those_of_del(method, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_type))
    np.testing.assert_array_equal(build_and_run(faulty(**{method: raising})), 2 * X)
    gc.collect()  # all that raises is gone before the hook is
    assert set(reported) == {OwnError}


def test_other_contexts_of_the_engine_go_on():
    class Moody(Twice):
        """Fails in the context that was made last."""

        contexts = 0
        fails = False

        def attach_to_context(self, cudnn, cublas, allocator):
            Moody.contexts += 1
            self.number = Moody.contexts

        def enqueue(self, *args):
            if Moody.fails and self.number == Moody.contexts:
                raise OwnError("moody")
            super().enqueue(*args)

    def run(context):
        y = np.empty_like(X)
        context.set_tensor_address("x", X.ctypes.data)
        context.set_tensor_address("y", y.ctypes.data)
        context.execute_async_v3(0)
        return y

    with registered(Moody()):
        net, _ = one_layer(Moody(), X.shape)
        builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        engine = builder.build_engine_with_config(net, builder.create_builder_config())
        first, second = engine.create_execution_context(), engine.create_execution_context()
        for context in (first, second):
            np.testing.assert_array_equal(run(context), 2 * X)
        Moody.fails = True
        for _ in range(3):
            with pytest.raises(OwnError):
                run(second)
            np.testing.assert_array_equal(run(first), 2 * X)
        Moody.fails = False
        np.testing.assert_array_equal(run(second), 2 * X)
