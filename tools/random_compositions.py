"""Random ONNX models that exercise fusion and the choice of tactics, for tools/model_fuzzer.py
--compositions.

A model has one or two kernels into which others are fused: a product, convolution, attention,
normalization, reduction, pooling or resize. Element-wise chains, casts, quantization, moves and
residuals come before and behind a kernel. Extents are 1, primes, multiples of vectors and tiles,
and one more than these. A tensor has up to a million elements. Operands have all shapes that
broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from random_onnx import ALL, F16, F32, I8, U8, Array, Evaluate, Generator, Made, Tensor
from rounding_bounds import BF16

F8 = np.dtype(ml_dtypes.float8_e4m3fn)

MOST_ELEMENTS = 1 << 20
# Limit of a product's multiplications. The references take too long for more.
MOST_WORK = 1 << 26
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129)
LONG_EXTENTS = (256, 257, 384, 511, 512, 768, 1000, 1024, 1031, 2048, 4099)
CHANNELS = (1, 2, 3, 4, 5, 8, 13, 16, 17, 24, 32, 33, 48, 64, 65)

SMOOTH = """Abs Cos Elu Erf Exp Gelu HardSwish LeakyRelu Mish Neg Relu Sigmoid Sin Softplus Softsign Tanh""".split()
BINARY = "Add Sub Mul Max Min Div PRelu Where Pow".split()
# Operators whose results stay exact if operands are small multiples of a power of two.
LINEAR = set(
    """Add Sub Mul MatMul Gemm Conv ConvTranspose ReduceSum Sum GlobalAveragePool AveragePool Concat Slice Pad
    Transpose Reshape DequantizeLinear Relu Neg Abs Max Min""".split()
)


def is_exact(value: Array) -> bool:
    """Whether FP32 sums of these numbers are the same in each order."""
    if value.dtype != F32:
        return False
    with np.errstate(all="ignore"):
        scaled = value.astype(np.float64) * 256
    return bool(np.all(np.abs(scaled) < 1 << 22) and np.all(scaled == np.rint(scaled)))


def has_tie(extent: int, size: int) -> bool:
    """Whether a nearest Resize samples the middle between two elements, or an edge."""
    # The place of element i is ((2 i + 1) extent - size) / (2 size).
    return any(((2 * i + 1) * extent - size) % (2 * size) == size for i in range(size))


class Composer(Generator):
    """Draws a model; the last tensor of the chain is `self.at`."""

    most_elements = MOST_ELEMENTS
    usable_kinds = (*ALL, BF16, F8)

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.opset = int(rng.choice([18, 19, 21, 22, 23]))
        self.type = self.one_of([F32, F32, F32, F32, F16, F16, F16, BF16])
        self.evaluate: Evaluate = lambda model, inputs: []

    # ---- Extents, shapes, operands.

    def side(self, long: bool = False) -> int:
        return int(self.one_of(LONG_EXTENTS if long and self.chance(0.3) else EXTENTS))

    def fitted(self, shape: Sequence[int], keep: Sequence[int] = (), most: int = 0) -> list[int]:
        """The shape with its largest extents reduced until it has few enough elements."""
        extents = list(shape)
        most = most or self.one_of([2000, 20000, 200000, MOST_ELEMENTS])
        while math.prod(extents) > most:
            free = [i for i in range(len(extents)) if i not in keep and extents[i] > 1]
            if not free:
                break
            largest = max(free, key=lambda i: extents[i])
            extents[largest] = self.one_of([e for e in EXTENTS if e < extents[largest]][-4:] or [1])
        return extents

    def values(
        self, kind: np.dtype[Any], shape: Sequence[int], low: int = -8, high: int = 8
    ) -> Array:
        if kind != BF16:
            return super().values(kind, shape, low, high)
        return super().values(F32, shape, low, high).astype(BF16)

    def hold(self, value: Array, constant: float = 0.4) -> Tensor:
        """A new input or initializer. NumPy lacks BF16, so a BF16 input is FP32 with a Cast."""
        if value.dtype != BF16 or self.chance(constant):
            return super().hold(value, 1 if value.dtype == BF16 else constant)
        wide = super().hold(value.astype(F32), 0)
        self._add(Made("Cast", [wide], {"to": onnx.TensorProto.BFLOAT16}), self.evaluate)
        return self.tensors[-1]

    def drawn(self, kind: np.dtype[Any], shape: Sequence[int], constant: float = 0.3) -> Tensor:
        return self.hold(self.values(kind, shape), constant)

    def operand(self, shape: Sequence[int], more: bool = True) -> tuple[int, ...]:
        """A shape that broadcasts to this one. With `more`, sometimes one that widens this one."""
        made = [extent if self.chance(0.5) else 1 for extent in shape]
        made = made[self.integer(0, len(made)) if self.chance(0.6) else 0 :]
        small = math.prod(shape) < 5000
        if more and small and self.chance(0.08):
            made = [1] * (len(shape) - len(made)) + made
            made = [3 if extent == 1 and self.chance(0.3) else extent for extent in made]
            if self.chance(0.5):
                made.insert(0, 2)
        return tuple(made)

    # ---- One node behind the chain.

    def push(self, operator: str, inputs: Sequence[Tensor | None], **attributes: Any) -> bool:
        """Adds a node; its first result becomes the end of the chain if others may read it."""
        before = len(self.tensors)
        if not self._add(Made(operator, inputs, attributes), self.evaluate):
            return False
        if len(self.tensors) == before:
            return False
        self.at = self.tensors[-1]
        reads_exact = all(tensor.exact for tensor in inputs if tensor is not None)
        self.at.exact = reads_exact and operator in LINEAR and is_exact(self.at.value)
        return True

    def step(self) -> bool:
        ways: list[tuple[int, Callable[[], bool]]] = [
            (5, self.unary), (7, self.binary), (3, self.residual), (2, self.cast), (2, self.quantize),
            (2, self.transpose), (2, self.reshape), (2, self.slice), (2, self.concatenate), (1, self.clip),
            (1, self.batch_norm), (1, self.pad),
        ]  # fmt: skip
        odds = np.array([weight for weight, _ in ways], float)
        return ways[int(self.rng.choice(len(ways), p=odds / odds.sum()))][1]()

    def unary(self) -> bool:
        operator = self.one_of(SMOOTH)
        if operator == "Gelu" and self.opset < 20:
            operator = "Erf"
        if operator == "Mish" and self.opset < 18:
            operator = "Softplus"
        return self.push(operator, [self.at])

    def binary(self) -> bool:
        at, operator = self.at, self.one_of(BINARY)
        shape = self.operand(at.shape, operator != "PRelu")
        if operator == "PRelu":
            return self.push("PRelu", [at, self.drawn(at.dtype, shape, 0.8)])
        other = self.drawn(at.dtype, shape)
        if operator == "Div":
            other = self.hold(self.values(at.dtype, shape, 1, 8), 0.3)
        if operator == "Pow":
            return self.push("Abs", [at]) and self.push("Pow", [self.at, self.positive(shape)])
        if operator == "Where":
            condition = self.hold(self.values(np.dtype(bool), self.operand(at.shape)), 0.3)
            pair = [at, other] if self.chance(0.5) else [other, at]
            return self.push("Where", [condition, *pair])
        is_turned = operator in ("Sub", "Max", "Min", "Add", "Mul") and self.chance(0.4)
        return self.push(operator, [other, at] if is_turned else [at, other])

    def positive(self, shape: Sequence[int]) -> Tensor:
        return self.hold(self.values(self.at.dtype, shape, 2, 8), 0.6)

    def residual(self) -> bool:
        """An operation with an earlier result, or with itself, whose shape broadcasts."""
        others = []
        for tensor in self.tensors:
            if tensor.dtype != self.at.dtype:
                continue
            try:
                shape = np.broadcast_shapes(tensor.shape, self.at.shape)
            except ValueError:
                continue
            if math.prod(shape) <= max(self.at.value.size, 5000):
                others.append(tensor)
        other = self.one_of(others[-5:])
        pair = [self.at, other] if self.chance(0.6) else [other, self.at]
        return self.push(self.one_of(["Add", "Add", "Mul", "Sub", "Max"]), pair)

    def cast(self) -> bool:
        """A cast to another floating type, and often back."""
        kind = self.at.dtype
        other = self.one_of([F16, F16, BF16]) if kind == F32 else F32
        number = onnx.helper.np_dtype_to_tensor_dtype
        if not self.push("Cast", [self.at], to=number(other)):
            return False
        return self.chance(0.4) or self.push("Cast", [self.at], to=number(kind))

    def quantize(self) -> bool:
        """Quantizes to bytes and back, with one scale or one for each index of an axis. Only for
        exact values: for rounded sums nobody can check the step."""
        if not self.at.exact or self.at.dtype != F32 or not self.at.rank:
            return self.unary()
        axis = self.integer(0, self.at.rank - 1)
        per_axis = self.chance(0.3)
        shape = (self.at.shape[axis],) if per_axis else ()
        scale = self.hold(np.exp2(self.rng.integers(-4, 1, shape)).astype(F32), 1)
        zero = self.hold(self.values(self.one_of([I8, U8]), shape, 0, 6), 1)
        more = {"axis": axis} if per_axis else {}
        return self.push("QuantizeLinear", [self.at, scale, zero], **more) and self.push(
            "DequantizeLinear", [self.at, scale, zero], **more
        )

    def transpose(self) -> bool:
        order = [int(axis) for axis in self.rng.permutation(self.at.rank)]
        return self.push("Transpose", [self.at], perm=order)

    def reshape(self) -> bool:
        shape = list(self.at.shape)
        i = self.integer(0, max(len(shape) - 2, 0))
        divisors = [d for d in range(2, 65) if shape and shape[i] % d == 0 and shape[i] > d]
        if len(shape) >= 2 and (self.chance(0.5) or not divisors):
            shape[i : i + 2] = [shape[i] * shape[i + 1]]
        elif divisors and len(shape) < 5:
            divisor = self.one_of(divisors)
            shape[i : i + 1] = [divisor, shape[i] // divisor]
        return self.push("Reshape", [self.at, self.ints(shape)])

    def slice(self) -> bool:
        if not self.at.rank:
            return self.unary()
        axis = self.integer(0, self.at.rank - 1)
        extent = self.at.shape[axis]
        first = self.integer(0, max(0, min(3, extent - 1)))
        last = self.integer(first + 1, max(first + 1, extent))
        step = self.one_of([1, 1, 1, 2, 3])
        bounds = [self.hold(np.array([n], np.int64), 1) for n in (first, last, axis, step)]
        return self.push("Slice", [self.at, *bounds])

    def concatenate(self) -> bool:
        if not self.at.rank or self.at.value.size > MOST_ELEMENTS // 2:
            return self.unary()
        axis = self.integer(0, self.at.rank - 1)
        shape = list(self.at.shape)
        shape[axis] = self.one_of([1, 2, 3, 8, shape[axis]])
        if math.prod(shape) > MOST_ELEMENTS // 2:
            shape[axis] = 1
        other = self.at if shape[axis] == self.at.shape[axis] else self.drawn(self.at.dtype, shape)
        parts = [self.at, other] if self.chance(0.5) else [other, self.at]
        return self.push("Concat", parts, axis=axis)

    def clip(self) -> bool:
        low, high = sorted(float(v) for v in self.rng.integers(-8, 9, 2) / 4)
        bounds = [self.hold(np.array(v, self.at.dtype), 1) for v in (low, high)]
        return self.push("Clip", [self.at, *bounds])

    def pad(self) -> bool:
        if not 1 <= self.at.rank <= 4 or self.at.value.size > MOST_ELEMENTS // 4:
            return self.unary()
        pads = [self.one_of([0, 0, 1, 2]) for _ in range(2 * self.at.rank)]
        return self.push("Pad", [self.at, self.hold(np.array(pads, np.int64), 1)])

    def batch_norm(self) -> bool:
        if self.at.rank < 2:
            return self.unary()
        count, kind = self.at.shape[1], self.at.dtype
        parts = [self.hold(self.values(kind, (count,)), 1) for _ in range(3)]
        variance = self.hold(self.values(kind, (count,), 1, 8), 1)
        return self.push("BatchNormalization", [self.at, *parts, variance])

    # ---- Kernels.

    def matmul(self) -> bool:
        m, k, n = self.side(True), self.side(True), self.side(True)
        while m * k * n > MOST_WORK or max(m * k, k * n, m * n) > MOST_ELEMENTS:
            m, k, n = (max(1, e // 2) for e in (m, k, n))
        batch = tuple(self.one_of([1, 2, 3]) for _ in range(self.one_of([0, 0, 1, 2])))
        if (
            max(k * (m + n), m * n) * math.prod(batch) > MOST_ELEMENTS
            or m * k * n * math.prod(batch) > MOST_WORK
        ):
            batch = ()
        if not self.source((*batch, m, k)):
            return False
        weights: tuple[int, ...] = self.one_of([(k, n), (*batch, k, n), (1,) * len(batch) + (k, n)])
        other = self.drawn(self.at.dtype, weights, 0.7)
        return self.push("MatMul", [self.at, other])

    def gemm(self) -> bool:
        m, k, n = self.side(True), self.side(True), self.side(True)
        while m * k * n > MOST_WORK or max(m * k, k * n, m * n) > MOST_ELEMENTS:
            m, k, n = (max(1, e // 2) for e in (m, k, n))
        turn_a, turn_b = self.integer(0, 1), self.integer(0, 1)
        if not self.source((k, m) if turn_a else (m, k)):
            return False
        b = self.drawn(self.at.dtype, (n, k) if turn_b else (k, n), 0.7)
        shape = self.one_of([None, (n,), (m, n), (1, n), (m, 1), (), (1,), (1, 1)])
        c = None if shape is None else self.drawn(self.at.dtype, shape, 0.7)
        factors = self.optional({"alpha": self.number(), "beta": self.number()})
        return self.push("Gemm", [self.at, b, c], transA=turn_a, transB=turn_b, **factors)

    def convolution(self) -> bool:
        rank = self.one_of([1, 2, 2, 2, 2, 3])
        kernel = [
            self.one_of([1, 1, 2, 3, 3, 5, 7] if rank < 3 else [1, 2, 3]) for _ in range(rank)
        ]
        if self.chance(0.6):
            kernel = [kernel[0]] * rank
        inputs, outputs = self.one_of(CHANNELS), self.one_of(CHANNELS)
        group = 1
        if self.chance(0.35):
            group = self.one_of([inputs, inputs, *(d for d in (2, 3, 4, 8) if inputs % d == 0)])
            outputs = group * self.one_of([1, 1, 2, inputs // group])
        spatial = [max(k, self.one_of([3, 5, 7, 8, 9, 14, 16, 17, 28, 31, 33])) for k in kernel]
        per_place = inputs // group * outputs * math.prod(kernel)
        while math.prod(spatial) * per_place > MOST_WORK // 4 and max(spatial) > max(kernel):
            spatial = [max(k, e // 2) for k, e in zip(kernel, spatial)]
        shape = (self.one_of([1, 1, 2, 3]), inputs, *spatial)
        if not self.source(shape):
            return False
        attributes = self._window(self.at.shape[2:], kernel)
        operator, weights = "Conv", (outputs, inputs // group, *kernel)
        if self.chance(0.2):
            operator, weights = "ConvTranspose", (inputs, outputs // group, *kernel)
        bias = self.drawn(self.at.dtype, (outputs,), 0.9) if self.chance(0.5) else None
        inputs_ = [self.at, self.drawn(self.at.dtype, weights, 0.95), bias]
        return self.push(operator, inputs_, **attributes, **({"group": group} if group > 1 else {}))

    def attention(self) -> bool:
        """Attention as exporters write it: two products, a softmax, and the operators between
        them."""
        batch, heads = self.one_of([1, 2]), self.one_of([1, 2, 3])
        rows, keys = self.side(), self.side()
        size, values = self.one_of([8, 16, 24, 32, 40, 64, 80, 128]), self.one_of([8, 16, 32, 64])
        while batch * heads * rows * keys * (size + values) > MOST_WORK // 2:
            rows, keys = max(1, rows // 2), max(1, keys // 2)
        if not self.source((batch, heads, rows, size)):
            return False
        kind = self.at.dtype
        k = self.drawn(kind, (batch, heads, keys, size), 0)
        v = self.drawn(kind, (batch, heads, keys, values), 0)
        query = self.at
        if not self.push("Transpose", [k], perm=[0, 1, 3, 2]) or not self.push(
            "MatMul", [query, self.at]
        ):
            return False
        factor = self.hold(np.array(0.25, kind), 1)
        if self.chance(0.7) and not self.push("Mul", [self.at, factor]):
            return False
        if self.chance(0.5):
            mask = self.drawn(kind, self.operand(self.at.shape, False), 0.3)
            if not self.push("Add", [self.at, mask]):
                return False
        return self.push("Softmax", [self.at], axis=-1) and self.push("MatMul", [self.at, v])

    def quantized_product(self) -> bool:
        """A product of bytes or of FP8, as quantizers write it. There is one factor for the
        activations. The weights have one factor, one for each column, or one for each block of a
        column. All factors are powers of two, and sums are so short that FP32 adds them up
        exactly."""
        m, k, n = self.side(), self.one_of([1, 3, 8, 16, 17, 32, 64, 65, 96, 128]), self.side()
        is_convolution = self.chance(0.4)
        shape = (
            (self.one_of([1, 2]), k, self.one_of([1, 5, 8]), self.one_of([3, 7, 16]))
            if is_convolution
            else (m, k)
        )
        weights = (n, k, *self.one_of([(1, 1), (3, 3)])) if is_convolution else (k, n)
        if math.prod(shape) * n > MOST_WORK // 64:
            return False
        kinds = [I8, I8, U8] + [F8] * (self.opset >= 19 and not is_convolution)
        kind = self.one_of(kinds)
        self.at = self.drawn(F32, shape, 0)
        self.at.exact = True
        scale = self.hold(np.array(2.0 ** self.integer(-3, 0), F32), 1)
        zero = self.zero_point(kind, ())
        if not self.push("QuantizeLinear", [self.at, scale, zero]):
            return False
        if not self.push("DequantizeLinear", [self.at, scale, zero]):
            return False
        left = self.at
        weight_kind = F8 if kind == F8 else I8
        codes = self.hold(self.values(F32, weights).astype(weight_kind), 1)
        axis = 0 if is_convolution else 1
        block = self.one_of([b for b in (2, 8, 16, 32) if k % b == 0] or [1])
        way = self.one_of(["one", "columns", "columns", "blocks"])
        attributes: dict[str, Any] = {}
        scales: tuple[int, ...] = ()
        if way == "columns":
            scales, attributes = (n,), {"axis": axis}
        elif way == "blocks" and not is_convolution and self.opset >= 21 and block > 1:
            scales, attributes = (k // block, n), {"axis": 0, "block_size": block}
        factors = self.hold(np.exp2(self.rng.integers(-3, 1, scales)).astype(F32), 1)
        if not self.push("DequantizeLinear", [codes, factors], **attributes):
            return False
        operator = "Conv" if is_convolution else "MatMul"
        more = (
            {"pads": [1, 1, 1, 1]} if is_convolution and weights[2] > 1 and self.chance(0.5) else {}
        )
        if not self.push(operator, [left, self.at], **more):
            return False
        if self.chance(0.4):
            bias = self.drawn(F32, (n, 1, 1) if is_convolution else (n,), 1)
            self.push("Add", [self.at, bias])
        if self.chance(0.4):
            self.push("Relu", [self.at])
        if self.chance(0.6):
            scale = self.hold(np.array(2.0 ** self.integer(-1, 3), F32), 1)
            zero = self.zero_point(kind, ())
            self.push("QuantizeLinear", [self.at, scale, zero]) and self.push(
                "DequantizeLinear", [self.at, scale, zero]
            )
        return True

    def zero_point(self, kind: np.dtype[Any], shape: Sequence[int]) -> Tensor:
        """A zero point. For FP8 it is always 0."""
        codes = (
            np.zeros(shape, kind)
            if kind == F8
            else self.values(kind, shape, 0, self.one_of([0, 6]))
        )
        return self.hold(codes, 1)

    def product_of_codes(self) -> bool:
        """MatMulNBits: weights of 4 or 8 bits with a factor, and sometimes a zero point, for each
        block."""
        m, n = self.side(), self.side()
        block = self.one_of([16, 32, 64, 128])
        k = self.one_of([block, block, 2 * block, block + 16, 3 * block - 8])
        bits = self.one_of([4, 4, 4, 8])
        kind = self.one_of([F32, F32, F16])
        blocks = -(-k // block)
        self.at = self.drawn(kind, (*self.one_of([(), (), (2,)]), m, k), 0)
        rng = self.rng
        codes = self.hold(rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(U8), 1)
        factors = self.hold(np.exp2(rng.integers(-6, -2, (n * blocks,))).astype(kind), 1)
        zeros = None
        if self.chance(0.5):
            zeros = self.hold(rng.integers(0, 256, (n * -(-blocks * bits // 8),)).astype(U8), 1)
        inputs = [self.at, codes, factors, zeros]
        return self.push(
            "MatMulNBits", inputs, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
        )

    def softmax(self) -> bool:
        if not self.source(self.any_shape()):
            return False
        axis = self.integer(0, self.at.rank - 1)
        return self.push(self.one_of(["Softmax", "LogSoftmax"]), [self.at], axis=axis)

    def normalization(self) -> bool:
        if not self.source(self.any_shape()):
            return False
        at = self.at
        kind = self.one_of(["layer", "rms", "group", "instance"])
        if kind == "rms" and self.opset >= 23:
            scale = self.drawn(at.dtype, at.shape[-1:], 0.9)
            return self.push("RMSNormalization", [at, scale], axis=-1, epsilon=0.25)
        if kind in ("group", "instance") and at.rank >= 3:
            count = at.shape[1]
            if kind == "group" and self.opset >= 21:
                groups = self.one_of([g for g in (1, 2, 4, 8, count) if count % g == 0])
                parts = [self.drawn(at.dtype, (count,), 0.9) for _ in range(2)]
                return self.push(
                    "GroupNormalization", [at, *parts], num_groups=groups, epsilon=0.25
                )
            parts = [self.drawn(at.dtype, (count,), 0.9) for _ in range(2)]
            return self.push("InstanceNormalization", [at, *parts], epsilon=0.25)
        axis = self.integer(max(0, at.rank - 2), at.rank - 1)
        parts = [self.drawn(at.dtype, at.shape[axis:], 0.9) for _ in range(self.one_of([1, 2]))]
        return self.push("LayerNormalization", [at, *parts], axis=axis, epsilon=0.25)

    def reduction(self) -> bool:
        if not self.source(self.any_shape()):
            return False
        axes = [a for a in range(self.at.rank) if self.chance(0.5)] or [self.at.rank - 1]
        operator = self.one_of(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"])
        keep = self.integer(0, 1)
        axes_ = self.hold(np.array(axes, np.int64), 1)
        return self.push(operator, [self.at, axes_], keepdims=keep)

    def pooling(self) -> bool:
        channels = self.one_of(CHANNELS)
        spatial = [self.one_of([3, 5, 7, 8, 14, 17]) for _ in range(self.one_of([1, 2, 2, 3]))]
        if not self.source(self.fitted((1, channels, *spatial), most=5000)):
            return False
        if self.chance(0.3):
            return self.push(self.one_of(["GlobalAveragePool", "GlobalMaxPool"]), [self.at])
        kernel = [self.integer(1, min(3, extent)) for extent in self.at.shape[2:]]
        attributes = self._window(self.at.shape[2:], kernel, False)
        operator = self.one_of(["MaxPool", "AveragePool"])
        return self.push(operator, [self.at], kernel_shape=kernel, **attributes)

    def resize(self) -> bool:
        shape = self.fitted(
            (1, self.one_of(CHANNELS), *(self.one_of([3, 5, 8, 14]) for _ in "hw")), most=5000
        )
        if not self.source(shape):
            return False
        sizes = [
            *self.at.shape[:2],
            *(self.one_of([2 * e, e + 3, max(1, e // 2)]) for e in self.at.shape[2:]),
        ]
        mode = self.one_of(["nearest", "linear"])
        if mode == "nearest" and any(map(has_tie, self.at.shape[2:], sizes[2:])):
            return False  # references use a rounded scale
        return self.push("Resize", [self.at, None, None, self.ints(sizes)], mode=mode)

    def elementwise(self) -> bool:
        return self.source(self.any_shape()) and self.binary() and self.unary()

    def any_shape(self) -> list[int]:
        rank = self.one_of([1, 2, 2, 3, 3, 4])
        return self.fitted([self.side(i == rank - 1) for i in range(rank)])

    # ---- The model.

    def source(self, shape: Sequence[int]) -> bool:
        """The input of a kernel. Operators before it keep its shape."""
        self.at = self.drawn(self.type, shape, 0)
        if self.chance(0.15):
            order = [int(axis) for axis in self.rng.permutation(len(shape))]
            turned = tuple(shape[axis] for axis in order)
            self.at = self.drawn(self.type, turned, 0)
            if not self.push(
                "Transpose", [self.at], perm=[order.index(i) for i in range(len(shape))]
            ):
                return False
        for _ in range(self.one_of([0, 0, 0, 1, 2])):
            before = self.at
            way = self.one_of([self.unary, self.unary, self.cast, self.quantize, self.binary])
            if not way() or self.at.shape != tuple(shape):
                self.at = before
        if self.chance(0.1) and self.at.dtype == F32:
            self.push("Cast", [self.at], to=onnx.TensorProto.FLOAT16)
        return True

    def model(
        self, evaluate: Callable[..., list[list[Array]]]
    ) -> tuple[onnx.ModelProto, dict[str, Array]]:
        self.evaluate = evaluate
        kernels = [
            self.matmul, self.matmul, self.gemm, self.convolution, self.convolution, self.convolution,
            self.attention, self.quantized_product, self.quantized_product, self.product_of_codes,
            self.softmax, self.normalization, self.reduction, self.pooling, self.resize,
            self.elementwise, self.elementwise,
        ]  # fmt: skip
        while not self.nodes:
            self.one_of(kernels)()
        for _ in range(self.one_of([0, 1, 1, 2, 2, 3, 4, 6])):
            if self.nodes and self.at.value.size:
                self.step()
        # NumPy lacks BF16, so BF16 outputs are cast to FP32.
        left = {name for node in self.nodes for name in node.input}
        for tensor in [t for t in self.tensors if t.dtype == BF16 and t.name not in left]:
            self._add(Made("Cast", [tensor], {"to": onnx.TensorProto.FLOAT}), self.evaluate)
        read = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output]
        outputs = [
            name
            for name in made
            if self.types[name].type.tensor_type.elem_type != onnx.TensorProto.BFLOAT16
            and (name not in read or self.chance(0.12))
        ]
        if not outputs:  # only huge BF16 tensors, from which nothing is computed
            return Composer(self.rng).model(evaluate)
        return self._model(self.nodes, outputs), self.fed
