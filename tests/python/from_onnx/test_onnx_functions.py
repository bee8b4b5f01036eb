"""Functions that a model defines, against ONNX's reference evaluator and ONNX Runtime."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

import opwright as trt
from onnx_graphs import assert_close, reference_session
from v3_plugins import Log

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
HEAD = '<ir_version: 10, opset_import: ["" : 19, "nn" : 1, "other" : 3]>'


def parsed(model: onnx.ModelProto) -> tuple[trt.OnnxParser, trt.INetworkDefinition]:
    log = Log()
    network = trt.Builder(log).create_network()
    parser = trt.OnnxParser(network, log)
    parser.parse(model.SerializeToString())
    return parser, network


def check(model: onnx.ModelProto, evaluator: bool = True) -> None:
    """The engine computes what ONNX Runtime does, and what ONNX's own evaluator does if it can."""
    got = trt.build(model, timing=False)(X)
    want = reference_session(model).run(None, {"x": X})
    if evaluator:
        for ours, theirs in zip(want, ReferenceEvaluator(model).run(None, {"x": X})):
            assert_close(ours, theirs)
    if len(want) == 1:
        got = {model.graph.output[0].name: got}
    for output, expected in zip(model.graph.output, want):
        assert_close(got[output.name], expected)


def errors_of(model: onnx.ModelProto) -> list[trt.ParserError]:
    parser, _ = parsed(model)
    return [parser.get_error(i) for i in range(parser.num_errors)]


def test_a_function_is_expanded_at_each_call():
    """Its tensors have names of their own, whatever the graph and the caller call theirs."""
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y) {{
            t = nn.twice (x)
            s = nn.twice (t)
            y = Add (s, t)
        }}
        <domain: "nn", opset_import: ["" : 19]>
        twice (a) => (s) {{ t = Relu (a)  x = Neg (a)  s = Sub (t, x) }}""")
    check(model)
    _, network = parsed(model)
    assert [layer.name for layer in network][:3] == [
        "twice_0/Relu_0",
        "twice_0/Neg_1",
        "twice_0/Sub_2",
    ]


def test_attributes_are_those_of_the_call_else_the_defaults():
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y) {{
            a = nn.elu <alpha: float = 0.25> (x)
            b = nn.elu (x)
            c = nn.outer <beta: float = 3.0> (b)
            y = Sum (a, b, c)
        }}
        <domain: "nn", opset_import: ["" : 19]>
        elu <alpha: float = 2.0> (a) => (b) {{ b = Elu <alpha: float = @alpha> (a) }}
        <domain: "nn", opset_import: ["" : 19, "nn" : 1]>
        outer <beta> (a) => (b) {{ b = nn.elu <alpha: float = @beta> (a) }}""")
    check(model, evaluator=False)


def test_an_attribute_that_nobody_gives_is_left_out():
    """So the operator's own default holds."""
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y) {{ y = nn.leaky (x) }}
        <domain: "nn", opset_import: ["" : 19]>
        leaky <slope> (a) => (b) {{ b = LeakyRelu <alpha: float = @slope> (a) }}""")
    got = trt.build(model, timing=False)(X)
    assert_close(got, np.where(X < 0, np.float32(0.01) * X, X))


def test_every_kind_of_attribute_is_passed():
    def reference(name: str, kind: int, of: str) -> AttributeProto:
        return AttributeProto(name=name, type=kind, ref_attr_name=of)

    constant = helper.make_node("Constant", [], ["c"])
    constant.attribute.append(reference("value", AttributeProto.TENSOR, "weights"))
    transpose = helper.make_node("Transpose", ["s"], ["t"])
    transpose.attribute.append(reference("perm", AttributeProto.INTS, "order"))
    gelu = helper.make_node("Gelu", ["t"], ["b"])
    gelu.attribute.append(reference("approximate", AttributeProto.STRING, "how"))
    function = helper.make_function(
        "nn",
        "mix",
        ["a"],
        ["b"],
        [constant, helper.make_node("Add", ["a", "c"], ["s"]), transpose, gelu],
        [helper.make_opsetid("", 20)],
        ["weights", "order", "how"],
    )
    node = helper.make_node(
        "mix",
        ["x"],
        ["y"],
        domain="nn",
        weights=onnx.numpy_helper.from_array(np.float32([1, 2, 3, 4])),
        order=[1, 0],
        how="tanh",
    )
    check(one_function(function, node=node, opset=20), evaluator=False)


def one_function(*functions, node, opset=19, outputs=("y",)) -> onnx.ModelProto:
    nodes = [node] if isinstance(node, onnx.NodeProto) else node
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("nn", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def test_functions_call_functions():
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y, float[3, 4] z) {{
            y, z = nn.top (x)
        }}
        <domain: "nn", opset_import: ["" : 19, "nn" : 1, "other" : 3]>
        top (a) => (b, c) {{ t = nn.middle (a)  b, c = other.bottom (t, a) }}
        <domain: "nn", opset_import: ["" : 19, "other" : 3]>
        middle (a) => (b) {{ b, unused = other.bottom (a, a) }}
        <domain: "other", opset_import: ["" : 19]>
        bottom (a, b) => (s, d) {{ s = Add (a, b)  d = Mul (a, b) }}""")
    model.functions.reverse()  # ONNX's evaluator wants to know a function before its caller
    check(model)


