"""If, Loop and Scan, sequences and optionals: against ONNX's reference and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

import opwright
import opwright as trt
from onnx_graphs import HEAD, as_list, assert_close, reference_session

X = np.random.default_rng(7).standard_normal((3, 4)).astype(np.float32)


def build(model, **options):
    return opwright.build(model.SerializeToString(), timing=False, **options)


def check(
    text: str,
    inputs: dict[str, np.ndarray],
    runtime: bool = True,
    reference: bool = True,
    **options,
) -> list[np.ndarray]:
    """Compares an engine with ONNX's reference and with ONNX Runtime; returns its outputs. The reference
    joins what a Loop is to stack, and takes a condition that is left out for one that is false."""
    model = parse_model(text)
    got = as_list(build(model, **options)(**inputs))
    wanted = []
    if reference:
        wanted.append(ReferenceEvaluator(model).run(None, inputs))
    if runtime:
        wanted.append(reference_session(model).run(None, inputs))
    for want in wanted:
        assert len(got) == len(want)
        for a, b in zip(got, want):
            assert_close(a, np.asarray(b))
    return got


def errors_of(text: str):
    builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
    network = builder.create_network()
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.INTERNAL_ERROR))
    assert not parser.parse(parse_model(text).SerializeToString())
    return [parser.get_error(i) for i in range(parser.num_errors)]


# If


@pytest.mark.parametrize("flag", [0, 1])
def test_if_with_a_known_condition(flag):
    """Branches see what is outside; their own names hide equal ones."""
    check(
        f"""{HEAD}
        net (float[3, 4] x) => (float[m, n] y) {{
            c = Constant <value = bool {{{flag}}}> ()
            t = Neg (x)
            y = If (c) <
                then_branch = a () => (float[3, 4] r) {{ t = Abs (x)  r = Exp (t) }},
                else_branch = b () => (float[4, 3] r) {{ r = Transpose (t) }}
            >
        }}""",
        {"x": X},
        runtime=False,  # it refuses names that hide others
    )


def test_if_by_a_rank_or_an_extent():
    text = f"""{HEAD}
        net (float[n, 4] x) => (float[m] y) {{
            s = Shape (x)
            k = Size (s)
            two = Constant <value_int = 2> ()
            c = Equal (k, two)
            y = If (c) <
                then_branch = a () => (float[m] r) {{ f = Constant <value_ints = [-1]> ()  r = Reshape (x, f) }},
                else_branch = b () => (float[m] q) {{ q = Identity (x) }}
            >
        }}"""
    check(text, {"x": X}, shapes={"x": ((1, 4), (3, 4), (9, 4))})


@pytest.mark.parametrize("kind", ["float", "float16", "int32", "int64", "uint8", "int8", "bool"])
def test_if_with_a_computed_condition(kind):
    dtype = np.dtype({"float": "float32"}.get(kind, kind))
    text = f"""{HEAD}
        net (bool c, {kind}[n, 4] x, {kind}[n, 4] z) => ({kind}[n, 4] y, {kind}[n, 4] w) {{
            y, w = If (c) <
                then_branch = a () => ({kind}[n, 4] r, {kind}[n, 4] q) {{ r = Identity (x)  q = Identity (z) }},
                else_branch = b () => ({kind}[n, 4] r, {kind}[n, 4] q) {{ r = Identity (z)  q = Identity (z) }}
            >
        }}"""
    x = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    ranges = ((1, 4), (3, 4), (9, 4))
    for flag in (False, True):
        check(
            text,
            {"c": np.array(flag), "x": x, "z": x[::-1].copy()},
            shapes={"x": ranges, "z": ranges},
        )


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_if_by_numbers_that_follow_from_constants(scale):
    check(
        f"""{HEAD}
        net (float[3, 4] x) => (float[m, n] y) {{
            s = Constant <value_float = {scale}> ()
            one = Constant <value_float = 1.0> ()
            l = Log (s)
            e = Exp (l)
            c = Greater (e, one)
            y = If (c) <
                then_branch = a () => (float[3, 4] r) {{ r = Mul (x, e) }},
                else_branch = b () => (float[4, 3] q) {{ q = Transpose (x) }}
            >
        }}""",
        {"x": X},
    )


def test_nested_ifs():
    text = f"""{HEAD}
        net (bool c, bool d, float[3, 4] x) => (float[3, 4] y) {{
            y = If (c) <
                then_branch = a () => (float[3, 4] r) {{
                    k = Constant <value_float = 3.0> ()
                    u = Mul (x, k)
                    r = If (d) <
                        then_branch = aa () => (float[3, 4] q) {{ q = Add (u, x) }},
                        else_branch = ab () => (float[3, 4] q) {{ q = Identity (u) }}
                    >
                }},
                else_branch = b () => (float[3, 4] r) {{ r = Identity (x) }}
            >
        }}"""
    for c in (False, True):
        for d in (False, True):
            check(text, {"c": np.array(c), "d": np.array(d), "x": X})


# Loop

SUM_LOOP = """
    net (float[3, 4] x) => (float[3, 4] y, float[k, 3, 4] all) {{
        m = Constant <value = int64 {{{trips}}}> ()
        {condition}
        y, all = Loop (m, {c}, x) <
            body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t, float[3, 4] e) {{
                f = Cast <to = 1> (i)
                u = Mul (s, x)
                t = Add (u, f)
                e = Neg (t)
                {next}
            }}
        >
    }}"""


@pytest.mark.parametrize("trips", [0, 1, 5])
@pytest.mark.parametrize("first", [None, 0, 1])
def test_loop_with_known_trips(trips, first):
    condition = "" if first is None else f"c = Constant <value = bool {{{first}}}> ()"
    text = HEAD + SUM_LOOP.format(
        trips=trips, condition=condition, c="" if first is None else "c", next="on = Identity (go)"
    )
    check(text, {"x": X}, reference=False)


@pytest.mark.parametrize("trips", ["m", ""])
def test_loop_that_its_condition_ends(trips):
    check(
        f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y, int64[k] all) {{
            m = Constant <value_int = 100> ()
            c = Constant <value = bool {{1}}> ()
            y, all = Loop ({trips}, c, x) <
                body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t, int64 j) {{
                    four = Constant <value_int = 4> ()
                    t = Add (s, x)
                    j = Mul (i, four)
                    on = Less (i, four)
                }}
            >
        }}""",
        {"x": X},
        reference=False,
    )


