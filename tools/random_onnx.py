"""Random valid ONNX models for tools/model_fuzzer.py. Generator.make_* know the operands of each
operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray
# Takes a graph and its inputs. Returns the results of the references; empty if all refuse.
Evaluate = Callable[[onnx.ModelProto, dict[str, Array]], list[list[Array]]]

F32, F16, F64 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64)
I8, U8, I32, I64 = (np.dtype(kind) for kind in (np.int8, np.uint8, np.int32, np.int64))
BOOL = np.dtype(bool)
FLOATS = (F32, F16)
INTEGERS = (I32, I64, I8, U8)
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, BOOL)
# The odds of the types if an operator has a choice.
WEIGHTS = {F32: 8, F16: 2, F64: 1, I8: 1, U8: 1, I32: 2, I64: 3, BOOL: 1}
# Before opset 13 operators have other inputs. After 25 ONNX Runtime supports few.
OPSETS = (13, 15, 17, 18, 19, 20, 21, 22, 22, 23, 24, 25)

# Operators whose results are exact for exact inputs, so that a step (Floor, Equal, ArgMax) may
# follow.
EXACT = set(
    """Abs And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil
    CenterCropPad Clip Compress Concat Constant ConstantOfShape DepthToSpace Equal Expand EyeLike Flatten Floor
    Gather GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity If IsInf IsNaN Less
    LessOrEqual Max MaxPool Min Neg NonZero Not OneHot Or Pad ReduceMax ReduceMin Relu Reshape ReverseSequence
    Round ScatterND Shape Sign Size Slice SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unique Unsqueeze
    Where Xor""".split()
)
# Operators that need exact values, since a small change of an input may change the output much.
STEEP = set(
    """Acos Acosh ArgMax ArgMin Asin Atanh BitCast Cast CastLike Ceil Col2Im Compress CumProd DequantizeLinear Det
    Div DynamicQuantizeLinear Equal Floor GlobalLpPool Greater GreaterOrEqual Hardmax IsInf IsNaN Less LessOrEqual
    Log LpNormalization LpPool MaxPool Mod NonMaxSuppression NonZero OneHot Pow QLinearConv QLinearMatMul
    QuantizeLinear Range Reciprocal ReduceL2 ReduceLogSum Round Shrink Sign Sqrt Tan ThresholdedRelu TopK Unique
    InstanceNormalization LayerNormalization RMSNormalization GroupNormalization BatchNormalization
    MeanVarianceNormalization GridSample RoiAlign MaxRoiPool DeformConv""".split()
)

UNARY_FLOAT = """Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish IsNaN Log Mish Reciprocal
    Round Sigmoid Sin Sinh Softplus Softsign Sqrt Tan Tanh""".split()
ALPHA = "Celu Elu Gelu HardSigmoid LeakyRelu Selu Shrink Swish ThresholdedRelu IsInf".split()
REDUCE = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare""".split()
ARITHMETIC = "Add Sub Mul Div Pow Mod".split()
COMPARE = "Equal Greater GreaterOrEqual Less LessOrEqual".split()
LOGIC = "And Or Xor".split()
BITWISE = "BitwiseAnd BitwiseOr BitwiseXor".split()
VARIADIC = "Max Min Sum Mean".split()


@dataclass
class Tensor:
    """A tensor of the graph and its value."""

    name: str
    value: Array
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype


@dataclass
class Made:
    """A node to add. A None among its inputs stands for an omitted one."""

    operator: str
    inputs: Sequence[Tensor | None]
    attributes: dict[str, Any]
    outputs: int = 1


