"""Names that programs for TensorRT read of objects, and what they give where there is nothing behind them."""

import numpy as np
import pytest

import opwright as trt

LOGGER = trt.Logger(trt.Logger.ERROR)


@pytest.fixture
def engine():
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    network.mark_output(
        network.add_identity(network.add_input("x", trt.float32, (2,))).get_output(0)
    )
    config = builder.create_builder_config()
    config.timing = False
    return builder.build_engine_with_config(network, config)


def test_objects_are_context_managers(engine):
    with trt.Logger(trt.Logger.ERROR) as logger, trt.Builder(logger) as builder:
        assert isinstance(logger, trt.Logger)
        with builder.create_network() as network, builder.create_builder_config() as config:
            with trt.OnnxParser(network, logger) as parser:
                assert parser.num_errors == 0
            x = network.add_input("x", trt.float32, (2,))
            network.mark_output(network.add_identity(x).get_output(0))
            config.timing = False
            with (
                builder.build_serialized_network(network, config) as plan,
                trt.Runtime(logger) as runtime,
            ):
                with runtime.deserialize_cuda_engine(plan) as loaded:
                    with loaded.create_execution_context() as context:
                        assert context.engine is loaded
    assert builder.create_network().num_layers == 0  # they outlive their block


def test_a_logger_of_the_programs_own_is_one():
    class Own(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)

        def log(self, severity, msg):
            pass

    own = Own()
    with own as logger:
        assert logger is own


def test_a_block_lets_errors_through():
    with pytest.raises(ZeroDivisionError), trt.Builder(LOGGER):
        raise ZeroDivisionError


class TestDla:
    """No DLA is driven."""

    def test_config(self):
        config = trt.Builder(LOGGER).create_builder_config()
        assert config.DLA_core == -1
        config.DLA_core = -1
        with pytest.raises(trt.Error, match="no DLA is driven"):
            config.DLA_core = 0

    def test_runtime_and_builder(self):
        runtime, builder = trt.Runtime(LOGGER), trt.Builder(LOGGER)
        assert runtime.DLA_core == -1 and runtime.num_DLA_cores == 0
        assert builder.num_DLA_cores == 0 and builder.max_DLA_batch_size == 0
        with pytest.raises(trt.Error, match="no DLA is driven"):
            runtime.DLA_core = 1

    def test_devices_of_layers(self):
        builder = trt.Builder(LOGGER)
        network, config = builder.create_network(), builder.create_builder_config()
        layer = network.add_identity(network.add_input("x", trt.float32, (2,)))
        config.default_device_type = trt.DeviceType.CPU
        assert not config.can_run_on_DLA(layer) and not config.is_device_type_set(layer)
        assert config.get_device_type(layer) == trt.DeviceType.CPU
        config.set_device_type(layer, trt.DeviceType.GPU)
        assert (
            config.is_device_type_set(layer)
            and config.get_device_type(network[0]) == trt.DeviceType.GPU
        )
        config.reset_device_type(layer)
        assert not config.is_device_type_set(layer)
        network.mark_output(layer.get_output(0))
        for device in (trt.DeviceType.DLA, trt.DeviceType.GPU):
            config.set_device_type(layer, device)
            with pytest.raises(trt.Error, match="all of its layers run"):
                builder.build_serialized_network(network, config)
        config.set_device_type(layer, trt.DeviceType.CPU)
        assert builder.build_serialized_network(network, config).nbytes > 0


def test_an_engine_that_was_not_built_for_it_streams_nothing(engine):
    assert engine.streamable_weights_size == engine.weight_streaming_budget_v2 == 0
    assert engine.weight_streaming_budget == engine.minimum_weight_streaming_budget == 0
    assert engine.get_weight_streaming_automatic_budget() == 0
    assert engine.weight_streaming_scratch_memory_size == 0
    engine.weight_streaming_budget_v2 = 0
    with pytest.raises(trt.Error, match="not built with BuilderFlag.WEIGHT_STREAMING"):
        engine.weight_streaming_budget_v2 = 1 << 20
    assert engine.device_memory_size == engine.device_memory_size_v2


class TestCalibration:
    """Calibrators can be derived from; using one is an error that says what to do instead."""

    BASES = [
        trt.IInt8Calibrator,
        trt.IInt8EntropyCalibrator,
        trt.IInt8EntropyCalibrator2,
        trt.IInt8LegacyCalibrator,
        trt.IInt8MinMaxCalibrator,
    ]

    @pytest.mark.parametrize("base", BASES)
    def test_a_class_of_the_programs_own(self, base):
        class Calibrator(base):
            def __init__(self):
                base.__init__(self)

            def get_batch_size(self):
                return 1

        calibrator = Calibrator()
        assert calibrator.get_batch_size() == 1 and calibrator.read_calibration_cache() is None
        with pytest.raises(NotImplementedError, match="must define get_batch"):
            calibrator.get_batch(["x"])
        if base is not trt.IInt8Calibrator:
            assert isinstance(calibrator.get_algorithm(), trt.CalibrationAlgoType)
        config = trt.Builder(LOGGER).create_builder_config()
        with pytest.raises(trt.Error, match="set_dynamic_range"):
            config.int8_calibrator = calibrator
        assert config.int8_calibrator is None

    def test_profiles_and_flags(self):
        builder = trt.Builder(LOGGER)
        config = builder.create_builder_config()
        config.int8_calibrator = None
        assert config.get_calibration_profile() is None
        with pytest.raises(trt.Error, match="calibration is not here"):
            config.set_calibration_profile(builder.create_optimization_profile())
        flag = trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION
        config.set_quantization_flag(flag)
        assert config.get_quantization_flag(flag) and config.quantization_flags == 1
        config.clear_quantization_flag(flag)
        assert not config.get_quantization_flag(flag)


class TestWeights:
    """Weights of a type, of an address, of an array."""

    def test_none_of_a_type(self):
        assert trt.Weights().dtype == trt.float32
        empty = trt.Weights(type=trt.int64)
        assert len(empty) == 0 and empty.dtype == trt.int64
        assert empty.numpy().shape == (0,) and empty.numpy().dtype == np.int64

    def test_at_an_address(self):
        values = np.arange(5, dtype=np.float16)
        weights = trt.Weights(trt.float16, values.ctypes.data, values.size)
        assert weights.size == 5 and weights.nbytes == 10
        np.testing.assert_array_equal(weights.numpy(), values)
        with pytest.raises(trt.Error, match="address 0"):
            trt.Weights(trt.float16, 0, 5)


def test_sizes_and_names_of_types():
    sizes = {trt.int4: 0.5, trt.fp4: 0.5, trt.e8m0: 1, trt.fp8: 1, trt.bfloat16: 2, trt.int64: 8}
    assert {dtype: dtype.itemsize for dtype in sizes} == sizes
    assert isinstance(trt.int32.itemsize, int)
