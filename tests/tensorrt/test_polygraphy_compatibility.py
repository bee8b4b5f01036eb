"""Options of Polygraphy's CreateConfig for engines that are changed or moved after they were built, on the CPU."""

from __future__ import annotations

import numpy as np
import polygraphy.backend.trt as pg
import pytest
import tensorrt as trt
from polygraphy.logger import G_LOGGER

import opwright
import small_models

MODEL = small_models.convolution(channels=64).SerializeToString()
X = np.random.default_rng(6).normal(size=(1, 3, 8, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def quiet_on_the_cpu(monkeypatch):
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cpu")
    with G_LOGGER.verbosity(G_LOGGER.CRITICAL):
        yield


def engine_bytes(**options):
    return pg.engine_bytes_from_network(
        pg.network_from_onnx_bytes(MODEL), pg.CreateConfig(**options)
    )


def check(engine):
    expected = opwright.build(MODEL, device="cpu", timing=False)(X)
    np.testing.assert_allclose(opwright.Engine(engine)(X), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"version_compatible": True},
        {"version_compatible": True, "exclude_lean_runtime": True},
        {"hardware_compatibility_level": trt.HardwareCompatibilityLevel.AMPERE_PLUS},
        {"hardware_compatibility_level": trt.HardwareCompatibilityLevel.SAME_COMPUTE_CAPABILITY},
    ],
    ids=str,
)
def test_compatible_engines(options):
    check(pg.engine_from_bytes(engine_bytes(**options)))


def test_a_refittable_engine():
    engine = pg.engine_from_bytes(engine_bytes(refittable=True))
    assert engine.refittable
    check(engine)


def test_a_stripped_engine_is_smaller():
    full, stripped = engine_bytes(refittable=True), engine_bytes(strip_plan=True)
    weights = 64 * 3 * 3 * 3 * 4
    assert full.nbytes - stripped.nbytes > weights / 2
    assert pg.engine_from_bytes(stripped).refittable