def test_a_function_has_its_own_opset():
    """Squeeze took its axes as an attribute before opset 13."""
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[1, 3, 4] y) {{ y = nn.old (x) }}
        <domain: "nn", opset_import: ["" : 11]>
        old (a) => (b) {{ b = Unsqueeze <axes = [0]> (a) }}""")
    got = trt.build(model, timing=False)(X)
    assert_close(got, X[None])
    model.functions[0].opset_import[0].version = 6
    (error,) = errors_of(model)
    assert "opset 6" in error.desc()


def test_a_function_comes_before_the_operator_of_its_name():
    model = parse_model("""
        <ir_version: 10, opset_import: ["" : 19]>
        net (float[3, 4] x) => (float[3, 4] y) { y = Sigmoid (x) }
        <domain: "", opset_import: ["" : 19]>
        Sigmoid (a) => (b) { b = Neg (a) }""")
    assert_close(trt.build(model, timing=False)(X), -X)


def test_overloads_are_told_apart():
    functions = [
        helper.make_function(
            "nn",
            "act",
            ["a"],
            ["b"],
            [helper.make_node(op, ["a"], ["b"])],
            [helper.make_opsetid("", 19)],
            overload=overload,
        )
        for op, overload in (("Neg", ""), ("Abs", "abs"), ("Exp", "exp"))
    ]
    nodes = [
        helper.make_node("act", ["x"], ["a"], domain="nn", overload="abs"),
        helper.make_node("act", ["a"], ["y"], domain="nn", overload="exp"),
        helper.make_node("act", ["x"], ["z"], domain="nn"),
    ]
    got = trt.build(one_function(*functions, node=nodes, outputs=("y", "z")), timing=False)(X)
    assert_close(got["y"], np.exp(np.abs(X)))
    assert_close(got["z"], -X)
    nodes[0].overload = "none"
    (error,) = errors_of(one_function(*functions, node=nodes))
    assert error.code() == trt.ErrorCode.UNSUPPORTED_NODE


def test_inputs_and_outputs_may_be_absent():
    """An input that the call leaves out is absent in the body, too; an output is not made."""
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y) {{
            low = Constant <value_float = -0.5> ()
            a = nn.bound (x, low)
            b = nn.bound (x, "", low)
            c = nn.bound (x)
            d, rest = nn.parts (x)
            e = nn.parts (x)
            "", f = nn.parts (x)
            y = Sum (a, b, c, d, e, f)
        }}
        <domain: "nn", opset_import: ["" : 19]>
        bound (a, low, high) => (b) {{ b = Clip (a, low, high) }}
        <domain: "nn", opset_import: ["" : 19]>
        parts (a) => (b, c) {{ b = Neg (a)  c = Abs (a) }}""")
    got = trt.build(model, timing=False)(X)
    expected = np.maximum(X, -0.5) + np.minimum(X, -0.5) + X - X - X + np.abs(X)
    assert_close(got, expected)


