"""How nodes of an ONNX model find their plugins and what these are given, with creators in Python.

The rules are those of NVIDIA's parser, onnx-tensorrt; each group names the functions that they were read from:
- `FallbackPluginImporter` (onnxOpImporters.cpp): `plugin_version`, default "1"; `plugin_namespace`, default ""; since
  10.10, where nothing is found so, the node's domain is tried as the namespace;
- `loadFields`: for each field that the creator declares, in that order, the node's attribute of that name; its type
  follows from the attribute alone; a declared field without an attribute gives a warning and is left out;
- `addPluginWithCreator`: the attribute `tensorrt_plugin_shape_input_indices`;
- `parseNode` (ModelImporter.cpp): since 10.15, a node with the attribute `plugin_namespace`, or any node when the
  parser has the flag ENABLE_PLUGIN_OVERRIDE, is a plugin's if there is one (`isNodeInPluginRegistry`); else an operator
  of ONNX, else a local function, else a plugin. (10.7 to 10.14 took a plugin before a local function in every case,
  older ones never.)
"""

import numpy as np
from onnx import TensorProto, helper

import opwright.trt as trt
from cases import LOGGER, Log, build, infer, load, new_context, random, start, view

# ---- plugins that multiply by a number, with creators that note what they are given ----

GIVEN = []  # by creators: (label of the creator, [(name, type, data) of each field])
INT32, FLOAT32, CHAR = (
    trt.PluginFieldType.INT32,
    trt.PluginFieldType.FLOAT32,
    trt.PluginFieldType.CHAR,
)
UNKNOWN = trt.PluginFieldType.UNKNOWN


def note(label, fields):
    seen = []
    for field in fields:
        try:
            data = np.array(field.data)
        except Exception:  # TensorRT's Python has no arrays for some types
            data = None
        seen.append((field.name, field.type, data))
    GIVEN.append((label, seen))


class Times3(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    """Multiplies by a factor; an IPluginV3."""

    def __init__(self, name, factor):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace, self.num_outputs = (
            name,
            "1",
            "",
            1,
        )
        self.factor, self.counts = factor, None

    def get_capability_interface(self, type):
        return self

    def clone(self):
        copy = type(self)(self.plugin_name, self.factor)
        copy.__dict__.update(self.__dict__)
        return copy

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [trt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and (
            desc.type == trt.float32 or 0 < pos < num_inputs
        )

    def configure_plugin(self, inputs, outputs):
        pass

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection(
            [trt.PluginField("factor", np.array([self.factor], np.float32), FLOAT32)]
        )

    def on_shape_change(self, inputs, outputs):
        pass

    def set_tactic(self, tactic):
        pass

    def attach_to_context(self, resource_context):
        return self.clone()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = view(inputs[0], input_desc[0].dims, np.float32)
        view(outputs[0], output_desc[0].dims, np.float32)[...] = x * np.float32(self.factor)


class Fill(Times3):
    """Fills a matrix, whose shape is the value of a shape input, with the first element times the factor."""

    def get_output_shapes(self, inputs, shape_inputs, builder):
        assert len(inputs) == 1, f"get_output_shapes got {len(inputs)} ordinary inputs, expected 1"
        assert len(shape_inputs) == 1, (
            f"get_output_shapes got {len(shape_inputs)} shape inputs, expected 1"
        )
        assert len(shape_inputs[0]) == 2, (
            f"the shape input has {len(shape_inputs[0])} elements, expected 2"
        )
        return [trt.DimsExprs([shape_inputs[0][0], shape_inputs[0][1]])]

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = view(inputs[0], input_desc[0].dims, np.float32)
        view(outputs[0], output_desc[0].dims, np.float32)[...] = x.ravel()[0] * np.float32(
            self.factor
        )


class Times2(trt.IPluginV2DynamicExt):
    """Multiplies by a factor; an IPluginV2DynamicExt. Further inputs are not looked at."""

    def __init__(self, name, factor):
        trt.IPluginV2DynamicExt.__init__(self)
        self.num_outputs, self.plugin_type, self.plugin_version, self.plugin_namespace = (
            1,
            name,
            "1",
            "",
        )
        self.factor = factor

    def clone(self):
        copy = Times2(self.plugin_type, self.factor)
        copy.__dict__.update(self.__dict__)
        return copy

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, builder):
        return trt.DimsExprs(inputs[0])

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos]
        return desc.format == trt.TensorFormat.LINEAR and (
            desc.type == trt.float32 or 0 < pos < num_inputs
        )

    def configure_plugin(self, inputs, outputs):
        pass

    def serialize(self):
        return np.array([self.factor], np.float32).tobytes()

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = view(inputs[0], input_desc[0].dims, np.float32)
        view(outputs[0], output_desc[0].dims, np.float32)[...] = x * np.float32(self.factor)
        return 0