def test_a_condition_of_floating_numbers_that_are_known():
    """Each iteration's shape is another one; the condition follows from constants."""
    check(
        f"""{HEAD}
        net (float[3, 4] x) => (float[k, 4] y) {{
            m = Constant <value_int = 9223372036854775807> ()
            c = Constant <value = bool {{1}}> ()
            f = Constant <value_float = 1.0> ()
            half = Constant <value_float = 0.5> ()
            stop = Constant <value_float = 0.2> ()
            y, rest = Loop (m, c, x, f) <
                body = b (int64 i, bool go, float[n, 4] s, float g) => (bool on, float[l, 4] t, float h) {{
                    t = Concat <axis = 0> (s, x)
                    h = Mul (g, half)
                    on = Greater (h, stop)
                }}
            >
        }}""",
        {"x": X},
        reference=False,
    )


def test_shapes_that_a_loop_computes():
    """The loop doubles an extent of a shape; the result is reshaped to it."""
    text = f"""{HEAD}
        net (float[n, 4] x) => (float[a, b] y) {{
            m = Constant <value_int = 2> ()
            s = Shape (x)
            w = Constant <value = int64[2] {{2, 1}}> ()
            half = Constant <value = int64[2] {{1, 2}}> ()
            e = Loop (m, , s) <
                body = b (int64 i, bool go, int64[2] v) => (bool on, int64[2] t) {{
                    on = Identity (go)
                    u = Mul (v, w)
                    t = Div (u, half)
                }}
            >
            y = Reshape (x, e)
        }}"""
    check(text, {"x": X}, reference=False, shapes={"x": ((1, 4), (3, 4), (9, 4))})


def test_nested_loops_and_captured_names():
    check(
        f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y, float[2, 3, 3, 4] all) {{
            m = Constant <value_int = 2> ()
            y, all = Loop (m, , x) <
                body = outer (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t, float[3, 3, 4] e) {{
                    on = Identity (go)
                    n = Constant <value_int = 3> ()
                    t, e = Loop (n, , s) <
                        body = inner (int64 j, bool more, float[3, 4] p) => (bool ok, float[3, 4] q, float[3, 4] z) {{
                            ok = Identity (more)
                            k = Add (i, j)
                            f = Cast <to = 1> (k)
                            g = Add (p, s)
                            q = Add (g, f)
                            z = Mul (q, x)
                        }}
                    >
                }}
            >
        }}""",
        {"x": X},
        reference=False,
    )


def test_bodies_that_pass_inputs_and_constants():
    """Inputs and constants of a body, and tensors from outside, are its outputs."""
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x, float[3, 4] z) => (float[3, 4] y, float[3, 4] w, float[k, 2] a, float[k, 3, 4] b) {{
            m = Constant <value_int = 3> ()
            c = Constant <value = bool {{1}}> ()
            y, w, a, b = Loop (m, c, x, z) <
                body = body (int64 i, bool go, float[3, 4] s, float[3, 4] t)
                    => (bool go, float[3, 4] t, float[3, 4] s, float[2] k, float[3, 4] x)
                    <float[2] k = {{1.5, 2.5}}> {{ }}
            >
        }}""")
    z = X[::-1].copy()
    y, w, a, b = as_list(build(model)(x=X, z=z))
    assert_close(y, z)
    assert_close(w, X)
    assert_close(a, np.array([[1.5, 2.5]] * 3, np.float32))
    assert_close(b, np.stack([X] * 3))


