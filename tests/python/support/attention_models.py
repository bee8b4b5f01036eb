"""Modules with one attention each, in the forms of several model families, and their engines."""

from __future__ import annotations

import io
import json
import math

import torch
from torch import nn
from torch.nn import functional as F

import opwright

# PyTorch's own fused module cannot be exported.
torch.backends.mha.set_fastpath_enabled(False)

WIDTH, HEADS, SIZE = 48, 6, 8


def eager(query, key, value, mask=None, scale=None):
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ value


class Bert(nn.Module):
    """Separate projections, the mask added."""

    inputs = ("x", "mask")

    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x):
        return x.view(x.shape[0], -1, HEADS, SIZE).transpose(1, 2)

    def forward(self, x, mask):
        bias = (1 - mask[:, None, None, :]) * torch.finfo(x.dtype).min
        q, k, v = (self.heads(f(x)) for f in (self.query, self.key, self.value))
        y = self.attend(q, k, v, bias).transpose(1, 2).reshape(x.shape[0], -1, WIDTH)
        return self.out(y)


class VisionTransformer(nn.Module):
    """One projection, split along an axis of its own."""

    inputs = ("x",)

    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, n, WIDTH))


class MultiHead(nn.Module):
    """PyTorch's module, which has the sequence first: x is [length, batch, width]."""

    inputs = ("x",)

    def __init__(self, weights: bool):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS)
        self.weights = weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.weights)[0]


class BatchFirst(nn.Module):
    """The module with the batch first. It swaps batch and length before and behind the attention,
    as in torchvision."""

    inputs = ("x",)

    def __init__(self, crosses: bool = False):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.crosses = crosses

    def forward(self, x):
        keys = x.relu() if self.crosses else x
        return x + self.attention(x, keys, keys, need_weights=False)[0]


class Exchanged(nn.Module):
    """The same attention written out, for any batch and length, with keys from another tensor."""

    inputs = ("x",)

    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.pair = nn.Linear(WIDTH, 2 * WIDTH)

    def heads(self, x):
        return x.reshape(x.shape[0], x.shape[1], HEADS, SIZE).permute(1, 2, 0, 3)

    def forward(self, x):
        rows = x.transpose(0, 1)
        k, v = self.pair(x.relu().transpose(0, 1)).chunk(2, -1)
        y = self.attend(self.heads(self.query(rows)), self.heads(k), self.heads(v))
        y = self.out(y.permute(2, 0, 1, 3).reshape(rows.shape[0], rows.shape[1], WIDTH))
        return x + y.transpose(0, 1)


class Gpt2(nn.Module):
    """The projection is split in three, and a triangle masks later tokens."""

    inputs = ("x",)

    def __init__(self, fused: bool):
        super().__init__()
        self.fused = fused
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("triangle", torch.tril(torch.ones(1, 1, 64, 64, dtype=torch.bool)))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (
            t.view(b, n, HEADS, SIZE).permute(0, 2, 1, 3) for t in self.qkv(x).split(WIDTH, 2)
        )
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / SIZE**0.5
            lowest = torch.full([], torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device)
            scores = torch.where(self.triangle[:, :, :n, :n], scores, lowest)
            y = scores.softmax(-1) @ v
        return self.out(y.permute(0, 2, 1, 3).reshape(b, n, WIDTH))


class Llama(nn.Module):
    """Several query heads share a key head, which is repeated as the exporter writes it."""

    inputs = ("x",)
    shared = 2

    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.key, self.value = (nn.Linear(WIDTH, self.shared * SIZE) for _ in range(2))

    def repeated(self, x):
        b, heads, n, size = x.shape
        x = x[:, :, None].expand(b, heads, HEADS // heads, n, size)
        return x.reshape(b, HEADS, n, size)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.query(x).view(b, n, HEADS, SIZE).transpose(1, 2)
        k = self.key(x).view(b, n, self.shared, SIZE).transpose(1, 2)
        v = self.value(x).view(b, n, self.shared, SIZE).transpose(1, 2)
        mask = torch.full((n, n), -torch.inf, dtype=x.dtype, device=x.device).triu(1)
        y = self.attend(q, self.repeated(k), self.repeated(v), mask)
        return self.out(y.transpose(1, 2).reshape(b, n, WIDTH))


def sdpa(query, key, value, mask=None):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


MODELS = {
    "BERT, eager": lambda: Bert(eager),
    "BERT, sdpa": lambda: Bert(sdpa),
    "ViT, eager": lambda: VisionTransformer(eager),
    "ViT, sdpa": lambda: VisionTransformer(sdpa),
    "MultiheadAttention": lambda: MultiHead(False),
    "MultiheadAttention with weights": lambda: MultiHead(True),
    "MultiheadAttention, batch first": lambda: BatchFirst(),
    "MultiheadAttention, batch first, across": lambda: BatchFirst(True),
    "Batch first": lambda: Exchanged(eager),
    "GPT-2, eager": lambda: Gpt2(False),
    "GPT-2, sdpa": lambda: Gpt2(True),
    "Llama, eager": lambda: Llama(eager),
    "Llama, sdpa": lambda: Llama(sdpa),
}


def exported(module, arguments, names, dynamic) -> bytes:
    file = io.BytesIO()
    torch.onnx.export(
        module,
        tuple(arguments),
        file,
        input_names=list(names),
        output_names=["y"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in names} if dynamic else None,
        opset_version=17,
        dynamo=False,
    )
    return file.getvalue()


def arguments_of(module, batch: int, length: int) -> list:
    torch.manual_seed(batch * 1000 + length)
    x = torch.randn(batch, length, WIDTH)
    mask = (
        torch.arange(length)[None] < torch.tensor([[length], [length // 2 + 1]])[:batch]
    ).float()
    return [x, mask][: len(module.inputs)]


def layers(engine) -> list[dict]:
    inspector = engine.engine.create_engine_inspector()
    form = opwright.LayerInformationFormat.JSON
    return [
        json.loads(inspector.get_layer_information(i, form))
        for i in range(engine.engine.num_layers)
    ]


def steps(engine, kind: str) -> list[dict]:
    return [layer for layer in layers(engine) if layer["LayerType"] == kind]


def built(module, dynamic: bool, batch=2, length=24, dtype=torch.float32, **options):
    arguments = [argument.to(dtype) for argument in arguments_of(module, batch, length)]
    names = module.inputs
    model = exported(module, arguments, names, dynamic)
    spans = None
    if dynamic:
        spans = {}
        for name, argument in zip(names, arguments):
            rest = tuple(argument.shape[2:])
            spans[name] = ((1, 1, *rest), (batch, length, *rest), (2, 64, *rest))
    return opwright.build(model, shapes=spans, timing=False, **options)
