"""Error recorders: who hears of what, once."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest

import opwright as trt
from add_plugin import Add, Creator, Recorder, X, onnx_model, registered
from plugin_testing import network

CODES = trt.ErrorCodeTRT


class Keeping(trt.IErrorRecorder):
    """A recorder as programs written for TensorRT have it."""

    def __init__(self, room=2):
        trt.IErrorRecorder.__init__(self)
        self.room, self.errors, self.dropped = room, [], False

    def num_errors(self):
        return len(self.errors)

    def get_error_code(self, index):
        return self.errors[index][0]

    def get_error_desc(self, index):
        return self.errors[index][1]

    def has_overflowed(self):
        return self.dropped

    def clear(self):
        self.errors, self.dropped = [], False

    def report_error(self, code, desc):
        self.dropped |= len(self.errors) == self.room
        self.errors = (self.errors + [(code, desc)])[: self.room]
        return False


def take(recorder):
    """What was recorded since the last call."""
    errors, recorder.errors = recorder.errors, []
    return errors


def plugin_network(builder, plugin):
    net = builder.create_network()
    layer = net.add_plugin_v3([net.add_input("x", trt.float32, X.shape)], [], plugin)
    net.mark_output(layer.get_output(0))
    return net


class Failing(Add):
    """Fails in `enqueue`, or in the method that `where` names."""

    where = "enqueue"

    def enqueue(self, *args):
        if self.where == "enqueue":
            raise ValueError("not today")
        super().enqueue(*args)

    def configure_plugin(self, inputs, outputs):
        if self.where == "configure_plugin":
            raise ValueError("not today")


class FailingCreator(Creator):
    def create_plugin(self, name, fields, phase):
        return Failing(self.name)


OBJECTS = {
    "Builder": lambda: trt.Builder(trt.Logger()),
    "INetworkDefinition": lambda: trt.Builder(trt.Logger()).create_network(),
    "Runtime": lambda: trt.Runtime(trt.Logger()),
    "IPluginRegistry": lambda: trt.Runtime(trt.Logger()).get_plugin_registry(),
    "ICudaEngine": lambda: add_engine(),
    "IExecutionContext": lambda: add_engine().create_execution_context(),
    "EngineInspector": lambda: add_engine().create_engine_inspector(),
}


def add_engine(builder=None):
    builder = builder or trt.Builder(trt.Logger())
    net = builder.create_network()
    x = net.add_input("x", trt.float32, X.shape)
    net.mark_output(net.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    config = builder.create_builder_config()
    config.timing = False
    return builder.build_engine_with_config(net, config)


@pytest.mark.parametrize("kind", OBJECTS)
def test_set_get_and_drop(kind):
    owner = OBJECTS[kind]()
    assert type(owner).__name__ == kind and owner.error_recorder is None
    recorder = Recorder()
    owner.error_recorder = recorder
    assert owner.error_recorder is recorder
    # The object keeps it.
    watched = weakref.ref(recorder)
    before = sys.getrefcount(recorder)
    del recorder
    gc.collect()
    assert owner.error_recorder is watched()
    owner.error_recorder = Recorder()
    assert watched() is None and before >= 2
    owner.error_recorder = None
    assert owner.error_recorder is None
    with pytest.raises(TypeError, match="expected an IErrorRecorder"):
        owner.error_recorder = 3


def test_heirs():
    runtime, builder = trt.Runtime(trt.Logger()), trt.Builder(trt.Logger())
    recorder = runtime.error_recorder = builder.error_recorder = Recorder()
    assert builder.create_network().error_recorder is recorder
    assert add_engine(builder).error_recorder is recorder
    engine = runtime.deserialize_cuda_engine(add_engine().serialize())
    assert engine.error_recorder is recorder
    context = engine.create_execution_context()
    assert context.error_recorder is recorder
    assert engine.create_engine_inspector().error_recorder is recorder
    # They are on their own afterwards.
    runtime.error_recorder = None
    assert context.error_recorder is recorder and engine.error_recorder is recorder


def test_each_error_is_recorded_once():
    builder, runtime = trt.Builder(trt.Logger()), trt.Runtime(trt.Logger())
    of_builder, of_runtime, of_network = Recorder(), Recorder(), Recorder()
    builder.error_recorder, runtime.error_recorder = of_builder, of_runtime

    net = builder.create_network()
    net.error_recorder = of_network
    x = net.add_input("x", trt.float32, (2, 3))
    w = net.add_input("w", trt.float32, (5, 7))
    misfit = net.add_elementwise(x, w, trt.ElementWiseOperation.SUM).get_output(0)
    assert not of_network.errors
    with pytest.raises(trt.Error) as caught:
        misfit.shape  # noqa: B018
    [(code, text)] = take(of_network)
    assert code == CODES.INVALID_ARGUMENT and text == str(caught.value)[: len(text)]
    assert len(text.encode()) <= trt.IErrorRecorder.MAX_DESC_LENGTH

    with pytest.raises(trt.Error):
        misfit.dtype  # noqa: B018
    assert len(take(of_network)) == 1

    assert [layer.num_inputs for layer in net] == [2] and not of_network.errors

    parser = trt.OnnxParser(net, Silent())
    assert not parser.parse(onnx_model())
    # The input whose name is taken, and the unknown node behind it.
    assert len(take(of_network)) == parser.num_errors == 2
    assert not parser.parse_from_file("/nowhere/model.onnx")
    assert len(take(of_network)) == 1
    assert not of_builder.errors

    config = builder.create_builder_config()
    with pytest.raises(trt.Error):
        builder.build_serialized_network(builder.create_network(), config)
    assert len(take(of_builder)) == 1
    with pytest.raises(trt.Error):
        runtime.deserialize_cuda_engine(b"no engine")
    assert len(take(of_runtime)) == 1

    engine = runtime.deserialize_cuda_engine(add_engine().serialize())
    of_engine, of_context, of_inspector = Recorder(), Recorder(), Recorder()
    context, inspector = engine.create_execution_context(), engine.create_engine_inspector()
    engine.error_recorder, context.error_recorder = of_engine, of_context
    inspector.error_recorder = of_inspector
    with pytest.raises(trt.Error, match="'none'"):
        engine.get_tensor_dtype("none")
    assert len(take(of_engine)) == 1
    with pytest.raises(trt.Error, match="'none'"):
        context.set_tensor_address("none", 0)
    with pytest.raises(trt.Error, match="address of input 'x' is not set"):
        context.execute_async_v3(0)
    assert len(take(of_context)) == 2
    with pytest.raises(IndexError):
        inspector.get_layer_information(99, trt.LayerInformationFormat.JSON)
    assert len(take(of_inspector)) == 1
    assert not of_runtime.errors and not of_builder.errors and not of_engine.errors


class Silent(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)

    def log(self, severity, msg):
        pass


def test_failures_of_plugins():
    builder, runtime = trt.Builder(trt.Logger()), trt.Runtime(trt.Logger())
    recorder = builder.error_recorder = runtime.error_recorder = Recorder()
    config = builder.create_builder_config()
    with registered(FailingCreator("Failing")):
        plugin = Failing("Failing")
        plugin.where = "configure_plugin"
        net = plugin_network(builder, plugin)
        with pytest.raises(Exception, match="not today"):
            builder.build_serialized_network(net, config)
        [(_, text)] = take(recorder)
        assert "plugin 'Failing' (version 1" in text and "configure_plugin" in text

        config.timing = False
        net = plugin_network(builder, Failing("Failing"))
        engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(net, config))
        context = engine.create_execution_context()
        y = np.empty_like(X)
        context.set_tensor_address("x", X.ctypes.data)
        context.set_tensor_address(engine.get_tensor_name(1), y.ctypes.data)
        for _ in range(2):
            with pytest.raises(Exception, match="not today"):
                context.execute_async_v3(0)
            [(code, text)] = take(recorder)
            assert code == CODES.UNSPECIFIED_ERROR and text.endswith("ValueError: not today")
            assert "plugin 'Failing' (version 1" in text and "enqueue" in text
        with pytest.raises(Exception, match="not today"):
            trt.Engine(engine)(X)
        assert len(take(recorder)) == 1


class Telling(Add):
    """Tells the recorder of its context of each run."""

    def attach_to_context(self, context):
        made = self.clone()
        made.context = context
        return made

    def enqueue(self, *args):
        recorder = self.context.error_recorder
        if recorder is not None:
            recorder.report_error(CODES.FAILED_COMPUTATION, "only telling")
        super().enqueue(*args)


class TellingCreator(Creator):
    def create_plugin(self, name, fields, phase):
        return Telling(self.name)


def test_plugins_reach_the_recorder_of_their_context():
    builder = trt.Builder(trt.Logger())
    of_build, of_context = Recorder(), Recorder()
    with registered(TellingCreator("Telling")):
        net = plugin_network(builder, Telling("Telling"))
        builder.error_recorder = of_build
        engine = builder.build_engine_with_config(net, builder.create_builder_config())
        assert len(take(of_build)) > 0, "it was timed"
        context = engine.create_execution_context()
        y = np.empty_like(X)
        context.set_tensor_address("x", X.ctypes.data)
        context.set_tensor_address(engine.get_tensor_name(1), y.ctypes.data)
        context.execute_async_v3(0)
        assert take(of_build) == [(CODES.FAILED_COMPUTATION, "only telling")]
        context.error_recorder = of_context
        context.execute_async_v3(0)
        assert len(take(of_context)) == 1 and not of_build.errors
        context.error_recorder = None
        context.execute_async_v3(0)
        np.testing.assert_array_equal(y, X + 1)
        assert not of_context.errors and not of_build.errors


def test_a_recorder_that_raises_breaks_nothing(monkeypatch):
    class Broken(trt.IErrorRecorder):
        def report_error(self, code, desc):
            with pytest.raises(trt.Error):
                net.add_input("x", trt.float32, (1,))  # reports an error itself
            raise RuntimeError("the recorder's own")

    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: printed.append(hook.exc_value))
    net = network()
    net.error_recorder = Broken()
    net.add_input("x", trt.float32, (1,))
    with pytest.raises(trt.Error, match="'x'"):
        net.add_input("x", trt.float32, (1,))
    assert [str(error) for error in printed] == ["the recorder's own"]
    net.error_recorder = trt.IErrorRecorder()  # defines nothing
    with pytest.raises(trt.Error, match="'x'"):
        net.add_input("x", trt.float32, (1,))
    assert isinstance(printed[1], NotImplementedError)


def test_a_recorder_as_programs_have_it():
    net = network()
    recorder = net.error_recorder = Keeping(room=2)
    net.add_input("x", trt.float32, (1,))
    for _ in range(3):
        with pytest.raises(trt.Error):
            net.add_input("x", trt.float32, (1,))
    assert recorder.num_errors() == 2 and recorder.has_overflowed()
    assert recorder.get_error_code(0) == CODES.INVALID_ARGUMENT
    assert "'x'" in recorder.get_error_desc(1)
    recorder.clear()
    assert recorder.num_errors() == 0 and not recorder.has_overflowed()


def test_codes():
    names = (
        "SUCCESS UNSPECIFIED_ERROR INTERNAL_ERROR INVALID_ARGUMENT INVALID_CONFIG FAILED_ALLOCATION "
        "FAILED_INITIALIZATION FAILED_EXECUTION FAILED_COMPUTATION INVALID_STATE UNSUPPORTED_STATE"
    ).split()
    assert [int(getattr(CODES, name)) for name in names] == list(range(11))