# Scan


def scan_model(
    opset: int, attributes: dict, states, inputs, body: str, outputs: int
) -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["" : 18]> net (float x) => (float y) {{ y = Scan (x) <body = {body}> }}'
    graph = parse_model(text).graph.node[0].attribute[0].g
    names = [*(f"s{i}" for i in range(len(states))), *(f"x{i}" for i in range(len(inputs)))]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(
        "Scan",
        [*([""] if opset == 8 else []), *names],
        made,
        body=graph,
        num_scan_inputs=len(inputs),
        **attributes,
    )
    model = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
                for n, a in zip(names, [*states, *inputs])
            ],
            [onnx.ValueInfoProto(name=n) for n in made],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=7,
    )
    return onnx.shape_inference.infer_shapes(model)


RUNNING = (
    "b (float[2] s, float[2] x) => (float[2] t, float[2] a, float[2] b)"
    " { t = Add (s, x) a = Identity (t) b = Mul (t, x) }"
)


@pytest.mark.parametrize("directions", [(0, 0, 0), (1, 0, 1), (0, 1, 0)])
@pytest.mark.parametrize("axes", [(0, 0, 0), (1, 0, 1), (-1, 1, -1)])
def test_scan(directions, axes):
    rng = np.random.default_rng(3)
    state = rng.standard_normal(2).astype(np.float32)
    x = rng.standard_normal((2, 5) if axes[0] else (5, 2)).astype(np.float32)
    attributes = {
        "scan_input_axes": [axes[0]],
        "scan_input_directions": [directions[0]],
        "scan_output_axes": axes[1:],
        "scan_output_directions": directions[1:],
    }
    model = scan_model(18, attributes, [state], [x], RUNNING, 3)
    got = as_list(build(model)(s0=state, x0=x))
    for a, b in zip(got, reference_session(model).run(None, {"s0": state, "x0": x})):
        assert_close(a, b)


@pytest.mark.parametrize("directions", [[0], [1]])
def test_scan_of_a_batch(directions):
    """Opset 8 has a batch of scans."""
    rng = np.random.default_rng(5)
    state = rng.standard_normal((3, 2)).astype(np.float32)
    x = rng.standard_normal((3, 4, 2)).astype(np.float32)
    model = scan_model(8, {"directions": directions}, [state], [x], RUNNING, 3)
    got = as_list(build(model)(s0=state, x0=x))
    for a, b in zip(got, reference_session(model).run(None, {"s0": state, "x0": x})):
        assert_close(a, b)


# Sequences and optionals


def test_sequences():
    check(
        f"""{HEAD}
        net (float[6, 4] x) => (float[a, 4] y, float[4, k] z, int64 n, float[2, 4] last, float[3, 2, 4] new) {{
            two = Constant <value_int = 2> ()
            minus = Constant <value_int = -2> ()
            s = SplitToSequence <axis = 0> (x, two)
            e = SequenceErase (s, minus)
            first = SequenceAt (s, minus)
            i = SequenceInsert (e, first, minus)
            y = ConcatFromSequence <axis = 0> (i)
            rows = SplitToSequence <axis = 0, keepdims = 0> (x)
            z = ConcatFromSequence <axis = -1, new_axis = 1> (rows)
            n = SequenceLength (rows)
            shorter = SequenceErase (s)
            one = Constant <value_int = -1> ()
            last = SequenceAt (shorter, one)
            c = SequenceConstruct (last, first, last)
            new = ConcatFromSequence <axis = 0, new_axis = 1> (c)
        }}""",
        {"x": np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)},
    )


