"""Loops whose iterations are counted when the engine runs: one layer with a body of its own."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from onnx.parser import parse_model

import opwright
from onnx_graphs import as_list, assert_close, reference_session
from test_onnx_control_flow import HEAD, RUNNING, X, errors_of, scan_model

FEW, SOME, MANY = (1, 4), (3, 4), (9, 4)


def check(model, inputs: dict[str, np.ndarray], engine=None, **options):
    """Compares an engine with ONNX Runtime; returns the engine."""
    if engine is None:
        engine = opwright.build(model.SerializeToString(), timing=False, **options)
    got = as_list(engine(**inputs))
    wanted = reference_session(model).run(None, inputs)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert_close(a, np.asarray(b))
    return engine


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


@pytest.mark.parametrize("kind", ["float", "float16", "int32", "int64", "uint8", "int8"])
def test_trips_that_are_data(kind):
    """No iterations, one, many; odd and even numbers of them."""
    dtype = np.dtype({"float": "float32"}.get(kind, kind))
    model = parse_model(f"""{HEAD}
        net (int64 m, {kind}[3, 4] x, {kind}[3, 4] z) => ({kind}[3, 4] y, {kind}[3, 4] w) {{
            y, w = Loop (m, , x, z) <
                body = b (int64 i, bool go, {kind}[3, 4] s, {kind}[3, 4] t)
                    => (bool on, {kind}[3, 4] u, {kind}[3, 4] v) {{
                    on = Identity (go)
                    u = Identity (t)
                    v = Sub (s, x)
                }}
            >
        }}""")
    x = np.arange(12).reshape(3, 4).astype(dtype)
    engine = None
    for m in (0, 1, 2, 7, -1):
        if kind in ("uint8", "int8") and m > 2:
            continue
        engine = check(model, {"m": number(m), "x": x, "z": x[::-1].copy()}, engine)


def test_a_condition_that_is_data():
    model = parse_model(f"""{HEAD}
        net (bool c, float[n, 4] x) => (float[n, 4] y, int64 k) {{
            zero = Constant <value_int = 0> ()
            one = Constant <value_int = 1> ()
            most = Constant <value_float = 100.0> ()
            y, k = Loop (, c, x, zero) <
                body = b (int64 i, bool go, float[n, 4] s, int64 j) => (bool on, float[n, 4] t, int64 l) {{
                    t = Add (s, s)
                    l = Add (j, one)
                    sum = ReduceSum <keepdims = 0> (t)
                    on = Less (sum, most)
                }}
            >
        }}""")
    engine = None
    for flag in (True, False):
        for rows in (1, 3, 9):
            x = np.full((rows, 4), 0.75, np.float32)
            engine = check(
                model, {"c": np.array(flag), "x": x}, engine, shapes={"x": (FEW, SOME, MANY)}
            )


def test_trips_that_a_shape_gives():
    """What is stacked has an extent of the shape."""
    model = parse_model(f"""{HEAD}
        net (float[n, 4] x) => (float[4] y, float[n, 4] all, float[n, n, 4] more) {{
            s = Shape <start = 0, end = 1> (x)
            m = Squeeze (s)
            zeros = Constant <value_floats = [0.0, 0.0, 0.0, 0.0]> ()
            c = Constant <value = bool {{1}}> ()
            y, all, more = Loop (m, c, zeros) <
                body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t, float[4] e, float[n, 4] f) {{
                    on = Identity (go)
                    row = Gather (x, i)
                    t = Add (s, row)
                    e = Mul (t, row)
                    f = Add (x, row)
                }}
            >
        }}""")
    engine = None
    for rows in (3, 1, 9, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        engine = check(model, {"x": x}, engine, shapes={"x": (FEW, SOME, MANY)})


def test_stacked_until_a_condition():
    """The extent of what is stacked is known when the loop has run."""
    model = parse_model(f"""{HEAD}
        net (bool c, float[n, 4] x, float stop) => (float[4] y, float[k, 4] all, float[k, 4] doubled) {{
            m = Constant <value_int = 20> ()
            zeros = Constant <value_floats = [0.0, 0.0, 0.0, 0.0]> ()
            one = Constant <value_float = 1.0> ()
            y, all = Loop (m, c, zeros) <
                body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t, float[4] e) {{
                    t = Add (s, one)
                    e = Add (t, t)
                    sum = ReduceSum <keepdims = 0> (t)
                    on = Less (sum, stop)
                }}
            >
            doubled = Add (all, all)
        }}""")
    engine = None
    for stop in (0.0, 9.0, 1000.0):
        for flag in (True, False):
            inputs = {"c": np.array(flag), "x": X, "stop": np.array(stop, np.float32)}
            engine = check(model, inputs, engine, shapes={"x": (FEW, SOME, MANY)})


def test_long_loops_are_one_layer(tmp_path):
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y, int64[k] all) {{
            m = Constant <value_int = 5000> ()
            half = Constant <value_float = 0.5> ()
            y, all = Loop (m, , x) <
                body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t, int64 j) {{
                    on = Identity (go)
                    u = Mul (s, half)
                    t = Add (u, x)
                    j = Mul (i, i)
                }}
            >
        }}""")
    engine = check(model, {"x": X})
    engine.save(str(tmp_path / "loop.engine"))
    assert (tmp_path / "loop.engine").stat().st_size < 200_000


