"""Evaluates a model in double precision and bounds the errors of results: for
tools/model_fuzzer.py.

Each node is evaluated by the standard's reference on doubles. A tensor's error is bounded
elementwise from the errors of its node's operands, by the unit roundoff of its type and the length
of its sums (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3), whatever their
order:

- moves, negations, maxima and the like pass errors on;
- a sum of n products errs by n * u / (1 - n * u) times the sum of the products' magnitudes, u being FP32's roundoff;
- a tensor between nodes may be stored, and rounded to its type, or not: docs/internals/roundings.md;
- a Cast always rounds.

An output is rounded once to its type. So an exact value must become the nearest number of the type,
bit by bit: moves, casts, maxima, and a single addition, subtraction or multiplication of given
values.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
# Half the distance from 1 to the next number, and the smallest number of each type.
ROUNDOFF = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11, BF16: 2.0**-8}
SMALLEST = {np.dtype(np.float32): 2.0**-149, np.dtype(np.float16): 2.0**-24, BF16: 2.0**-133}
UNIT = 2.0**-24

MOVES = {
    "Transpose",
    "Reshape",
    "Slice",
    "Concat",
    "Pad",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Identity",
    "Expand",
}
# Operators whose error is at most the largest error of their operands.
LARGEST = {"Relu", "Neg", "Abs", "Max", "Min", "Clip"}
SUMS = {"ReduceSum", "ReduceMean", "GlobalAveragePool", "AveragePool"}
PRODUCTS = {"MatMul", "Gemm", "Conv", "ConvTranspose"}
# Functions of one number that vary little if the number does.
SMOOTH = {
    "Cos", "Elu", "Erf", "Exp", "Gelu", "HardSwish", "LeakyRelu", "Mish", "Sigmoid", "Sin", "Softplus", "Softsign",
    "Tanh",
}  # fmt: skip
# Roundings of an approximation of these functions, beside the absolute error of sums of numbers
# near 1.
FUNCTION_ROUNDINGS = 16


@dataclass
class Known:
    """A tensor: its value in double precision, its type, and a bound of its error before it is
    stored, or None if no bound is known."""

    value: Array
    kind: np.dtype[Any]
    error: Array | None

    @property
    def is_float(self) -> bool:
        return self.kind in ROUNDOFF

    def stored(self) -> Array | None:
        """The error that a reader sees. The stored value may be rounded or not."""
        if self.error is None or not self.is_float or self.is_given:
            return self.error
        with np.errstate(all="ignore"):
            return self.error + rounding(self.value, self.error, self.kind)

    is_given: bool = False  # given by the model, or exactly a number of the type


def rounding(value: Array, error: Array, kind: np.dtype[Any]) -> Array:
    return ROUNDOFF[kind] * (np.abs(value) + error) + SMALLEST[kind]


def conv_transpose(node: onnx.NodeProto, x: Array, w: Array, bias: Array | None = None) -> Array:
    """ConvTranspose. The reference takes seconds, and with groups adds the bias of other groups."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    padding = attributes.get("auto_pad", b"NOTSET")
    if "output_shape" in attributes:
        raise NotImplementedError
    rank, group = x.ndim - 2, attributes.get("group", 1)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    more = attributes.get("output_padding", [0] * rank)
    extents = [
        (n - 1) * s + (k - 1) * d + 1 + extra
        for n, s, k, d, extra in zip(x.shape[2:], strides, w.shape[2:], dilations, more)
    ]
    pads = attributes.get("pads", [0] * 2 * rank) if padding == b"NOTSET" else [0] * 2 * rank
    if padding in (b"SAME_UPPER", b"SAME_LOWER"):
        # The output extents are those of x times the strides.
        totals = [e - n * s for e, n, s in zip(extents, x.shape[2:], strides)]
        if min(totals) < 0:
            raise NotImplementedError
        less, larger = [t // 2 for t in totals], [t - t // 2 for t in totals]
        pads = less + larger if padding == b"SAME_UPPER" else larger + less
    y = np.zeros((x.shape[0], group, w.shape[1], *extents))
    parts = x.reshape(x.shape[0], group, -1, *x.shape[2:])
    weights = w.reshape(group, -1, *w.shape[1:])
    for tap in np.ndindex(*w.shape[2:]):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, x.shape[2:], strides)
        )
        y[(slice(None), slice(None), slice(None), *at)] += np.einsum(
            "bgc...,gcm->bgm...",
            parts,
            weights[(slice(None), slice(None), slice(None), *tap)],
            optimize=True,
        )
    y = y.reshape(x.shape[0], -1, *extents)
    y = y[
        (
            slice(None),
            slice(None),
            *(slice(pads[i], e - pads[rank + i]) for i, e in enumerate(extents)),
        )
    ]
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


