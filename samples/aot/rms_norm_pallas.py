"""Row-wise RMS normalization for JAX Pallas."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt


def row(x, scale, y, *, epsilon):
    """One row, which one block makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    columns = x.shape[1]
    i = jnp.arange(pl.next_power_of_2(columns))
    at, mask = (pl.program_id(0), i), i < columns
    value = plt.load(x.at[at], mask=mask, other=0).astype(jnp.float32)
    weight = plt.load(scale.at[i], mask=mask, other=0).astype(jnp.float32)
    factor = jax.lax.rsqrt(jnp.sum(value * value) / columns + epsilon)
    plt.store(y.at[at], (value * factor * weight).astype(y.dtype), mask=mask)


def rms_norm(x, scale, epsilon):
    return pl.pallas_call(
        functools.partial(row, epsilon=epsilon),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0],),
        compiler_params=plt.CompilerParams(num_warps=4),
    )(x, scale)