def test_nested_loops():
    """The inner loop's trips are the outer one's iteration, and it reads what is around both."""
    model = parse_model(f"""{HEAD}
        net (int64 m, float[n, 4] x, float[4] z) => (float[n, 4] y) {{
            y = Loop (m, , x) <
                body = outer (int64 i, bool go, float[n, 4] s) => (bool on, float[n, 4] t) {{
                    on = Identity (go)
                    t = Loop (i, , s) <
                        body = inner (int64 j, bool more, float[n, 4] p) => (bool ok, float[n, 4] q) {{
                            ok = Identity (more)
                            k = Add (i, j)
                            f = Cast <to = 1> (k)
                            g = Add (p, z)
                            q = Sub (g, f)
                        }}
                    >
                }}
            >
        }}""")
    engine = None
    for m in (0, 1, 4):
        z = np.arange(4, dtype=np.float32)
        engine = check(
            model, {"m": number(m), "x": X, "z": z}, engine, shapes={"x": (FEW, SOME, MANY)}
        )


def test_shapes_from_outside_a_body():
    """A shape that is computed before the loop is read in it; so is the number of an inner loop's trips."""
    model = parse_model(f"""{HEAD}
        net (int64 m, float[n, 4] x, float[n, k] z) => (float[n, 4] y) {{
            s = Shape (x)
            t = Shape (z)
            last = Constant <value_ints = [-1]> ()
            n0 = Shape <start = 0, end = 1> (x)
            k0 = Shape <start = 1> (z)
            trips = Squeeze (k0)
            flat = Mul (n0, k0)
            y = Loop (m, , x) <
                body = b (int64 i, bool go, float[n, 4] v) => (bool on, float[n, 4] w) {{
                    on = Identity (go)
                    line = Reshape (z, flat)
                    back = Reshape (line, t)
                    zero = Constant <value_floats = [0.0]> ()
                    start = Expand (zero, s)
                    one = Constant <value_int = 1> ()
                    total, columns = Loop (trips, , start) <
                        body = c (int64 j, bool more, float[n, 4] p) => (bool ok, float[n, 4] q, float[n] col) {{
                            ok = Identity (more)
                            col = Gather <axis = 1> (back, j)
                            column = Gather <axis = 1> (back, j)
                            axis = Constant <value_ints = [1]> ()
                            wide = Unsqueeze (column, axis)
                            q = Add (p, wide)
                        }}
                    >
                    only = Constant <value_ints = [0]> ()
                    sum = ReduceSum <keepdims = 0> (columns, only)
                    down = Constant <value_ints = [1]> ()
                    high = Unsqueeze (sum, down)
                    u = Add (v, total)
                    w = Sub (u, high)
                }}
            >
        }}""")
    engine = None
    for rows, columns in ((3, 2), (1, 1), (9, 5)):
        rng = np.random.default_rng(rows)
        inputs = {
            "m": number(3),
            "x": rng.standard_normal((rows, 4)).astype(np.float32),
            "z": rng.standard_normal((rows, columns)).astype(np.float32),
        }
        shapes = {"x": (FEW, SOME, MANY), "z": ((1, 1), (3, 2), (9, 5))}
        engine = check(model, inputs, engine, shapes=shapes)