def test_an_input_may_be_the_output():
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y, float[3, 4] z) {{ y, z = nn.same (x) }}
        <domain: "nn", opset_import: ["" : 19]>
        same (a) => (a, b) {{ b = Neg (a) }}""")
    got = trt.build(model, timing=False)(X)
    assert_close(got["y"], X)
    assert_close(got["z"], -X)


def test_names_inside_do_not_take_those_of_the_graph():
    nodes = [
        helper.make_node("f", ["x"], ["t"], "call", domain="nn"),
        helper.make_node("Neg", ["t"], ["call/inner"], "neg"),
    ]
    function = helper.make_function(
        "nn",
        "f",
        ["a"],
        ["b"],
        [helper.make_node("Abs", ["a"], ["inner"]), helper.make_node("Exp", ["inner"], ["b"])],
        [helper.make_opsetid("", 19)],
    )
    model = one_function(function, node=nodes, outputs=("call/inner",))
    assert_close(trt.build(model, timing=False)(X), -np.exp(np.abs(X)))


def test_shapes_that_a_function_computes():
    model = parse_model(f"""{HEAD}
        net (float[n, 4] x) => (float[m] y) {{ y = nn.flat (x) }}
        <domain: "nn", opset_import: ["" : 19]>
        flat (a) => (b) {{ n = Size (a)
            one = Constant <value_ints = [-1]> ()
            n1 = Reshape (n, one)
            b = Reshape (a, n1) }}""")
    engine = trt.build(model, shapes={"x": ((1, 4), (3, 4), (9, 4))}, timing=False)
    assert_close(engine(X), X.reshape(-1))


BROKEN = f"""{HEAD}
    net (float[3, 4] x) => (float[3, 4] y) {{
        a = nn.outer (x)
        b = nn.inner (x)
        c = nn.fine (x)
        d = other.unheard_of (c)
        y = Sum (a, b, d)
    }}
    <domain: "nn", opset_import: ["" : 19, "nn" : 1]>
    outer (a) => (b) {{ t = nn.fine (a)  b = nn.inner (t) }}
    <domain: "nn", opset_import: ["" : 19, "other" : 3]>
    inner (a) => (b) {{ s = other.missing (a)  t = Relu (s)  u = other.second (a)  b = Add (t, u) }}
    <domain: "nn", opset_import: ["" : 19]>
    fine (a) => (b) {{ b = Abs (a) }}"""


def test_errors_name_the_functions():
    """All unknown nodes are listed, with the calls that lead to them; what depends on them is not."""
    errors = errors_of(parse_model(BROKEN))
    outer, inner = ["outer_0 (nn::outer)", "outer_0/inner_1 (nn::inner)"], ["inner_1 (nn::inner)"]
    assert [(e.node(), e.node_operator(), e.local_function_stack()) for e in errors] == [
        (0, "missing", outer),
        (0, "second", outer),
        (1, "missing", inner),
        (1, "second", inner),
        (3, "unheard_of", []),
    ]
    assert [e.local_function_stack_size() for e in errors] == [2, 2, 1, 1, 0]
    assert errors[0].node_name() == "outer_0/inner_1/missing_0"
    assert "in the functions of outer_0 (nn::outer) -> outer_0/inner_1" in errors[0].desc()
    assert all(e.code() == trt.ErrorCode.UNSUPPORTED_NODE for e in errors)


def test_unknown_operators_behind_others_are_listed():
    """A function that gets nothing from the graph is looked through, too; known nodes are not."""
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y) {{
            a = other.first (x)  b = Relu (a)  c = nn.f (b)  d = other.last (c)  y = Abs (d)
        }}
        <domain: "nn", opset_import: ["" : 19, "other" : 3]>
        f (a) => (b) {{ s = Exp (a)  t = other.missing (s)  b = other.second (t) }}""")
    errors = errors_of(model)
    assert [(e.node(), e.node_operator(), e.local_function_stack_size()) for e in errors] == [
        (0, "first", 0),
        (2, "missing", 1),
        (2, "second", 1),
        (3, "last", 0),
    ]


