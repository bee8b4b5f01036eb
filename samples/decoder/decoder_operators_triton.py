"""The operators of the decoder for GPUs. With EARLY each begins while the kernel before it ends, and lets
the next one do so: GPUs can from compute capability 9.0 on."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_kernels(EARLY: tl.constexpr):
    """Behind it what kernels before have written may be read, and their operands overwritten."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def rms_norm(x, scale, columns, epsilon, y, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """One row, which one program makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    wait_for_kernels(EARLY)
    first = tl.program_id(0).to(tl.int64) * columns
    i = tl.arange(0, BLOCK)
    value = tl.load(x + first + i, mask=i < columns, other=0).to(tl.float32)
    weight = tl.load(scale + i, mask=i < columns, other=0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(value * value) / columns + epsilon)
    tl.store(y + first + i, value * factor * weight, mask=i < columns)


@triton.jit
def rotary_cache(
    qkv,
    cosines,
    sines,
    position,
    old_keys,
    old_values,
    heads,
    shared,
    room,
    tokens,
    factor,
    queries,
    keys,
    values,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """A head of a token, which one program makes: heads of queries are turned and scaled, those of
    keys turned into the cache, those of values copied there."""
    wait_for_kernels(EARLY)
    head = tl.program_id(0)
    token = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    i = tl.arange(0, BLOCK)
    inside = i < HALF
    place = tl.load(position) + token
    is_there = (place >= 0) & (place < room)
    place = tl.where(is_there, place, 0)
    source = qkv + ((batch * tokens + token) * (heads + 2 * shared) + head) * (2 * HALF) + i
    a = tl.load(source, mask=inside, other=0).to(tl.float32)
    b = tl.load(source + HALF, mask=inside, other=0).to(tl.float32)
    cosine = tl.load(cosines + place * HALF + i, mask=inside, other=0)
    sine = tl.load(sines + place * HALF + i, mask=inside, other=0)
    if head < heads:
        scale = tl.where(is_there, factor, 0.0)
        target = queries + ((batch * heads + head) * tokens + token) * (2 * HALF) + i
        tl.store(target, (a * cosine - b * sine) * scale, mask=inside)
        tl.store(target + HALF, (b * cosine + a * sine) * scale, mask=inside)
    elif head < heads + shared:
        target = keys + ((batch * shared + head - heads) * room + place) * (2 * HALF) + i
        tl.store(target, a * cosine - b * sine, mask=inside & is_there)
        tl.store(target + HALF, b * cosine + a * sine, mask=inside & is_there)
    else:
        target = values + ((batch * shared + head - heads - shared) * room + place) * (2 * HALF) + i
        tl.store(target, a, mask=inside & is_there)
        tl.store(target + HALF, b, mask=inside & is_there)