def test_sequence_of_unequal_parts_with_dynamic_shapes():
    check(
        f"""{HEAD}
        net (float[n, 4] x) => (float[n, 4] y) {{
            parts = Constant <value_ints = [1, 3]> ()
            s = SplitToSequence <axis = 1> (x, parts)
            zero = Constant <value_int = 0> ()
            one = Constant <value_int = 1> ()
            a = SequenceAt (s, one)
            b = SequenceAt (s, zero)
            y = Concat <axis = 1> (a, b)
        }}""",
        {"x": X},
        shapes={"x": ((1, 4), (3, 4), (9, 4))},
    )


def test_a_loop_that_fills_a_sequence():
    check(
        f"""{HEAD}
        net (float[3, 4] x) => (float[12, 4] y) {{
            m = Constant <value_int = 4> ()
            none = SequenceEmpty ()
            s = Loop (m, , none) <
                body = b (int64 i, bool go, seq(float[3, 4]) s) => (bool on, seq(float[3, 4]) t) {{
                    on = Identity (go)
                    f = Cast <to = 1> (i)
                    e = Mul (x, f)
                    t = SequenceInsert (s, e)
                }}
            >
            y = ConcatFromSequence <axis = 0> (s)
        }}""",
        {"x": X},
        reference=False,
    )


def test_sequence_map():
    text = f"""{HEAD}
        net (float[6, 4] x, float[4] z) => (float[6, 4] y, float[6, 4] w) {{
            two = Constant <value_int = 2> ()
            s = SplitToSequence <axis = 0> (x, two)
            a, b = SequenceMap (s, z) <
                body = b (float[2, 4] p, float[4] q) => (float[2, 4] r, float[2, 4] t) {{
                    r = Add (p, q)
                    t = Mul (p, q)
                }}
            >
            y = ConcatFromSequence <axis = 0> (a)
            w = ConcatFromSequence <axis = 0> (b)
        }}"""
    x, z = (np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in ((6, 4), 4))
    y, w = as_list(build(parse_model(text))(x=x, z=z))
    assert_close(y, x + z)
    assert_close(w, x * z)


