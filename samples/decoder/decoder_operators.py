"""What the decoder needs beside the engine's layers, compiled into the engine: rotary embeddings that
write keys and values into the cache."""

from pathlib import Path
from typing import Tuple

import opwright.plugin as trtp
from opwright import aot

FOLDER = Path(__file__).resolve().parent


def begins_early() -> bool:
    """Whether kernels for this GPU may begin while those before them end."""
    return int(aot.architecture().removeprefix("sm_")) >= 90


@trtp.register("decoder::rotary_cache")
def rotary_cache_desc(
    qkv: trtp.TensorDesc,
    cosines: trtp.TensorDesc,
    sines: trtp.TensorDesc,
    position: trtp.TensorDesc,
    keys: trtp.TensorDesc,
    values: trtp.TensorDesc,
    heads: int,
) -> Tuple[trtp.TensorDesc, trtp.TensorDesc, trtp.TensorDesc]:
    """Of [batch, tokens, (heads + 2 shared) * size], which projections of queries, keys and values
    are: the queries [batch, heads, tokens, size], turned and divided by the root of `size`. Keys
    and values go to the caches [batch, shared, room, size], from `position` on."""
    batch, tokens, _ = qkv.shape_expr
    queries = trtp.from_shape_expr((batch, heads, tokens, keys.shape_expr[3]), qkv.dtype)
    return queries, keys.aliased(), values.aliased()


def rotary_arguments(qkv, keys, heads):
    batch, tokens, _ = qkv.shape_expr
    _, shared, room, size = map(int, keys.shape_expr)
    return batch, tokens, heads, shared, room, size


@trtp.aot_impl("decoder::rotary_cache", device="cpu")
def rotary_cache_cpu(qkv, cosines, sines, position, keys, values, heads, outputs, tactic):
    batch, tokens, heads, shared, room, size = rotary_arguments(qkv, keys, heads)
    integers = [trtp.SymInt32(n) for n in (heads, shared, size, room, tokens)]
    extra = trtp.SymExprs.from_tuple([*integers, trtp.SymFloat32(size**-0.5)])
    code = aot.cpp(
        FOLDER / "operators.cpp",
        "rotary_cache",
        inputs=[qkv, cosines, sines, position, keys, values],
        extra=extra,
        outputs=outputs,
    )
    launch = code.launch(grid_x=heads + 2 * shared, grid_y=tokens, grid_z=batch)
    return code.name, code, launch, extra


@trtp.aot_impl("decoder::rotary_cache", device="cuda")
def rotary_cache_gpu(qkv, cosines, sines, position, keys, values, heads, outputs, tactic):
    import decoder_operators_triton

    batch, tokens, heads, shared, room, size = rotary_arguments(qkv, keys, heads)
    integers = [trtp.SymInt32(n) for n in (heads, shared, room, tokens)]
    extra = trtp.SymExprs.from_tuple([*integers, trtp.SymFloat32(size**-0.5)])
    half, at_once = size // 2, 8
    code = aot.triton(
        decoder_operators_triton.rotary_cache,
        {
            "HEADS": at_once,
            "HALF": half,
            "BLOCK": 1 << (half - 1).bit_length(),
            "EARLY": begins_early(),
        },
        inputs=[qkv, cosines, sines, position, keys, values],
        extra=extra,
        outputs=outputs,
        num_warps=4,
    )
    programs = -(-(heads + 2 * shared) // at_once)
    launch = code.launch(grid_x=programs, grid_y=tokens, grid_z=batch)
    return code.name, code, launch, extra
