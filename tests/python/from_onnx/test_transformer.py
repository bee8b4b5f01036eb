"""A sentence transformer in the exporters' style, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import opwright
from onnx_graphs import assert_close, reference_session
from transformer_model import sentence_transformer

SHAPES = [(1, 1), (1, 7), (2, 16), (3, 33), (4, 64), (1, 100)]


@pytest.fixture(scope="module")
def transformer():
    made = sentence_transformer()
    span = ((1, 1), (2, 32), (4, 128))
    engine = opwright.build(made, shapes={i.name: span for i in made.graph.input}, timing=False)
    return engine, reference_session(made)


def sentences(batch: int, tokens: int, words: int = 2000) -> dict[str, np.ndarray]:
    """Sentences of different lengths: what is behind a sentence's end is masked."""
    rng = np.random.default_rng([batch, tokens])
    lengths = rng.integers(1, tokens + 1, batch)
    lengths[0] = tokens
    mask = np.arange(tokens)[None] < lengths[:, None]
    return {
        "input_ids": rng.integers(0, words, (batch, tokens)),
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": rng.integers(0, 2, (batch, tokens)),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_engine_takes_all_lengths(transformer, shape):
    engine, reference = transformer
    inputs = sentences(*shape)
    results = engine(**inputs)
    for name, want in zip(("last_hidden_state", "sentence_embedding"), reference.run(None, inputs)):
        assert_close(results[name], want)


def test_masked_words_do_not_count(transformer):
    engine, _ = transformer
    inputs = sentences(2, 16)
    want = engine(**inputs)["sentence_embedding"]
    changed = inputs | {
        "input_ids": np.where(inputs["attention_mask"] == 1, inputs["input_ids"], 1)
    }
    assert not np.array_equal(changed["input_ids"], inputs["input_ids"])
    assert_close(engine(**changed)["sentence_embedding"], want, 1e-6)


def test_lengths_outside_the_profile_are_refused(transformer):
    engine, _ = transformer
    with pytest.raises(opwright.Error, match="input_ids|attention_mask|token_type_ids"):
        engine(**sentences(1, 129))