def test_branches_in_loops():
    model = parse_model(f"""{HEAD}
        net (int64 m, float[3, 4] x) => (float[3, 4] y) {{
            two = Constant <value_int = 2> ()
            y = Loop (m, , x) <
                body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t) {{
                    on = Identity (go)
                    c = Less (i, two)
                    t = If (c) <
                        then_branch = a () => (float[3, 4] r) {{ r = Add (s, x) }},
                        else_branch = e () => (float[3, 4] q) {{ q = Mul (s, x) }}
                    >
                }}
            >
        }}""")
    engine = None
    for m in (0, 2, 5):
        engine = check(model, {"m": number(m), "x": X}, engine)


def test_bodies_that_pass_inputs_and_constants():
    model = parse_model(f"""{HEAD}
        net (float[n, 4] x, float[n, 4] z) => (float[n, 4] y, float[n, 4] w, float[n, 2] a, int64[n] b) {{
            s = Shape <start = 0, end = 1> (x)
            m = Squeeze (s)
            c = Constant <value = bool {{1}}> ()
            k = Constant <value_floats = [1.5, 2.5]> ()
            y, w, a, b = Loop (m, c, x, z) <
                body = body (int64 i, bool go, float[n, 4] s, float[n, 4] t)
                    => (bool on, float[n, 4] t, float[n, 4] s, float[2] kk, int64 ii) {{
                    on = Identity (go)
                    kk = Identity (k)
                    ii = Identity (i)
                }}
            >
        }}""")
    engine = None
    for rows in (3, 4, 0):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        engine = check(
            model,
            {"x": x, "z": x + 1},
            engine,
            shapes={"x": ((0, 4), SOME, MANY), "z": ((0, 4), SOME, MANY)},
        )


@pytest.mark.parametrize("directions", [(0, 0, 0), (1, 0, 1), (0, 1, 0)])
@pytest.mark.parametrize("axes", [(0, 0, 0), (1, 0, 1), (-1, 1, -1)])
def test_scans_of_any_length(directions, axes):
    rng = np.random.default_rng(3)
    state = rng.standard_normal(2).astype(np.float32)
    attributes = {
        "scan_input_axes": [axes[0]],
        "scan_input_directions": [directions[0]],
        "scan_output_axes": axes[1:],
        "scan_output_directions": directions[1:],
    }
    shape = (2, 5) if axes[0] else (5, 2)
    model = scan_model(18, attributes, [state], [np.zeros(shape, np.float32)], RUNNING, 3)
    axis = axes[0] % 2
    model.graph.input[1].type.tensor_type.shape.dim[axis].dim_param = "n"
    for output in model.graph.output:
        output.type.Clear()
    engine = None
    ranges = tuple(shape[:axis] + (n,) + shape[axis + 1 :] for n in (1, 5, 9))
    for length in (5, 1, 9):
        x = rng.standard_normal(shape[:axis] + (length,) + shape[axis + 1 :]).astype(np.float32)
        engine = check(model, {"s0": state, "x0": x}, engine, shapes={"x0": ranges})


@pytest.mark.parametrize("axis, new", [(0, 1), (1, 1), (-1, 1), (0, 0), (1, 0)])
def test_sequences_that_a_loop_fills(axis, new):
    """What lists of PyTorch become: the sequence is the tensor that the loop stacks."""
    model = parse_model(f"""{HEAD}
        net (float[n, 4] x) => (float[a, b, c] y, int64 count, float[2, 4] second) {{
            s = Shape <start = 0, end = 1> (x)
            m = Squeeze (s)
            none = SequenceEmpty ()
            q = Loop (m, , none) <
                body = b (int64 i, bool go, seq(float[2, 4]) l) => (bool on, seq(float[2, 4]) k) {{
                    on = Identity (go)
                    row = Gather (x, i)
                    two = Constant <value_ints = [2, 4]> ()
                    e = Expand (row, two)
                    k = SequenceInsert (l, e)
                }}
            >
            y = ConcatFromSequence <axis = {axis}, new_axis = {new}> (q)
            count = SequenceLength (q)
            last = Constant <value_int = -1> ()
            second = SequenceAt (q, last)
        }}""")
    for output in model.graph.output:
        output.type.Clear()
    engine = None
    for rows in (3, 1, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        engine = check(model, {"x": x}, engine, shapes={"x": (FEW, SOME, MANY)})


def test_loops_that_pytorch_exports():
    torch = pytest.importorskip("torch")

    @torch.jit.script
    def until(x):
        y = x
        while bool(y.sum() < 100.0):
            y = y * 2.0
        return y

    @torch.jit.script
    def alternate(x):
        out = torch.zeros(x.size(1))
        for i in range(x.size(0)):
            if i % 2 == 0:
                out = out + x[i]
            else:
                out = out - x[i]
        return out

    @torch.jit.script
    def listed(x):
        rows = []
        for i in range(x.size(0)):
            rows.append(x[i] * 2.0)
        return torch.stack(rows)

    x = torch.from_numpy(np.abs(X))
    for function in (until, alternate, listed):
        for dynamic in ({}, {"x": {0: "n"}}):
            file = io.BytesIO()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    function,
                    (x,),
                    file,
                    dynamo=False,
                    opset_version=17,
                    input_names=["x"],
                    dynamic_axes=dynamic,
                )
            shapes = {"x": (FEW, SOME, MANY)} if dynamic else None
            engine = opwright.build(file.getvalue(), timing=False, shapes=shapes)
            assert_close(np.asarray(engine(x.numpy())), function(x).numpy())


