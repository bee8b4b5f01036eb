"""The decoder sample's network in NumPy."""

from __future__ import annotations

import numpy as np


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
