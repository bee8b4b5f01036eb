"""The decoder sample: its greedy tokens are those of another program, and the native program makes them."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import opwright as trt
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


def reference_logits(size, weights, tokens: np.ndarray) -> np.ndarray:
    """The last token's, [batch, vocabulary], of all tokens at once, in double precision."""

    def norm(x, name):
        return (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + size.epsilon) * weights[name + ".weight"]
        )

    def heads(x, name, count):
        y = x @ weights[name + ".weight"].T
        return y.reshape(*y.shape[:2], count, -1).transpose(0, 2, 1, 3)

    def turned(x):
        half = x.shape[-1] // 2
        frequency = size.theta ** (-np.arange(half) / half)
        angle = np.arange(x.shape[2])[:, None] * frequency
        a, b = x[..., :half], x[..., half:]
        return np.concatenate(
            [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1
        )

    weights = {name: array.astype(np.float64) for name, array in weights.items()}
    x = weights["model.embed_tokens.weight"][tokens]
    count = tokens.shape[1]
    for i in range(size.layers):
        layer = f"model.layers.{i}."
        y = norm(x, layer + "input_layernorm")
        q = turned(heads(y, layer + "self_attn.q_proj", size.heads))
        k = turned(heads(y, layer + "self_attn.k_proj", size.shared_heads))
        v = heads(y, layer + "self_attn.v_proj", size.shared_heads)
        group = size.heads // size.shared_heads
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        scores = q @ k.transpose(0, 1, 3, 2) / size.head_size**0.5
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = (scores / scores.sum(-1, keepdims=True)) @ v
        y = y.transpose(0, 2, 1, 3).reshape(*tokens.shape, size.hidden)
        x = x + y @ weights[layer + "self_attn.o_proj.weight"].T
        y = norm(x, layer + "post_attention_layernorm")
        gate = y @ weights[layer + "mlp.gate_proj.weight"].T
        y = gate / (1 + np.exp(-gate)) * (y @ weights[layer + "mlp.up_proj.weight"].T)
        x = x + y @ weights[layer + "mlp.down_proj.weight"].T
    return norm(x[:, -1], "model.norm") @ weights["model.embed_tokens.weight"].T


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
