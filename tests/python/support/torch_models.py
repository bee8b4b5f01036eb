"""Architectures that the tests of opwright.torch run, small and with random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int):
        super().__init__()
        outer = 4 * inner
        self.reduce = nn.Conv2d(channels, inner, 1, bias=False)
        self.convolve = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.widen = nn.Conv2d(inner, outer, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (inner, inner, outer))
        self.skip = None
        if stride != 1 or channels != outer:
            convolution = nn.Conv2d(channels, outer, 1, stride, bias=False)
            self.skip = nn.Sequential(convolution, nn.BatchNorm2d(outer))

    def forward(self, x):
        y = functional.relu_(self.norms[0](self.reduce(x)))
        y = functional.relu_(self.norms[1](self.convolve(y)))
        y = self.norms[2](self.widen(y))
        y += x if self.skip is None else self.skip(x)
        return functional.relu_(y)


class ResNet(nn.Module):
    """ResNet-50's kinds of blocks, fewer and narrower."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks = nn.Sequential(Bottleneck(8, 4, 1), Bottleneck(16, 4, 1), Bottleneck(16, 8, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class Encoder(nn.Module):
    """PyTorch's own transformer encoder over embedded tokens, with a padding mask."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.positions = nn.Parameter(torch.randn(1, 64, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, tokens, length):
        x = self.embedding(tokens) + self.positions[:, : tokens.shape[1]]
        padded = torch.arange(tokens.shape[1], device=tokens.device)[None] >= length[:, None]
        return self.head(self.layers(x, src_key_padding_mask=padded))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 7, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(14, 5, batch_first=True)
        self.rnn = nn.RNN(5, 4, batch_first=True, nonlinearity="relu", bias=False)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        y, g = self.gru(y)
        y, r = self.rnn(y)
        return {"y": y, "h": h, "c": c, "g": g, "r": r}


class Decoder(nn.Module):
    """One step of a decoder. The cache of keys and values is both input and output."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.project = nn.Linear(32, 96, bias=False)
        self.out = nn.Linear(32, 32, bias=False)
        self.norm = nn.RMSNorm(32)
        self.gate, self.down = nn.Linear(32, 128), nn.Linear(64, 32)

    def forward(self, token, past_key, past_value):
        x = self.embedding(token)
        batch, count, _ = x.shape
        parts = self.project(self.norm(x)).view(batch, count, 3, 4, 8).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        key = torch.cat([past_key, key], 2)
        value = torch.cat([past_value, value], 2)
        y = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(y.transpose(1, 2).reshape(batch, count, 32))
        a, b = self.gate(self.norm(x)).chunk(2, -1)
        x = x + self.down(functional.silu(a) * b)
        return x @ self.embedding.weight.t(), key, value


class UNet(nn.Module):
    """Down, up by interpolation and by a transposed convolution, with skips."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding="same"), nn.GroupNorm(2, 8), nn.SiLU()
        )
        self.second = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.InstanceNorm2d(16), nn.GELU())
        self.third = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 2, dilation=2, groups=4), nn.Hardswish())
        self.up = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.last = nn.Conv2d(24, 2, 1)

    def forward(self, x):
        a = self.first(x)
        b = self.third(self.second(a))
        near = functional.interpolate(b, size=a.shape[2:], mode="bilinear", align_corners=False)
        up = functional.leaky_relu(self.up(b), 0.2)
        y = self.last(torch.cat([up, near], 1))
        y = functional.interpolate(y, scale_factor=2, mode="nearest")
        return functional.pad(torch.sigmoid(y), (1, 1, 2, 0), mode="reflect")
