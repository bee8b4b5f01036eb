"""Whole models that no one here made, on the GPU: against ONNX Runtime, and against the engine on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import light_models  # noqa: E402
from real_models import MODELS, Missing, compare, difference  # noqa: E402

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]


@pytest.mark.parametrize("name", light_models.NAMES)
def test_image_classifiers(name):
    model = light_models.randomized_bytes(name)
    inputs = light_models.sample_input(light_models.randomized(name))
    (expected,) = onnxruntime.InferenceSession(model).run(None, inputs)
    on_gpu = trt.build(model, device="cuda", timing=False)(**inputs)
    on_cpu = trt.build(model, device="cpu", timing=False)(**inputs)
    assert difference(on_gpu, expected) < 1e-4
    assert difference(on_gpu, on_cpu) < 1e-4
    np.testing.assert_array_equal(on_gpu.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("model", MODELS, ids=[f"{m.package}:{m.file}" for m in MODELS])
def test_models_of_packages(model):
    pytest.importorskip("scipy")
    pytest.importorskip("PIL")
    try:
        assert compare(model, device="cuda", timing=False) <= model.tolerance
    except Missing as missing:
        pytest.skip(str(missing))
