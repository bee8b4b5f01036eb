"""Attention."""

from __future__ import annotations

from typing import Any

import torch

from .._core import (
    ActivationType,
    AttentionNormalizationOp,
    CausalMaskKind,
    DataType,
    ElementWiseOperation,
    ITensor,
)
from ._converters import converter
from ._layers import linear
from ._normalization import layer_norm
from ._writer import Unsupported, Writer


def _to_four_axes(w: Writer, x: ITensor) -> ITensor:
    """Reshapes [..., heads, tokens, size] to [batch, heads, tokens, size]."""
    rank = len(x.shape)
    if rank <= 4:
        return w.unsqueeze(x, [0] if rank == 3 else list(range(4 - rank)))
    return w.reshape(x, [-1, *w.sizes(x)[rank - 3 :]])


def _attention_mask(w: Writer, mask: ITensor, query: ITensor) -> ITensor:
    """The mask with as many axes as `_to_four_axes` gives the query."""
    rank, axes = len(query.shape), len(mask.shape)
    if rank > 4 and any(extent != 1 for extent in list(mask.shape)[: max(axes - 3, 0)]):
        outer = w.sizes(query)[: rank - 3]
        inner = w.sizes(w.unsqueeze(mask, list(range(rank - axes))))[rank - 3 :]
        return _to_four_axes(w, w.expand(mask, [*outer, *inner]))
    if axes > 4:
        return w.reshape(mask, [1, *w.sizes(mask)[axes - 3 :]])
    return w.unsqueeze(mask, list(range(4 - axes)))


@converter("scaled_dot_product_attention")
def _attention(
    w: Writer,
    query: ITensor,
    key: ITensor,
    value: ITensor,
    mask: ITensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ITensor:
    if dropout_p:
        raise Unsupported("attention with dropout: call eval() of the module")
    rank, size = len(query.shape), query.shape[-1]
    if size < 0:
        raise Unsupported("attention whose heads' size is not known")
    outer = [list(x.shape)[: rank - 3] for x in (query, key, value)]
    if any(extents != outer[0] for extents in outer):
        if any(extent < 0 for extents in outer for extent in extents):
            raise Unsupported(f"attention of batches that broadcast and are not known: {outer}")
        batch = list(torch.broadcast_shapes(*outer))
        query, key, value = (w.expand(x, [*batch, *w.sizes(x)[-3:]]) for x in (query, key, value))
    if mask is not None:
        mask = mask if mask.dtype == DataType.BOOL else w.cast(mask, query.dtype)
        mask = _attention_mask(w, mask, query)
    shape = list(w.sizes(query)[: rank - 1])
    query, key, whole = (_to_four_axes(w, x) for x in (query, key, value))
    query = w.mul(query, size**-0.5 if scale is None else scale)
    causal = CausalMaskKind.UPPER_LEFT if is_causal else CausalMaskKind.NONE
    softmax = AttentionNormalizationOp.SOFTMAX
    layer = w.network.add_attention_v2(query, key, whole, softmax, causal)
    layer.decomposable = True
    if mask is not None:
        layer.mask = mask
    y = layer.get_output(0)
    if rank < 4:
        return w.squeeze(y, list(range(4 - rank)))
    return y if rank == 4 else w.reshape(y, [*shape, value.shape[-1]])


@converter("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention_for_cpu(
    w: Writer,
    query: ITensor,
    key: ITensor,
    value: ITensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: ITensor | None = None,
    scale: float | None = None,
) -> Any:
    y = _attention(w, query, key, value, attn_mask, dropout_p, is_causal, scale)
    return y, None


@converter("_scaled_dot_product_efficient_attention")
def _efficient_attention(
    w: Writer,
    query: ITensor,
    key: ITensor,
    value: ITensor,
    bias: ITensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    y = _attention(w, query, key, value, bias, dropout_p, is_causal, scale)
    return y, None, None, None


@converter("_transformer_encoder_layer_fwd")
def _encoder_layer(
    w: Writer,
    x: ITensor,
    width: int,
    heads: int,
    qkv_weight: ITensor,
    qkv_bias: ITensor,
    out_weight: ITensor,
    out_bias: ITensor,
    use_gelu: bool,
    norm_first: bool,
    epsilon: float,
    *rest: Any,
) -> ITensor:
    """The operator that nn.TransformerEncoderLayer calls in inference."""
    norm_1, norm_2, inner, outer = (rest[i : i + 2] for i in (0, 2, 4, 6))
    mask, mask_kind = (*rest[8:], None, None)[:2]
    batch, length = w.sizes(x)[:2]
    allowed = None
    if mask is not None:  # keys whose mask is not 0 are left out
        allowed = w.binary(ElementWiseOperation.EQUAL, w.cast(mask, DataType.FLOAT), 0)
        if mask_kind == 1:  # a mask of keys, [batch, length]
            allowed = w.unsqueeze(allowed, [1, 2])

    def attend(x: ITensor) -> ITensor:
        joined = linear(w, x, qkv_weight, qkv_bias)
        joined = w.reshape(joined, [batch, length, 3, heads, width // heads])
        joined = w.transpose(joined, [2, 0, 3, 1, 4])
        numbers = [w.constant(torch.tensor(i, dtype=torch.int64)) for i in range(3)]
        query, key, value = (w.gather(joined, number, 0) for number in numbers)
        y = w.transpose(_attention(w, query, key, value, allowed), [0, 2, 1, 3])
        return linear(w, w.reshape(y, [batch, length, width]), out_weight, out_bias)

    def feed(x: ITensor) -> ITensor:
        kind = ActivationType.GELU_ERF if use_gelu else ActivationType.RELU
        return linear(w, w.activation(kind, linear(w, x, *inner)), *outer)

    for parameters, run in ((norm_1, attend), (norm_2, feed)):
        if norm_first:
            x = w.add(x, run(layer_norm(w, x, [width], *parameters, epsilon)))
        else:
            x = layer_norm(w, w.add(x, run(x)), [width], *parameters, epsilon)
    return x