def register(kind, name, space="", fields=(), factor=10.0, version="1", plugin=None):
    """Registers a creator for a V3 or V2 plugin (`kind`), which declares `fields`: names or (name, type) pairs."""
    declared = [f if isinstance(f, tuple) else (f, UNKNOWN) for f in fields]
    label = f"{space}::{name} {version}"

    def fill(creator):
        creator.name, creator.plugin_version, creator.plugin_namespace = name, version, space
        creator.field_names = trt.PluginFieldCollection(
            [trt.PluginField(field, np.array([]), type) for field, type in declared]
        )

    class CreatorV3(trt.IPluginCreatorV3One):
        def __init__(self):
            trt.IPluginCreatorV3One.__init__(self)
            fill(self)

        def create_plugin(self, layer, field_collection, phase):
            if phase == trt.TensorRTPhase.BUILD:
                note(label, field_collection)
            made = (plugin or Times3)(name, factor)
            made.plugin_version, made.plugin_namespace = version, space
            return made

    class CreatorV2(trt.IPluginCreator):
        def __init__(self):
            trt.IPluginCreator.__init__(self)
            fill(self)

        def create_plugin(self, layer, field_collection):
            note(label, field_collection)
            made = Times2(name, factor)
            made.plugin_version, made.plugin_namespace = version, space
            return made

        def deserialize_plugin(self, layer, data):
            made = Times2(name, float(np.frombuffer(bytes(data), np.float32)[0]))
            made.plugin_version, made.plugin_namespace = version, space
            return made

    creator = CreatorV3() if kind == "v3" else CreatorV2()
    assert trt.get_plugin_registry().register_creator(creator, space), (
        "register_creator returned False"
    )
    return creator


# ---- models of one node ----

ALIVE = []  # what a parsed network needs


def model_of(node, domains=(), initializers=(), functions=(), outputs=1, shape=(2, 3)):
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [
            helper.make_tensor_value_info(f"y{i}" if i else "y", TensorProto.FLOAT, None)
            for i in range(outputs)
        ],
        initializer=list(initializers),
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions))
    model.ir_version = 8
    return model.SerializeToString()


