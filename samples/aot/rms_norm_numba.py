"""Row-wise RMS normalization for Numba, FP32 and FP16."""

import math

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic


def rms_norm(x, scale, columns, epsilon, y, row, _y, _z):
    """One row, which one cell of the grid makes: y = x / sqrt(mean(x * x) + epsilon) * scale."""
    first = row * columns
    total = np.float32(0)
    for i in range(columns):
        value = to_float(x[first + i])
        total += value * value
    factor = np.float32(1 / math.sqrt(total / columns + epsilon))
    for i in range(columns):
        value = to_float(x[first + i]) * factor * to_float(scale[i])
        y[first + i] = to_element(value, x[first])


# Numba has no FP16 on the CPU: kernels get the bits of such elements, as uint16. These two have LLVM
# convert them, one instruction each.


@intrinsic
def to_float(_, element):
    """An element as float32."""

    def generate(_, builder, signature, arguments):
        (bits,) = arguments
        if element == numba.float32:
            return bits
        return builder.fpext(builder.bitcast(bits, ir.HalfType()), ir.FloatType())

    return numba.float32(element), generate


@intrinsic
def to_element(_, value, like):
    """A float32 as an element of the type of `like`."""

    def generate(_, builder, signature, arguments):
        value, _ = arguments
        if like == numba.float32:
            return value
        return builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))

    return like(numba.float32, like), generate
