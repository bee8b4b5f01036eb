"""The sentence transformer all-MiniLM-L6-v2, exported to ONNX by PyTorch from the weights that a package ships.

The network is BERT's (Devlin et al., 2018) with the mean over the tokens that count, normalized, as the model's card
describes it; words become tokens by WordPiece over the package's vocabulary.
"""

from __future__ import annotations

import io
import json
import math
import unicodedata
from pathlib import Path

import numpy as np
import torch
from torch import nn


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """The FP32 tensors of a file: a length, a JSON header of types, shapes and offsets, and the elements."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.from_numpy(
            np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"]).copy()
        )
    return tensors


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, mask):
        batch, length, width = x.shape

        def split(y):
            return y.view(batch, length, self.heads, self.size).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(self.size) + mask, dim=-1)
        return self.dense((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, epsilon: float):
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = nn.LayerNorm(width, epsilon)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, epsilon)

    def forward(self, x, mask):
        x = self.attention_norm(x + self.attention(x, mask))
        return self.norm(x + self.narrow(nn.functional.gelu(self.wide(x))))


class SentenceModel(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.places = nn.Embedding(config["max_position_embeddings"], width)
        self.types = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, epsilon)
        heads, inner = config["num_attention_heads"], config["intermediate_size"]
        self.blocks = nn.ModuleList(
            Block(width, heads, inner, epsilon) for _ in range(config["num_hidden_layers"])
        )

    def forward(self, input_ids, attention_mask):
        places = torch.arange(input_ids.shape[1])
        x = self.words(input_ids) + self.places(places) + self.types(torch.zeros_like(input_ids))
        x = self.norm(x)
        kept = attention_mask.to(x.dtype)
        mask = (1 - kept)[:, None, None, :] * torch.finfo(torch.float32).min
        for block in self.blocks:
            x = block(x, mask)
        mean = (x * kept[:, :, None]).sum(1) / kept.sum(1, keepdim=True).clamp(min=1e-9)
        return mean / mean.norm(dim=1, keepdim=True).clamp(min=1e-12)


# The checkpoint's names of the parts of a block.
PARTS = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.dense": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "norm": "output.LayerNorm",
}
EMBEDDINGS = {
    "words": "word_embeddings",
    "places": "position_embeddings",
    "types": "token_type_embeddings",
    "norm": "LayerNorm",
}


def load(weights: Path, config: Path) -> SentenceModel:
    model = SentenceModel(json.loads(config.read_text())).eval()
    tensors = read_safetensors(weights)
    state = {}
    for name in model.state_dict():
        parts = name.split(".")
        kind = parts[-1]
        if parts[0] == "blocks":
            theirs = f"encoder.layer.{parts[1]}.{PARTS['.'.join(parts[2:-1])]}.{kind}"
        else:
            theirs = f"embeddings.{EMBEDDINGS[parts[0]]}.{kind}"
        state[name] = tensors[theirs]
    model.load_state_dict(state)
    return model


def export(model: SentenceModel) -> bytes:
    """Exports the model to ONNX with open batch and length."""
    file = io.BytesIO()
    ids = torch.ones(2, 7, dtype=torch.int64)
    torch.onnx.export(
        model,
        (ids, ids),
        file,
        input_names=["input_ids", "attention_mask"],
        output_names=["embedding"],
        dynamic_axes={
            "input_ids": {0: "batch", 1: "length"},
            "attention_mask": {0: "batch", 1: "length"},
            "embedding": {0: "batch"},
        },
        opset_version=17,
        dynamo=False,
    )
    return file.getvalue()


class WordPiece:
    """A tokenizer: lower case without accents, split at spaces and punctuation. Each word is split
    into the longest pieces from its front."""

    def __init__(self, vocabulary: Path):
        lines = vocabulary.read_text(encoding="utf-8").splitlines()
        self.tokens = {token: i for i, token in enumerate(lines)}

    def words(self, text: str) -> list[str]:
        decomposed = unicodedata.normalize("NFD", text.lower())
        plain = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        spaced = "".join(
            f" {c} " if unicodedata.category(c).startswith(("P", "S")) else c for c in plain
        )
        return spaced.split()

    def pieces(self, word: str) -> list[int]:
        found: list[int] = []
        begin = 0
        while begin < len(word):
            for end in range(len(word), begin, -1):
                piece = ("##" if begin else "") + word[begin:end]
                if piece in self.tokens:
                    break
            else:
                return [self.tokens["[UNK]"]]
            found.append(self.tokens[piece])
            begin = end
        return found

    def __call__(self, texts: list[str]) -> dict[str, np.ndarray]:
        rows = [
            [self.tokens["[CLS]"]]
            + [piece for word in self.words(text) for piece in self.pieces(word)]
            + [self.tokens["[SEP]"]]
            for text in texts
        ]
        length = max(map(len, rows))
        ids = np.zeros((len(rows), length), np.int64)
        mask = np.zeros((len(rows), length), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        return {"input_ids": ids, "attention_mask": mask}
