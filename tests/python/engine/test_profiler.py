"""When an IProfiler is told of the layers' times."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt

LOGGER = trt.Logger(trt.Logger.ERROR)


class Profiler(trt.IProfiler):
    def __init__(self):
        trt.IProfiler.__init__(self)
        self.layers: list[str] = []

    def report_layer_time(self, layer_name, ms):
        assert ms >= 0
        self.layers.append(layer_name)


@pytest.fixture
def context():
    """A context of an engine of one layer, `negate`, with addresses."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    layer = network.add_unary(network.add_input("x", trt.float32, (3,)), trt.UnaryOperation.NEG)
    layer.name = "negate"
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    config.timing = False
    made = builder.build_engine_with_config(network, config).create_execution_context()
    arrays = [np.zeros(3, np.float32), np.zeros(3, np.float32)]
    for name, array in zip("xy", arrays):
        made.set_tensor_address(name, array.ctypes.data)
    yield made  # while the arrays are there


def test_each_run_reports(context):
    context.profiler = profiler = Profiler()
    context.execute_async_v3(0)
    context.execute_async_v3(0)
    assert profiler.layers == ["negate", "negate"]
    context.profiler = None
    context.execute_async_v3(0)
    assert profiler.layers == ["negate", "negate"]


def test_reports_when_it_is_asked_to(context):
    assert context.enqueue_emits_profile
    with pytest.raises(trt.Error, match="no profiler"):
        context.report_to_profiler()
    context.profiler = profiler = Profiler()
    with pytest.raises(trt.Error, match="no run with the profiler set"):
        context.report_to_profiler()
    context.enqueue_emits_profile = False
    context.execute_async_v3(0)
    assert profiler.layers == []
    assert context.report_to_profiler()
    assert profiler.layers == ["negate"]


def test_addresses_are_one_for_each_tensor(context):
    with pytest.raises(trt.Error, match="there are 1 addresses; expected 2, inputs first"):
        context.execute_v2([0])


def test_what_a_profiler_raises_arrives(context):
    class Raises(trt.IProfiler):
        def report_layer_time(self, layer_name, ms):
            raise ValueError(layer_name)

    context.profiler = Raises()
    with pytest.raises(ValueError, match="negate"):
        context.execute_async_v3(0)
    context.profiler = None
    context.execute_async_v3(0)


def test_engines_are_stored_as_a_config_says(context):
    engine = context.engine
    config = engine.create_serialization_config()
    assert config.flags == 0
    with pytest.raises(trt.Error, match="no SerializationFlag"):
        config.flags = 8
    assert config.set_flag(trt.SerializationFlag.EXCLUDE_LEAN_RUNTIME)
    assert config.get_flag(trt.SerializationFlag.EXCLUDE_LEAN_RUNTIME) and config.flags == 2
    assert bytes(engine.serialize_with_config(config)) == bytes(engine.serialize())
    for flag in (trt.SerializationFlag.EXCLUDE_WEIGHTS, trt.SerializationFlag.INCLUDE_REFIT):
        config.set_flag(flag)
        with pytest.raises(trt.Error, match=f"SerializationFlag.{flag.name} is set, but"):
            engine.serialize_with_config(config)
        config.clear_flag(flag)
    engine.serialize_with_config(config)
