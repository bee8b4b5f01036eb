"""What a new user meets: shapes from an example, and messages that name what the caller can change."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from onnx import helper

import opwright
import opwright.plugin as trtp
from plugin_testing import new_id


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 19, "t": 1]> ' + text)


SUM = parse("g (float[n, 8] x, float[n, 8] y) => (float[n, 8] z) { z = Add(x, y) }")
SIZED = parse("""g (float[a, b] x, int64[2] size) => (float[c, d] y) { y = Reshape(x, size) }""")


@pytest.fixture(scope="module")
def add() -> opwright.Engine:
    shape = ((1, 8), (4, 8), (16, 8))
    return opwright.build(SUM, shapes={"x": shape, "y": shape}, timing=False, device="cpu")


# --- Shapes


def test_a_missing_shape_names_the_arguments_of_build():
    with pytest.raises(opwright.Error) as caught:
        opwright.build(SUM, timing=False)
    message = str(caught.value)
    assert 'shapes={"x": ((1, 8), (4, 8), (16, 8))}' in message and "example=" in message
    assert "set_shape" not in message and "rofile" not in message


def test_a_missing_shape_names_the_method_of_a_profile():
    builder = opwright.Builder(opwright.Logger(opwright.Logger.INTERNAL_ERROR))
    network = builder.create_network()
    network.mark_output(
        network.add_identity(network.add_input("x", opwright.float32, (-1, 8))).get_output(0)
    )
    with pytest.raises(opwright.Error, match=r'set_shape\("x", \(1, 8\), \(4, 8\), \(16, 8\)\)'):
        builder.build_serialized_network(network, builder.create_builder_config())


def test_a_run_names_the_fixed_extent(add):
    given = np.zeros((4, 9), np.float32)
    with pytest.raises(opwright.Error, match="4x9 of input 'x' .*: extent 1 must be 8$"):
        add(given, given)
    given = np.zeros((17, 8), np.float32)
    with pytest.raises(opwright.Error, match="goes from 1x8 to 16x8"):
        add(given, given)


def test_a_fixed_extent_is_no_range():
    with pytest.raises(opwright.Error) as caught:
        opwright.build(SUM, shapes={"x": (4, 9), "y": (4, 8)}, timing=False)
    message = str(caught.value)
    assert "input 'x' has extent 8 on axis 1" in message and "but 9" in message
    assert " to " not in message
    network = opwright.Builder(opwright.Logger(opwright.Logger.ERROR)).create_network()
    x = network.add_input("x", opwright.float32, (-1, 8))
    network.mark_output(network.add_identity(x).get_output(0))
    with pytest.raises(opwright.Error) as caught:
        opwright.build(network, shapes={"x": (4, 9)}, timing=False)
    message = str(caught.value)
    assert "input 'x' is -1x8" in message and "the shape 4x9 is given" in message
    assert "its extent 1 is 8 in every run" in message and " to " not in message


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"shapes": (4, 8)}, "shapes is a dict by the names.*; tuple was given"),
        ({"shapes": {"x": "4x8"}}, "shapes has '4x8' for 'x'; expected a shape, or three"),
        ({"shapes": {"x": 8}}, "shapes has 8 for 'x'; expected a shape"),
        ({"shapes": {"x": ((1, 8), (4, 8))}}, "for 'x'; expected a shape, or three"),
        ({"shapes": {"x": (None, 8)}}, r"shapes has \(None, 8\) for 'x'"),
        ({"values": {"x": (1, 8)}}, r"values has \(1, 8\) for 'x'; expected lists.*min, opt, max"),
        ({"values": [1]}, "values is a dict"),
        ({"model": None}, "the model is the path of an ONNX file.*; NoneType was given"),
        ({"model": 3}, "the model is.*; int was given"),
    ],
)
def test_arguments_of_another_kind_say_what_was_expected(arguments, message):
    with pytest.raises(TypeError, match=f"^build: .*{message}"):
        opwright.build(**{"model": SUM, **arguments})


def test_a_shape_for_an_input_that_there_is_not():
    with pytest.raises(opwright.Error, match="no input 'X'.*did you mean 'x'"):
        opwright.build(SUM, shapes={"X": (4, 8), "y": (4, 8)}, timing=False)


# --- Examples


def test_an_example_gives_shapes_and_the_values_that_decide_them():
    x, size = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([2, 6])
    with pytest.raises(opwright.Error, match="values of shape input 'size'.*example="):
        opwright.build(SIZED, shapes={"x": (3, 4)}, timing=False)
    engine = opwright.build(SIZED, example={"x": x, "size": size}, timing=False)
    np.testing.assert_array_equal(engine({"x": x, "size": size}), x.reshape(2, 6))
    with pytest.raises(opwright.Error, match="has only .*2.*6"):
        engine(x, np.array([6, 2]))


def test_what_shapes_and_values_say_counts_before_the_example():
    x = np.zeros((4, 8), np.float32)
    ranges = {name: ((1, 8), (4, 8), (16, 8)) for name in "xy"}
    engine = opwright.build(SUM, example={"x": x, "y": x}, shapes=ranges, timing=False)
    assert engine(np.ones((9, 8), np.float32), np.ones((9, 8), np.float32)).shape == (9, 8)


@pytest.mark.parametrize(
    "example", [np.zeros(3), [np.zeros(3)], {"x": None}, {"x": "text"}, {0: np.zeros(3)}]
)
def test_an_example_is_a_dict_of_arrays(example):
    with pytest.raises(TypeError, match="example.*dict of arrays"):
        opwright.build(SUM, example=example)


def test_an_example_of_another_name_is_refused_by_name():
    x = np.zeros((4, 8), np.float32)
    with pytest.raises(TypeError, match=r"example has 'z'; the model's inputs are \['x', 'y'\]"):
        opwright.build(SUM, example={"x": x, "y": x, "z": x})


def test_examples_of_modules_are_args():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="args are examples"):
        opwright.build(torch.nn.ReLU(), example={"x": torch.ones(1)})


# --- Calls


def test_a_dict_of_arrays(add):
    x, y = np.ones((2, 8), np.float32), np.full((2, 8), 2, np.float32)
    np.testing.assert_array_equal(add({"y": y, "x": x}), x + y)
    np.testing.assert_array_equal(add({"y": y}, x=x), x + y)
    np.testing.assert_array_equal(add.submit({"y": y, "x": x}).result(), x + y)


X = np.zeros((2, 8), np.float32)


@pytest.mark.parametrize(
    "args, kwargs, error, message",
    [
        ((None, X), {}, opwright.Error, r"'x' \(FP32 -1x8\): None was given.*expected an array"),
        (("hello", X), {}, opwright.Error, r"'x' \(FP32 -1x8\): NumPy makes no array of the str"),
        (([[1], [1, 2]], X), {}, opwright.Error, "'x'.*NumPy makes no array of the list"),
        ((X,), {}, opwright.Error, r"'y' \(FP32 -1x8\) is missing; the engine takes 'x' \(FP32"),
        ((X, X, X), {}, opwright.Error, r"takes 2 inputs: 'x' \(FP32 -1x8\), 'y'.*; 3 were given"),
        ((X,), {"Y": X}, opwright.Error, "no input 'Y'.*did you mean 'y'"),
        (({"x": X, "z": X},), {}, opwright.Error, "no input 'z'; it has 'x'"),
        (({0: X},), {}, TypeError, "names of its inputs.*the key 0"),
        (({"x": X, "y": X},), {"x": X}, opwright.Error, "'x'.* given twice"),
        ((X.astype(np.float64), X), {}, opwright.Error, r'float64 was given.*x.astype\("float32"\)'),
        ((np.zeros((2, 9), np.float32), X), {}, opwright.Error, "2x9 of input 'x' is outside"),
    ],
)  # fmt: skip
def test_wrong_arguments_say_what_was_expected(add, args, kwargs, error, message):
    with pytest.raises(error, match=message):
        add(*args, **kwargs)


def test_a_tensor_of_another_type_says_how_torch_converts_it(add):
    torch = pytest.importorskip("torch")
    with pytest.raises(opwright.Error, match=r"x\.to\(torch\.float32\)"):
        add(torch.zeros(2, 8, dtype=torch.float64), torch.zeros(2, 8))


# --- Plugin nodes


def plugin(default: bool) -> str:
    name = new_id("squash_of_a_first_build")  # no other file registers this name
    if default:

        @trtp.register(name)
        def squash_desc(x: trtp.TensorDesc, limit: float = 2.0) -> trtp.TensorDesc:
            return x.like()
    else:

        @trtp.register(name)
        def squash_desc(x: trtp.TensorDesc, limit: float) -> trtp.TensorDesc:
            return x.like()

    @trtp.impl(name)
    def squash(x, limit, outputs, stream):
        np.copyto(np.asarray(outputs[0]), limit * np.asarray(x))

    return name


def node(plugin_id: str, **attributes) -> onnx.ModelProto:
    domain, name = plugin_id.split("::")
    made = helper.make_node(name, ["x"], ["y"], domain=domain, **attributes)
    value = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [3]) for n in "xy"]
    graph = helper.make_graph([made], "g", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_an_unknown_operator_comes_with_what_may_be_meant():
    model = parse("g (float[3] x) => (float[3] y) { a = Rleu(x) y = t.squash(a) }")
    domain, name = plugin(True).split("::")
    model.graph.node[1].op_type = name
    with pytest.raises(opwright.Error) as caught:
        opwright.build(model)
    first, second = str(caught.value).splitlines()
    assert "operator 'Rleu' is unknown" in first and first.endswith("; did you mean 'Relu'?")
    assert f"'{name}' of domain 't' is unknown" in second
    assert second.endswith(f"; '{domain}::{name}' is registered")
    misspelled = node(f"{domain}::{name}s")
    with pytest.raises(opwright.Error, match=f"did you mean '{name}'"):
        opwright.build(misspelled)


def test_a_misspelled_attribute_without_a_default_is_an_error():
    with pytest.raises(opwright.Error, match="needs attribute 'limit'.*'limt', which it does not"):
        opwright.build(node(plugin(False), limt=3.0), timing=False)


def test_a_misspelled_attribute_with_a_default_is_a_warning(caplog):
    engine = opwright.build(node(plugin(True), limt=3.0), timing=False)
    np.testing.assert_array_equal(engine(np.ones(3, np.float32)), np.full(3, 2))
    (record,) = [r for r in caplog.records if "limt" in r.getMessage()]
    assert record.levelname == "WARNING" and "did you mean 'limit'?" in record.getMessage()


@pytest.mark.parametrize(
    "given, shown",
    [
        ("fast", r"limit = 'fast' \(string\)"),
        (["a", "b"], r"limit = \['a', 'b'\] \(strings\)"),
        ([1, 2], r"limit = \[1, 2\] \(ints\)"),
        (2**60 + 1, r"limit = 1152921504606846977 \(int\)"),
    ],
)
def test_an_attribute_of_another_type_is_shown_with_both_types(given, shown):
    with pytest.raises(
        opwright.Error, match=shown + " is given, the plugin declares `limit: float`"
    ):
        opwright.build(node(plugin(False), limit=given), timing=False)
