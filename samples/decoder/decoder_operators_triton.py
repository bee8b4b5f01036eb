"""The operator of the decoder for GPUs. With EARLY it begins while the kernel before it ends, and lets
the next one do so: GPUs can from compute capability 9.0 on."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def begin_next_kernel(EARLY: tl.constexpr):
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_kernels(EARLY: tl.constexpr):
    """Behind it what kernels before have written may be read, and their operands overwritten."""
    if EARLY:
        gdc_wait()


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
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    """HEADS heads of a token, which one program makes: those of queries are turned and scaled, those
    of keys turned into the cache, those of values copied there."""
    begin_next_kernel(EARLY)
    head = tl.program_id(0) * HEADS + tl.arange(0, HEADS)[:, None]
    token = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    i = tl.arange(0, BLOCK)[None, :]
    is_half = i < HALF
    # The position mostly is what it will be when kernels before have ended: what it leads to comes
    # meanwhile. It stays out of the first cache, which would keep what it was.
    early = tl.load(position, cache_modifier=".cg") + token
    early = tl.where((early >= 0) & (early < room), early, 0)
    cosine = tl.load(cosines + early * HALF + i, mask=is_half, other=0)
    sine = tl.load(sines + early * HALF + i, mask=is_half, other=0)
    wait_for_kernels(EARLY)
    place = tl.load(position) + token
    is_there = (place >= 0) & (place < room)
    place = tl.where(is_there, place, 0)
    inside = is_half & (head < heads + 2 * shared)
    source = qkv + ((batch * tokens + token) * (heads + 2 * shared) + head) * (2 * HALF) + i
    a = tl.load(source, mask=inside, other=0).to(tl.float32)
    b = tl.load(source + HALF, mask=inside, other=0).to(tl.float32)
    is_other = is_half & (place != early)
    cosine = tl.load(cosines + place * HALF + i, mask=is_other, other=cosine)
    sine = tl.load(sines + place * HALF + i, mask=is_other, other=sine)
    low = a * cosine - b * sine
    high = b * cosine + a * sine

    scale = tl.where(is_there, factor, 0.0)
    target = queries + ((batch * heads + head) * tokens + token) * (2 * HALF) + i
    is_query = inside & (head < heads)
    tl.store(target, low * scale, mask=is_query)
    tl.store(target + HALF, high * scale, mask=is_query)

    key = head - heads
    is_key = inside & is_there & (key >= 0) & (key < shared)
    target = keys + ((batch * shared + key) * room + place) * (2 * HALF) + i
    tl.store(target, low, mask=is_key)
    tl.store(target + HALF, high, mask=is_key)

    value = key - shared
    is_value = inside & is_there & (value >= 0)
    target = values + ((batch * shared + value) * room + place) * (2 * HALF) + i
    tl.store(target, a, mask=is_value)
    tl.store(target + HALF, b, mask=is_value)
