"""Real image classifiers agree with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import light_models
import opwright


def relative_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("name", light_models.NAMES)
def test_agrees_with_onnxruntime(name, tmp_path):
    model = light_models.randomized(name, connected=1024)
    serialized = model.SerializeToString()
    inputs = light_models.sample_input(model)
    session = onnxruntime.InferenceSession(serialized)
    (expected,) = session.run(None, inputs)
    engine = opwright.build(serialized)
    result = engine(**inputs)
    assert result.shape == expected.shape
    assert relative_error(result, expected) < 1e-4
    # The same after a trip through a file.
    engine.save(tmp_path / "model.engine")
    again = opwright.load(tmp_path / "model.engine")(**inputs)
    np.testing.assert_array_equal(again, result)
