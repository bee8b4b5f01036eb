"""Attentions of decoders as transformers writes them: causal masks made of positions, and rotary embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

HEADS, SIZE = 4, 16
WIDTH = HEADS * SIZE


def compared(x, allowed):
    """Positions are compared; data may forbid further keys."""
    places = torch.arange(x.shape[1])
    mask = places[None, :] <= places[:, None]
    return mask[None, None] if allowed is None else mask & allowed[:, None, None, :]


def documents(x, allowed):
    """transformers 4.57: keys of a query's document, whose places are those of one count."""
    places = torch.arange(x.shape[1])
    all_places = places[None]
    numbers = torch.diff(all_places, prepend=all_places[:, :1] - 1, dim=-1)
    numbers = (numbers != 1).cumsum(-1)
    mask = (places[None, :] <= places[:, None])[None]
    mask = mask & (numbers[:, :, None] == numbers[:, None, :])
    mask = mask[:, None].expand(x.shape[0], -1, -1, -1)
    return mask if allowed is None else mask & allowed[:, None, None, :]


def lower(x, allowed):
    """A triangle of ones."""
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return mask[None, None] if allowed is None else mask & allowed[:, None, None, :]


def added(x, allowed):
    """Scores of later keys become the lowest finite number. Data may lower others, too."""
    lowest = torch.finfo(x.dtype).min
    mask = torch.full((x.shape[1], x.shape[1]), lowest, dtype=x.dtype).triu(1)[None, None]
    if allowed is None:
        return mask
    return mask.masked_fill(~allowed[:, None, None, :], lowest)


MASKS = {each.__name__: each for each in (compared, documents, lower, added)}


def window(x, allowed):
    """No causal mask: queries meet only the keys before them that are near."""
    places = torch.arange(x.shape[1])
    distance = places[:, None] - places[None, :]
    return ((distance >= 0) & (distance < 5))[None, None]


def rotate_half(x):
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def rotate_every_two(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


class Decoder(nn.Module):
    """An attention. `turned` leading elements of queries and keys are turned, if any."""

    def __init__(self, mask=None, shared=HEADS, turned=SIZE, interleaved=False, heads_axis=1):
        super().__init__()
        self.mask, self.shared = mask, shared
        self.turned, self.interleaved, self.heads_axis = turned, interleaved, heads_axis
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, shared * SIZE, bias=False) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        if turned:
            speeds = 1.0 / 100.0 ** (torch.arange(0, turned, 2).float() / turned)
            self.register_buffer("speeds", speeds, persistent=False)

    def tables(self, x):
        places = torch.arange(x.shape[1])[None].float()
        angles = (self.speeds.float()[None, :, None] @ places[:, None, :]).transpose(1, 2)
        if self.interleaved:
            angles = torch.repeat_interleave(angles, 2, dim=-1)
        else:
            angles = torch.cat((angles, angles), dim=-1)
        tables = ((f(angles) * 1.0).to(x.dtype) for f in (torch.cos, torch.sin))
        return tuple(each.unsqueeze(self.heads_axis) for each in tables)

    def turn(self, x, cosines, sines):
        whole, x = x, x[..., : self.turned]
        rotate = rotate_every_two if self.interleaved else rotate_half
        y = x * cosines + rotate(x) * sines
        return y if self.turned == SIZE else torch.cat((y, whole[..., self.turned :]), dim=-1)

    def forward(self, x, allowed=None):
        b, n, _ = x.shape
        q = self.query(x).view(b, n, -1, SIZE)
        k, v = (f(x).view(b, n, -1, SIZE) for f in (self.key, self.value))
        tables = self.tables(x) if self.turned else ()
        turn = (lambda y: self.turn(y, *tables)) if self.turned else (lambda y: y)
        if self.heads_axis == 2:
            q, k = turn(q), turn(k)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        if self.heads_axis == 1:
            q, k = turn(q), turn(k)
        if self.shared < HEADS:
            group = HEADS // self.shared
            k, v = (
                y[:, :, None].expand(b, self.shared, group, n, SIZE).reshape(b, HEADS, n, SIZE)
                for y in (k, v)
            )
        mask = None if self.mask is None else self.mask(x, allowed)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).reshape(b, n, WIDTH))
