"""The decoder sample on the GPU, in FP16: which tokens it makes, one sequence and several at once."""

from __future__ import annotations

import dataclasses
import importlib
import sys

import numpy as np
import pytest

import opwright as trt
from decoder_reference import reference_logits
from paths import ROOT

pytestmark = [pytest.mark.usefixtures("on_gpu"), pytest.mark.nvidia]

PROMPT, TOKENS = 33, 24

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def decoder():
    """The sample, and the reference that the tests of the CPU have."""
    path = str(ROOT / "samples" / "decoder")
    sys.path.insert(0, path)
    try:
        yield importlib.import_module("decoder")
    finally:
        sys.path.remove(path)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("hidden", [256, 512])
def test_greedy_tokens(decoder, tmp_path, batch, hidden):
    """Each token's logit is, within FP16's error, the best that a reference in double precision has after
    the tokens before."""
    # Heads of 32 and of 64 elements.
    size = dataclasses.replace(
        decoder.SIZES["small"], hidden=hidden, heads=8, inner=2 * hidden, vocabulary=1000
    )
    weights = decoder.random_weights(size, np.float16)
    plan = decoder.build(
        size, weights, batch=batch, room=64, prompt=PROMPT, device=trt.DeviceType.GPU
    )
    engine = tmp_path / "decoder.engine"
    engine.write_bytes(bytes(plan))
    prompt = np.random.default_rng(0).integers(0, size.vocabulary, (batch, PROMPT))
    tokens, times = decoder.generate(engine, prompt, TOKENS)
    assert times["step_ms"] > 0
    again, _ = decoder.generate(engine, prompt, TOKENS)
    np.testing.assert_array_equal(tokens, again)

    known = prompt
    for step in range(TOKENS):
        logits = reference_logits(size, weights, known)
        chosen = np.take_along_axis(logits, tokens[:, step : step + 1], 1)[:, 0]
        assert (logits.max(-1) - chosen <= 0.01 * logits.std()).all(), f"step {step}"
        known = np.concatenate([known, tokens[:, step : step + 1]], 1)
