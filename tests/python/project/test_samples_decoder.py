"""The decoder sample: its greedy tokens are those of another program, and the native program makes them."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import opwright as trt
from decoder_reference import reference_logits
from paths import SAMPLES

FOLDER = SAMPLES / "decoder"
PROMPT, TOKENS = 7, 12


@pytest.fixture(scope="module")
def decoder():
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("decoder")
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("decoder", "decoder_operators", "decoder_operators_triton"):
            sys.modules.pop(name, None)


def reference_tokens(size, weights, prompt: np.ndarray, count: int) -> np.ndarray:
    tokens = prompt
    for _ in range(count):
        best = reference_logits(size, weights, tokens).argmax(-1)
        tokens = np.concatenate([tokens, best[:, None]], 1)
    return tokens[:, prompt.shape[1] :]


@pytest.mark.parametrize("batch", [1, 3])
def test_tokens_of_the_native_program(decoder, tmp_path, batch):
    size = decoder.SIZES["small"]
    weights = decoder.random_weights(size)
    plan = decoder.build(
        size, weights, batch=batch, room=32, prompt=PROMPT, device=trt.DeviceType.CPU
    )
    engine = tmp_path / "decoder.engine"
    engine.write_bytes(bytes(plan))
    prompt = np.random.default_rng(0).integers(0, size.vocabulary, (batch, PROMPT))
    tokens, times = decoder.generate(engine, prompt, TOKENS)
    np.testing.assert_array_equal(tokens, reference_tokens(size, weights, prompt, TOKENS))
    assert times["step_ms"] > 0


def test_tokens_of_transformers(decoder, tmp_path):
    """Weights of a model that transformers makes, which generates the same."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    size = decoder.SIZES["small"]
    config = transformers.LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.shared_heads,
        rms_norm_eps=size.epsilon,
        rope_theta=size.theta,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    plan = decoder.build(size, weights, room=32, prompt=PROMPT, device=trt.DeviceType.CPU)
    engine = tmp_path / "decoder.engine"
    engine.write_bytes(bytes(plan))
    prompt = np.random.default_rng(0).integers(0, size.vocabulary, (1, PROMPT))
    with torch.inference_mode():
        expected = model.generate(
            torch.from_numpy(prompt),
            attention_mask=torch.ones(1, PROMPT, dtype=torch.int64),
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    tokens, _ = decoder.generate(engine, prompt, TOKENS)
    np.testing.assert_array_equal(tokens, expected[:, PROMPT:].numpy())