def parse(model, logger=LOGGER, flags=()):
    """(the network's parts, the parser's errors) of a parsed model."""
    builder, network, config = start(logger=logger)
    parser = trt.OnnxParser(network, logger)
    for flag in flags:
        parser.set_flag(getattr(trt.OnnxParserFlag, flag))
    ok = parser.parse(model)
    errors = [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
    assert ok == (not errors), f"parse returned {ok} with the errors {errors}"
    ALIVE.append(parser)
    return (builder, network, config), errors


def run(model, logger=LOGGER, flags=()):
    """The factor by which the model multiplies."""
    parts, errors = parse(model, logger, flags)
    assert not errors, f"the parser says {errors}"
    x = random((2, 3)) + 3
    y = infer(new_context(load(build(*parts))), {"x": x})["y"]
    ratio = y / x
    np.testing.assert_allclose(ratio, ratio.ravel()[0], rtol=1e-5)
    return float(round(ratio.ravel()[0], 3))


def made_by(label):
    labels = [one for one, _ in GIVEN]
    assert labels == [label], f"plugins were created by {labels}, expected {[label]}"


def fields_of():
    assert len(GIVEN) == 1, f"{len(GIVEN)} plugins were created, expected 1"
    return GIVEN[0][1]


# ---- a: where the creator is looked for (FallbackPluginImporter) ----


def test_domain_without_namespace_finds_v3_creator_in_none():
    register("v3", "AcceptDomain")
    assert (
        run(model_of(helper.make_node("AcceptDomain", ["x"], ["y"], domain="TRT"), ["TRT"])) == 10
    )
    made_by("::AcceptDomain 1")


def test_domain_without_namespace_finds_v2_creator_in_none():
    register("v2", "AcceptDomainV2")
    assert (
        run(
            model_of(
                helper.make_node("AcceptDomainV2", ["x"], ["y"], domain="mmdeploy"), ["mmdeploy"]
            )
        )
        == 10
    )
    made_by("::AcceptDomainV2 1")


def test_domain_is_a_namespace_for_v3():
    register("v3", "AcceptOwn", "mmdeploy")
    assert (
        run(model_of(helper.make_node("AcceptOwn", ["x"], ["y"], domain="mmdeploy"), ["mmdeploy"]))
        == 10
    )
    made_by("mmdeploy::AcceptOwn 1")


def test_domain_is_a_namespace_for_v2():
    register("v2", "AcceptOwnV2", "TRT")
    assert run(model_of(helper.make_node("AcceptOwnV2", ["x"], ["y"], domain="TRT"), ["TRT"])) == 10
    made_by("TRT::AcceptOwnV2 1")


def test_no_namespace_comes_before_the_domain():
    # FallbackPluginImporter asks for plugin_namespace, which is "" by default, and for the domain only then.
    register("v3", "AcceptBoth", "TRT", factor=5.0)
    register("v3", "AcceptBoth", "", factor=10.0)
    assert run(model_of(helper.make_node("AcceptBoth", ["x"], ["y"], domain="TRT"), ["TRT"])) == 10
    made_by("::AcceptBoth 1")


def test_plugin_namespace_comes_before_the_domain():
    register("v3", "AcceptNamed", "TRT", factor=5.0)
    register("v3", "AcceptNamed", "", factor=7.0)
    register("v3", "AcceptNamed", "mine", factor=10.0)
    node = helper.make_node("AcceptNamed", ["x"], ["y"], domain="TRT", plugin_namespace="mine")
    assert run(model_of(node, ["TRT"])) == 10
    made_by("mine::AcceptNamed 1")


def test_plugin_version_is_1_unless_said():
    register("v3", "AcceptVersion", version="1", factor=5.0)
    register("v3", "AcceptVersion", version="2", factor=10.0)
    assert run(model_of(helper.make_node("AcceptVersion", ["x"], ["y"]))) == 5
    assert run(model_of(helper.make_node("AcceptVersion", ["x"], ["y"], plugin_version="2"))) == 10


def test_no_creator_anywhere_is_an_error_that_names_the_node():
    node = helper.make_node("AcceptNobody", ["x"], ["y"], name="lonely", domain="TRT")
    _, errors = parse(model_of(node, ["TRT"]), Log())
    assert errors, "a node without a plugin was parsed"
    assert any("AcceptNobody" in error or "lonely" in error for error in errors), (
        f"{errors} name no node"
    )


# ---- b: the types of fields (loadFields); nodes of the default domain from here on ----

ATTRIBUTES = {"i": 7, "ii": [3, -1, 2], "f": 0.5, "ff": [0.25, 1.5], "s": "text"}


def typed(kind, name):
    register(kind, name, fields=list(ATTRIBUTES))
    assert run(model_of(helper.make_node(name, ["x"], ["y"], **ATTRIBUTES))) == 10
    return {name: (type, data) for name, type, data in fields_of()}


def check_field(given, name, type, want):
    assert name in given, f"there is no field {name}"
    assert given[name][0] == type, f"the field {name} is {given[name][0]}, expected {type}"
    data = given[name][1]
    assert data is not None and list(np.ravel(data)) == list(np.ravel(want)), (
        f"the field {name} is {data}"
    )


def check_text(given):
    assert given["s"][0] == CHAR, f"the field s is {given['s'][0]}, expected {CHAR}"
    text = np.asarray(given["s"][1]).tobytes().rstrip(b"\x00")  # copyField ends texts with a 0
    assert text == b"text", f"the field s is {text!r}"


def test_v3_int_is_int32():
    check_field(typed("v3", "AcceptTypes"), "i", INT32, [7])


def test_v3_ints_are_int32():
    check_field(typed("v3", "AcceptTypes"), "ii", INT32, [3, -1, 2])


def test_v3_float_is_float32():
    check_field(typed("v3", "AcceptTypes"), "f", FLOAT32, [0.5])


def test_v3_floats_are_float32():
    check_field(typed("v3", "AcceptTypes"), "ff", FLOAT32, [0.25, 1.5])


def test_v3_string_is_char():
    check_text(typed("v3", "AcceptTypes"))


def test_v2_int_and_ints_are_int32():
    given = typed("v2", "AcceptTypesV2")
    check_field(given, "i", INT32, [7])
    check_field(given, "ii", INT32, [3, -1, 2])


def test_v2_float_and_floats_are_float32():
    given = typed("v2", "AcceptTypesV2")
    check_field(given, "f", FLOAT32, [0.5])
    check_field(given, "ff", FLOAT32, [0.25, 1.5])


def test_v2_string_is_char():
    check_text(typed("v2", "AcceptTypesV2"))


def test_declared_types_that_fit_are_kept():
    fields = [("i", INT32), ("ii", INT32), ("f", FLOAT32), ("ff", FLOAT32), ("s", CHAR)]
    register("v3", "AcceptDeclared", fields=fields)
    node = helper.make_node("AcceptDeclared", ["x"], ["y"], **ATTRIBUTES)
    assert run(model_of(node)) == 10
    given = {name: (type, data) for name, type, data in fields_of()}
    check_field(given, "i", INT32, [7])
    check_field(given, "ii", INT32, [3, -1, 2])
    check_field(given, "f", FLOAT32, [0.5])
    check_field(given, "ff", FLOAT32, [0.25, 1.5])
    check_text(given)


def test_tensor_attributes_keep_their_types():
    tensors = {
        "t32": (np.array([1, 2], np.int32), INT32),
        "t8": (np.array([1, -2], np.int8), trt.PluginFieldType.INT8),
        "tf": (np.array([1.5], np.float32), FLOAT32),
        "th": (np.array([1.5], np.float16), trt.PluginFieldType.FLOAT16),
        "td": (np.array([1.5], np.float64), trt.PluginFieldType.FLOAT64),
    }
    attributes = {
        name: helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape, a)
        for name, (a, _) in tensors.items()
    }
    register("v3", "AcceptTensors", fields=list(tensors))
    node = helper.make_node("AcceptTensors", ["x"], ["y"], **attributes)
    assert run(model_of(node)) == 10
    for name, type, data in fields_of():
        assert type == tensors[name][1], f"the field {name} is {type}, expected {tensors[name][1]}"
        if name != "th" and data is not None:
            assert list(np.ravel(data)) == list(tensors[name][0]), f"the field {name} is {data}"