def test_branches_of_different_shapes():
    """The extents are known when the branch has run; what reads the result follows them."""
    model = parse_model(f"""{HEAD}
        net (bool c, float[n, 4] x, float[4] z) => (float[a, b] y, float[d, e] w, float[d, e] sum) {{
            y, w = If (c) <
                then_branch = t () => (float[p, q] r, float[p, q] u) {{
                    r = Concat <axis = 0> (x, x)
                    u = Add (x, z)
                }},
                else_branch = f () => (float[g, h] s, float[g, h] v) {{
                    none = Constant <value_ints = [1]> ()
                    top = Constant <value_ints = [1, 4]> ()
                    s = Reshape (z, top)
                    v = Transpose (s)
                }}
            >
            sum = Add (w, w)
        }}""")
    for output in model.graph.output:
        output.type.Clear()
    engine = None
    for rows in (3, 1, 9):
        for flag in (True, False):
            x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
            inputs = {"c": np.array(flag), "x": x, "z": np.arange(4, dtype=np.float32)}
            engine = check(model, inputs, engine, shapes={"x": (FEW, SOME, MANY)})


def test_branches_of_different_shapes_by_a_shape():
    model = parse_model(f"""{HEAD}
        net (float[n, 4] x) => (float[a, b] y) {{
            s = Shape <start = 0, end = 1> (x)
            two = Constant <value_ints = [5]> ()
            c = Equal (s, two)
            y = If (c) <
                then_branch = t () => (float[p, q] r) {{ r = Concat <axis = 0> (x, x, x) }},
                else_branch = f () => (float[g, h] v) {{ v = Neg (x) }}
            >
        }}""")
    for output in model.graph.output:
        output.type.Clear()
    engine = None
    for rows in (3, 5, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        engine = check(model, {"x": x}, engine, shapes={"x": (FEW, SOME, MANY)})


def test_branches_of_different_ranks_are_refused():
    (error,) = errors_of(
        HEAD
        + """ net (bool c, float[1, 4] x) => (float[n] y) { y = If (c) <
            then_branch = t () => (float[n] r) { r = Squeeze (x) },
            else_branch = f () => (float[n] v) { v = Neg (x) }> }"""
    )
    assert "needs a condition that is constant" in error.desc()


def test_engines_are_stored(tmp_path):
    model = parse_model(f"""{HEAD}
        net (int64 m, float[3, 4] x) => (float[3, 4] y) {{
            y = Loop (m, , x) <
                body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t) {{
                    on = Identity (go)  t = Add (s, x)
                }}
            >
        }}""")
    engine = opwright.build(model.SerializeToString(), timing=False)
    engine.save(str(tmp_path / "loop.engine"))
    again = opwright.load(str(tmp_path / "loop.engine"))
    assert_close(np.asarray(again(m=number(3), x=X)), X * 4)


@pytest.mark.parametrize(
    "graph, message",
    [
        (
            "(float[2] x) => (float[2] y) { y = Loop (, , x) <body = b (int64 i, bool go, float[2] s)"
            " => (bool on, float[2] t) { t = Abs (s)  z = ReduceSum <keepdims = 0> (s)  k = Cast <to = 9> (z)"
            "  on = Not (k) }> }",
            None,
        ),
        (
            "(int64 m, float[2] x) => (float[k] y) { y = Loop (m, , x) <body = b (int64 i, bool go, float[k] s)"
            " => (bool on, float[l] t) { on = Identity (go)  t = Concat <axis = 0> (s, x) }> }",
            "expected the same, or a number of iterations that is constant",
        ),
        (
            "(float f, float[2] x) => (float[2] y, float[k, 2] z) { m = Cast <to = 7> (f)"
            " y, z = Loop (m, , x) <body = b (int64 i, bool go, float[2] s)"
            " => (bool on, float[2] t, float[2] u) { on = Identity (go)  t = Abs (s)  u = Neg (s) }> }",
            "nothing says how many there may be",
        ),
        (
            "(int64 m, float[4] x) => (float[4] y) { zero = Constant <value_ints = [0]> ()"
            " y = Loop (m, , x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t)"
            " { on = Identity (go)  j = Unsqueeze (i, zero)  p = Slice (s, zero, j)"
            "  q = ReduceSum <keepdims = 1> (p)  t = Add (s, q) }> }",
            "decides shapes",
        ),
    ],
)
def test_errors(graph, message):
    if message is None:
        assert opwright.build(parse_model(HEAD + " net " + graph).SerializeToString(), timing=False)
        return
    assert any(message in e.desc() for e in errors_of(HEAD + " net " + graph))


COUNTED = {
    "a counter": "next = Add (c, one) goes = Less (next, limit)",
    "a counter from the other side": "next = Add (one, c) goes = Greater (limit, next)",
    "or equal": "next = Add (c, one) low = Sub (limit, one) goes = LessOrEqual (next, low)",
    "the iteration": """next = Identity (c) j = Cast <to = 6> (i) k = Add (j, one)
                       goes = Less (k, limit)""",
    "two at a time": "two = Add (one, one) next = Add (c, two) goes = Less (next, limit)",
    "another limit": """next = Add (c, one) a = Less (next, limit) four = Constant <value = int32 {4}> ()
                       b = Less (next, four) goes = And (a, b)""",
    "data": """next = Add (c, one) a = Less (next, limit) total = ReduceSum <keepdims = 0> (after)
               most = Constant <value = float {6.0}> () b = Less (total, most) goes = And (a, b)""",
}


@pytest.mark.parametrize("begins", ["less", "true", "flag"])
@pytest.mark.parametrize("name", COUNTED)
def test_a_loop_whose_condition_counts(name, begins):
    """As exporters of TensorFlow write loops: no number of iterations but the largest integer."""
    condition = {
        "less": "begin = Less (zero, limit)",
        "true": "begin = Constant <value = bool {1}> ()",
        "flag": "begin = Identity (flag)",
    }[begins]
    model = parse_model(f"""<ir_version: 9, opset_import: ["" : 19]>
    net (float[n, 3] x, bool flag) => (float[3] last, float[k, 3] all, int32 count) {{
      rows = Shape <start = 0, end = 1> (x)
      axis = Constant <value = int64[1] {{0}}> ()
      row = Squeeze (rows, axis)
      limit = Cast <to = 6> (row)
      zero = Constant <value = int32 {{0}}> ()
      one = Constant <value = int32 {{1}}> ()
      trips = Constant <value = int64 {{9223372036854775807}}> ()
      zeros = Constant <value = float[3] {{0.0, 0.0, 0.0}}> ()
      {condition}
      count, last, all = Loop (trips, begin, zero, zeros) <body = step
        (int64 i, bool go, int32 c, float[3] before) =>
        (bool goes, int32 next, float[3] after, float[3] each) {{
          place = Cast <to = 7> (c)
          picked = Gather (x, place)
          absolute = Abs (picked)
          after = Add (before, absolute)
          each = Identity (after)
          {COUNTED[name]}
      }}>
    }}""")
    session = reference_session(model)
    engine = opwright.build(
        model, shapes={"x": ((1, 3), (5, 3), (9, 3))}, timing=False, device="cpu"
    )
    for n, flag in ((5, True), (9, True), (1, True), (5, False)):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        feeds = {"x": x, "flag": np.array(flag)}
        given = {key: feeds[key] for key in engine.inputs}
        want = session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
        got = engine(**given)
        for key, each in zip(("last", "all", "count"), want):
            assert got[key].shape == each.shape
            np.testing.assert_allclose(got[key], each, rtol=1e-5, atol=1e-5)