class Generator:
    #: Larger results are only outputs.
    usable_kinds: Sequence[np.dtype[Any]] = ALL
    most_elements = 8000

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.opset = int(rng.choice(OPSETS))
        self.tensors: list[Tensor] = []
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.types: dict[str, onnx.ValueInfoProto] = {}
        self.refused: onnx.NodeProto | None = None
        self.fed: dict[str, Array] = {}
        self.names = 0
        self.makers: list[tuple[str, Callable[[], Made]]] = []
        for name in dir(self):
            if name.startswith("make_"):
                self.makers.append((name[5:], getattr(self, name)))
        for names, maker in (
            (UNARY_FLOAT, self._unary_float), (ALPHA, self._alpha), (REDUCE, self._reduce),
            (ARITHMETIC, self._arithmetic), (COMPARE, self._compare), (LOGIC, self._logic),
            (BITWISE, self._bitwise), (VARIADIC, self._variadic),
        ):  # fmt: skip
            for name in names:
                self.makers.append((name, lambda name=name, maker=maker: maker(name)))  # type: ignore[misc]
        self.makers.sort(key=lambda pair: pair[0])

    # ---- The dice.

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def integer(self, low: int, high: int) -> int:
        """A random integer. Both ends are included."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def number(self, low: float = 0.25, high: float = 2.0) -> float:
        return float(np.float32(self.rng.integers(int(low * 4), int(high * 4) + 1) / 4))

    def kind(self, kinds: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
        odds = np.array([WEIGHTS[kind] for kind in kinds], float)
        return kinds[int(self.rng.choice(len(kinds), p=odds / odds.sum()))]

    def extent(self, empty: bool = True) -> int:
        if empty and self.chance(0.03):
            return 0
        return int(self.rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 17]))

    def shape(self, low: int = 0, high: int = 4, empty: bool = True) -> tuple[int, ...]:
        shape = [self.extent(empty) for _ in range(self.integer(low, high))]
        while np.prod(shape, dtype=np.int64) > 2000:
            shape[int(np.argmax(shape))] = 2
        return tuple(shape)

    def values(
        self, kind: np.dtype[Any], shape: Sequence[int], low: int = -8, high: int = 8
    ) -> Array:
        """Random values of the type: quarters, which 16 bits hold exactly, whole numbers, or truth
        values."""
        drawn = self.rng.integers(low, high + 1, shape)
        if kind == BOOL:
            return (drawn % 2).astype(BOOL)
        if kind == U8:
            return np.abs(drawn).astype(U8)
        return (drawn / 4).astype(kind) if kind.kind == "f" else drawn.astype(kind)

    # ---- Tensors.

    def _named(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def hold(self, value: Array, constant: float = 0.4) -> Tensor:
        """A new input or, with probability `constant`, an initializer with these elements."""
        is_constant = self.chance(constant)
        tensor = Tensor(self._named("c" if is_constant else "x"), value, True)
        (self.constants if is_constant else self.inputs)[tensor.name] = value
        return tensor

    def fresh(
        self, kind: np.dtype[Any], shape: Sequence[int], low: int = -8, high: int = 8
    ) -> Tensor:
        return self.hold(self.values(kind, shape, low, high), 0.25)

    def ints(self, values: Sequence[int] | Array | int, kind: np.dtype[Any] = I64) -> Tensor:
        """A tensor for a parameter such as axes, pads or a shape."""
        return self.hold(np.asarray(values, kind), 0.7)

    def take(
        self, kinds: Sequence[np.dtype[Any]] = ALL, low: int = 0, high: int = 4, empty: bool = True,
        most: int = 4000,
    ) -> Tensor:  # fmt: skip
        """An existing tensor, or else a new one."""
        fit = [
            t
            for t in self.tensors
            if t.dtype in kinds
            and low <= t.rank <= high
            and t.value.size <= most
            and (empty or t.value.size)
        ]
        # Prefers new results to old ones, so that graphs get deep.
        if fit and self.chance(0.75):
            return fit[-1 - min(int(self.rng.geometric(0.6)) - 1, len(fit) - 1)]
        return self.fresh(self.kind(kinds), self.shape(low, high, empty))

    def partner(self, first: Tensor, kind: np.dtype[Any] | None = None) -> Tensor:
        """A tensor that can be broadcast with this one."""
        kind = kind or first.dtype
        fit = []
        for t in self.tensors:
            try:
                size = np.prod(np.broadcast_shapes(t.shape, first.shape), dtype=np.int64)
            except ValueError:
                continue
            if t.dtype == kind and size <= 4000:
                fit.append(t)
        if fit and self.chance(0.4):
            return self.one_of(fit)
        shape = list(first.shape)
        for i, extent in enumerate(shape):
            if self.chance(0.25):
                shape[i] = 1
            elif extent == 1 and self.chance(0.2) and first.value.size < 500:
                shape[i] = self.integer(1, 4)
        return self.fresh(kind, shape[self.integer(0, len(shape)) if self.chance(0.3) else 0 :])

    def axis(self, rank: int) -> int:
        return self.integer(-rank, rank - 1)

    def optional(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Some of the attributes."""
        return {name: value for name, value in attributes.items() if self.chance(0.6)}

    # ---- Families.

    def _unary_float(self, operator: str) -> Made:
        return Made(operator, [self.take(FLOATS)], {})

    def _alpha(self, operator: str) -> Made:
        attributes = {
            "Celu": {"alpha": self.number()},
            "Elu": {"alpha": self.number()},
            "Gelu": {"approximate": self.one_of(["none", "tanh"])},
            "HardSigmoid": {"alpha": self.number(), "beta": self.number()},
            "LeakyRelu": {"alpha": self.number()},
            "Selu": {"alpha": self.number(), "gamma": self.number()},
            "Shrink": {"bias": self.number(), "lambd": self.number()},
            "Swish": {"alpha": self.number()},
            "ThresholdedRelu": {"alpha": self.number()},
            "IsInf": {"detect_negative": self.integer(0, 1), "detect_positive": self.integer(0, 1)},
        }[operator]
        return Made(
            operator,
            [self.take((F32,) if operator == "Celu" else FLOATS)],
            self.optional(attributes),
        )

    def _arithmetic(self, operator: str) -> Made:
        first = self.take(NUMBERS)
        second = self.partner(first)
        attributes = {}
        if operator in ("Div", "Mod") and first.dtype.kind != "f":
            second = self.fresh(first.dtype, second.shape, 1, 8)
        if operator == "Mod" and (first.dtype.kind == "f" or self.chance(0.5)):
            attributes["fmod"] = 1
        if operator == "Pow":
            first = self.fresh(
                self.kind((F32, F16, I32, I64)), self.shape(0, 3), 0 if self.chance(0.5) else -8
            )
            # A root of an integer would be rounded, and a negative number has none.
            kinds = (F32, I64) if first.dtype.kind == "f" else (I32, I64)
            second = self.fresh(self.kind(kinds), self.partner(first).shape, 0, 4)
        return Made(operator, [first, second], attributes)

    def _compare(self, operator: str) -> Made:
        first = self.take(ALL if operator == "Equal" else NUMBERS)
        return Made(operator, [first, self.partner(first)], {})

    def _logic(self, operator: str) -> Made:
        first = self.take((BOOL,))
        return Made(operator, [first, self.partner(first)], {})

    def _bitwise(self, operator: str) -> Made:
        first = self.take(INTEGERS)
        return Made(operator, [first, self.partner(first)], {})

    def _variadic(self, operator: str) -> Made:
        first = self.take(NUMBERS if operator in ("Max", "Min") else FLOATS)
        return Made(
            operator, [first, *(self.partner(first) for _ in range(self.integer(0, 3)))], {}
        )

    def _reduce(self, operator: str) -> Made:
        # For integers the reference truncates each exponential.
        kinds = FLOATS if operator == "ReduceLogSumExp" else (F32, F16, I32, I64)
        data = self.take(kinds, empty=self.chance(0.3))
        if operator == "ReduceLogSum" and data.dtype.kind == "i":
            # The logarithm of zero or less is not an integer.
            data = self.fresh(data.dtype, self.shape(empty=False), 1)
        attributes: dict[str, Any] = self.optional({"keepdims": self.integer(0, 1)})
        count = self.integer(0, data.rank)
        axes = [int(a) for a in self.rng.permutation(data.rank)[:count]]
        axes = [a - data.rank if self.chance(0.3) else a for a in axes]
        if self.opset < (13 if operator == "ReduceSum" else 18):
            return Made(operator, [data], {**attributes, **({"axes": axes} if axes else {})})
        attributes.update(self.optional({"noop_with_empty_axes": self.integer(0, 1)}))
        return Made(
            operator, [data, self.ints(axes)] if axes or self.chance(0.3) else [data], attributes
        )

    # ---- Elementwise.

    def make_Abs(self) -> Made:
        return Made("Abs", [self.take(NUMBERS)], {})

    def make_Neg(self) -> Made:
        return Made("Neg", [self.take((*FLOATS, I8, I32, I64))], {})

    def make_Sign(self) -> Made:
        return Made("Sign", [self.take(NUMBERS)], {})

    def make_Relu(self) -> Made:
        return Made("Relu", [self.take((*FLOATS, I8, I32, I64) if self.opset > 13 else FLOATS)], {})

    def make_Not(self) -> Made:
        return Made("Not", [self.take((BOOL,))], {})

    def make_BitwiseNot(self) -> Made:
        return Made("BitwiseNot", [self.take(INTEGERS)], {})

    def make_Identity(self) -> Made:
        return Made("Identity", [self.take()], {})

    def make_BitShift(self) -> Made:
        first = self.take((U8,))
        second = self.fresh(U8, self.partner(first).shape, 0, 7)
        return Made("BitShift", [first, second], {"direction": self.one_of(["LEFT", "RIGHT"])})

    def make_Clip(self) -> Made:
        data = self.take(NUMBERS)
        low = self.fresh(data.dtype, (), -6, 0) if self.chance(0.7) else None
        high = self.fresh(data.dtype, (), 0, 6) if self.chance(0.7) else None
        return Made("Clip", [data, low, high], {})

    def make_PRelu(self) -> Made:
        data = self.take(FLOATS)
        shape = [1 if self.chance(0.4) else extent for extent in data.shape]
        return Made(
            "PRelu", [data, self.fresh(data.dtype, shape[self.integer(0, data.rank) :])], {}
        )

    def make_Where(self) -> Made:
        first = self.take()
        return Made("Where", [self.partner(first, BOOL), first, self.partner(first)], {})

    def make_Cast(self) -> Made:
        data = self.take()
        kinds = [
            k for k in (*ALL, F64) if not (k == U8 and data.value.size and data.value.min() < 0)
        ]
        attributes = {"to": helper.np_dtype_to_tensor_dtype(self.kind(kinds))}
        return Made("Cast", [data], attributes)

    def make_CastLike(self) -> Made:
        data, like = self.take(), self.take()
        if like.dtype == U8:
            like = self.fresh(F32, ())
        return Made("CastLike", [data, like], {})

    def make_BitCast(self) -> Made:
        data = self.take()
        kinds = [k for k in NUMBERS if k.itemsize == data.dtype.itemsize]
        return Made("BitCast", [data], {"to": helper.np_dtype_to_tensor_dtype(self.one_of(kinds))})

    def make_SwiGLU(self) -> Made:
        data = self.take(FLOATS, 1)
        return Made("SwiGLU", [data], self.optional({"alpha": self.number()}))

    def make_Dropout(self) -> Made:
        data = self.take(FLOATS)
        ratio = self.fresh(F32, (), 0, 3) if self.chance(0.5) else None
        training = self.hold(np.array(False)) if ratio and self.chance(0.5) else None
        return Made("Dropout", [data, ratio, training], {}, self.integer(1, 2))

    # ---- Along an axis.

    def _axis_float(self, operator: str, names: dict[str, Any]) -> Made:
        data = self.take(FLOATS, 1)
        attributes = {"axis": self.axis(data.rank)} if self.chance(0.8) else {}
        return Made(operator, [data], {**attributes, **self.optional(names)})

    def make_Softmax(self) -> Made:
        return self._axis_float("Softmax", {})

    def make_LogSoftmax(self) -> Made:
        return self._axis_float("LogSoftmax", {})

    def make_Hardmax(self) -> Made:
        return self._axis_float("Hardmax", {})

    def make_LpNormalization(self) -> Made:
        return self._axis_float("LpNormalization", {"p": self.integer(1, 2)})

    def _arg(self, operator: str) -> Made:
        data = self.take(NUMBERS, 1, empty=False)
        attributes = {
            "axis": self.axis(data.rank), "keepdims": self.integer(0, 1),
            "select_last_index": self.integer(0, 1),
        }  # fmt: skip
        return Made(operator, [data], {**self.optional(attributes)})

    def make_ArgMax(self) -> Made:
        return self._arg("ArgMax")

    def make_ArgMin(self) -> Made:
        return self._arg("ArgMin")

    def _cumulative(self, operator: str) -> Made:
        data = self.take((F32, F16, I32, I64), 1)
        attributes = self.optional({"exclusive": self.integer(0, 1), "reverse": self.integer(0, 1)})
        kind = self.one_of([I32, I64])
        shape = () if self.chance(0.7) else (1,)
        return Made(
            operator, [data, self.ints(np.full(shape, self.axis(data.rank)), kind)], attributes
        )

    def make_CumSum(self) -> Made:
        return self._cumulative("CumSum")

    def make_CumProd(self) -> Made:
        return self._cumulative("CumProd")

    def make_TopK(self) -> Made:
        data = self.take((F32, F16, I32, I64), 1, empty=False)
        axis = self.axis(data.rank)
        attributes = self.optional({"largest": self.integer(0, 1)})
        if axis % data.rank != data.rank - 1 or self.chance(0.5):
            attributes["axis"] = axis
        extent = data.shape[attributes.get("axis", -1)]
        return Made(
            "TopK",
            [data, self.ints([self.integer(0 if self.chance(0.1) else 1, extent)])],
            attributes,
            2,
        )

    def make_Unique(self) -> Made:
        data = self.take((F32, I8, I64), 1, empty=False)
        attributes = self.optional({"axis": self.axis(data.rank), "sorted": 1})
        return Made("Unique", [data], attributes, self.integer(1, 4))

    def make_NonZero(self) -> Made:
        return Made("NonZero", [self.take((F32, I32, I64, U8, BOOL), 1)], {})

    def make_Compress(self) -> Made:
        data = self.take(ALL, 1)
        attributes = self.optional({"axis": self.axis(data.rank)})
        extent = data.shape[attributes["axis"]] if attributes else data.value.size
        return Made(
            "Compress",
            [data, self.fresh(BOOL, (self.integer(min(1, extent), extent),))],
            attributes,
        )

    def make_Trilu(self) -> Made:
        data = self.take(ALL, 2)
        k = self.ints(self.integer(-4, 4)) if self.chance(0.6) else None
        return Made("Trilu", [data, k], self.optional({"upper": self.integer(0, 1)}))

    def make_OneHot(self) -> Made:
        depth = self.integer(1, 5)
        indices = self.fresh(self.kind((I64, I32, F32)), self.shape(0, 3), 0, 0)
        indices = self.hold(self.rng.integers(-depth, depth, indices.shape).astype(indices.dtype))
        kind = self.kind((F32, I64, I32))
        attributes = self.optional({"axis": self.axis(indices.rank + 1)})
        return Made("OneHot", [indices, self.ints(depth), self.fresh(kind, (2,))], attributes)

    # ---- Shapes and movement.

    def make_Reshape(self) -> Made:
        data = self.take()
        wanted = list(data.shape)
        self.rng.shuffle(wanted)
        while len(wanted) > 1 and self.chance(0.6):
            wanted.append(wanted.pop() * wanted.pop(0))
        if self.chance(0.4):
            wanted.insert(self.integer(0, len(wanted)), 1)
        attributes = {}
        if data.value.size == 0:
            attributes = {"allowzero": 1}
        elif wanted and self.chance(0.5):
            wanted[self.integer(0, len(wanted) - 1)] = -1
        return Made("Reshape", [data, self.ints(wanted)], attributes)

    def make_Transpose(self) -> Made:
        data = self.take()
        permutation = [int(a) for a in self.rng.permutation(data.rank)]
        return Made(
            "Transpose", [data], {"perm": permutation} if permutation and self.chance(0.8) else {}
        )

    def make_Flatten(self) -> Made:
        data = self.take()
        return Made("Flatten", [data], {"axis": self.integer(-data.rank, data.rank)})

    def make_Squeeze(self) -> Made:
        shape = list(self.shape(1, 4))
        data = self.fresh(self.kind(ALL), [1 if self.chance(0.5) else e for e in shape])
        axes = [a for a, e in enumerate(data.shape) if e == 1]
        axes = [a - data.rank if self.chance(0.4) else a for a in axes if self.chance(0.7)]
        return Made("Squeeze", [data, self.ints(axes)] if axes else [data], {})

    def make_Unsqueeze(self) -> Made:
        data = self.take(ALL, 0, 3)
        count = self.integer(1, 2)
        rank = data.rank + count
        axes = [int(a) for a in self.rng.permutation(rank)[:count]]
        return Made(
            "Unsqueeze", [data, self.ints([a - rank if self.chance(0.4) else a for a in axes])], {}
        )

    def make_Expand(self) -> Made:
        data = self.take(ALL, 0, 3, most=500)
        wanted = [self.integer(1, 4) if e == 1 and self.chance(0.6) else e for e in data.shape]
        wanted = [1 if self.chance(0.2) else e for e in wanted]
        if self.chance(0.3):
            wanted.insert(0, self.integer(0 if self.chance(0.1) else 1, 3))
        return Made("Expand", [data, self.ints(wanted)], {})

    def make_Tile(self) -> Made:
        data = self.take(ALL, 1, 4, most=300)
        return Made(
            "Tile",
            [data, self.ints([self.integer(0 if self.chance(0.05) else 1, 3) for _ in data.shape])],
            {},
        )

    def make_Concat(self) -> Made:
        data = self.take(ALL, 1, most=1500)
        axis = self.axis(data.rank)
        parts: list[Tensor] = [data]
        for _ in range(self.integer(0, 3)):
            shape = list(data.shape)
            shape[axis] = self.extent()
            parts.append(data if self.chance(0.2) else self.fresh(data.dtype, shape))
        self.rng.shuffle(parts)  # type: ignore[arg-type]
        return Made("Concat", parts, {"axis": axis})

    def make_Split(self) -> Made:
        data = self.take(ALL, 1)
        axis = self.axis(data.rank)
        extent = data.shape[axis]
        count = self.integer(1, 3)
        attributes = {"axis": axis}
        if self.chance(0.5):
            cuts = sorted(self.integer(0, extent) for _ in range(count - 1))
            sizes = np.diff([0, *cuts, extent])
            return Made("Split", [data, self.ints(sizes)], attributes, count)
        if extent % count:
            count = 1
        if self.opset >= 18:
            attributes["num_outputs"] = count
        return Made("Split", [data], attributes, count)

    def make_Slice(self) -> Made:
        data = self.take(ALL, 1)
        count = self.integer(1, data.rank)
        axes = [int(a) for a in self.rng.permutation(data.rank)[:count]]
        kind = self.one_of([I64, I64, I32])
        far = 2**31 - 1 if kind == I32 else 2**63 - 1

        def bound() -> int:
            return self.one_of([far, -far]) if self.chance(0.2) else self.integer(-9, 9)

        starts, ends = [bound() for _ in axes], [bound() for _ in axes]
        steps = [self.one_of([1, 1, 2, 3, -1, -2]) for _ in axes]
        axes = [a - data.rank if self.chance(0.3) else a for a in axes]
        inputs: list[Tensor | None] = [data, self.ints(starts, kind), self.ints(ends, kind)]
        has_axes = count < data.rank or self.chance(0.6)
        inputs.append(self.ints(axes, kind) if has_axes else None)
        inputs.append(self.ints(steps, kind) if self.chance(0.6) else None)
        return Made("Slice", inputs, {})

    def make_Pad(self) -> Made:
        data = self.take(ALL if self.opset >= 13 else NUMBERS, 1, most=1000)
        mode = self.one_of(
            ["constant", "constant", "reflect", "edge"] + (["wrap"] if self.opset >= 19 else [])
        )
        axes = list(range(data.rank))
        named = self.opset >= 18 and self.chance(0.4)
        if named:
            axes = [int(a) for a in self.rng.permutation(data.rank)[: self.integer(1, data.rank)]]
        low = -1 if mode == "constant" or self.chance(0.1) else 0
        limit = [3 if mode in ("constant", "edge") else max(0, data.shape[a] - 1) for a in axes]
        pads = [
            self.integer(max(low, -data.shape[a] // 2), min(3, m))
            for a, m in zip(axes * 2, limit * 2)
        ]
        value = self.fresh(data.dtype, ()) if mode == "constant" and self.chance(0.6) else None
        chosen = (
            self.ints([a - data.rank if self.chance(0.3) else a for a in axes]) if named else None
        )
        return Made(
            "Pad",
            [data, self.ints(pads), value, chosen],
            {"mode": mode} if mode != "constant" else {},
        )

    def make_Shape(self) -> Made:
        data = self.take()
        return Made(
            "Shape",
            [data],
            self.optional({"start": self.integer(-5, 4), "end": self.integer(-5, 4)}),
        )

    def make_Size(self) -> Made:
        return Made("Size", [self.take()], {})

    def make_ConstantOfShape(self) -> Made:
        value = self.values(self.kind(ALL), (1,))
        shape = self.shape(0, 3)
        return Made(
            "ConstantOfShape",
            [self.ints(shape)],
            self.optional({"value": numpy_helper.from_array(value)}),
        )

    def make_Constant(self) -> Made:
        value = self.values(self.kind(ALL), self.shape(0, 3))
        attribute = self.one_of([
            {"value": numpy_helper.from_array(value)}, {"value_float": self.number()},
            {"value_ints": [1, 2, 3]}, {"value_int": -4}, {"value_floats": [0.5, 2.0]},
        ])  # fmt: skip
        return Made("Constant", [], attribute)

    def make_Range(self) -> Made:
        kind = self.kind((F32, I32, I64))
        parts = [self.fresh(kind, (), -8, 8), self.fresh(kind, (), -8, 8)]
        step = self.values(kind, (), 1, 4) * (1 if self.chance(0.6) else -1)
        return Made("Range", [*parts, self.hold(np.asarray(step, kind))], {})

    def make_EyeLike(self) -> Made:
        data = self.take(ALL, 2, 2)
        kind = helper.np_dtype_to_tensor_dtype(self.kind((F32, I32, I64)))
        return Made("EyeLike", [data], {"dtype": kind, **self.optional({"k": self.integer(-3, 3)})})

    def make_CenterCropPad(self) -> Made:
        data = self.take(NUMBERS, 1)
        axes = [int(a) for a in self.rng.permutation(data.rank)[: self.integer(1, data.rank)]]
        if self.chance(0.5):
            return Made(
                "CenterCropPad", [data, self.ints([self.integer(1, 6) for _ in data.shape])], {}
            )
        return Made(
            "CenterCropPad", [data, self.ints([self.integer(1, 6) for _ in axes])], {"axes": axes}
        )

    def _blocks(self, operator: str) -> Made:
        block, kind = self.integer(1, 3), self.kind(FLOATS)
        n, c, h, w = self.extent(), self.integer(1, 3), self.integer(1, 3), self.integer(1, 3)
        if operator == "SpaceToDepth":
            return Made(
                operator, [self.fresh(kind, (n, c, h * block, w * block))], {"blocksize": block}
            )
        data = self.fresh(kind, (n, c * block * block, h, w))
        mode = self.optional({"mode": self.one_of(["DCR", "CRD"])})
        return Made(operator, [data], {"blocksize": block, **mode})

    def make_SpaceToDepth(self) -> Made:
        return self._blocks("SpaceToDepth")

    def make_DepthToSpace(self) -> Made:
        return self._blocks("DepthToSpace")

    def make_ReverseSequence(self) -> Made:
        data = self.take(ALL, 2, empty=False)
        time_axis = self.integer(0, 1)
        lengths = [self.integer(1, data.shape[time_axis]) for _ in range(data.shape[1 - time_axis])]
        attributes = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
        return Made("ReverseSequence", [data, self.ints(lengths)], attributes)

    # ---- Gather and scatter.

    def _indices(self, extent: int, shape: Sequence[int], low: int | None = None) -> Tensor:
        kind = self.one_of([I64, I32])
        drawn = self.rng.integers(-extent if low is None else low, max(1, extent), shape)
        return self.hold(drawn.astype(kind), 0.4)

    def make_Gather(self) -> Made:
        data = self.take(ALL, 1, empty=False, most=500)
        axis = self.axis(data.rank)
        indices = self._indices(data.shape[axis], self.shape(0, 2))
        return Made("Gather", [data, indices], {"axis": axis} if axis or self.chance(0.5) else {})

    def make_GatherElements(self) -> Made:
        data = self.take(ALL, 1, empty=False)
        axis = self.axis(data.rank)
        shape = [self.integer(1, e) for e in data.shape]
        shape[axis] = self.extent()
        return Made(
            "GatherElements", [data, self._indices(data.shape[axis], shape)], {"axis": axis}
        )

    def make_GatherND(self) -> Made:
        data = self.take(ALL, 1, empty=False, most=500)
        batch = self.integer(0, min(1, data.rank - 1))
        depth = self.integer(1, data.rank - batch)
        outer = self.shape(1, 2)
        columns = [
            self.rng.integers(
                -data.shape[batch + i], data.shape[batch + i], (*data.shape[:batch], *outer)
            )
            for i in range(depth)
        ]
        attributes = {"batch_dims": batch} if batch else {}
        return Made(
            "GatherND", [data, self.hold(np.stack(columns, -1).astype(I64), 0.4)], attributes
        )

    def make_ScatterElements(self) -> Made:
        data = self.take((F32, F16, I32, I64), 1, empty=False)
        axis = self.axis(data.rank)
        shape = [self.integer(1, e) for e in data.shape]
        modes = ["none"]
        if self.opset >= 16:
            modes += ["add", "mul"]
        if self.opset >= 18:
            modes += ["max", "min"]
        mode = self.one_of(modes)
        if mode == "none":
            # Each element is written once, since the order of several writes is undefined.
            drawn = np.argsort(self.rng.random(data.shape), axis)
            indices = drawn[tuple(slice(0, e) for e in shape)].astype(I64)
        else:
            indices = self.rng.integers(-data.shape[axis], data.shape[axis], shape).astype(I64)
        attributes = {"axis": axis, **({"reduction": mode} if mode != "none" else {})}
        return Made(
            "ScatterElements", [data, self.hold(indices), self.fresh(data.dtype, shape)], attributes
        )

    def make_ScatterND(self) -> Made:
        data = self.take((F32, F16, I32, I64), 1, empty=False)
        depth = self.integer(1, data.rank)
        places = int(np.prod(data.shape[:depth]))
        chosen = self.rng.permutation(places)[: self.integer(1, min(4, places))]
        indices = np.stack(np.unravel_index(chosen, data.shape[:depth]), -1).astype(I64)
        modes = ["none"] + (["add", "mul"] if self.opset >= 16 else [])
        mode = self.one_of(modes + (["max", "min"] if self.opset >= 18 else []))
        updates = self.fresh(data.dtype, (len(chosen), *data.shape[depth:]))
        attributes = {"reduction": mode} if mode != "none" else {}
        return Made("ScatterND", [data, self.hold(indices), updates], attributes)

    def make_TensorScatter(self) -> Made:
        b, h, most, t, d = (
            self.integer(1, 3),
            self.integer(1, 3),
            self.integer(4, 6),
            self.integer(1, 3),
            2,
        )
        kind = self.kind((F32, F16, I64))
        mode = self.one_of(["linear", "circular"])
        starts = self.ints(
            [self.integer(0, most - t if mode == "linear" else most - 1) for _ in range(b)]
        )
        inputs = [self.fresh(kind, (b, h, most, d)), self.fresh(kind, (b, h, t, d)), starts]
        return Made("TensorScatter", inputs, {"mode": mode})

    # ---- Products.

    def make_MatMul(self) -> Made:
        first = self.take((F32, F16, I32), 1, 3, most=1000)
        k = first.shape[-1]
        shape = self.one_of(
            [(k,), (k, self.extent()), (1, k, self.extent()), (*first.shape[:-2], k, 3)]
        )
        return Made("MatMul", [first, self.fresh(first.dtype, shape)], {})

    def make_Gemm(self) -> Made:
        a = self.take(FLOATS, 2, 2)
        trans_a, trans_b = self.integer(0, 1), self.integer(0, 1)
        m, k = a.shape[::-1] if trans_a else a.shape
        n = self.extent()
        b = self.fresh(a.dtype, (n, k) if trans_b else (k, n))
        c = (
            self.fresh(a.dtype, self.one_of([(n,), (m, n), (1, n), (m, 1), (), (1,)]))
            if self.chance(0.6)
            else None
        )
        attributes = self.optional({"alpha": self.number(), "beta": self.number()})
        return Made("Gemm", [a, b, c], {"transA": trans_a, "transB": trans_b, **attributes})

    def make_Einsum(self) -> Made:
        sizes = {letter: self.integer(1, 4) for letter in "ijkb"}
        equation = self.one_of([
            "ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->i", "ii->i", "ii", "i,j->ij", "bij,bkj", "ij,ij->",
            "...ij,...jk->...ik", "ij,jk,kb->ib", "bii->b", "ij,kj->kij", "i,i", "...i->i...", "ij->",
        ])  # fmt: skip
        kind = self.kind((F32, F16))
        inputs = []
        for term in equation.split("->")[0].split(","):
            shape = [sizes[letter] for letter in term.replace("...", "")]
            inputs.append(self.fresh(kind, [2] * ("..." in term) + shape))
        if self.chance(0.3):
            equation = equation.replace(",", " , ")
        return Made("Einsum", inputs, {"equation": equation})

    def make_Det(self) -> Made:
        n = self.integer(1, 4)
        return Made("Det", [self.fresh(self.kind(FLOATS), (*self.shape(0, 2), n, n))], {})

    def make_MatMulInteger(self) -> Made:
        k = self.extent(False)
        a = self.fresh(self.one_of([U8, I8]), (*self.shape(0, 1), self.extent(), k))
        b = self.fresh(self.one_of([U8, I8]), (k, self.extent()))
        zeros = [self.fresh(t.dtype, ()) if self.chance(0.5) else None for t in (a, b)]
        return Made("MatMulInteger", [a, b, *zeros], {})

    # ---- Windows.

    def _window(
        self, spatial: Sequence[int], kernel: Sequence[int], dilation: bool = True
    ) -> dict[str, Any]:
        attributes: dict[str, Any] = self.optional(
            {"strides": [self.integer(1, 3) for _ in spatial]}
        )
        if dilation and self.chance(0.3):
            attributes["dilations"] = [self.integer(1, 2) for _ in spatial]
        mode = self.integer(0, 5)
        if mode == 0 and "dilations" not in attributes:
            if min(kernel) < 3:
                attributes.pop("strides", None)
            attributes["auto_pad"] = self.one_of(["SAME_UPPER", "SAME_LOWER", "VALID"])
        elif mode < 4:
            attributes["pads"] = [self.integer(0, k - 1) for k in (*kernel, *kernel)]
        return attributes

    def make_Conv(self, operator: str = "Conv") -> Made:
        dims = self.one_of([1, 2, 2, 3])
        group, per, out = self.one_of([1, 1, 2, 3]), self.integer(1, 3), self.integer(1, 3)
        spatial = [self.integer(3, 8) for _ in range(dims)]
        kernel = [self.integer(1, 3) for _ in range(dims)]
        kind = self.kind(FLOATS)
        data = self.fresh(
            kind, (self.one_of([1, 1, 2, 0] if self.chance(0.1) else [1, 2]), group * per, *spatial)
        )
        attributes = self._window(spatial, kernel)
        shape = (group * out, per, *kernel)
        if operator == "ConvTranspose":
            shape = (group * per, out, *kernel)
            if "strides" in attributes and self.chance(0.3):
                attributes["output_padding"] = [
                    self.integer(0, s - 1) for s in attributes["strides"]
                ]
        bias = self.fresh(kind, (group * out,)) if self.chance(0.5) else None
        attributes = {**attributes, **({"group": group} if group > 1 else {})}
        return Made(operator, [data, self.fresh(kind, shape), bias], attributes)

    def make_ConvTranspose(self) -> Made:
        return self.make_Conv("ConvTranspose")

    def make_ConvInteger(self) -> Made:
        spatial, kernel, c = [self.integer(3, 6)] * 2, [self.integer(1, 3)] * 2, self.integer(1, 3)
        data = self.fresh(U8, (1, c, *spatial))
        weights = self.fresh(self.one_of([U8, I8]), (self.integer(1, 3), c, *kernel))
        zero = self.fresh(U8, (), 0, 4) if self.chance(0.5) else None
        return Made("ConvInteger", [data, weights, zero], self._window(spatial, kernel))

    def make_DeformConv(self) -> Made:
        c, o, n, s = self.integer(1, 3), self.integer(1, 3), self.integer(1, 2), self.integer(3, 5)
        data, weights = self.fresh(F32, (n, c, s, s)), self.fresh(F32, (o, c, 2, 2))
        offset = self.fresh(F32, (n, 8, s - 1, s - 1))
        bias = self.fresh(F32, (o,)) if self.chance(0.5) else None
        mask = self.fresh(F32, (n, 4, s - 1, s - 1)) if self.chance(0.5) else None
        return Made("DeformConv", [data, weights, offset, bias, mask], {"kernel_shape": [2, 2]})

    def _pool(self, operator: str, kinds: Sequence[np.dtype[Any]]) -> Made:
        dims = self.one_of([1, 2, 2, 3])
        spatial = [self.integer(3, 8) for _ in range(dims)]
        kernel = [self.integer(1, 3) for _ in range(dims)]
        data = self.fresh(self.kind(kinds), (self.integer(1, 2), self.integer(1, 3), *spatial))
        old = {"AveragePool": 19, "LpPool": 18}.get(operator, 0)
        attributes = self._window(spatial, kernel, self.opset >= old)
        if self.chance(0.3) and self.opset >= old:
            attributes["ceil_mode"] = 1
        if operator == "AveragePool":
            attributes.update(self.optional({"count_include_pad": self.integer(0, 1)}))
        if operator == "LpPool":
            attributes.update(self.optional({"p": self.integer(1, 3)}))
        outputs = 1
        if operator == "MaxPool":
            outputs = self.one_of([1, 1, 2])
            if outputs == 2:
                attributes.update(self.optional({"storage_order": self.integer(0, 1)}))
        return Made(operator, [data], {"kernel_shape": kernel, **attributes}, outputs)

    def make_AveragePool(self) -> Made:
        return self._pool("AveragePool", FLOATS)

    def make_MaxPool(self) -> Made:
        return self._pool("MaxPool", (F32, F16, I8, U8))

    def make_LpPool(self) -> Made:
        return self._pool("LpPool", FLOATS)

    def _global(self, operator: str) -> Made:
        return Made(operator, [self.take(FLOATS, 3, 4, empty=False)], {})

    def make_GlobalAveragePool(self) -> Made:
        return self._global("GlobalAveragePool")

    def make_GlobalMaxPool(self) -> Made:
        return self._global("GlobalMaxPool")

    def make_GlobalLpPool(self) -> Made:
        return self._global("GlobalLpPool")

    def make_MaxUnpool(self) -> Made:
        n, c, h, w = self.integer(1, 2), self.integer(1, 2), self.integer(1, 3), self.integer(1, 3)
        size = 4 * h * w
        picks = np.stack([
            self.rng.permutation(size)[: h * w] + plane * size for plane in range(n * c)
        ])  # fmt: skip
        indices = self.hold(picks.reshape(n, c, h, w).astype(I64))
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
        return Made("MaxUnpool", [self.fresh(F32, (n, c, h, w)), indices], attributes)

    def make_Col2Im(self) -> Made:
        h, w, kh, kw, c, n = (
            self.integer(2, 5),
            self.integer(2, 5),
            2,
            self.integer(1, 2),
            self.integer(1, 2),
            2,
        )
        columns = (h - kh + 1) * (w - kw + 1)
        data = self.fresh(self.kind(FLOATS), (n, c * kh * kw, columns))
        return Made("Col2Im", [data, self.ints([h, w]), self.ints([kh, kw])], {})

    def make_LRN(self) -> Made:
        data = self.take((F32,), 3, 4, empty=False)
        attributes = self.optional(
            {"alpha": self.number(), "beta": self.number(), "bias": self.number(1)}
        )
        return Made("LRN", [data], {"size": self.one_of([1, 3, 5]), **attributes})

    # ---- Normalization.

    def make_BatchNormalization(self) -> Made:
        data = self.take(FLOATS, 2, 4, empty=False)
        c, kind = data.shape[1], data.dtype
        parts = [self.fresh(kind, (c,)) for _ in range(3)] + [self.fresh(kind, (c,), 1, 8)]
        return Made("BatchNormalization", [data, *parts], self.optional({"epsilon": 0.25}))

    def make_InstanceNormalization(self) -> Made:
        data = self.take((F32,), 3, 4, empty=False)
        parts = [self.fresh(data.dtype, (data.shape[1],)) for _ in range(2)]
        return Made("InstanceNormalization", [data, *parts], self.optional({"epsilon": 0.25}))

    def make_LayerNormalization(self) -> Made:
        data = self.take(FLOATS, 1, empty=False)
        axis = self.axis(data.rank)
        scale = self.fresh(data.dtype, data.shape[axis % data.rank :])
        bias = self.fresh(data.dtype, scale.shape) if self.chance(0.5) else None
        attributes = {"axis": axis, "epsilon": 0.25}
        return Made(
            "LayerNormalization",
            [data, scale, bias],
            attributes,
            self.one_of([1, 1, 2, 3]),
        )

    def make_RMSNormalization(self) -> Made:
        data = self.take(FLOATS, 1, empty=False)
        axis = self.axis(data.rank)
        scale = self.fresh(data.dtype, data.shape[axis % data.rank :])
        return Made("RMSNormalization", [data, scale], {"axis": axis, "epsilon": 0.25})

    def make_GroupNormalization(self) -> Made:
        groups, per = self.integer(1, 3), self.integer(1, 3)
        data = self.fresh(
            self.kind(FLOATS), (self.integer(1, 2), groups * per, *self.shape(1, 2, False))
        )
        parts = [
            self.fresh(data.dtype, (groups * per if self.opset >= 21 else groups,))
            for _ in range(2)
        ]
        return Made("GroupNormalization", [data, *parts], {"num_groups": groups, "epsilon": 0.25})

    def make_MeanVarianceNormalization(self) -> Made:
        data = self.take((F32,), 4, 4, empty=False)
        return Made("MeanVarianceNormalization", [data], self.optional({"axes": [0, 2, 3]}))

    # ---- Images and boxes.

    def make_Resize(self) -> Made:
        data = self.fresh(
            self.kind((F32, F32, F16, U8)),
            (1, self.integer(1, 2), self.integer(2, 5), self.integer(2, 5)),
        )
        mode = self.one_of(["nearest", "linear", "cubic"])
        attributes = {"mode": mode}
        modes = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
        attributes.update(self.optional({"coordinate_transformation_mode": self.one_of(modes)}))
        if mode == "nearest":
            ways = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
            attributes.update(self.optional({"nearest_mode": self.one_of(ways)}))
        if mode == "cubic" and self.chance(0.4):
            attributes["exclude_outside"] = 1
        if mode != "nearest" and self.opset >= 18 and self.chance(0.3):
            attributes["antialias"] = 1
        if self.chance(0.5):
            scales = np.array([1, 1, *(self.one_of([0.5, 1, 1.5, 2, 2.5]) for _ in "hw")], F32)
            return Made("Resize", [data, None, self.hold(scales, 0.8)], attributes)
        sizes = [*data.shape[:2], self.integer(1, 8), self.integer(1, 8)]
        if self.opset >= 18 and self.chance(0.4):
            attributes["axes"] = [2, 3]
            sizes = sizes[2:]
            policies = ["stretch", "not_larger", "not_smaller"]
            attributes.update(self.optional({"keep_aspect_ratio_policy": self.one_of(policies)}))
        return Made("Resize", [data, None, None, self.ints(sizes)], attributes)

    def make_GridSample(self) -> Made:
        n = self.integer(1, 2)
        data = self.fresh(F32, (n, self.integer(1, 2), self.integer(2, 5), self.integer(2, 5)))
        grid = self.fresh(F32, (n, self.integer(1, 4), self.integer(1, 4), 2), -5, 5)
        modes = (
            ["linear", "nearest", "cubic"]
            if self.opset >= 20
            else ["bilinear", "nearest", "bicubic"]
        )
        attributes = self.optional({
            "mode": self.one_of(modes), "padding_mode": self.one_of(["zeros", "border", "reflection"]),
            "align_corners": self.integer(0, 1),
        })  # fmt: skip
        return Made("GridSample", [data, grid], attributes)

    def make_AffineGrid(self) -> Made:
        n = self.integer(1, 2)
        size = self.ints([n, 2, self.integer(1, 4), self.integer(1, 4)])
        return Made(
            "AffineGrid", [self.fresh(F32, (n, 2, 3)), size], {"align_corners": self.integer(0, 1)}
        )

    def make_RoiAlign(self) -> Made:
        n, count = self.integer(1, 2), self.integer(1, 3)
        data = self.fresh(F32, (n, self.integer(1, 2), 6, 6))
        low = self.values(F32, (count, 2), 0, 8)
        rois = self.hold(np.concatenate([low, low + self.values(F32, (count, 2), 1, 12)], 1))
        attributes = self.optional({
            "mode": self.one_of(["avg", "max"]), "output_height": self.integer(1, 3),
            "output_width": self.integer(1, 3), "sampling_ratio": self.integer(0, 2),
            "spatial_scale": self.number(0.5, 1.5),
        })  # fmt: skip
        if self.opset >= 16:
            attributes.update(self.optional({
                "coordinate_transformation_mode": self.one_of(["half_pixel", "output_half_pixel"])
            }))  # fmt: skip
        batch = self.ints([self.integer(0, n - 1) for _ in range(count)])
        return Made("RoiAlign", [data, rois, batch], attributes)

    def make_MaxRoiPool(self) -> Made:
        low = self.rng.integers(0, 3, (2, 2)).astype(F32)
        rois = np.concatenate(
            [np.zeros((2, 1), F32), low, low + self.rng.integers(1, 4, (2, 2))], 1
        )
        data = self.fresh(F32, (1, self.integer(1, 2), 6, 6))
        return Made(
            "MaxRoiPool",
            [data, self.hold(rois.astype(F32))],
            {"pooled_shape": [2, self.integer(1, 3)]},
        )

    def make_NonMaxSuppression(self) -> Made:
        batch, boxes, classes = self.integer(1, 2), self.integer(1, 6), self.integer(1, 2)
        low = self.values(F32, (batch, boxes, 2), 0, 8)
        corners = np.concatenate([low, low + self.values(F32, (batch, boxes, 2), 1, 8)], 2)
        scores = (
            np.stack([self.rng.permutation(classes * boxes) for _ in range(batch)]).astype(F32) / 8
        )
        inputs = [
            self.hold(corners), self.hold(scores.reshape(batch, classes, boxes)), self.ints([self.integer(0, 4)]),
            self.fresh(F32, (1,), 0, 3), self.hold(np.array([self.integer(0, 8) / 8 + 0.05], F32)),
        ]  # fmt: skip
        return Made("NonMaxSuppression", inputs[: self.integer(3, 5)], {})

    # ---- Quantization.

    def _scale(self, shape: Sequence[int] = ()) -> Tensor:
        return self.hold(np.exp2(self.rng.integers(-4, 2, shape)).astype(F32), 0.6)

    def make_QuantizeLinear(self) -> Made:
        data = self.take((F32,))
        axis = self.axis(data.rank) if data.rank else 0
        shape = (data.shape[axis],) if data.rank and self.chance(0.4) else ()
        zero = self.fresh(self.one_of([I8, U8]), shape, 0, 8) if self.chance(0.7) else None
        return Made(
            "QuantizeLinear", [data, self._scale(shape), zero], {"axis": axis} if shape else {}
        )

    def make_DequantizeLinear(self) -> Made:
        data = self.take((I8, U8, I32))
        axis = self.axis(data.rank) if data.rank else 0
        shape = (data.shape[axis],) if data.rank and self.chance(0.4) else ()
        zero = (
            self.fresh(data.dtype, shape, 0, 8) if data.dtype != I32 and self.chance(0.7) else None
        )
        return Made(
            "DequantizeLinear", [data, self._scale(shape), zero], {"axis": axis} if shape else {}
        )

    def make_DynamicQuantizeLinear(self) -> Made:
        data = self.take((F32,), empty=False)
        if not data.value.any():
            data = self.fresh(F32, data.shape, 1)
        return Made("DynamicQuantizeLinear", [data], {}, 3)

    def _quantized(self, shape: Sequence[int], signed: bool | None = None) -> list[Tensor | None]:
        kind = self.one_of([I8, U8])
        return [self.fresh(kind, shape), self._scale(), self.fresh(kind, (), 0, 4)]

    def make_QLinearMatMul(self) -> Made:
        m, k, n = (self.extent(False) for _ in range(3))
        kind = self.one_of([I8, U8])
        parts = []
        for shape in ((m, k), (k, n)):
            parts += [self.fresh(kind, shape), self._scale(), self.fresh(kind, (), 0, 4)]
        return Made("QLinearMatMul", [*parts, self._scale(), self.fresh(kind, (), 0, 4)], {})

    def make_QLinearConv(self) -> Made:
        c, o, spatial, kernel = (
            self.integer(1, 3),
            self.integer(1, 3),
            [5, 6],
            [self.integer(1, 3)] * 2,
        )
        data = [self.fresh(U8, (1, c, *spatial)), self._scale(), self.fresh(U8, (), 0, 4)]
        shape = (o,) if self.chance(0.4) else ()
        zeros = self.hold(np.zeros(shape, I8), 0.8)
        weights = [self.fresh(I8, (o, c, *kernel)), self._scale(shape), zeros]
        bias = self.fresh(I32, (o,)) if self.chance(0.5) else None
        inputs = [*data, *weights, self._scale(), self.fresh(U8, (), 0, 4), bias]
        return Made("QLinearConv", inputs, self._window(spatial, kernel))

    # ---- Sequences in time.

    def _recurrent(self, operator: str, gates: int) -> Made:
        directions = self.one_of(["forward", "reverse", "bidirectional"])
        d = 2 if directions == "bidirectional" else 1
        length, batch, width, hidden = (
            self.integer(1, 4),
            self.integer(1, 3),
            self.integer(1, 4),
            self.integer(1, 4),
        )
        # Only the reference supports this layout, and it ignores lengths, clipping and other
        # directions.
        layout = int(self.chance(0.2) and self.opset >= 14 and directions == "forward")
        shape = (batch, length, width) if layout else (length, batch, width)
        state = (batch, d, hidden) if layout else (d, batch, hidden)
        some = self.chance
        inputs: list[Tensor | None] = [
            self.fresh(F32, shape), self.fresh(F32, (d, gates * hidden, width)),
            self.fresh(F32, (d, gates * hidden, hidden)),
            self.fresh(F32, (d, 2 * gates * hidden)) if some(0.6) else None,
            self.ints([self.integer(1, length) for _ in range(batch)], I32) if some(0.4) and not layout else None,
            self.fresh(F32, state) if some(0.5) else None,
        ]  # fmt: skip
        attributes: dict[str, Any] = {"hidden_size": hidden, "direction": directions}
        if layout:
            attributes["layout"] = 1
        if operator == "LSTM":
            inputs.append(self.fresh(F32, state) if some(0.5) else None)
            inputs.append(self.fresh(F32, (d, 3 * hidden)) if some(0.4) else None)
        if operator == "GRU":
            attributes.update(self.optional({"linear_before_reset": self.integer(0, 1)}))
        if some(0.2) and not layout:
            attributes["clip"] = self.number()
        return Made(operator, inputs, attributes, self.integer(1, 3 if operator == "LSTM" else 2))

    def make_RNN(self) -> Made:
        return self._recurrent("RNN", 1)

    def make_GRU(self) -> Made:
        return self._recurrent("GRU", 3)

    def make_LSTM(self) -> Made:
        return self._recurrent("LSTM", 4)

    def make_Attention(self) -> Made:
        b, kv, head, size = (
            self.integer(1, 2),
            self.integer(1, 2),
            self.integer(1, 2),
            self.integer(1, 4),
        )
        heads, q, k, v_size = kv * head, self.integer(1, 4), self.integer(1, 5), self.integer(1, 4)
        attributes: dict[str, Any] = self.optional(
            {"is_causal": self.integer(0, 1), "scale": self.number()}
        )
        if self.chance(0.3):
            attributes["softcap"] = self.number(1, 3)
        if self.chance(0.5):
            inputs = [
                self.fresh(F32, s)
                for s in ((b, heads, q, size), (b, kv, k, size), (b, kv, k, v_size))
            ]
        else:
            shapes = ((b, q, heads * size), (b, k, kv * size), (b, k, kv * v_size))
            inputs = [self.fresh(F32, s) for s in shapes]
            attributes.update(q_num_heads=heads, kv_num_heads=kv)
        if self.chance(0.4) and not attributes.get("is_causal"):
            shape = self.one_of([(q, k), (b, 1, q, k), (1, heads, q, k)])
            mask = self.values(BOOL, shape) if self.chance(0.5) else self.values(F32, shape)
            if mask.dtype == BOOL:
                mask[..., 0] = True
            inputs.append(self.hold(mask))
        return Made("Attention", inputs, attributes)

    def make_RotaryEmbedding(self) -> Made:
        b, s, n, d = (
            self.integer(1, 2),
            self.integer(1, 3),
            self.integer(1, 2),
            2 * self.integer(1, 3),
        )
        data = self.fresh(F32, (b, n, s, d))
        if self.chance(0.5):
            caches = [self.fresh(F32, (b, s, d // 2)) for _ in range(2)]
            return Made(
                "RotaryEmbedding",
                [data, *caches],
                self.optional({"interleaved": self.integer(0, 1)}),
            )
        caches = [self.fresh(F32, (5, d // 2)) for _ in range(2)]
        positions = self.ints(self.rng.integers(0, 5, (b, s)))
        return Made(
            "RotaryEmbedding",
            [data, *caches, positions],
            self.optional({"interleaved": self.integer(0, 1)}),
        )

    # ---- Signals.

    def _signal_window(self, operator: str) -> Made:
        return Made(
            operator,
            [self.ints(self.integer(2, 9))],
            self.optional({"periodic": self.integer(0, 1)}),
        )

    def make_HannWindow(self) -> Made:
        return self._signal_window("HannWindow")

    def make_HammingWindow(self) -> Made:
        return self._signal_window("HammingWindow")

    def make_BlackmanWindow(self) -> Made:
        return self._signal_window("BlackmanWindow")

    def make_DFT(self) -> Made:
        data = self.fresh(F32, (self.integer(1, 2), self.integer(2, 9), self.integer(1, 2)))
        attributes = self.optional({"onesided": self.integer(0, 1) if data.shape[2] == 1 else 0})
        if data.shape[2] == 2 and self.chance(0.4):
            attributes = {"inverse": 1}
        length = self.ints(self.integer(1, 9)) if self.chance(0.4) else None
        if self.opset >= 20:
            return Made("DFT", [data, length, self.ints(1)], attributes)
        return Made("DFT", [data, length], {"axis": 1, **attributes})

    def make_STFT(self) -> Made:
        frame, step = self.integer(2, 6), self.integer(1, 4)
        data = self.fresh(F32, (self.integer(1, 2), self.integer(8, 16), 1))
        window = self.fresh(F32, (frame,)) if self.chance(0.6) else None
        return Made(
            "STFT",
            [data, self.ints(step), window, self.ints(frame)],
            {"onesided": self.integer(0, 1)},
        )

    def make_MelWeightMatrix(self) -> Made:
        values = [self.ints(self.integer(2, 6)), self.ints(16), self.ints(8000)]
        return Made(
            "MelWeightMatrix",
            [*values, self.hold(np.array(0, F32)), self.hold(np.array(4000, F32))],
            {},
        )

    # ---- Losses.

    def _loss(self, operator: str) -> Made:
        n, c = self.integer(1, 3), self.integer(1, 4)
        rest = self.shape(0, 2, False)
        target = self.ints(self.rng.integers(0, c, (n, *rest)), self.one_of([I32, I64]))
        weights = self.fresh(F32, (c,), 1, 8) if self.chance(0.5) else None
        attributes = self.optional({
            "reduction": self.one_of(["none", "mean", "sum"]), "ignore_index": self.integer(0, c),
        })  # fmt: skip
        if "ignore_index" in attributes:
            # A mean over nothing is NaN.
            attributes["reduction"] = self.one_of(["none", "sum"])
        outputs = self.one_of([1, 2]) if operator == "SoftmaxCrossEntropyLoss" else 1
        return Made(
            operator, [self.fresh(F32, (n, c, *rest)), target, weights], attributes, outputs
        )

    def make_NegativeLogLikelihoodLoss(self) -> Made:
        return self._loss("NegativeLogLikelihoodLoss")

    def make_SoftmaxCrossEntropyLoss(self) -> Made:
        return self._loss("SoftmaxCrossEntropyLoss")

    # ---- Random numbers: only shapes and types can be compared.

    def _random(self, operator: str) -> Made:
        attributes = self.optional({"dtype": onnx.TensorProto.FLOAT, "seed": 3.0})
        if operator.endswith("Like"):
            return Made(operator, [self.take((F32,))], attributes)
        return Made(operator, [], {"shape": list(self.shape(1, 3)), **attributes})

    def make_RandomNormal(self) -> Made:
        return self._random("RandomNormal")

    def make_RandomUniform(self) -> Made:
        return self._random("RandomUniform")

    def make_RandomNormalLike(self) -> Made:
        return self._random("RandomNormalLike")

    def make_RandomUniformLike(self) -> Made:
        return self._random("RandomUniformLike")

    def make_Bernoulli(self) -> Made:
        return Made("Bernoulli", [self.fresh(F32, self.shape(), 0, 4)], {})

    def make_Multinomial(self) -> Made:
        attributes = {"sample_size": self.integer(1, 4), "dtype": self.one_of([6, 7])}
        return Made(
            "Multinomial", [self.fresh(F32, (self.integer(1, 3), self.integer(1, 4)))], attributes
        )

    # ---- Control flow.

    def make_If(self) -> Made:
        data = self.take((F32, I64), most=500)
        names = [self._named("b") for _ in range(2)]
        kind = helper.np_dtype_to_tensor_dtype(data.dtype)
        branches = []
        for name, operator in zip(names, (self.one_of(["Abs", "Neg"]), "Identity")):
            node = helper.make_node(operator, [data.name], [name])
            result = helper.make_tensor_value_info(name, kind, data.shape)
            branches.append(helper.make_graph([node], name, [], [result]))
        return Made(
            "If", [self.fresh(BOOL, ())], {"then_branch": branches[0], "else_branch": branches[1]}
        )

    # ---- The graph.

    def _model(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.ModelProto:
        used = {name for node in nodes for name in node.input}
        for node in nodes:
            for attribute in node.attribute:
                used |= {name for inner in attribute.g.node for name in inner.input}
        made = {name for node in nodes for name in node.output}
        known = {tensor.name: tensor.value for tensor in self.tensors}
        inputs = {
            n: a
            for n, a in {**known, **self.inputs}.items()
            if n in used - made and n not in self.constants
        }
        self.fed = inputs
        values = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in inputs.items()
        ]
        constants = [numpy_helper.from_array(a, n) for n, a in self.constants.items() if n in used]
        results = [self.types.get(name, onnx.ValueInfoProto(name=name)) for name in outputs]
        graph = helper.make_graph(nodes, "fuzzed", values, results, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        domains = {node.domain for node in nodes if node.domain}
        return helper.make_model(
            graph, opset_imports=[*opsets, *(helper.make_opsetid(name, 1) for name in domains)],
            ir_version=min(10, helper.find_min_ir_version_for([helper.make_opsetid("", self.opset)])),
        )  # fmt: skip

    def _add(self, made: Made, evaluate: Evaluate) -> bool:
        """Adds the node if a reference accepts it, and keeps the results. Returns whether it
        did."""
        inputs = list(made.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        names = [tensor.name if tensor else "" for tensor in inputs]
        outputs = [self._named("y") for _ in range(made.outputs)]
        node = helper.make_node(made.operator, names, outputs, **made.attributes)
        model = self._model([node], outputs)
        try:
            context = onnx.checker.C.CheckerContext()
            context.ir_version = model.ir_version
            context.opset_imports = {"": self.opset, "com.microsoft": 1}
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError:
            return False
        results = evaluate(model, self.fed)
        if not results:
            try:
                inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output
            except Exception:
                return False
            if all(value.type.tensor_type.HasField("shape") for value in inferred):
                self.refused = node
                self.types.update({value.name: value for value in inferred})
            return False
        if any(value.dtype == object for value in results[0]):
            return False
        self.nodes.append(node)
        for name, value in zip(outputs, results[0]):
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            self.types[name] = helper.make_tensor_value_info(name, kind, value.shape)
        from_exact = all(t.exact for t in inputs if t is not None)
        for i, name in enumerate(outputs):
            value = results[0][i]
            exact = made.operator in EXACT and from_exact
            near = 1e-3 if value.dtype == F16 else 1e-5
            agree = all(
                value.shape == other[i].shape
                and value.dtype == other[i].dtype
                and np.allclose(value, other[i], near, 1e-5)
                for other in results[1:]
            )
            # Doubtful or huge results, or those of another type, are only outputs: nothing is
            # computed from them.
            usable = (
                value.dtype in self.usable_kinds
                and agree
                and made.operator not in ("DynamicQuantizeLinear", "Bernoulli")
            )
            usable = usable and not made.operator.startswith(("Random", "Multinomial", "QLinear"))
            with np.errstate(all="ignore"):
                small = (
                    value.dtype == BOOL
                    or (np.abs(value.astype(float)) < (100 if value.dtype == F16 else 1e4)).all()
                )
            if usable and small and value.ndim <= 6 and value.size <= self.most_elements:
                self.tensors.append(Tensor(name, value, exact))
        return True

    def model(
        self, evaluate: Callable[..., list[list[Array]]]
    ) -> tuple[onnx.ModelProto, dict[str, Array]]:
        wanted = int(self.rng.choice([1, 1, 2, 3, 4, 5, 6, 8]))
        for _ in range(4 * wanted):
            if len(self.nodes) >= wanted:
                break
            operator, maker = self.one_of(self.makers)
            everything = self.tensors
            if operator in STEEP:
                self.tensors = [tensor for tensor in everything if tensor.exact]
            made = maker()
            self.tensors = everything
            added = self._add(made, evaluate)
            if not added and not self.nodes and self.chance(0.1) and self.refused:
                # Both references refuse. The engine must refuse with its own error or compute
                # something.
                self.nodes.append(self.refused)
                break
        if not self.nodes:
            self.opset = 22
            self._add(Made("Identity", [self.fresh(F32, (2,))], {}), evaluate)
        read = {name for node in self.nodes for name in node.input}
        for node in self.nodes:
            for attribute in node.attribute:
                read |= {name for inner in attribute.g.node for name in inner.input}
        made_names = [name for node in self.nodes for name in node.output]
        outputs = [name for name in made_names if name not in read or self.chance(0.1)]
        model = self._model(self.nodes, outputs)
        return model, self.fed
