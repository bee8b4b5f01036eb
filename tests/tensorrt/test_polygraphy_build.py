"""Polygraphy, unmodified, builds, saves, loads and inspects engines on the CPU."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import polygraphy.backend.trt as pg
import pytest
import tensorrt as trt
from polygraphy import constants, func
from polygraphy.exception import PolygraphyException
from polygraphy.logger import G_LOGGER

import opwright
import small_models

MODEL = small_models.convolution(batch="n").SerializeToString()
PROFILE = pg.Profile().add("x", (1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
X = np.random.default_rng(5).normal(size=(2, 3, 8, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def quiet_on_the_cpu(monkeypatch):
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cpu")
    with G_LOGGER.verbosity(G_LOGGER.CRITICAL):
        yield


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(MODEL)
    return str(file)


def network():
    return pg.network_from_onnx_bytes(MODEL)


def build(**options):
    options.setdefault("profiles", [PROFILE])
    return pg.engine_from_network(network(), pg.CreateConfig(**options))


def expected():
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


def check(engine, tolerance=1e-4):
    np.testing.assert_allclose(opwright.Engine(engine)(X), expected(), rtol=0, atol=tolerance)


class Monitor(trt.IProgressMonitor):
    def __init__(self):
        trt.IProgressMonitor.__init__(self)
        self.phases = []

    def phase_start(self, phase_name, parent_phase, num_steps):
        self.phases.append(phase_name)

    def step_complete(self, phase_name, step):
        return True

    def phase_finish(self, phase_name):
        pass


class Calibrator(trt.IInt8EntropyCalibrator2):
    def __init__(self):
        trt.IInt8EntropyCalibrator2.__init__(self)


class TestCreateConfig:
    """Every option of CreateConfig: an engine that computes the model, or an error that says why not."""

    MET = {
        "nothing": {},
        "profiles": {"profiles": [PROFILE, PROFILE]},
        "obey": {"precision_constraints": "obey"},
        "prefer": {"precision_constraints": "prefer"},
        "sparse_weights": {"sparse_weights": True},
        "tactic_sources": {"tactic_sources": [trt.TacticSource.JIT_CONVOLUTIONS]},
        "no_tactic_sources": {"tactic_sources": []},
        "profiling_verbosity": {"profiling_verbosity": trt.ProfilingVerbosity.LAYER_NAMES_ONLY},
        "memory_pool_limits": {"memory_pool_limits": {trt.MemoryPoolType.WORKSPACE: 1 << 24}},
        "preview_features": {"preview_features": [trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03]},
        "engine_capability": {"engine_capability": trt.EngineCapability.STANDARD},
        "builder_optimization_level": {"builder_optimization_level": 0},
        "hardware_compatibility": {
            "hardware_compatibility_level": trt.HardwareCompatibilityLevel.NONE
        },
        "max_aux_streams": {"max_aux_streams": 2},
        "quantization_flags": {
            "quantization_flags": [trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION]
        },
        "no_quantization_flags": {"quantization_flags": []},
        "disable_compilation_cache": {"disable_compilation_cache": True},
        "runtime_platform": {"runtime_platform": trt.RuntimePlatform.SAME_AS_BUILD},
        "tiling_optimization_level": {
            "tiling_optimization_level": trt.TilingOptimizationLevel.FULL
        },
        "tf32": {"tf32": True},
        "direct_io": {"direct_io": True},
        "weight_streaming": {"weight_streaming": True},
        "fp16": {"fp16": True},
        "bf16": {"bf16": True},
        "int8": {"int8": True},
        "fp8": {"fp8": True},
    }

    @pytest.mark.parametrize("options", MET.values(), ids=MET)
    def test_met(self, options):
        engine = build(**options)
        check(engine, 0.1 if {"fp16", "bf16", "fp8"} & set(options) else 1e-4)
        assert engine.num_optimization_profiles == len(options.get("profiles", [PROFILE]))

    REFUSED = {
        "restricted": ({"restricted": True}, "SAFETY_SCOPE.*no engines for safety"),
        "engine_capability": ({"engine_capability": trt.EngineCapability.SAFETY}, "STANDARD"),
        "runtime_platform": ({"runtime_platform": trt.RuntimePlatform.WINDOWS_AMD64}, "build"),
        "calibrator": ({"int8": True, "calibrator": Calibrator()}, "set_dynamic_range"),
        "fallback_from_dla": ({"use_dla": True, "allow_gpu_fallback": True}, "no DLA is driven"),
        "cache_miss": ({"error_on_timing_cache_miss": True}, "not in the timing cache"),
    }

    @pytest.mark.parametrize("options, reason", REFUSED.values(), ids=REFUSED)
    def test_refused(self, options, reason):
        with pytest.raises(opwright.Error, match=f"(?s){reason}"):
            build(**options)

    def test_refused_by_polygraphy(self):
        with pytest.raises(PolygraphyException, match="no DLA hardware"):
            build(use_dla=True)
        with pytest.raises(PolygraphyException, match="algorithm_selector .* not available"):
            build(algorithm_selector=object())
        with pytest.raises(PolygraphyException, match="EXCLUDE_LEAN_RUNTIME"):
            build(exclude_lean_runtime=True)

    def test_a_timing_cache_is_saved_and_spares_timing(self, tmp_path):
        cache = str(tmp_path / "timing.cache")
        config = pg.CreateConfig(profiles=[PROFILE], load_timing_cache=cache)
        pg.engine_from_network(network(), config, save_timing_cache=cache)
        check(build(load_timing_cache=cache, error_on_timing_cache_miss=True))

    def test_a_progress_monitor_hears_of_the_build(self):
        monitor = Monitor()
        check(build(progress_monitor=monitor))
        assert "tuning" in monitor.phases

    def test_a_profile_for_inputs_that_have_none(self):
        engine = pg.engine_from_network(network())
        assert [tuple(s) for s in engine.get_tensor_profile_shape("x", 0)] == [(1, 3, 8, 8)] * 3

    def test_postprocess(self):
        seen = []
        config = pg.PostprocessConfig(
            pg.CreateConfig(profiles=[PROFILE]),
            lambda builder, network, config: seen.append(config.DLA_core),
        )
        check(pg.engine_from_network(network(), config))
        assert seen == [-1]


class TestNetworks:
    """What Polygraphy makes and changes of networks."""

    def test_create(self):
        builder, empty = pg.create_network(strongly_typed=True)
        assert empty.builder is builder and empty.num_layers == 0
        assert empty.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    def test_a_network_made_by_a_function(self):
        @func.extend(pg.CreateNetwork())
        def square(builder, network):
            x = network.add_input("x", trt.float32, (2, 3, 8, 8))
            product = network.add_elementwise(x, x, trt.ElementWiseOperation.PROD)
            network.mark_output(product.get_output(0))

        engine = pg.engine_from_network(square)
        np.testing.assert_allclose(opwright.Engine(engine)(X), X * X, rtol=1e-6)

    def test_from_a_path(self, path):
        check(
            pg.engine_from_network(
                pg.network_from_onnx_path(path), pg.CreateConfig(profiles=[PROFILE])
            )
        )

    def test_strongly_typed(self):
        strong = pg.network_from_onnx_bytes(MODEL, strongly_typed=True)
        check(pg.engine_from_network(strong, pg.CreateConfig(profiles=[PROFILE], bf16=True)), 1e-5)

    def test_a_model_that_is_none(self):
        with pytest.raises(PolygraphyException, match="Could not parse ONNX"):
            pg.network_from_onnx_bytes(b"no model")

    def outputs(self, made):
        network = made[1]
        return [network.get_output(i).name for i in range(network.num_outputs)]

    def test_other_outputs(self):
        assert self.outputs(pg.modify_network_outputs(network(), outputs=["c"])) == ["c"]
        every = pg.modify_network_outputs(network(), outputs=constants.MARK_ALL)
        assert self.outputs(every) == ["c", "y"]
        assert self.outputs(pg.modify_network_outputs(every, exclude_outputs=["c"])) == ["y"]
        both = pg.modify_network_outputs(network(), outputs=["c", "y"])
        engine = pg.engine_from_network(both, pg.CreateConfig(profiles=[PROFILE]))
        convolved, result = opwright.Engine(engine)(X).values()
        np.testing.assert_allclose(result, np.maximum(convolved, 0), rtol=1e-6)

    def test_layer_precisions(self):
        changed = pg.set_layer_precisions(network(), {"conv": trt.float32, "relu": trt.float32})
        assert [layer.precision_is_set for layer in changed[1]][-2:] == [True, True]
        config = pg.CreateConfig(profiles=[PROFILE], bf16=True, precision_constraints="obey")
        check(pg.engine_from_network(changed, config), 1e-5)

    def test_types_of_inputs_and_outputs(self):
        config = pg.CreateConfig(profiles=[PROFILE])
        engine = pg.engine_from_network(pg.set_tensor_datatypes(network(), trt.float16), config)
        assert engine.get_tensor_dtype("x") == engine.get_tensor_dtype("y") == trt.float16
        result = opwright.Engine(engine)(X.astype(np.float16))
        np.testing.assert_allclose(result, expected(), atol=0.02)

    def test_formats_of_inputs_and_outputs(self):
        changed = pg.set_tensor_formats(network(), {"x": [trt.TensorFormat.HWC]})
        engine = pg.engine_from_network(changed, pg.CreateConfig(profiles=[PROFILE]))
        assert engine.get_tensor_format("x") == trt.TensorFormat.HWC

    def test_shown_as_text(self):
        text = pg.util.str_from_network(network()[1], True, True, True)
        assert "Layer 2    | conv [Op: LayerType.CONVOLUTION]" in text
        assert "conv.stride_nd = (1, 1)" in text and "<Error" not in text
        bias = onnx.numpy_helper.to_array(onnx.load_from_string(MODEL).graph.initializer[1])
        assert f"conv.bias = [{' '.join(f'{value:.4f}'[:6] for value in bias[:1])}"[:18] in text

    def test_shown_as_a_graph(self):
        pytest.importorskip("onnx_graphsurgeon")
        graph = pg.onnx_like_from_network(network()).graph
        assert [node.op_type for node in graph.node] == [
            "CONSTANT",
            "CONSTANT",
            "CONVOLUTION",
            "ACTIVATION",
        ]

    def test_there_are_no_attentions_to_decompose(self):
        assert pg.set_decomposable_attentions(network())[1].num_layers == 4


@pytest.fixture(scope="module")
def engine():
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("OPWRIGHT_DEVICE", "cpu")
        yield build()


class TestEngines:
    """Engines as bytes and files."""

    def test_bytes(self, engine):
        data = pg.bytes_from_engine(engine)
        check(pg.engine_from_bytes(data))
        assert bytes(pg.buffer_from_engine(engine)) == data
        made = pg.engine_bytes_from_network(network(), pg.CreateConfig(profiles=[PROFILE]))
        check(pg.engine_from_bytes(made))

    def test_a_file(self, engine, tmp_path):
        path = str(tmp_path / "model.engine")
        pg.save_engine(engine, path)
        check(pg.engine_from_path(path))
        with open(path, "rb") as file:
            check(pg.engine_from_bytes(file.read(), runtime=trt.Runtime(pg.get_trt_logger())))

    def test_bytes_that_are_no_engine(self):
        with pytest.raises(opwright.Error, match="engine"):
            pg.engine_from_bytes(b"no engine")

    def test_no_other_runtime_is_loaded(self):
        with pytest.raises(opwright.Error, match="this runtime runs every engine"):
            pg.load_runtime("libnvinfer_lean.so")

    def test_layers_are_told(self, engine):
        inspector = engine.create_engine_inspector()
        told = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
        assert any("conv + relu" == layer["Name"] for layer in told["Layers"])


def test_plugin_libraries_are_loaded(plugin_dir):
    creators = trt.get_plugin_registry().all_creators
    before = {creator.name for creator in creators}
    library = str(plugin_dir / "circ_pad_plugin.so")
    assert pg.load_plugins(plugins=[library], obj=lambda: "loaded") == "loaded"
    made = pg.network_from_onnx_bytes(
        small_models.circular_padding([1, 1, 1, 1]).SerializeToString()
    )
    y = opwright.Engine(pg.engine_from_network(made))(np.ones((1, 2, 4, 5), np.float32))
    np.testing.assert_array_equal(y, np.ones((1, 2, 6, 7), np.float32))
    assert before <= {creator.name for creator in trt.get_plugin_registry().all_creators}