def evaluate(node: onnx.NodeProto, opset: int, inputs: list[Array | None]) -> list[Array]:
    """The standard's reference for a single node, on doubles."""
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "ConvTranspose":
        return [conv_transpose(node, *inputs)]
    names = [f"in{i}" if array is not None else "" for i, array in enumerate(inputs)]
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    del alone.input[:]
    alone.input.extend(names)
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, inputs)
        if array is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in alone.output if name]
    graph = helper.make_graph([alone], "node", values, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    fed = {name: array for name, array in zip(names, inputs) if array is not None}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = ReferenceEvaluator(model).run(None, fed)
    return [np.asarray(result) for result in results]


def gamma(count: float) -> float:
    return count * UNIT / (1 - min(0.5, count * UNIT))


class Bounds:
    """Values and error bounds of a model's tensors, as far as the reference evaluates the nodes on
    doubles."""

    def __init__(self, model: onnx.ModelProto, inputs: dict[str, Array]) -> None:
        self.opset = model.opset_import[0].version
        self.known: dict[str, Known] = {}
        given = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for name, array in {**given, **inputs}.items():
            kind = np.dtype(array.dtype)
            value = array.astype(np.float64) if kind in ROUNDOFF else array
            error = np.zeros(array.shape) if kind in ROUNDOFF else None
            self.known[name] = Known(value, kind, error, True)
        # Scales behind a convolution are folded into its weights, which are rounded to their type
        # once more.
        self.scales = any(
            node.op_type in ("BatchNormalization", "Mul", "Div") for node in model.graph.node
        )
        self.convolves = any(node.op_type.startswith("Conv") for node in model.graph.node)
        for node in model.graph.node:
            try:
                self.add(node)
            except (
                Exception
            ):  # the reference does not support doubles, or an operand is not known
                continue

    def add(self, node: onnx.NodeProto) -> None:
        read = [self.known[name] if name else None for name in node.input]
        floats = [known for known in read if known is not None and known.is_float]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Cast":
            self.cast(node, floats[0], np.dtype(helper.tensor_dtype_to_np_dtype(attributes["to"])))
            return
        if not floats or len(node.output) != 1 or len({known.kind for known in floats}) != 1:
            return
        results = evaluate(node, self.opset, [known.value if known else None for known in read])
        if results[0].dtype != np.float64:
            return
        made = Known(results[0], floats[0].kind, None)
        errors = [known.stored() for known in floats]
        if all(error is not None for error in errors):
            with np.errstate(all="ignore"):
                made.error = self.bound(
                    node, attributes, read, results[0], [e for e in errors if e is not None]
                )
            made.is_given = node.op_type in MOVES | {"Relu", "Neg", "Abs"} and all(
                known.is_given for known in floats
            )
        self.known[node.output[0]] = made

    def cast(self, node: onnx.NodeProto, x: Known, kind: np.dtype[Any]) -> None:
        if kind not in ROUNDOFF:
            return
        with np.errstate(all="ignore"):
            # A narrow operand is rounded to its type before, an FP32 operand when it is computed.
            first = x.value.astype(x.kind)
            value, error = first.astype(kind).astype(np.float64), x.error
            if error is not None and error.any():
                value = x.value
                error = error + rounding(x.value, error, x.kind) + rounding(x.value, error, kind)
        is_exact = error is not None and not error.any()
        self.known[node.output[0]] = Known(value, kind, error, is_exact)

    def again(self, node: onnx.NodeProto, read: list[Known | None], floats: list[Array]) -> Array:
        """Evaluates the node on other numbers, such as magnitudes or errors."""
        left = iter(floats)
        inputs = [None if k is None else next(left) if k.is_float else k.value for k in read]
        return evaluate(node, self.opset, inputs)[0]

    def bound(
        self, node: onnx.NodeProto, attributes: dict[str, Any], read: list[Known | None], value: Array,
        errors: list[Array],
    ) -> Array | None:  # fmt: skip
        operator = node.op_type
        floats = [known.value for known in read if known is not None and known.is_float]
        kind = next(known.kind for known in read if known is not None and known.is_float)
        magnitudes = [np.abs(array) for array in floats]
        given = all(not error.any() for error in errors)
        u = UNIT * np.abs(value)
        if operator in MOVES:
            return self.again(node, read, errors)
        if operator in LARGEST:
            error = errors[0]
            for other in errors[1:]:
                error = np.maximum(error, other)
            return np.broadcast_to(error, value.shape)
        if operator == "Where":
            return np.where(read[0].value if read[0] else False, errors[0], errors[1])
        if operator in ("Add", "Sub"):
            return errors[0] + errors[1] + (0 if given else u)
        if operator == "Mul":
            error = magnitudes[0] * errors[1] + magnitudes[1] * errors[0] + errors[0] * errors[1]
            return error + (0 if given else u)
        if operator == "Div":
            left = magnitudes[1] - errors[1]
            error = (errors[0] + np.abs(value) * errors[1]) / left + 4 * u
            return np.where(left > 0, error, np.inf)
        if operator == "PRelu":
            return (
                errors[0] * np.maximum(1, magnitudes[1] + errors[1]) + magnitudes[0] * errors[1] + u
            )
        if operator in SMOOTH:
            return self.of_function(node, read, value, errors[0])
        if operator in SUMS:
            count = magnitudes[0].size / max(1, value.size)
            if operator == "AveragePool":
                count = float(np.prod(attributes["kernel_shape"]))
            sums = self.again(node, read, magnitudes)
            return self.again(node, read, errors) + gamma(count + 2) * (
                sums + self.again(node, read, errors)
            )
        if operator in ("ReduceMax", "ReduceMin"):
            axes = tuple(int(axis) for axis in read[1].value) if len(read) > 1 and read[1] else None
            return (
                errors[0]
                .max(axes, keepdims=bool(attributes.get("keepdims", 1)))
                .reshape(value.shape)
            )
        if operator in ("GlobalMaxPool", "MaxPool"):
            return self.again(node, read, errors)
        if operator in PRODUCTS:
            return self.of_product(node, attributes, read, magnitudes, errors, kind)
        if operator == "BatchNormalization":
            return self.of_batch_normalization(attributes, floats, errors, kind)
        if operator == "Pow":
            return self.of_power(node, read, value, errors)
        if operator == "Softmax":
            axis = attributes.get("axis", -1)
            spread = floats[0].max(axis, keepdims=True) - floats[0]
            most = (errors[0] + 4 * UNIT * spread + FUNCTION_ROUNDINGS * UNIT).max(
                axis, keepdims=True
            )
            return value * (np.expm1(2 * most) + gamma(value.shape[axis] + FUNCTION_ROUNDINGS))
        return None

    def of_function(
        self, node: onnx.NodeProto, read: list[Known | None], value: Array, error: Array
    ) -> Array:
        at = read[0].value if read[0] else value
        moved = np.zeros(value.shape)
        # Periodic functions repeat within a large error. Their slope is at most 1.
        is_wave = node.op_type in ("Cos", "Sin")
        if is_wave:
            moved = np.minimum(error, 2)
        for step in () if is_wave else (error, -error, error / 2, -error / 2):
            moved = np.maximum(moved, np.abs(self.again(node, read, [at + step]) - value))
        # A function of numbers that cancel is only as exact as these numbers.
        return 2 * moved + FUNCTION_ROUNDINGS * UNIT * (np.abs(value) + np.abs(at) + 1)

    def of_power(
        self, node: onnx.NodeProto, read: list[Known | None], value: Array, errors: list[Array]
    ) -> Array | None:
        if errors[1].any() or read[0] is None or read[1] is None:
            return None
        at, exponent = read[0].value, read[1].value
        moved = np.zeros(value.shape)
        for step in (errors[0], -errors[0], errors[0] / 2, -errors[0] / 2):
            # A nonnegative number stays nonnegative.
            other = np.where(at >= 0, np.maximum(at + step, 0), at + step)
            moved = np.maximum(moved, np.abs(self.again(node, read, [other, exponent]) - value))
        turns = 1 + np.abs(exponent * np.log(np.maximum(np.abs(at), 2.0**-149)))
        return 2 * moved + FUNCTION_ROUNDINGS * UNIT * np.abs(value) * turns

    def of_batch_normalization(
        self, attributes: dict[str, Any], floats: list[Array], errors: list[Array], kind: np.dtype[Any],
    ) -> Array | None:  # fmt: skip
        if attributes.get("training_mode", 0) or any(error.any() for error in errors[1:]):
            return None
        x = floats[0]
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        scale, bias, mean, variance = (array.reshape(shape) for array in floats[1:])
        # Factor and shift are FP32 for all types.
        factor = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        magnitude = np.abs(factor)
        sums = magnitude * (np.abs(x) + errors[0] + np.abs(mean)) + np.abs(bias)
        error = magnitude * errors[0] + gamma(8) * sums
        # Behind a convolution the shift becomes the convolution's bias, which is rounded to its
        # type.
        return error + ROUNDOFF[kind] * np.abs(bias - factor * mean) if self.convolves else error

    def of_product(
        self, node: onnx.NodeProto, attributes: dict[str, Any], read: list[Known | None], magnitudes: list[Array],
        errors: list[Array], kind: np.dtype[Any],
    ) -> Array:  # fmt: skip
        a, b = magnitudes[:2]
        alone = onnx.NodeProto()
        alone.CopyFrom(node)
        for attribute in alone.attribute:
            if attribute.name in ("alpha", "beta"):
                attribute.f = abs(attribute.f)
        count = a.shape[-1] if a.ndim else 1
        if node.op_type == "Gemm":
            count = a.shape[0 if attributes.get("transA") else 1]
        elif node.op_type == "Conv":
            count = int(np.prod(b.shape[1:]))
        elif node.op_type == "ConvTranspose":
            count = b.shape[0] * int(np.prod(b.shape[2:]))
        with_errors = [magnitude + error for magnitude, error in zip(magnitudes, errors)]
        largest = self.again(alone, read, with_errors)
        carried = largest - self.again(alone, read, magnitudes)
        relative = gamma(count + 4)
        if self.scales and node.op_type.startswith("Conv"):
            relative += 2 * ROUNDOFF[kind]
        if node.op_type == "Gemm" and kind in (BF16, np.float16):
            # Gemm is a product, two factors and an addition. Each result may be stored.
            relative += 3 * ROUNDOFF[kind]
        # The difference of two sums in double precision has the roundings of both.
        return np.maximum(carried, 0) + (relative + 2.0**-50 * count) * largest

    def is_complete(self, name: str) -> bool:
        """Whether each element of the output has a bound, so that no other reference is needed."""
        known = self.known.get(name)
        if known is None or known.error is None:
            return False
        return bool(np.isfinite(known.value + known.error).all())

    def difference(self, name: str, got: Array) -> str | None:
        """The fault of an output by its bound; None if it is within the bound or there is none."""
        known = self.known.get(name)
        if (
            known is None
            or known.error is None
            or not known.is_float
            or got.shape != known.value.shape
        ):
            return None
        with np.errstate(all="ignore"):
            nearest = known.value.astype(known.kind).astype(np.float64)
            given = got.astype(np.float64)
            allowed = known.error + rounding(known.value, known.error, known.kind)
            largest = float(ml_dtypes.finfo(known.kind).max)
            is_sure = np.isfinite(known.value) & (np.abs(known.value) + allowed < largest)
            bad = (
                np.where(
                    known.error == 0, given != nearest, ~(np.abs(given - known.value) <= allowed)
                )
                & is_sure
            )
        if not bad.any():
            return None
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        return (
            f"{int(bad.sum())} of {bad.size} elements beyond their bound, first at {at}: {given[at]}, expected "
            f"{nearest[at]} and at most {float(np.asarray(known.error)[at]):.3g} before one rounding to {known.kind}"
        )
