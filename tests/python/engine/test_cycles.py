"""Cycles of objects that Python's collector has to find: what C++ holds of a caller refers back."""

from __future__ import annotations

import gc
import weakref

import pytest
from onnx.parser import parse_model

import opwright as trt

MODEL = parse_model(
    """<ir_version: 9, opset_import: ["" : 19]>
    net (float[4] x) => (float[4] y) { a = Relu (x)  y = Exp (a) }"""
).SerializeToString()


class Logger(trt.ILogger):
    def log(self, severity, message):
        pass


class Recorder(trt.IErrorRecorder):
    def report_error(self, code, description):
        return False


class Allocator(trt.IGpuAllocator):
    pass


class Listener(trt.IDebugListener):
    def process_debug_tensor(self, *arguments):
        return True


class Memory(trt.IOutputAllocator):
    pass


class Profiler(trt.IProfiler):
    def report_layer_time(self, layer, milliseconds):
        pass


class Monitor(trt.IProgressMonitor):
    pass


def made_with(logger, recorder=None, allocator=None) -> dict[str, object]:
    """All that a program has by the end of its work, by name."""
    builder = trt.Builder(logger)
    builder.error_recorder, builder.gpu_allocator = recorder, allocator
    registry = builder.get_plugin_registry()
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(MODEL)
    layer, tensor = network.get_layer(0), network.get_input(0)
    other = builder.create_network()
    loop, conditional = other.add_loop(), other.add_if_conditional()
    recurrence = loop.add_recurrence(other.add_input("z", trt.float32, (4,)))
    q = other.add_input("q", trt.float32, (1, 1, 4, 4))
    attention = other.add_attention(q, q, q, trt.AttentionNormalizationOp.SOFTMAX, False)
    parsed = parser.get_layer_output_tensor(layer.name, 0)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    config.timing = False
    config.set_flag(trt.BuilderFlag.REFIT)
    parser.set_builder_config(config)
    built = builder.build_engine_with_config(network, config)
    runtime = trt.Runtime(logger)
    runtime.error_recorder, runtime.gpu_allocator = recorder, allocator
    engine = runtime.deserialize_cuda_engine(built.serialize())
    context = engine.create_execution_context()
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context
    call = trt.Engine(engine)
    return {
        name: value for name, value in locals().items() if name not in ("recorder", "allocator")
    }


def attach(made, kind):
    """An object of the kind, given to all that take one."""
    if kind == "debug_listener":
        held = Listener()
        made["context"].set_debug_listener(held)
    elif kind == "output_allocator":
        held = Memory()
        made["context"].set_output_allocator("y", held)
    elif kind == "profiler":
        held = made["context"].profiler = Profiler()
    else:
        held = made["config"].progress_monitor = Monitor()
    return held


CALLED = ["debug_listener", "output_allocator", "profiler", "progress_monitor"]


@pytest.mark.parametrize("kind", ["logger", "recorder", "allocator", *CALLED])
def test_what_refers_to_its_holder_goes(kind):
    """Whichever of the objects around it it has."""
    gone = {}
    for name in made_with(trt.Logger(trt.Logger.ERROR)):
        recorder = Recorder() if kind == "recorder" else None
        allocator = Allocator() if kind == "allocator" else None
        made = made_with(Logger(), recorder, allocator)
        keeper = attach(made, kind) if kind in CALLED else recorder or allocator or made["logger"]
        keeper.keep = made[name]
        gone[name] = weakref.ref(keeper)
    del recorder, allocator, made, keeper
    gc.collect()
    assert [name for name, reference in gone.items() if reference() is not None] == []


def test_what_is_used_stays():
    """The collector takes nothing from a context whose engine, runtime and logger nobody else has."""
    given = Logger(), Recorder(), Allocator()
    made = made_with(*given)
    context, call = made["context"], made["call"]
    for each in given:
        each.keep = made
    references = [weakref.ref(each) for each in given]
    del made, given, each
    gc.collect()
    logger, recorder, allocator = (reference() for reference in references)
    assert context.error_recorder is recorder and context.temporary_allocator is allocator
    assert logger.keep["runtime"].logger is logger
    assert recorder.keep["engine"] is context.engine is call.engine
    del context, call, logger, recorder, allocator
    gc.collect()
    assert not any(reference() for reference in references)


def test_a_recorder_of_several_holders_stays_for_each():
    recorder = Recorder()
    made = made_with(Logger(), recorder)
    recorder.keep = made["builder"]
    gone, engine = weakref.ref(recorder), made["engine"]
    del recorder, made
    gc.collect()
    assert gone() is not None and engine.error_recorder is gone()
    assert isinstance(gone().keep, trt.Builder)
    del engine
    gc.collect()
    assert gone() is None


def test_a_loaded_engine_keeps_its_logger(tmp_path):
    """Also while the Engine is gone and a context is there."""
    trt.build(MODEL, device="cpu", timing=False).save(tmp_path / "small.engine")
    logger = Logger()
    engine = trt.load(tmp_path / "small.engine", logger=logger)
    gone, context = weakref.ref(logger), engine.engine.create_execution_context()
    del logger, engine
    gc.collect()
    assert gone() is not None
    gone().keep = context
    del context
    gc.collect()
    assert gone() is None
