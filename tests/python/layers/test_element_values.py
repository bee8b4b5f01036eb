"""Values of element-wise operations on the CPU and the emulated GPU, exactly as NumPy and C have them: what narrow
types round, remainders, and the results of zeros, infinities and NaN."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import emulated_gpu
import opwright
from onnx_graphs import FLOAT, model

DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]
NARROW = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}
TYPES = {FLOAT: np.float32, **NARROW}
# Rounded to 0, to even, to the largest number and to infinity by FP16; 0.1 and 1.0009 by both.
NUMBERS = np.array([1e-8, 1.0009, 65519, 70000, 0.1, 2049, -0.3, 3], np.float32)
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -3.0, 2.5, 1e30, -1e30, np.inf, -np.inf, np.nan]


def node(kind: str, inputs: str, output: str, **attributes):
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def run(nodes, inputs, outputs, device, constants=None, **options) -> dict[str, np.ndarray]:
    kinds = {np.dtype(value): key for key, value in TYPES.items()} | {np.dtype(np.int32): 6}
    ports = {name: (kinds[value.dtype], list(value.shape)) for name, value in inputs.items()}
    made = model(nodes, ports, outputs, constants)
    engine = opwright.build(made, device=device, timing=False, **options)
    results = engine(**inputs)
    return results if isinstance(results, dict) else {outputs[0]: results}


def c_power(x: float, y: float) -> float:
    """pow() of C, whose special values math.pow has, but for errors in place of what is no number."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x != 0:
            return math.nan
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf


def assert_same(got, want, what: str, signs: bool = True) -> None:
    """Equal, NaN where NaN is, and zeros of the same sign."""
    result_has_signs = np.asarray(got).dtype.kind not in "iub"
    got, want = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if signs and result_has_signs:
        same &= np.isnan(want) | (want != 0) | (np.signbit(got) == np.signbit(want))
    at = np.argwhere(~same)
    assert not len(at), (
        f"{what}: {len(at)} differ, first at {at[0]}: {got[tuple(at[0])]}, not {want[tuple(at[0])]}"
    )