def repeated(depth: int, calls: int) -> onnx.ModelProto:
    """Functions that call the next one so many times."""
    functions = [
        helper.make_function(
            "nn",
            f"f{i}",
            ["a"],
            ["b"],
            [
                helper.make_node(
                    f"f{i + 1}" if i + 1 < depth else "Neg",
                    ["a" if k == 0 else f"t{k}"],
                    ["b" if k + 1 == calls else f"t{k + 1}"],
                    domain="nn" if i + 1 < depth else "",
                )
                for k in range(calls)
            ],
            [helper.make_opsetid("", 19), helper.make_opsetid("nn", 1)],
        )
        for i in range(depth)
    ]
    return one_function(*functions, node=helper.make_node("f0", ["x"], ["y"], domain="nn"))


def test_recursion_is_refused():
    model = repeated(3, 1)
    model.functions[2].node[0].op_type = "f1"
    model.functions[2].node[0].domain = "nn"
    (error,) = errors_of(model)
    assert "function 'nn::f1' calls itself" in error.desc()
    assert error.local_function_stack_size() == 3


def test_expansion_is_bounded():
    """2^40 nodes, and functions 100 deep."""
    (error, *_) = errors_of(repeated(40, 2))
    assert "stand for more than 100000 nodes" in error.desc()
    (error,) = errors_of(repeated(100, 1))
    assert "64 functions deep" in error.desc()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m: m.graph.node[0].input.append("x"), "takes 1 inputs; the node has 2"),
        (lambda m: m.graph.node[0].output.append("z"), "has 1 outputs; the node has 2"),
        (lambda m: m.functions[0].node.pop(), "has the output 'b', which none of its nodes makes"),
        (lambda m: m.functions.append(m.functions[0]), "defines the function 'nn::f0' twice"),
    ],
)
def test_calls_that_do_not_fit(change, message):
    model = repeated(1, 1)
    change(model)
    (error,) = errors_of(model)
    assert message in error.desc()


def test_a_function_that_nobody_calls_may_be_unreadable():
    model = repeated(1, 1)
    strange = helper.make_node("Constant", [], ["c"])
    tensor = TensorProto(data_type=TensorProto.COMPLEX64, dims=[1], raw_data=bytes(8))
    strange.attribute.append(helper.make_attribute("value", tensor))
    model.functions.append(
        helper.make_function("nn", "odd", ["a"], ["c"], [strange], [helper.make_opsetid("", 19)])
    )
    assert_close(trt.build(model, timing=False)(X), -X)
    model.graph.node[0].op_type = "odd"
    (error,) = errors_of(model)
    assert "function 'nn::odd' cannot be read" in error.desc()


def test_outputs_of_nodes_by_name():
    model = parse_model(f"""{HEAD}
        net (float[3, 4] x) => (float[3, 4] y) {{ t = nn.f (x)  y = Neg (t) }}
        <domain: "nn", opset_import: ["" : 19]>
        f (a) => (b) {{ c = Abs (a)  b = Exp (c) }}""")
    parser, network = parsed(model)
    assert parser.get_layer_output_tensor("Neg_1", 0) == network.get_output(0)
    assert parser.get_layer_output_tensor("f_0", 0).name == "t"
    assert parser.get_layer_output_tensor("f_0/Abs_0", 0).name == "f_0/c"
    assert parser.get_layer_output_tensor("f_0", 1) is None
    assert parser.get_layer_output_tensor("f_0", -1) is None
    assert parser.get_layer_output_tensor("nobody", 0) is None


def test_modules_that_pytorch_exports_as_functions():
    """Blocks call layers, which call operators; each has attributes and weights of its caller."""
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.norm = torch.nn.LayerNorm(size)
            self.wide, self.narrow = torch.nn.Linear(size, 8), torch.nn.Linear(8, size)
            self.act = torch.nn.GELU()

        def forward(self, x):
            return x + self.narrow(self.act(self.wide(self.norm(x))))

    torch.manual_seed(0)
    net = torch.nn.Sequential(Block(4), Block(4), torch.nn.Softmax(-1)).eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (torch.from_numpy(X),),
            file,
            dynamo=False,
            export_modules_as_functions=True,
            do_constant_folding=False,
        )
    model = onnx.load_from_string(file.getvalue())
    assert {"Block", "LayerNorm", "Linear", "GELU"} <= {f.name for f in model.functions}
    got = trt.build(model, timing=False)(X)
    assert_close(got, net(torch.from_numpy(X)).detach().numpy())
