"""ONNX's LSTM, GRU and RNN, against ONNX Runtime, PyTorch and steps written out in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import opwright

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
NAMES = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
# With a parameter of each kind: the names, their alphas and betas.
ACTIVATIONS = {
    "Relu": (0, 0),
    "Tanh": (0, 0),
    "Sigmoid": (0, 0),
    "Affine": (0.8, 0.1),
    "LeakyRelu": (0.3, 0),
    "ThresholdedRelu": (0.2, 0),
    "ScaledTanh": (1.1, 0.7),
    "HardSigmoid": (0.3, 0.4),
    "Elu": (0.9, 0),
    "Softsign": (0, 0),
    "Softplus": (0, 0),
}
FUNCTIONS = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.log1p(np.exp(x)),
}
TAKES = {
    "Affine": 2,
    "LeakyRelu": 1,
    "ThresholdedRelu": 1,
    "ScaledTanh": 2,
    "HardSigmoid": 2,
    "Elu": 1,
}


def numbers(rng, *shape, scale=0.5):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def make_arrays(kind, steps, batch, size, hidden, directions, optional, seed=0):
    rng = np.random.default_rng(seed)
    gates = GATES[kind]
    arrays = {
        "X": numbers(rng, steps, batch, size, scale=1),
        "W": numbers(rng, directions, gates * hidden, size),
        "R": numbers(rng, directions, gates * hidden, hidden),
        "B": numbers(rng, directions, 2 * gates * hidden),
        "sequence_lens": rng.integers(1, max(steps, 1) + 1, batch).astype(np.int32),
        "initial_h": numbers(rng, directions, batch, hidden),
        "initial_c": numbers(rng, directions, batch, hidden),
        "P": numbers(rng, directions, 3 * hidden),
    }
    return {n: a for n, a in arrays.items() if n in "XWR" or n in optional}


def make_model(
    kind, arrays, constants=("W", "R", "B", "P"), open_axes=False, layout=0, **attributes
):
    """Only the node. The names in `constants` are initializers."""
    hidden = arrays["R"].shape[2]
    count = 8 if kind == "LSTM" else 6
    given = [name if name in arrays else "" for name in NAMES[:count]]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, given, outputs, hidden_size=hidden, layout=layout, **attributes)
    element = helper.np_dtype_to_tensor_dtype(arrays["X"].dtype)
    inputs = []
    for name, array in arrays.items():
        if name in constants:
            continue
        shape = list(array.shape)
        if open_axes:
            batch = 0 if name == "sequence_lens" or layout == 1 else 1
            shape[batch] = "batch"
            if name == "X":
                shape[1 - batch] = "steps"
        inputs.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        )
    graph = helper.make_graph(
        [node],
        "recurrence",
        inputs,
        [helper.make_tensor_value_info(name, element, None) for name in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items() if n in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def feeds(arrays, constants=("W", "R", "B", "P")):
    return {name: array for name, array in arrays.items() if name not in constants}


def run(model, inputs, **options):
    return list(
        opwright.build(model.SerializeToString(), timing=False, **options)(**inputs).values()
    )


def runtime(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)


def written_out(kind, arrays, direction="forward", activations=None, clip=None, **options):
    """The equations of the ONNX specification, step by step, in double precision."""
    names = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[kind]
    x = arrays["X"].astype(np.float64)
    steps, batch, _ = x.shape
    directions, rows, _ = arrays["W"].shape
    hidden = arrays["R"].shape[2]
    names = activations or names * directions
    y = np.zeros((steps, directions, batch, hidden))
    states, cells = np.zeros((2, directions, batch, hidden))
    for d in range(directions):
        per = len(names) // directions

        def f(i, v, d=d, per=per, clip=clip):
            name = names[d * per + i]
            v = v if clip is None else np.clip(v, -clip, clip)
            return FUNCTIONS[name](v, *ACTIVATIONS[name])

        w, r = (arrays[n][d].astype(np.float64) for n in "WR")
        wb, rb = np.split(
            arrays["B"][d].astype(np.float64) if "B" in arrays else np.zeros(2 * rows), 2
        )
        p = np.split(arrays["P"][d] if "P" in arrays else np.zeros(3 * hidden), 3)
        for n in range(batch):
            h = arrays["initial_h"][d, n] if "initial_h" in arrays else np.zeros(hidden)
            c = arrays["initial_c"][d, n] if "initial_c" in arrays else np.zeros(hidden)
            length = arrays["sequence_lens"][n] if "sequence_lens" in arrays else steps
            order = range(length)
            if direction == "reverse" or d == 1:
                order = reversed(order)
            for t in order:
                a = np.split(w @ x[t, n] + wb, GATES[kind])
                s = np.split(r @ h + rb, GATES[kind])
                if kind == "RNN":
                    h = f(0, a[0] + s[0])
                elif kind == "GRU":
                    z, reset = f(0, a[0] + s[0]), f(0, a[1] + s[1])
                    if options.get("linear_before_reset"):
                        candidate = f(1, a[2] + reset * s[2])
                    else:
                        rh, rbh = r[2 * hidden :], rb[2 * hidden :]
                        candidate = f(1, a[2] + rh @ (reset * h) + rbh)
                    h = (1 - z) * candidate + z * h
                else:
                    i = f(0, a[0] + s[0] + p[0] * c)
                    forget = 1 - i if options.get("input_forget") else f(0, a[2] + s[2] + p[2] * c)
                    c = forget * c + i * f(1, a[3] + s[3])
                    h = f(0, a[1] + s[1] + p[1] * c) * f(2, c, clip=None)
                y[t, d, n] = h
            states[d, n], cells[d, n] = h, c
    return [y, states, cells][: 3 if kind == "LSTM" else 2]


def check(results, expected, tolerance=2e-5):
    assert len(results) == len(expected)
    for result, want in zip(results, expected):
        assert result.shape == want.shape
        np.testing.assert_allclose(
            result.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("optional", [(), ("B",), tuple(NAMES[3:6]), tuple(NAMES[3:])])
@pytest.mark.parametrize("kind", GATES)
def test_against_onnx_runtime(kind, optional, direction):
    optional = [n for n in optional if kind == "LSTM" or n not in ("initial_c", "P")]
    directions = 2 if direction == "bidirectional" else 1
    for steps, batch, size, hidden in (
        (1, 1, 128, 128),
        (7, 3, 5, 33),
        (4, 9, 16, 64),
        (3, 2, 1, 1),
    ):
        arrays = make_arrays(kind, steps, batch, size, hidden, directions, optional)
        model = make_model(kind, arrays, direction=direction)
        results = run(model, feeds(arrays))
        check(results, written_out(kind, arrays, direction))
        check(results, runtime(model, feeds(arrays)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_options(data):
    kind = data.draw(st.sampled_from(list(GATES)))
    direction = data.draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    optional = data.draw(st.sets(st.sampled_from(NAMES[3:])))
    if kind != "LSTM":
        optional -= {"initial_c", "P"}
    extents = [data.draw(st.integers(1, most)) for most in (6, 11, 20, 70)]
    arrays = make_arrays(kind, *extents, directions, optional)
    per = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]
    options = {}
    if data.draw(st.booleans()):
        options["activations"] = [
            data.draw(st.sampled_from(list(ACTIVATIONS))) for _ in range(directions * per)
        ]
    if data.draw(st.booleans()):
        options["clip"] = data.draw(st.sampled_from([0.25, 1.0]))
    if kind == "LSTM":
        options["input_forget"] = data.draw(st.integers(0, 1))
    if kind == "GRU":
        options["linear_before_reset"] = data.draw(st.integers(0, 1))
    attributes = dict(options)
    names = options.get("activations", [])
    attributes["activation_alpha"] = [ACTIVATIONS[n][0] for n in names if TAKES.get(n, 0) > 0]
    attributes["activation_beta"] = [ACTIVATIONS[n][1] for n in names if TAKES.get(n, 0) > 1]
    attributes = {n: a for n, a in attributes.items() if a != []}
    constants = data.draw(st.sampled_from([(), ("W", "R", "B", "P"), ("R",)]))
    model = make_model(kind, arrays, constants, direction=direction, **attributes)
    expected = written_out(kind, arrays, direction, **options)
    # Activations without bounds may make numbers beyond FP32 (NaN, too), or multiply a rounding
    # error by so much that FP32 cannot be near.
    factor = np.float32(1 + 1e-6)
    moved = {n: a * factor if a.dtype == np.float32 else a for n, a in arrays.items()}
    for want, other in zip(expected, written_out(kind, moved, direction, **options)):
        largest = np.abs(want).max()
        if not (largest <= 1e4 and np.abs(want - other).max() <= 5e-5 * max(1.0, largest)):
            return
    for result, want in zip(run(model, feeds(arrays, constants)), expected):
        scale = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(result, want, rtol=1e-3, atol=2e-4 * scale)


@pytest.mark.parametrize("kind", GATES)
def test_clip_against_onnx_runtime(kind):
    arrays = make_arrays(kind, 5, 3, 4, 6, 1, set())
    model = make_model(kind, arrays, ("W", "R"), clip=0.3)
    inputs = feeds(arrays, ("W", "R"))
    for result, want in zip(run(model, inputs), runtime(model, inputs)):
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", GATES)
def test_against_pytorch(kind, bidirectional):
    steps, batch, size, hidden = 9, 4, 24, 40
    module = getattr(torch.nn, kind)(size, hidden, bidirectional=bidirectional)
    x = torch.randn(steps, batch, size)
    # PyTorch's order of gates: ifgo and rzn.
    order = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}[kind]

    def weights(name):
        parts = []
        for suffix in ["", "_reverse"][: 1 + bidirectional]:
            array = getattr(module, f"{name}_l0{suffix}").detach().numpy()
            gates = np.split(array, GATES[kind])
            parts.append(np.concatenate([gates[i] for i in order]))
        return np.stack(parts)

    arrays = {
        "X": x.numpy(),
        "W": weights("weight_ih"),
        "R": weights("weight_hh"),
        "B": np.concatenate([weights("bias_ih"), weights("bias_hh")], 1),
    }
    attributes = {"direction": "bidirectional" if bidirectional else "forward"}
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    results = run(make_model(kind, arrays, **attributes), {"X": arrays["X"]})
    with torch.no_grad():
        y, states = module(x)
    states = states if kind == "LSTM" else (states,)
    y = y.numpy().reshape(steps, batch, 1 + bidirectional, hidden).transpose(0, 2, 1, 3)
    check(results, [y, *(s.numpy() for s in states)])


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("layout", [0, 1])
def test_open_extents(kind, layout):
    optional = ["B", "sequence_lens", "initial_h"] + ["initial_c"] * (kind == "LSTM")
    arrays = make_arrays(kind, 5, 4, 6, 10, 2, optional)
    engine = None
    for steps, batch in ((5, 4), (1, 1), (8, 9), (0, 3), (3, 0), (2, 2)):
        fresh = make_arrays(kind, steps, batch, 6, 10, 2, optional, seed=steps)
        if steps == 0:
            fresh["sequence_lens"][:] = 0
        arrays = {n: arrays[n] if n in "WRB" else fresh[n] for n in arrays}
        expected = written_out(kind, arrays, "bidirectional")
        inputs = feeds(arrays)
        if layout == 1:
            inputs = {n: a if a.ndim == 1 else a.swapaxes(0, 1) for n, a in inputs.items()}
            axes = [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)]
            expected = [want.transpose(a) for want, a in zip(expected, axes)]
        if engine is None:
            like = {**arrays, **inputs}
            model = make_model(kind, like, open_axes=True, layout=layout, direction="bidirectional")
            ends = ((0, 0), (5, 4), (9, 9))
            shapes = {}
            for name in inputs:
                for s, b in ends:
                    extents = list(inputs[name].shape)
                    where = 0 if name == "sequence_lens" or layout == 1 else 1
                    extents[where] = b
                    if name == "X":
                        extents[1 - where] = s
                    shapes.setdefault(name, []).append(tuple(extents))
            engine = opwright.build(model.SerializeToString(), timing=False, shapes=shapes)
        check(
            list(engine(**{n: np.ascontiguousarray(a) for n, a in inputs.items()}).values()),
            expected,
        )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", GATES)
def test_half_precisions(kind, dtype):
    optional = [n for n in NAMES[3:] if kind == "LSTM" or n not in ("initial_c", "P")]
    arrays = make_arrays(kind, 5, 3, 20, 37, 2, optional)
    arrays = {n: a if n == "sequence_lens" else a.astype(dtype) for n, a in arrays.items()}
    model = make_model(kind, arrays, direction="bidirectional")
    wide = {n: a if n == "sequence_lens" else a.astype(np.float32) for n, a in arrays.items()}
    results = run(model, feeds(arrays))
    assert all(result.dtype == dtype for result in results)
    check(results, written_out(kind, wide, "bidirectional"), 2e-3 if dtype == np.float16 else 2e-2)


def test_lengths_are_clamped_and_states_of_empty_sequences_stay():
    arrays = make_arrays("LSTM", 4, 3, 5, 6, 1, ["sequence_lens", "initial_h", "initial_c"])
    inputs = feeds(arrays)
    engine = opwright.build(make_model("LSTM", arrays).SerializeToString(), timing=False)
    got = list(engine(**{**inputs, "sequence_lens": np.int32([-5, 2**31 - 1, 0])}).values())
    arrays["sequence_lens"] = np.int32([0, 4, 0])
    check(got, written_out("LSTM", arrays))
    np.testing.assert_array_equal(got[1][0, 0], inputs["initial_h"][0, 0])


def test_a_saved_engine_has_packed_weights(tmp_path):
    arrays = make_arrays("GRU", 3, 2, 40, 50, 1, ["B"])
    engine = opwright.build(make_model("GRU", arrays).SerializeToString(), timing=False)
    expected = list(engine(X=arrays["X"]).values())
    engine.save(tmp_path / "gru.engine")
    again = opwright.load(tmp_path / "gru.engine")
    for got, want in zip(again(X=arrays["X"]).values(), expected):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"activations": ["Tanh", "Swish", "Tanh"]}, "'Swish' is not one of ONNX's"),
        ({"activations": ["Tanh"]}, "there are 1 activations; expected 3"),
        ({"direction": "backward"}, "expected forward, reverse or bidirectional"),
        ({"direction": "bidirectional"}, "is 1, but expected 2|directions"),
        ({"clip": -1.0}, "expected more than 0"),
        ({"layout": 2}, "expected 0 or 1"),
    ],
)
def test_errors(change, message):
    arrays = make_arrays("LSTM", 4, 3, 5, 6, 1, [])
    with pytest.raises(opwright.Error, match=message):
        opwright.build(make_model("LSTM", arrays, **change).SerializeToString(), timing=False)


def test_hidden_size_must_be_that_of_the_weights():
    model = make_model("RNN", make_arrays("RNN", 4, 3, 5, 6, 1, []))
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "hidden_size":
            attribute.i = 7
    with pytest.raises(opwright.Error, match="hidden_size is 7, but R has the shape"):
        opwright.build(model.SerializeToString(), timing=False)


def test_only_outputs_that_somebody_asks_for():
    arrays = make_arrays("LSTM", 4, 3, 5, 6, 1, ["B"])
    model = make_model("LSTM", arrays)
    expected = runtime(model, feeds(arrays))
    model.graph.node[0].output[0] = model.graph.node[0].output[2] = ""
    del model.graph.output[0], model.graph.output[1]
    got = opwright.build(model.SerializeToString(), timing=False)(X=arrays["X"])
    np.testing.assert_allclose(got, expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_long_sequences(kind, direction):
    """Inputs that are multiplied in parts, the last one smaller; and one of each size
    that an engine may have."""
    directions = 2 if direction == "bidirectional" else 1
    optional = ["B", "initial_h"] + ["initial_c"] * (kind == "LSTM")
    arrays = make_arrays(kind, 301, 3, 5, 7, directions, optional)
    model = make_model(kind, arrays, open_axes=True, direction=direction)
    engine = opwright.build(
        model.SerializeToString(),
        timing=False,
        shapes={
            name: tuple(
                tuple(
                    {"steps": s, "batch": b}.get(axis, axis)
                    for axis in (
                        [("steps"), "batch", 5] if name == "X" else [directions, "batch", 7]
                    )
                )
                for s, b in ((1, 1), (301, 3), (301, 300))
            )
            for name in feeds(arrays)
        },
    )
    for steps, batch in [(301, 3), (85, 3), (86, 3), (2, 300), (257, 1), (1, 1)]:
        arrays = make_arrays(kind, steps, batch, 5, 7, directions, optional)
        got = list(engine(**feeds(arrays)).values())
        for a, b in zip(got, runtime(model, feeds(arrays)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_long_sequences_of_halves(direction):
    arrays = make_arrays("LSTM", 301, 3, 5, 7, 1, ["B"])
    halves = {n: a.astype(np.float16) for n, a in arrays.items()}
    got = run(make_model("LSTM", halves, direction=direction), feeds(halves))
    arrays = {n: a.astype(np.float32) for n, a in halves.items()}
    for a, b in zip(got, runtime(make_model("LSTM", arrays, direction=direction), feeds(arrays))):
        np.testing.assert_allclose(a, b, atol=5e-3)