@pytest.mark.parametrize("typed", [False, True], ids=["weakly", "strongly"])
@pytest.mark.parametrize("to", NARROW, ids=["half", "bfloat16"])
@pytest.mark.parametrize("device", DEVICES)
def test_casts_round(device, to, typed):
    narrow, other = NARROW[to], next(t for t in NARROW if t != to)
    x, i = NUMBERS, np.array([2049, 5, -4099, 7, 65537, 1, 3, 300], np.int32)
    eye = np.eye(8, dtype=np.float32)
    nodes = [
        node("Cast", "x", "h", to=to),
        node("Cast", "h", "pair", to=FLOAT),
        node("Sub", "x pair", "rest"),
        node("Neg", "x", "n"),
        node("Cast", "n", "nh", to=to),
        node("Cast", "nh", "nf", to=FLOAT),
        node("Neg", "nf", "negated"),
        node("Cast", "x", "h2", to=to),
        node("Add", "h2 h2", "s"),
        node("Cast", "s", "sum", to=FLOAT),
        node("Cast", "x", "h3", to=to),
        node("Cast", "h3", "integer", to=TensorProto.INT32),
        node("Cast", "i", "ih", to=to),
        node("Abs", "ih", "ia"),
        node("Cast", "ia", "from_integer", to=FLOAT),
        node("Cast", "x", "hb", to=to),
        node("Mul", "hb hb", "square"),
        node("Cast", "square", "truth", to=TensorProto.BOOL),
        node("Cast", "x", "o", to=other),
        node("Cast", "o", "oh", to=to),
        node("Cast", "oh", "both", to=FLOAT),
        node("Cast", "x", "kept", to=to),
        node("Cast", "kept", "beside_kept", to=FLOAT),
        node("Cast", "x", "hr", to=to),
        node("Reshape", "hr shape", "hs"),
        node("Cast", "hs", "moved", to=FLOAT),
        # Behind a product, which may compute what follows.
        node("MatMul", "rows eye", "p"),
        node("Cast", "p", "ph", to=to),
        node("Cast", "ph", "pf", to=FLOAT),
        node("Sub", "pf bias", "product"),
    ]
    names = ["pair", "rest", "negated", "sum", "integer", "from_integer", "truth", "both", "kept"]
    names += ["beside_kept", "moved", "product"]
    constants = {"shape": np.array([2, 4]), "eye": eye, "bias": np.ones(8, np.float32)}
    inputs = {"x": x, "i": i, "rows": np.stack([x * (np.abs(x) < 1e4)] * 3)}
    got = run(nodes, inputs, names, device, constants, strongly_typed=typed)
    with np.errstate(all="ignore"):
        r = x.astype(narrow).astype(np.float32)
        twice = (x.astype(narrow) + x.astype(narrow)).astype(np.float32)
        finite = np.nan_to_num(r, posinf=2**31)
        want = {
            "pair": r,
            "rest": x - r,
            "negated": r,
            "sum": twice,
            "integer": np.clip(np.trunc(finite.astype(np.float64)), -(2**31), 2**31 - 1),
            "from_integer": np.abs(i.astype(narrow)).astype(np.float32),
            "truth": (x.astype(narrow) * x.astype(narrow)).astype(np.float32) != 0,
            "both": x.astype(NARROW[other]).astype(narrow).astype(np.float32),
            "kept": r,
            "beside_kept": r,
            "moved": r.reshape(2, 4),
            "product": inputs["rows"].astype(narrow).astype(np.float32) - 1,
        }
    for name in names:
        assert_same(got[name], want[name], name)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_in_a_narrow_type_stay_exact_within_a_step(device):
    """docs/internals/roundings.md: only casts and stores round."""
    x = np.full(16, 1, np.float16)
    small = np.full(16, 2**-11, np.float16)
    nodes = [node("Add", "x small", "s"), node("Add", "s small", "y")]
    got = run(nodes, {"x": x, "small": small}, ["y"], device)["y"]
    np.testing.assert_array_equal(got, np.float16(1 + 2**-10))