def test_optionals():
    text = f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y, bool a, bool b) {{
            some = Optional (x)
            none = Optional <type = float> ()
            a = OptionalHasElement (some)
            b = OptionalHasElement (none)
            y = If (b) <
                then_branch = t () => (float[3, 4] r) {{ r = OptionalGetElement (none) }},
                else_branch = e () => (float[3, 4] r) {{ r = OptionalGetElement (some) }}
            >
        }}""".replace("<type = float>", "")
    y, a, b = as_list(build(parse_model(text))(X))
    assert_close(y, X)
    assert bool(a) and not bool(b)


# Functions


def test_attributes_of_functions_reach_bodies():
    text = """<ir_version: 9, opset_import: ["" : 18, "nn" : 1]>
        net (float[3, 4] x) => (float[4, 3] y) { y = nn.f <order = [1, 0]> (x) }
        <domain: "nn", opset_import: ["" : 18]>
        f <order> (a) => (b) {
            c = Constant <value = bool {1}> ()
            b = If (c) <
                then_branch = t () => (float[4, 3] r) { r = Transpose <perm: ints = @order> (a) },
                else_branch = e () => (float[4, 3] r) { r = Identity (a) }
            >
        }"""
    assert_close(build(parse_model(text))(X), X.T)


# Errors


def test_unknown_operators_in_bodies_are_listed():
    """Behind others, in both branches, and in bodies that nothing can be given to."""
    errors = errors_of("""<ir_version: 9, opset_import: ["" : 18, "other" : 1]>
        net (bool c, float[3, 4] x) => (float[3, 4] y) {
            a = other.first (x)
            b = If (c) <
                then_branch = t () => (float[3, 4] r) { s = other.second (x)  r = Abs (s) },
                else_branch = e () => (float[3, 4] r) { r = other.third (x) }
            >
            d = If (c) <
                then_branch = t () => (float[3, 4] r) { s = Neg (a)  r = other.fourth (s) },
                else_branch = e () => (float[3, 4] r) { r = Identity (a) }
            >
            m = Cast <to = 7> (b)
            y = Loop (m, c, d) <
                body = l (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t) {
                    on = Identity (go)
                    t = other.fifth (s)
                }
            >
        }""")
    assert [(e.node(), e.node_operator()) for e in errors] == [
        (0, "first"),
        (1, "second"),
        (1, "third"),
        (2, "fourth"),
        (4, "fifth"),
    ]
    assert errors[1].node_name() == "If_1/then/second_0"


def test_unknown_operators_behind_an_input_that_failed_are_listed():
    errors = errors_of("""<ir_version: 9, opset_import: ["" : 18, "other" : 1]>
        net (seq(float[3, 4]) s, float[3, 4] x) => (float[3, 4] y) {
            a = ConcatFromSequence <axis = 0> (s)
            b = other.strange (s)
            y = Add (a, b)
        }""")
    assert len(errors) == 2
    assert "input 's' is of type sequence" in errors[0].desc()
    assert errors[1].node_operator() == "strange"


@pytest.mark.parametrize(
    "graph, message",
    [
        (
            "(seq(float[2]) s) => (int64 y) { y = SequenceLength (s) }",
            "an engine's inputs are tensors",
        ),
        (
            "(float[2] x) => (float[2] y) { s = SequenceConstruct (x)  y = Relu (s) }",
            "'s' is a sequence; expected a tensor",
        ),
        (
            "(float[2] x) => (int64 y) { y = SequenceLength (x) }",
            "'x' is a tensor; expected a sequence",
        ),
        (
            "(float[2] x, int64 p) => (float[2] y) { s = SequenceConstruct (x)  y = SequenceAt (s, p) }",
            "the position ('p') must be constant",
        ),
        (
            "(float[2] x) => (float[2] y) { p = Constant <value_int = 1> ()"
            " s = SequenceConstruct (x)  y = SequenceAt (s, p) }",
            "position 1 is out of range for a sequence of 1 tensors",
        ),
        (
            "(float[2] x) => (float[2] y) { s = SequenceEmpty ()  y = ConcatFromSequence <axis = 0> (s) }",
            "is empty",
        ),
        (
            "(float[n, 2] x) => (int64 y) { s = SplitToSequence (x)  y = SequenceLength (s) }",
            "length of the sequence",
        ),
        (
            "(float[2] x) => (float[2] y) { o = Optional ()  y = OptionalGetElement (o) }",
            "holds nothing",
        ),
        (
            "(bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] r)"
            " { r = Abs (nobody) }, else_branch = e () => (float[2] r) { r = Abs (x) }> }",
            "'nobody'",
        ),
        (
            "(bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] r)"
            " { q = Abs (x) }, else_branch = e () => (float[2] r) { r = Abs (x) }> }",
            "has the output 'r', which none of its nodes makes",
        ),
        (
            "(float[2] x) => (float[2] y) { c = Constant <value = bool {1}> ()"
            " y = Loop (, c, x) <body = b (int64 i, bool go, float[2] s) => (bool go, float[2] t)"
            " { t = Abs (s) }> }",
            "never ends: it has no number of iterations",
        ),
        ("(float[2] x) => (float[2] y) { y = If (x) }", "the graph 'then_branch' is missing"),
    ],
)
def test_errors(graph, message):
    assert any(message in e.desc() for e in errors_of(HEAD + " net " + graph))


def test_a_branch_that_fits_no_shape_fails_when_it_is_taken(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        net (bool c, float[n, 4] x) => (float[n, 4] y, float[n, 4] z)
        <float[5, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}> {
            y, z = If (c) <
                then_branch = t () => (float[n, 4] a, float[n, 4] b) { a = Neg (x)  b = Abs (x) },
                else_branch = e () => (float[n, 4] d, float[n, 4] f) { d = MatMul (x, w)  f = Sin (d) }
            >
        }""")
    shapes = {"x": ((1, 4), (2, 4), (3, 4))}
    opwright.build(model, shapes=shapes, timing=False).save(tmp_path / "net.engine")
    engine = opwright.load(tmp_path / "net.engine")
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    for _ in range(2):
        made = engine(c=np.array(True), x=x)
        np.testing.assert_array_equal(made["y"], -x)
        np.testing.assert_array_equal(made["z"], np.abs(x))
        with pytest.raises(
            opwright.Error, match=r"'If_0'.*condition is false.*could not be built: .*MatMul"
        ):
            engine(c=np.array(False), x=x)


def test_branches_that_both_fit_no_shape_are_refused():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        net (bool c, float[2, 4] x) => (float[2, 4] y) <float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
            y = If (c) <
                then_branch = t () => (float[2, 4] a) { a = MatMul (x, w) },
                else_branch = e () => (float[2, 4] d) { d = Add (x, w) }
            >
        }""")
    with pytest.raises(opwright.Error) as error:
        opwright.build(model, timing=False)
    assert "(MatMul)" in str(error.value) and "(Add)" in str(error.value)