# ---- c and e: which fields, in which order (loadFields) ----


def check_order(kind, name):
    register(kind, name, fields=["third", "first", "second"])
    node = helper.make_node(name, ["x"], ["y"], first=1, second=2, third=3)
    assert run(model_of(node)) == 10
    names = [field for field, _, _ in fields_of()]
    assert names == ["third", "first", "second"], (
        f"the fields came as {names}, declared were third, first, second"
    )


def test_v3_fields_come_in_the_order_declared():
    check_order("v3", "AcceptOrder")


def test_v2_fields_come_in_the_order_declared():
    check_order("v2", "AcceptOrderV2")


def check_undeclared(kind, name, logger=LOGGER):
    register(kind, name, fields=["wanted"])
    node = helper.make_node(name, ["x"], ["y"], other=5, wanted=1, another="text")
    assert run(model_of(node), logger) == 10
    names = [field for field, _, _ in fields_of()]
    assert names == ["wanted"], f"the fields are {names}, only 'wanted' is declared"


def test_v3_undeclared_attributes_are_left_out():
    check_undeclared("v3", "AcceptUndeclared")


def test_v2_undeclared_attributes_are_left_out():
    check_undeclared("v2", "AcceptUndeclaredV2")


def test_the_log_names_attributes_that_are_left_out():
    # Ours: onnx-tensorrt leaves them out without a word, so that a misspelt attribute stays unseen.
    log = Log()
    check_undeclared("v3", "AcceptUndeclaredLog", log)
    assert log.has("other") and log.has("another"), (
        f"no message names them: {[m for _, m in log.lines][:5]}"
    )


def test_nothing_declared_nothing_given():
    register("v3", "AcceptNothing")
    node = helper.make_node(
        "AcceptNothing", ["x"], ["y"], plugin_version="1", plugin_namespace="", one=1
    )
    assert run(model_of(node)) == 10
    assert fields_of() == [], f"the fields are {[f for f, _, _ in fields_of()]}, none is declared"


def check_absent(kind, name, logger=LOGGER):
    register(kind, name, fields=[("gone", INT32), "here", ("away", FLOAT32)])
    node = helper.make_node(name, ["x"], ["y"], here=4)
    assert run(model_of(node), logger) == 10
    names = [field for field, _, _ in fields_of()]
    assert names == ["here"], f"the fields are {names}, the node has only 'here'"


def test_v3_absent_attributes_are_not_passed():
    check_absent("v3", "AcceptAbsent")


def test_v2_absent_attributes_are_not_passed():
    check_absent("v2", "AcceptAbsentV2")


def test_absent_attributes_give_a_warning():
    log = Log()
    check_absent("v3", "AcceptAbsentLog", log)
    warning = (trt.ILogger.Severity.WARNING,)
    for name in ("gone", "away"):
        assert log.has(name, severities=warning), (
            f"no warning names {name}: {[m for _, m in log.lines][:5]}"
        )


# ---- d: shape inputs (addPluginWithCreator) ----