@pytest.mark.parametrize("device", DEVICES)
def test_scores_of_an_attention_are_rounded(device):
    """To a type that its operands do not have."""
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=(1, 2, 9, 16)).astype(np.float32) for _ in range(3))
    nodes = [
        node("MatMul", "q k", "s"),
        node("Cast", "s", "narrow", to=TensorProto.BFLOAT16),
        node("Cast", "narrow", "wide", to=FLOAT),
        node("Softmax", "wide", "w", axis=-1),
        node("MatMul", "w v", "y"),
    ]
    turned = np.ascontiguousarray(k.transpose(0, 1, 3, 2))
    got = run(nodes, {"q": q, "k": turned, "v": v}, ["y"], device)["y"]
    scores = (q @ turned).astype(ml_dtypes.bfloat16).astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def remainders(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Exact in any type: of FP32 the double's own remainder is the float's."""
    with np.errstate(all="ignore"):
        wide = (np.fmod if kind == "fmod" else np.mod)(a.astype(np.float64), b.astype(np.float64))
        return wide.astype(a.dtype)


@pytest.mark.parametrize("element", TYPES, ids=["float", "half", "bfloat16"])
@pytest.mark.parametrize("device", DEVICES)
def test_remainders(device, element):
    dtype = TYPES[element]
    random = np.random.default_rng(0)
    pairs = list(itertools.product(SPECIAL, SPECIAL))
    a = np.concatenate(
        [
            random.normal(size=400) * 10.0 ** random.integers(-6, 9, 400),
            np.floor(random.random(300) * 1e9),
            np.arange(300) * 0.3,
            [p[0] for p in pairs],
        ]
    )
    b = np.concatenate(
        [
            random.normal(size=400) * 10.0 ** random.integers(-6, 9, 400),
            np.full(300, 7.0),
            np.full(300, 0.3),
            [p[1] for p in pairs],
        ]
    )
    with np.errstate(all="ignore"):
        a, b = a.astype(dtype), b.astype(dtype)
    divisors = {"d0": 7.0, "d1": 0.3, "d2": -2 * np.pi, "d3": np.inf, "d4": 0.0, "d5": 1e-3}
    constants = {name: np.asarray(value).astype(dtype) for name, value in divisors.items()}
    if element == TensorProto.BFLOAT16:
        constants = {}
    nodes, want = [], {}
    for kind, fmod in (("fmod", 1), ("mod", 0)):
        nodes.append(node("Mod", "a b", kind, fmod=fmod))
        want[kind] = remainders(kind, a, b)
        for name, value in constants.items():
            nodes.append(node("Mod", f"a {name}", kind + name, fmod=fmod))
            want[kind + name] = remainders(kind, a, np.full_like(a, value))
    got = run(nodes, {"a": a, "b": b}, list(want), device, constants)
    for name, expected in want.items():
        assert_same(got[name], expected, name)


UNARY = {
    "Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal, "Abs": np.abs, "Neg": np.negative,
    "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Sinh": np.sinh, "Cosh": np.cosh, "Asin": np.arcsin,
    "Acos": np.arccos, "Atan": np.arctan, "Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh,
    "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint, "Sign": np.sign, "Tanh": np.tanh,
    "Relu": lambda x: np.where(x < 0, 0, x), "IsNaN": np.isnan, "IsInf": np.isinf,
}  # fmt: skip
# Max and Min of two zeros are the second one. NumPy takes it only on x86-64.
BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power,
    "Max": lambda a, b: np.where(a == b, b, np.maximum(a, b)),
    "Min": lambda a, b: np.where(a == b, b, np.minimum(a, b)),
    "Equal": np.equal, "Greater": np.greater, "Less": np.less, "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
}  # fmt: skip


@pytest.mark.parametrize("element", [FLOAT, TensorProto.FLOAT16], ids=["float", "half"])
@pytest.mark.parametrize("device", DEVICES)
def test_special_values(device, element):
    dtype = TYPES[element]
    with np.errstate(all="ignore"):
        special = np.array(SPECIAL, np.float32).astype(dtype)
    a, b = (np.ascontiguousarray(x) for x in np.meshgrid(special, special, indexing="ij"))
    nodes, want = [], {}
    with np.errstate(all="ignore"):
        for kind, function in UNARY.items():
            nodes.append(node(kind, "a", kind))
            want[kind] = function(a.astype(np.float64))
        for kind, function in BINARY.items():
            nodes.append(node(kind, "a b", kind))
            want[kind] = function(a.astype(np.float64), b.astype(np.float64))
        want["Pow"] = np.vectorize(c_power)(a.astype(np.float64), b.astype(np.float64))
        exponents = {"e0": 0.5, "e1": -0.5, "e2": 2.0, "e3": 3.0, "e4": -1.0, "e5": 0.0, "e6": 1.5}
        for name, exponent in exponents.items():
            nodes.append(node("Pow", f"a {name}", "Pow" + name))
            want["Pow" + name] = np.vectorize(c_power)(a.astype(np.float64), exponent)
    constants = {name: np.asarray(value, dtype) for name, value in exponents.items()}
    got = run(nodes, {"a": a, "b": b}, list(want), device, constants)
    with np.errstate(all="ignore"):
        for name, expected in want.items():
            result, expected = (
                got[name].astype(np.float64),
                expected.astype(np.float32).astype(dtype),
            )
            # Numbers are compared elsewhere; sine and its like of 1e30 need the argument's all digits.
            is_number = (
                np.isfinite(result) & np.isfinite(expected.astype(np.float64)) & (expected != 0)
            )
            close = np.abs(result - expected.astype(np.float64)) <= 2e-3 * np.abs(
                expected.astype(np.float64)
            )
            assert (close | ~is_number).all(), name
            assert_same(
                np.where(is_number, 1, result),
                np.where(is_number, 1, expected),
                name,
                name != "Sign",
            )
