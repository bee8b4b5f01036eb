"""builder_optimization_level on a GPU: how many candidates of a product are timed, which ones, and that each level's
engine is right."""

from __future__ import annotations

import json

import numpy as np
import pytest

import emulated_gpu
import opwright as trt

pytestmark = emulated_gpu.emulated_only

RANDOM = np.random.default_rng(5)
A = RANDOM.uniform(-1, 1, (48, 96)).astype(np.float16)
B = RANDOM.uniform(-1, 1, (96, 40)).astype(np.float16)


def built(level: int, **settings):
    """The engine of A @ B, and what its build says of the layer's candidates."""
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    a = network.add_input("a", trt.float16, A.shape)
    b = network.add_constant(B.shape, B).get_output(0)
    none = trt.MatrixOperation.NONE
    y = network.add_matrix_multiply(a, none, b, none).get_output(0)
    network.mark_output(y)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.builder_optimization_level = level
    for name, value in settings.items():
        setattr(config, name, value)
    engine = builder.build_engine_with_config(network, config)
    assert engine is not None
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = json.loads(text)["Layers"]
    return engine, next(each for each in layers if each["LayerType"] == "MatrixMultiply")


def timed(layer) -> list[str]:
    return [each["TacticName"] for each in layer["Candidates"] if each["TimeMs"] > 0]


@pytest.fixture(scope="module")
def levels():
    return {level: built(level) for level in (0, 1, 3, 5)}


def test_a_higher_level_times_more_candidates(levels):
    names = {level: timed(layer) for level, (_, layer) in levels.items()}
    assert names[0] == []
    assert len(names[1]) == 2
    assert 2 <= len(names[3]) < len(names[5])
    assert set(names[1]) <= set(names[3]) <= set(names[5])
    assert names[1] == names[3][:2] == names[5][:2], "the best estimates come first"


def test_what_is_left_out_is_listed_with_the_reason(levels):
    dropped = levels[3][1]["Dropped"]
    assert [each for each in dropped if "expected to be slower" in each["Reason"]], dropped
    assert levels[5][1]["Dropped"] == []


def test_without_timing_the_best_estimate_is_chosen(levels):
    best = timed(levels[5][1])[0]
    assert levels[0][1]["TacticName"] == best
    assert built(3, timing=False)[1]["TacticName"] == best


def test_results_are_right_at_every_level(levels):
    expected = A.astype(np.float64) @ B.astype(np.float64)
    for level, (engine, _) in levels.items():
        y = np.asarray(trt.Engine(engine)(A), np.float64)
        np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3, err_msg=f"level {level}")
