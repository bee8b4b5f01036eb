"""Loops, conditions and recurrent layers on a GPU, against ONNX Runtime."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from onnx.parser import parse_model

import opwright
from cuda_driver import DeviceArray, Stream, driver
from emulated_gpu import run_program
from onnx_graphs import HEAD, as_list, assert_close, reference_session

ADDING = f"""{HEAD}
    net (int64 m, float[3, 4] x) => (float[3, 4] y) {{
        y = Loop (m, , x) <
            body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t) {{
                on = Identity (go)
                t = Add (s, x)
            }}
        >
    }}"""
X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def check(text: str, *runs: dict[str, np.ndarray], **options) -> None:
    model = parse_model(text)
    engine = opwright.build(model.SerializeToString(), timing=False, device="cuda", **options)
    for inputs in runs:
        wanted = reference_session(model).run(None, inputs)
        got = as_list(engine(**inputs))
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted):
            if np.asarray(b).size == 0:  # of which ONNX Runtime does not know the other extents
                assert np.asarray(a).size == 0
            else:
                assert_close(a, np.asarray(b))


def test_trips_that_are_data():
    """States change places and lie where an input does, so graphs of the body must follow."""
    check(
        f"""{HEAD}
        net (int64 m, float[3, 4] x, float[3, 4] z) => (float[3, 4] y, float[3, 4] w) {{
            y, w = Loop (m, , x, z) <
                body = b (int64 i, bool go, float[3, 4] s, float[3, 4] t)
                    => (bool on, float[3, 4] u, float[3, 4] v) {{
                    on = Identity (go)
                    u = Identity (t)
                    v = Sub (s, x)
                }}
            >
        }}""",
        *({"m": number(m), "x": X, "z": X[::-1].copy()} for m in (0, 1, 2, 7, -1, 12)),
    )


def test_a_condition_that_is_computed_and_what_is_stacked():
    check(
        f"""{HEAD}
        net (bool c, float[n, 4] x) => (float[n, 4] y, int64 k, float[l, n, 4] z) {{
            zero = Constant <value_int = 0> ()
            most = Constant <value_float = 100.0> ()
            trips = Constant <value_int = 20> ()
            y, k, z = Loop (trips, c, x, zero) <
                body = b (int64 i, bool go, float[n, 4] s, int64 j)
                    => (bool on, float[n, 4] t, int64 l, float[n, 4] part) {{
                    t = Add (s, s)
                    l = Add (j, i)
                    part = Sub (t, x)
                    sum = ReduceSum <keepdims = 0> (t)
                    on = Less (sum, most)
                }}
            >
        }}""",
        *(
            {"c": np.array(flag), "x": np.full((rows, 4), 1.5, np.float32)}
            for flag in (True, False)
            for rows in (1, 3, 9)
        ),
        shapes={"x": ((1, 4), (3, 4), (9, 4))},
    )


def test_branches_of_different_shapes_in_a_loop():
    check(
        f"""{HEAD}
        net (float[3, 4] x) => (float[k, 4] y) {{
            sum = ReduceSum <keepdims = 0> (x)
            zero = Constant <value_float = 0.0> ()
            c = Greater (sum, zero)
            y = If (c) <
                then_branch = a () => (float[6, 4] t) {{ t = Concat <axis = 0> (x, x) }},
                else_branch = b () => (float[3, 4] e) {{ e = Neg (x) }}
            >
        }}""",
        {"x": X},
        {"x": -X},
        {"x": X},
    )


def test_a_long_lstm():
    rng = np.random.default_rng(0)
    hidden, size = 40, 24
    weights = [
        rng.uniform(-0.3, 0.3, shape).astype(np.float32)
        for shape in ((2, 4 * hidden, size), (2, 4 * hidden, hidden), (2, 8 * hidden))
    ]
    names = {"w": weights[0], "r": weights[1], "b": weights[2]}
    model = parse_model(
        f"""{HEAD}
        net (float[t, n, {size}] x, float[2, {4 * hidden}, {size}] w,
             float[2, {4 * hidden}, {hidden}] r, float[2, {8 * hidden}] b, int32[n] lengths)
            => (float[t, 2, n, {hidden}] y, float[2, n, {hidden}] h, float[2, n, {hidden}] c) {{
            y, h, c = LSTM <hidden_size = {hidden}, direction = "bidirectional"> (x, w, r, b, lengths)
        }}"""
    )
    engine = opwright.build(
        model.SerializeToString(),
        timing=False,
        device="cuda",
        shapes={"x": ((1, 1, size), (30, 3, size), (60, 5, size)), "lengths": ((1,), (3,), (5,))},
    )
    session = reference_session(model)
    for steps, batch in ((30, 3), (1, 1), (60, 5)):
        x = rng.standard_normal((steps, batch, size)).astype(np.float32)
        lengths = (np.arange(batch) * 7 % steps + 1).astype(np.int32)
        inputs = {"x": x, **names, "lengths": lengths}
        for got, want in zip(as_list(engine(**inputs)), session.run(None, inputs)):
            assert_close(got, want)


def test_an_lstm_on_tensor_cores_is_the_same_in_each_run_and_when_loaded(tmp_path):
    rng = np.random.default_rng(1)
    hidden, size = 100, 40
    shapes = {
        "w": (2, 4 * hidden, size),
        "r": (2, 4 * hidden, hidden),
        "b": (2, 8 * hidden),
    }
    weights = {n: rng.uniform(-0.2, 0.2, s).astype(np.float16) for n, s in shapes.items()}

    def model_of(kind):
        weight = ", ".join(f"{kind}{list(s)} {n}" for n, s in shapes.items())
        return parse_model(
            f"""{HEAD}
            net ({kind}[t, n, {size}] x, {weight}, int32[n] lengths)
                => ({kind}[t, 2, n, {hidden}] y, {kind}[2, n, {hidden}] h, {kind}[2, n, {hidden}] c) {{
                y, h, c = LSTM <hidden_size = {hidden}, direction = "bidirectional"> (x, w, r, b, lengths)
            }}"""
        )

    engine = opwright.build(
        model_of("float16").SerializeToString(),
        timing=False,
        device="cuda",
        shapes={
            "x": ((1, 1, size), (20, 12, size), (20, 12, size)),
            "lengths": ((1,), (12,), (12,)),
        },
    )
    assert any("tensor cores" in layer.get("TacticName", "") for layer in engine.layers)
    path = str(tmp_path / "lstm.engine")
    engine.save(path)
    loaded = opwright.load(path, allow_device_code=True)
    session = reference_session(model_of("float"))
    for steps, batch in ((20, 12), (1, 1), (9, 10)):
        x = rng.standard_normal((steps, batch, size)).astype(np.float16)
        inputs = {"x": x, **weights, "lengths": (np.arange(batch) * 7 % steps + 1).astype(np.int32)}
        wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in inputs.items()}
        results = as_list(engine(**inputs))
        for got, want in zip(results, session.run(None, wide)):
            np.testing.assert_allclose(got.astype(np.float32), want, atol=3e-3)
        for again in (as_list(engine(**inputs)), as_list(loaded(**inputs))):
            for got, first in zip(again, results):
                np.testing.assert_array_equal(got, first)


def test_stored_loops_need_permission_for_their_code(tmp_path):
    engine = opwright.build(parse_model(ADDING).SerializeToString(), timing=False, device="cuda")
    path = str(tmp_path / "loop.engine")
    engine.save(path)
    assert_close(np.asarray(opwright.load(path)(m=number(3), x=X)), X * 4)
    program = f"""
