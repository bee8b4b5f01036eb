"""How a node of an ONNX model becomes a plugin: its namespace, its fields, its shape inputs."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper

import opwright as trt
import opwright.plugin as trtp
import v2_plugins
from plugin_testing import new_id
from v3_plugins import Log, Twice, as_array

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
TYPES = trt.PluginFieldType


class Creator(trt.IPluginCreatorV3One):
    """Keeps what it is given; `declared` is (name, type) of each field."""

    def __init__(self, name, namespace="", declared=(), plugin=None):
        trt.IPluginCreatorV3One.__init__(self)
        self.name = name
        self.plugin_namespace = namespace
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField(key, np.array([]), kind) for key, kind in declared]
        )
        self.plugin = plugin or Twice()
        self.plugin.plugin_name = name
        self.plugin.plugin_version = "1"
        self.plugin.plugin_namespace = namespace
        self.given: list[tuple] = []
        self.calls = 0

    def create_plugin(self, name, fields, phase):
        self.calls += 1
        self.given = [(f.name, f.type, np.array(f.data)) for f in fields]
        return self.plugin.clone()


@contextlib.contextmanager
def registered(*creators):
    registry = trt.get_plugin_registry()
    for creator in creators:
        assert registry.register_creator(creator, creator.plugin_namespace)
    try:
        yield creators[0]
    finally:
        for creator in creators:
            registry.deregister_creator(creator)


def model(*nodes, inputs=None, functions=(), domains=()) -> bytes:
    inputs = inputs or {"x": (TensorProto.FLOAT, X.shape)}
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 19), *(helper.make_opsetid(d, 1) for d in domains)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))
    return made.SerializeToString()


class Parsed:
    def __init__(self, proto: bytes, flag=None):
        self.log = Log()
        self.builder = trt.Builder(self.log)
        self.network = self.builder.create_network()
        self.parser = trt.OnnxParser(self.network, self.log)
        if flag is not None:
            self.parser.set_flag(flag)
        self.taken = self.parser.parse(proto)

    def warnings(self) -> list[str]:
        return [text for severity, text in self.log.lines if severity == trt.ILogger.WARNING]

    def errors(self) -> list[trt.ParserError]:
        return [self.parser.get_error(i) for i in range(self.parser.num_errors)]


def surgeon_node(op: str, attrs: dict, domain: str | None = None) -> bytes:
    """A model of one node, made as scripts for TensorRT make it."""
    x = gs.Variable("x", np.float32, X.shape)
    y = gs.Variable("y", np.float32)
    node = gs.Node(op, "node", attrs=attrs, inputs=[x], outputs=[y], domain=domain)
    return gs.export_onnx(gs.Graph([node], [x], [y], opset=17)).SerializeToString()


def test_fields_are_those_that_the_creator_declares():
    """In its order and of its types; without a type integers are INT32 and fractions FLOAT32."""
    declared = [
        ("pads", TYPES.UNKNOWN),
        ("k", TYPES.UNKNOWN),
        ("scale", TYPES.UNKNOWN),
        ("scales", TYPES.UNKNOWN),
        ("mode", TYPES.UNKNOWN),
        ("wide", TYPES.INT64),
        ("half", TYPES.FLOAT16),
        ("absent", TYPES.INT32),
        ("names", TYPES.UNKNOWN),
    ]
    attrs = {
        "wide": np.array([2**40]),
        "unheard_of": 3,
        "mode": "wrap",
        "pads": np.array([1, 2, 3, 4], np.int32),
        "half": 0.5,
        "k": 7,
        "names": ["ab", "", "c"],
        "scale": 1.5,
        "scales": [0.25, 2.5],
        "plugin_version": "1",
    }
    with registered(Creator("Fields", declared=declared)) as creator:
        parsed = Parsed(surgeon_node("Fields", attrs))
    assert parsed.taken
    expected = [
        ("pads", TYPES.INT32, np.array([1, 2, 3, 4], np.int32)),
        ("k", TYPES.INT32, np.array([7], np.int32)),
        ("scale", TYPES.FLOAT32, np.array([1.5], np.float32)),
        ("scales", TYPES.FLOAT32, np.array([0.25, 2.5], np.float32)),
        ("mode", TYPES.CHAR, np.frombuffer(b"wrap", np.uint8)),
        ("wide", TYPES.INT64, np.array([2**40])),
        ("half", TYPES.FLOAT16, np.array([0.5], np.float16)),
        ("names", TYPES.CHAR, np.frombuffer(b"ab\0\0c\0", np.uint8)),
    ]
    assert [(name, kind) for name, kind, _ in creator.given] == [e[:2] for e in expected]
    for (name, _, got), (_, _, want) in zip(creator.given, expected):
        if got.dtype.itemsize == 1:
            got = got.view(np.uint8)
        assert got.dtype == want.dtype and got.tolist() == want.tolist(), name
    assert len(parsed.warnings()) == 2
    assert "declares the attribute 'absent', which the node does not have" in parsed.warnings()[0]
    assert "declares no attribute 'unheard_of'" in parsed.warnings()[1]


def test_a_declared_attribute_such_as_the_version_is_a_field_too():
    declared = [("plugin_version", TYPES.CHAR), ("aot", TYPES.INT32)]
    with registered(Creator("Declares", declared=declared)) as creator:
        parsed = Parsed(surgeon_node("Declares", {"plugin_version": "1", "aot": 1}))
    assert parsed.taken and not parsed.warnings()
    assert [(name, bytes(data)) for name, _, data in creator.given] == [
        ("plugin_version", b"1"),
        ("aot", b"\1\0\0\0"),
    ]


def test_integers_that_do_not_fit_are_refused():
    with registered(Creator("Narrow", declared=[("k", TYPES.UNKNOWN)])):
        parsed = Parsed(surgeon_node("Narrow", {"k": 2**31}))
    (error,) = parsed.errors()
    assert "attribute 'k' must be INT32" in error.desc() and "2147483648" in error.desc()


def test_v2_creators_get_the_same_fields():
    class V2(v2_plugins.Creator):
        def create_plugin(self, name, fields):
            self.given = [(f.name, f.type) for f in fields]
            return super().create_plugin(name, fields)

    creator = V2("FieldsV2", lambda given: v2_plugins.Twice())
    creator.field_names = trt.PluginFieldCollection(
        [trt.PluginField(k, np.array([]), TYPES.UNKNOWN) for k in ("b", "a")]
    )
    with v2_plugins.registered(creator):
        parsed = Parsed(
            surgeon_node(
                "FieldsV2", {"a": 1, "c": 2, "b": 0.5, "tensorrt_plugin_shape_input_indices": [0]}
            )
        )
    assert parsed.taken
    assert creator.given == [("b", TYPES.FLOAT32), ("a", TYPES.INT32)]
    assert "is for plugins of V3" in parsed.warnings()[0]
    assert "declares no attribute 'c'" in parsed.warnings()[1]


@pytest.mark.parametrize(
    "attrs, domain, expected",
    [
        ({}, None, ""),
        ({}, "there", ""),  # the empty namespace before the domain's
        ({"plugin_namespace": "here"}, "there", "here"),
        ({"plugin_namespace": "nowhere"}, "there", "there"),
        ({"plugin_namespace": ""}, "there", ""),
    ],
)
def test_the_namespace_is_the_attribute_and_then_the_domain(attrs, domain, expected):
    creators = [Creator("Placed", namespace) for namespace in ("", "here", "there")]
    with registered(*creators):
        node = helper.make_node("Placed", ["x"], ["y"], domain=domain or "", **attrs)
        assert Parsed(model(node, domains=[domain] if domain else [])).taken
    assert [creator.plugin_namespace for creator in creators if creator.calls] == [expected]


class Spread(Twice):
    """Broadcasts its one row to as many rows as its shape input says."""

    plugin_name = "Spread"

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        dims = trt.DimsExprs(2)
        dims[0], dims[1] = shape_inputs[0][0], inputs[0][1]
        return [dims]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        as_array(outputs[0], output_desc[0])[:] = as_array(inputs[0], input_desc[0])


@pytest.mark.parametrize("indices", [[0], [-2], [0, 0], np.array([0], np.int32)])
def test_shape_inputs_are_those_that_the_node_lists(indices):
    """They come behind the other inputs, whatever their place in the node."""
    row = gs.Variable("row", np.float32, (1, 4))
    rows = gs.Variable("rows", np.int64, (1,))
    y = gs.Variable("y", np.float32)
    attrs = {"tensorrt_plugin_shape_input_indices": indices}
    node = gs.Node("Spread", "node", attrs=attrs, inputs=[rows, row], outputs=[y])
    proto = gs.export_onnx(gs.Graph([node], [row, rows], [y], opset=17))
    with registered(Creator("Spread", plugin=Spread())):
        engine = trt.build(proto, values={"rows": ([1], [3], [9])})
        got = engine(row=X[:1], rows=np.array([5]))
    np.testing.assert_array_equal(got, np.repeat(X[:1], 5, 0))


@pytest.mark.parametrize(
    "indices, message",
    [
        ([2], "names the input 2; there are 1"),
        ([-2], "names the input -2"),
        (1.5, "has type 1"),
        (0, "has type 2; expected a list of integers"),
    ],
)
def test_shape_inputs_that_are_not_there(indices, message):
    with registered(Creator("Spread", plugin=Spread())):
        parsed = Parsed(surgeon_node("Spread", {"tensorrt_plugin_shape_input_indices": indices}))
    assert message in parsed.errors()[0].desc()


def relu_function(domain: str, name: str) -> onnx.FunctionProto:
    return helper.make_function(
        domain,
        name,
        ["a"],
        ["b"],
        [helper.make_node("Relu", ["a"], ["b"], "inner")],
        [helper.make_opsetid("", 19)],
    )


def run(parsed: Parsed) -> np.ndarray:
    assert parsed.taken, [error.desc() for error in parsed.errors()]
    return trt.build(parsed.network, timing=False)(X)


OVERRIDE = trt.OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE


@pytest.mark.parametrize(
    "attrs, flag, is_plugin",
    [({}, None, False), ({}, OVERRIDE, True), ({"plugin_namespace": ""}, None, True)],
)
@pytest.mark.parametrize("kind", ["function", "operator"])
def test_what_a_plugin_of_the_same_name_takes_the_place_of(kind, attrs, flag, is_plugin):
    name = "Double" if kind == "function" else "Relu"
    functions = [relu_function("nn", name)] if kind == "function" else []
    node = helper.make_node(name, ["x"], ["y"], domain="nn" if functions else "", **attrs)
    with registered(Creator(name)):
        got = run(Parsed(model(node, functions=functions, domains=["nn"]), flag))
    np.testing.assert_array_equal(got, 2 * X if is_plugin else np.maximum(X, 0))


def test_without_the_plugin_the_namespace_is_warned_of():
    node = helper.make_node("Relu", ["x"], ["y"], "node", plugin_namespace="nowhere")
    parsed = Parsed(model(node))
    np.testing.assert_array_equal(run(parsed), np.maximum(X, 0))
    assert "no plugin of that namespace is registered" in parsed.warnings()[0]


def test_functions_follow_the_same_rules():
    """Attributes that are not declared are left out, defaults hold, and a node may choose."""
    plugin_id = new_id("squash")

    @trtp.register(plugin_id)
    def squash_desc(x: trtp.TensorDesc, limit: float = 2.0, k: int = 1) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def squash(x, limit, k, outputs, stream):
        np.copyto(np.asarray(outputs[0]), limit * np.asarray(x) + k)

    namespace, name = plugin_id.split("::")
    for attrs, domain in (
        ({"plugin_namespace": namespace, "k": 3, "unheard_of": [1, 2]}, None),
        ({"k": 3}, namespace),
    ):
        parsed = Parsed(surgeon_node(name, attrs, domain))
        np.testing.assert_array_equal(run(parsed), 2 * X + 3)
        assert [("unheard_of" in text) for text in parsed.warnings()] == [True] * (domain is None)
    body = relu_function(namespace, name)
    node = helper.make_node(name, ["x"], ["y"], domain=namespace)
    proto = model(node, functions=[body], domains=[namespace])
    np.testing.assert_array_equal(run(Parsed(proto)), np.maximum(X, 0))
    np.testing.assert_array_equal(run(Parsed(proto, OVERRIDE)), 2 * X + 1)


def test_a_plugin_inside_a_function_gets_the_attributes_of_the_call():
    scale = helper.make_node("Inner", ["a"], ["b"], "inner")
    scale.attribute.append(
        onnx.AttributeProto(name="k", ref_attr_name="factor", type=onnx.AttributeProto.INT)
    )
    function = helper.make_function(
        "nn", "Outer", ["a"], ["b"], [scale], [helper.make_opsetid("", 19)], ["factor"]
    )
    node = helper.make_node("Outer", ["x"], ["y"], domain="nn", factor=5)
    with registered(Creator("Inner", declared=[("k", TYPES.UNKNOWN)])) as creator:
        assert Parsed(model(node, functions=[function], domains=["nn"])).taken
    assert [(name, data.tolist()) for name, _, data in creator.given] == [("k", [5])]


class Rounded(Twice):
    """The same, of integers."""

    def get_output_data_types(self, input_types):
        return [trt.int32]


def declaring(where: str, kind: int, op: str) -> bytes:
    """A node `op`, whose output the model says to have that type: as an output, in value_info, or
    in the branch of an If."""
    node = helper.make_node(op, ["x"], ["a"], name="rounding")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    a = helper.make_tensor_value_info("a", kind, None)
    y = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    negate = helper.make_node("Neg", ["a"], ["y"])
    if where == "output":
        graph = helper.make_graph([node], "graph", [x], [a])
    elif where == "value_info":
        graph = helper.make_graph([node, negate], "graph", [x], [y], value_info=[a])
    else:
        branch = helper.make_graph([node, negate], "branch", [], [y], value_info=[a])
        true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
        choose = helper.make_node("If", ["true"], ["y"], then_branch=branch, else_branch=branch)
        graph = helper.make_graph([choose], "graph", [x], [y], [true])
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize("where", ["output", "value_info", "branch"])
def test_a_plugin_makes_the_type_that_the_model_says(where):
    name = new_id("rounded").replace("::", "_")
    with registered(Creator(name, plugin=Rounded())):
        for kind in (TensorProto.INT32, TensorProto.UNDEFINED, TensorProto.INT16):
            assert Parsed(declaring(where, kind, name)).taken, kind
        for kind, word in ((TensorProto.FLOAT, "FP32"), (TensorProto.INT64, "INT64")):
            parsed = Parsed(declaring(where, kind, name))
            assert not parsed.taken
            text = parsed.errors()[0].desc()
            assert all(w in text for w in ("rounding", name, "'a'", word, "INT32")), text


def test_an_output_of_another_type_than_the_model_says_is_warned_of():
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)  # `y` is FLOAT in the model
    parsed = Parsed(model(cast))
    assert parsed.taken
    (warning,) = parsed.warnings()
    assert all(word in warning for word in ("output 'y'", "FP32", "INT32")), warning
