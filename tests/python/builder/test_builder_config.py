"""Settings of builders and their configs, and what engines and inspectors tell."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp

LOGGER = trt.Logger(trt.Logger.ERROR)
THREADS: list[int] = []
TACTICS: list[int] = []


@trtp.register("builder_config::threads")
def threads_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.impl("builder_config::threads")
def threads_impl(x, outputs, stream):
    THREADS.append(trt.max_threads())
    np.asarray(outputs[0])[...] = np.asarray(x)


@trtp.register("builder_config::tactics")
def tactics_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.autotune("builder_config::tactics")
def tactics_tune(x, outputs):
    return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2, 3, 4, 5, 6])]


@trtp.impl("builder_config::tactics")
def tactics_impl(x, outputs, stream, tactic):
    TACTICS.append(tactic)
    if tactic == 1:
        raise ValueError("the first tactic does not work")
    np.asarray(outputs[0])[...] = np.asarray(x)


def _builder() -> tuple[trt.Builder, trt.INetworkDefinition, trt.IBuilderConfig]:
    builder = trt.Builder(LOGGER)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    return builder, builder.create_network(), config


def _add_plugin(network: trt.INetworkDefinition, plugin) -> None:
    x = network.add_input("x", trt.float32, (4,))
    y = network.add_plugin(plugin(x)).get_output(0)
    y.name = "y"
    network.mark_output(y)


@pytest.mark.parametrize(
    ("level", "max_tactics", "expected"),
    [
        (1, -1, {1, 2, 3}),  # two that work, and that which does not
        (2, -1, {1, 2, 3, 4, 5}),
        (3, -1, {1, 2, 3, 4, 5, 6}),
        (5, -1, {1, 2, 3, 4, 5, 6}),
        (5, 1, {1, 2}),
        (1, 4, {1, 2, 3, 4, 5}),
    ],
)
def test_a_level_says_how_many_candidates_are_timed(level, max_tactics, expected):
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.tactics)
    config.builder_optimization_level = level
    config.max_num_tactics = max_tactics
    TACTICS.clear()
    builder.build_serialized_network(network, config)
    assert set(TACTICS) == expected


def test_the_lowest_level_times_nothing():
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.tactics)
    config.builder_optimization_level = 0
    TACTICS.clear()
    builder.build_serialized_network(network, config)
    assert TACTICS == []


def test_levels_and_numbers_that_there_are_not():
    _, _, config = _builder()
    assert config.builder_optimization_level == 3
    assert config.max_num_tactics == -1
    for level in (-1, 6):
        with pytest.raises(trt.Error, match=f"level is {level}; expected 0 to 5"):
            config.builder_optimization_level = level
    for count in (0, -2):
        with pytest.raises(trt.Error, match=f"number of tactics is {count}"):
            config.max_num_tactics = count
    assert config.builder_optimization_level == 3


def test_max_threads_is_for_builds_and_engines():
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.threads)
    before = builder.max_threads
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for limit in (1, 3):
        builder.max_threads = limit
        assert builder.max_threads == limit
        THREADS.clear()
        engine = builder.build_engine_with_config(network, config)
        assert set(THREADS) == {limit}  # while it was timed
        runtime = trt.Runtime(LOGGER)
        runtime.max_threads = limit + 1
        other = runtime.deserialize_cuda_engine(engine.serialize())
        for made, expected in ((engine, limit), (other, limit + 1)):
            THREADS.clear()
            made.create_execution_context().execute_v2([x.ctypes.data, y.ctypes.data])
            assert THREADS == [expected]
    assert trt.Builder(LOGGER).max_threads == before  # this thread's own is as it was
    with pytest.raises(trt.Error, match="max_threads is 0"):
        builder.max_threads = 0
    builder.reset()
    assert builder.max_threads == before


MISSING = [
    "SAFETY_SCOPE",
    "STRICT_NANS",
    "DISTRIBUTIVE_INDEPENDENCE",
]


@pytest.mark.parametrize("name", MISSING)
def test_flags_that_ask_for_what_is_not_here(name):
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.threads)
    config.set_flag(getattr(trt.BuilderFlag, name))
    with pytest.raises(trt.Error, match=f"BuilderFlag.{name} is set, but this is not here"):
        builder.build_serialized_network(network, config)


def test_flags_that_only_permit_something():
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.threads)
    hints = {"TF32", "SPARSE_WEIGHTS", "GPU_FALLBACK", "EDITABLE_TIMING_CACHE", "MONITOR_MEMORY"}
    hints |= {"VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"}
    for name in hints:
        config.set_flag(getattr(trt.BuilderFlag, name))
    assert builder.build_serialized_network(network, config).dtype == trt.int8


def test_settings_that_are_refused():
    _, _, config = _builder()
    with pytest.raises(trt.Error, match=r"EngineCapability\.STANDARD"):
        config.engine_capability = trt.EngineCapability.SAFETY
    with pytest.raises(trt.Error, match=r"RuntimePlatform\.SAME_AS_BUILD"):
        config.runtime_platform = trt.RuntimePlatform.WINDOWS_AMD64
    assert config.engine_capability == trt.EngineCapability.STANDARD
    config.avg_timing_iterations = 2
    with pytest.raises(trt.Error, match="avg_timing_iterations is 0; expected 1 or more"):
        config.avg_timing_iterations = 0
    assert config.avg_timing_iterations == 2


def test_a_network_is_supported_where_a_build_would_do():
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.threads)
    assert builder.is_network_supported(network, config)
    config.set_flag(trt.BuilderFlag.SAFETY_SCOPE)
    assert not builder.is_network_supported(network, config)


def test_a_profile_keeps_its_memory_target():
    profile = trt.Builder(LOGGER).create_optimization_profile()
    assert profile.extra_memory_target == 1
    profile.extra_memory_target = 0.5
    with pytest.raises(trt.Error, match="memory target 2 is not between 0 and 1"):
        profile.extra_memory_target = 2
    assert profile.extra_memory_target == 0.5


def test_settings_are_kept_until_reset():
    _, _, config = _builder()
    pools = trt.MemoryPoolType
    config.set_memory_pool_limit(pools.WORKSPACE, 1 << 20)
    config.set_memory_pool_limit(pools.TACTIC_DRAM, 1 << 30)
    assert config.get_memory_pool_limit(pools.WORKSPACE) == 1 << 20
    assert config.get_memory_pool_limit(pools.TACTIC_DRAM) == 1 << 30
    assert config.set_tactic_sources(1 << int(trt.TacticSource.JIT_CONVOLUTIONS))
    assert config.get_tactic_sources() == 16
    config.max_aux_streams = 2
    config.tiling_optimization_level = trt.TilingOptimizationLevel.FULL
    config.l2_limit_for_tiling = 1 << 20
    config.builder_optimization_level = 1
    assert (config.max_aux_streams, config.l2_limit_for_tiling) == (2, 1 << 20)
    assert config.tiling_optimization_level == trt.TilingOptimizationLevel.FULL
    config.profiling_verbosity = trt.ProfilingVerbosity.NONE
    assert config.profiling_verbosity == trt.ProfilingVerbosity.NONE
    feature = trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03
    assert config.get_preview_feature(feature)
    config.set_preview_feature(feature, False)
    assert not config.get_preview_feature(feature)
    config.reset()
    assert config.get_preview_feature(feature)
    assert config.profiling_verbosity == trt.ProfilingVerbosity.DETAILED
    assert config.builder_optimization_level == 3
    assert config.get_tactic_sources() == 24 and config.get_memory_pool_limit(pools.WORKSPACE) == 0
    assert config.l2_limit_for_tiling == config.max_aux_streams == -1


def _vectorized_engine() -> trt.ICudaEngine:
    """y = -x in 16-bit floats, channels in blocks of 4 at the input and of 8 at the output."""
    builder, network, config = _builder()
    x = network.add_input("x", trt.float16, (2, 5, 3, 3))
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    x.allowed_formats = 1 << int(trt.TensorFormat.CHW4)
    y.allowed_formats = 1 << int(trt.TensorFormat.HWC8)
    config.timing = False
    return builder.build_engine_with_config(network, config)


def test_what_an_engine_tells_of_formats():
    engine = _vectorized_engine()
    assert engine.get_tensor_format("x") == trt.TensorFormat.CHW4
    assert engine.get_tensor_format("y", 0) == trt.TensorFormat.HWC8
    assert engine.get_tensor_format_desc("x") == "FP16 in the layout CHW4"
    assert engine.get_tensor_components_per_element("x") == 4
    assert engine.get_tensor_components_per_element("y", 0) == 8
    assert engine.get_tensor_bytes_per_component("x") == 2
    assert engine.get_tensor_vectorized_dim("x") == 1
    # As these say, a tensor of CHW4 lies in memory as [2, ceil(5 / 4), 3, 3] vectors of 4 elements.
    values = np.arange(90, dtype=np.float16).reshape(2, 5, 3, 3)
    padded = np.zeros((2, 8, 3, 3), np.float16)
    padded[:, :5] = values
    x = np.ascontiguousarray(np.moveaxis(padded.reshape(2, 2, 4, 3, 3), 2, -1))
    y = np.full((2, 3, 3, 8), np.nan, np.float16)
    engine.create_execution_context().execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(np.moveaxis(y, -1, 1)[:, :5], -values)


def test_what_an_engine_tells_of_linear_tensors():
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.threads)
    engine = builder.build_engine_with_config(network, config)
    assert engine.get_tensor_format_desc("y") == "FP32 in the layout LINEAR"
    assert engine.get_tensor_components_per_element("x") == -1
    assert engine.get_tensor_bytes_per_component("x") == -1
    assert engine.get_tensor_vectorized_dim("x") == -1
    for method in ("format", "format_desc", "vectorized_dim", "bytes_per_component"):
        with pytest.raises(trt.Error, match="profile 1 does not exist: the engine has 1"):
            getattr(engine, f"get_tensor_{method}")("x", 1)
        with pytest.raises(trt.Error, match="no input or output 'z'"):
            getattr(engine, f"get_tensor_{method}")("z")
    assert not engine.refittable
    assert engine.engine_capability == trt.EngineCapability.STANDARD
    assert engine.hardware_compatibility_level == trt.HardwareCompatibilityLevel.NONE
    assert engine.tactic_sources == engine.num_aux_streams == 0
    assert engine.profiling_verbosity == trt.ProfilingVerbosity.DETAILED


def test_the_size_of_weights():
    builder, network, config = _builder()
    x = network.add_input("x", trt.float32, (100,))
    weights = np.arange(100, dtype=np.float32)
    constant = network.add_constant((100,), weights).get_output(0)
    total = network.add_elementwise(x, constant, trt.ElementWiseOperation.SUM).get_output(0)
    network.mark_output(total)
    engine = builder.build_engine_with_config(network, config)
    assert engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE) == weights.nbytes
    assert engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == 0


def test_the_values_of_a_profile():
    builder, network, config = _builder()
    x = network.add_input("x", trt.float32, (-1, 4))
    shape = network.add_input("shape", trt.int64, (2,))
    shuffle = network.add_shuffle(x)
    shuffle.set_input(1, shape)
    y = shuffle.get_output(0)
    y.name = "y"
    network.mark_output(y)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (8, 4))
    profile.set_shape_input("shape", (1, 2), (2, 4), (4, 16))
    config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    assert engine.get_tensor_profile_values("shape", 0) == [[1, 2], [2, 4], [4, 16]]
    assert [tuple(s) for s in engine.get_tensor_profile_shape("x", 0)] == [(1, 4), (2, 4), (8, 4)]
    assert [tuple(s) for s in engine.get_tensor_profile_shape("shape", 0)] == [(2,)] * 3
    assert engine.is_shape_inference_io("shape") and not engine.is_shape_inference_io("y")
    with pytest.raises(trt.Error, match="has a shape for input 'x'"):
        engine.get_tensor_profile_values("x", 0)
    with pytest.raises(trt.Error, match="'y' is an output"):
        engine.get_tensor_profile_values("y", 0)


def test_an_inspector_tells_of_the_profile_of_a_context():
    builder, network, config = _builder()
    x = network.add_input("x", trt.float32, (-1,))
    network.mark_output(network.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    for limits in [(1, 2, 3), (10, 20, 30)]:
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *((n,) for n in limits))
        config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    inspector = engine.create_engine_inspector()
    assert inspector.execution_context is None
    json_format = trt.LayerInformationFormat.JSON
    first = json.loads(inspector.get_layer_information(0, json_format))
    context = engine.create_execution_context()
    context.set_optimization_profile_async(1)
    inspector.execution_context = context
    assert inspector.execution_context is context
    second = json.loads(inspector.get_layer_information(0, json_format))
    assert first["Name"] == second["Name"]
    with pytest.raises(TypeError, match="expected an IExecutionContext"):
        inspector.execution_context = engine
    inspector.execution_context = None
    assert json.loads(inspector.get_layer_information(0, json_format)) == first


def test_a_progress_monitor_says_what_it_lacks():
    class Monitor(trt.IProgressMonitor):
        def phase_start(self, phase_name, parent_phase, num_steps):
            pass

        def phase_finish(self, phase_name):
            pass

    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.threads)
    config.progress_monitor = Monitor()
    with pytest.raises(NotImplementedError, match="step_complete"):
        builder.build_serialized_network(network, config)


def test_the_profiler_prints_a_line_for_each_layer(capsys):
    builder, network, config = _builder()
    _add_plugin(network, trtp.op.builder_config.threads)
    context = builder.build_engine_with_config(network, config).create_execution_context()
    context.profiler = trt.Profiler()
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    context.execute_v2([x.ctypes.data, y.ctypes.data])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and re.search(r": (\d[\d.]* (ns|us|ms)|-)$", lines[0])


def test_an_empty_timing_cache_is_one():
    config = trt.Builder(trt.Logger()).create_builder_config()
    assert config.set_timing_cache(config.create_timing_cache(b""), False)
    cache = config.get_timing_cache()
    assert cache and len(cache) == 0