import numpy as np, opwright
try:
    opwright.load({path!r})
except opwright.Error as error:
    print("contains code for a GPU" in str(error))
x = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
y = opwright.load({path!r}, allow_device_code=True)(m=np.array(3, np.int64), x=x)
print(np.abs(np.asarray(y) - 4 * x).max() < 1e-5)
"""
    done = run_program(program)
    assert done.stdout.split() == ["True", "True"], done.stdout + done.stderr


def test_a_captured_stream_cannot_be_waited_for():
    engine = opwright.build(parse_model(ADDING).SerializeToString(), timing=False, device="cuda")
    m, x, y = DeviceArray(number(2)), DeviceArray(X), DeviceArray(X * 0)
    context = engine.engine.create_execution_context()
    for name, array in (("m", m), ("x", x), ("y", y)):
        context.set_tensor_address(name, array.ptr)
    stream = Stream().handle
    handle = ctypes.c_void_p(stream)
    driver().call("cuStreamBeginCapture_v2", handle, 1)
    with pytest.raises(opwright.Error, match="run the engine without capturing it"):
        context.execute_async_v3(stream)
    graph = ctypes.c_void_p()
    driver().call("cuStreamEndCapture", handle, ctypes.byref(graph))
    assert context.execute_async_v3(stream)
    assert_close(y.numpy(), X * 3)


def test_a_branch_that_fits_no_shape_fails_when_it_is_taken():
    model = parse_model(f"""{HEAD}
        net (float[n, 4] x) => (float[n, 4] y)
        <float[5, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}}> {{
            sum = ReduceSum <keepdims = 0> (x)
            zero = Constant <value_float = 0.0> ()
            c = Greater (sum, zero)
            r = If (c) <
                then_branch = t () => (float[n, 4] a) {{ a = Neg (x) }},
                else_branch = e () => (float[n, 4] d) {{ d = MatMul (x, w) }}
            >
            y = Exp (r)
        }}""")
    shapes = {"x": ((1, 4), (2, 4), (3, 4))}
    engine = opwright.build(model.SerializeToString(), shapes=shapes, timing=False, device="cuda")
    for rows in (3, 1):
        x = X[:rows] + 1
        assert_close(engine(x=x), np.exp(-x))
        with pytest.raises(
            opwright.Error, match=r"condition is false.*could not be built: .*MatMul"
        ):
            engine(x=-x)