def shape_model(name, **attributes):
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [4, 5])
    return model_of(
        helper.make_node(name, ["x", "shape"], ["y"], **attributes), initializers=[shape]
    )


def run_fill(model):
    parts, errors = parse(model)
    assert not errors, f"the parser says {errors}"
    engine = load(build(*parts))
    assert tuple(engine.get_tensor_shape("y")) == (4, 5), (
        f"y has shape {tuple(engine.get_tensor_shape('y'))}"
    )
    x = random((2, 3)) + 3
    np.testing.assert_allclose(
        infer(new_context(engine), {"x": x})["y"], np.full((4, 5), x[0, 0] * 10), rtol=1e-6
    )


def test_shape_input_by_its_index():
    register("v3", "AcceptShape", plugin=Fill)
    run_fill(shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=[1]))


def test_shape_input_by_a_negative_index():
    register("v3", "AcceptShape", plugin=Fill)
    run_fill(shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=[-1]))


def test_shape_input_named_twice():
    register("v3", "AcceptShape", plugin=Fill)
    run_fill(shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=[1, -1]))


def test_shape_indices_are_no_field():
    register("v3", "AcceptShape", plugin=Fill, fields=["a"])
    run_fill(shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=[1], a=2))
    assert [field for field, _, _ in fields_of()] == ["a"]


def test_shape_index_out_of_range_is_an_error():
    register("v3", "AcceptShape", plugin=Fill)
    run_fill(shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=[1]))
    for index in (2, -3):
        _, errors = parse(
            shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=[index]), Log()
        )
        assert errors, f"the index {index} of a node with 2 inputs was accepted"


def test_shape_indices_must_be_a_list():
    register("v3", "AcceptShape", plugin=Fill)
    run_fill(shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=[1]))
    _, errors = parse(shape_model("AcceptShape", tensorrt_plugin_shape_input_indices=1), Log())
    assert errors, "an attribute of type INT was accepted"


def test_shape_indices_are_ignored_for_v2():
    register("v2", "AcceptShapeV2")
    log = Log()
    assert run(shape_model("AcceptShapeV2", tensorrt_plugin_shape_input_indices=[1]), log) == 10
    assert log.has("hape input", severities=(trt.ILogger.Severity.WARNING,)), (
        "no warning says that they are ignored"
    )


# ---- f: operators, functions and plugins of the same name (parseNode) ----


def twice(name, domain="acceptance"):
    add = helper.make_node("Add", ["a", "a"], ["b"])
    return helper.make_function(domain, name, ["a"], ["b"], [add], [helper.make_opsetid("", 17)])


def function_model(name, **attributes):
    node = helper.make_node(name, ["x"], ["y"], domain="acceptance", **attributes)
    return model_of(node, ["acceptance"], functions=[twice(name)])


def test_a_local_function_is_imported():
    assert run(function_model("AcceptFunction")) == 2


def test_plugin_namespace_prefers_the_plugin_to_the_function():
    register("v3", "AcceptFunction")
    assert run(function_model("AcceptFunction", plugin_namespace="")) == 10
    made_by("::AcceptFunction 1")


def test_plugin_override_prefers_the_plugin_to_the_function():
    register("v3", "AcceptFunction")
    assert run(function_model("AcceptFunction"), flags=["ENABLE_PLUGIN_OVERRIDE"]) == 10
    made_by("::AcceptFunction 1")


def test_else_the_function_comes_before_the_plugin():
    register("v3", "AcceptFunction")
    assert run(function_model("AcceptFunction")) == 2


def test_plugin_namespace_without_a_plugin_falls_back_to_the_function():
    assert run(function_model("AcceptFunction", plugin_namespace="nowhere")) == 2


def test_plugin_namespace_prefers_the_plugin_to_the_operator():
    register("v3", "Relu")
    assert run(model_of(helper.make_node("Relu", ["x"], ["y"], plugin_namespace=""))) == 10
    made_by("::Relu 1")


def test_plugin_override_prefers_the_plugin_to_the_operator():
    register("v3", "Relu")
    assert (
        run(model_of(helper.make_node("Relu", ["x"], ["y"])), flags=["ENABLE_PLUGIN_OVERRIDE"])
        == 10
    )
    made_by("::Relu 1")


def test_else_the_operator_comes_before_the_plugin():
    register("v3", "Relu")
    x = random((2, 3))
    parts, errors = parse(model_of(helper.make_node("Relu", ["x"], ["y"])))
    assert not errors and not GIVEN, f"{errors}, {GIVEN}"
    np.testing.assert_array_equal(
        infer(new_context(load(build(*parts))), {"x": x})["y"], np.maximum(x, 0)
    )
