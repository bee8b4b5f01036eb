"""The ONNX parser's errors, flags, subgraphs, weights and version."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model

import opwright as trt
import opwright.trt
from onnx_graphs import assert_close
from v3_plugins import Log

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
FLAG = trt.OnnxParserFlag


def new_parser() -> tuple[trt.OnnxParser, trt.INetworkDefinition, Log]:
    log = Log()
    network = trt.Builder(log).create_network()
    return trt.OnnxParser(network, log), network, log


def run(network: trt.INetworkDefinition) -> np.ndarray:
    return trt.build(network, timing=False)(X)


def partly() -> onnx.ModelProto:
    """Of nodes 0 to 6 nobody knows 2 and 5; all tensors have types."""
    model = parse_model("""
        <ir_version: 10, opset_import: ["" : 19, "nn" : 1]>
        net (float[3, 4] x) => (float[3, 4] y) {
            a = Relu (x)  b = Neg (a)  c = nn.Frob (b)
            d = Abs (c)  e = Exp (d)  f = nn.Whirl (e)  y = Neg (f)
        }""")
    for name in "abcdef":
        model.graph.value_info.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape)
        )
    return model


def test_errors_stay_until_they_are_cleared():
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    network = trt.Builder(logger).create_network()
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(b"this is no model")
    assert parser.num_errors == 1
    parser.clear_errors()
    assert parser.num_errors == 0


def test_the_version_is_the_level_of_the_api():
    version = trt.get_nv_onnx_parser_version()
    parts = version // 10000, version // 100 % 100, version % 100
    assert ".".join(map(str, parts)) == opwright.trt.__version__


def test_flags_are_bits():
    parser, *_ = new_parser()
    assert parser.flags == 1 << int(FLAG.NATIVE_INSTANCENORM) and parser.get_flag(
        FLAG.NATIVE_INSTANCENORM
    )
    parser.set_flag(FLAG.ENABLE_PLUGIN_OVERRIDE)
    parser.clear_flag(FLAG.NATIVE_INSTANCENORM)
    assert parser.flags == 1 << int(FLAG.ENABLE_PLUGIN_OVERRIDE)
    assert not parser.get_flag(FLAG.NATIVE_INSTANCENORM)
    parser.flags = 0
    assert not parser.get_flag(FLAG.ENABLE_PLUGIN_OVERRIDE)
    assert [f.name for f in FLAG] == [
        "NATIVE_INSTANCENORM",
        "ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA",
        "REPORT_CAPABILITY_DLA",
        "ENABLE_PLUGIN_OVERRIDE",
        "ADJUST_FOR_DLA",
    ]


def test_there_is_no_dla_to_ask_about():
    parser, *_ = new_parser()
    parser.set_flag(FLAG.REPORT_CAPABILITY_DLA)
    assert not parser.parse(partly().SerializeToString())
    assert parser.get_error(0).code() == trt.ErrorCode.UNSUPPORTED_GRAPH
    assert "REPORT_CAPABILITY_DLA" in parser.get_error(0).desc()


def test_an_error_says_where_it_comes_from():
    parser, *_ = new_parser()
    assert not parser.parse(partly().SerializeToString())
    error = parser.get_error(0)
    assert error.code() is trt.ErrorCode.UNSUPPORTED_NODE
    assert str(error.code()) == repr(error.code()) == "UNSUPPORTED_NODE"
    assert (error.node(), error.node_name(), error.node_operator()) == (2, "Frob_2", "Frob")
    assert error.file().endswith(".cpp") and error.line() > 0 and error.func().isidentifier()
    assert error.local_function_stack() == [] and error.local_function_stack_size() == 0
    expected = f"In node 2 with name: Frob_2 and operator: Frob ({error.func()}): UNSUPPORTED_NODE:"
    assert str(error) == repr(error) == f"{expected} {error.desc()}"

    assert not parser.parse(b"this is no model")
    error = parser.get_error(0)
    assert error.code() == trt.ErrorCode.MODEL_DESERIALIZE_FAILED and error.node() == -1
    assert str(error) == f"({error.func()}): MODEL_DESERIALIZE_FAILED: {error.desc()}"
    assert int(trt.ErrorCode.REFIT_FAILED) == 14


CODES = trt.ErrorCode


@pytest.mark.parametrize(
    "text, code",
    [
        ("y = Relu <axis = 1> (nothing)", CODES.INVALID_NODE),
        ("y = Concat <axis = 7> (x, x)", CODES.UNSUPPORTED_NODE_ATTR),
        ("y = Flatten <axis = 1.5> (x)", CODES.UNSUPPORTED_NODE_ATTR),
        ("y = Cast <to = 14> (x)", CODES.UNSUPPORTED_NODE_DATATYPE),
        ("i = Cast <to = 7> (x)  y = Reshape (x, i)", CODES.UNSUPPORTED_NODE_SHAPE),
        ("i = Cast <to = 7> (v)  y = Expand (v, i)", CODES.UNSUPPORTED_NODE_INPUT),
        ("s = Shape (x)  y = Unsqueeze (x, s)", CODES.UNSUPPORTED_NODE_DYNAMIC),
        ("y = InstanceNormalization (v, v, v)", CODES.UNSUPPORTED_NODE_SHAPE),
    ],
)
def test_kinds_of_errors(text, code):
    model = parse_model(f"""<ir_version: 10, opset_import: ["" : 19]>
        net (float[n, 4] x, float[4] v) => (float y) {{ {text} }}""")
    parser, *_ = new_parser()
    assert not parser.parse(model.SerializeToString())
    assert parser.get_error(0).code() == code, parser.get_error(0).desc()


def test_subgraphs_lie_between_what_cannot_be_taken_over():
    parser, *_ = new_parser()
    assert parser.num_subgraphs == 0
    assert not parser.supports_model_v2(partly().SerializeToString())
    assert [e.node() for e in map(parser.get_error, range(parser.num_errors))] == [2, 5]
    assert [parser.get_subgraph_nodes(i) for i in range(parser.num_subgraphs)] == [
        [0, 1],
        [3, 4],
        [6],
    ]
    assert not any(map(parser.is_subgraph_supported, range(parser.num_subgraphs)))
    for ask in (parser.is_subgraph_supported, parser.get_subgraph_nodes):
        for index in (3, -1):
            with pytest.raises(IndexError):
                ask(index)


def test_a_supported_model_is_one_subgraph_and_is_in_the_network():
    model = partly()
    for node in model.graph.node:
        node.op_type = "Relu" if node.domain else node.op_type
        node.domain = ""
    parser, network, _ = new_parser()
    assert parser.supports_model_v2(memoryview(model.SerializeToString()))
    assert parser.num_subgraphs == 1 and parser.is_subgraph_supported(0)
    assert parser.get_subgraph_nodes(0) == list(range(7))
    # -relu(x) <= 0, so its relu is 0 and exp(|0|) is 1.
    assert_close(run(network), np.full_like(X, -1))


def test_errors_of_inputs_are_collected_and_exclude_what_uses_them():
    model = parse_model("""<ir_version: 10, opset_import: ["" : 19]>
        net (float[2] x, complex64[2] c, float[2] z) => (float[2] y) {
            a = Abs (x)  b = Neg (c)  d = Add (a, b)  y = Add (d, z)
        }""")
    model.graph.input[2].type.tensor_type.ClearField("shape")
    parser, *_ = new_parser()
    assert not parser.supports_model_v2(model.SerializeToString())
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    assert [(e.code(), e.node()) for e in errors] == [
        (CODES.UNSUPPORTED_NODE_DATATYPE, -1),
        (CODES.INVALID_GRAPH, -1),
    ]
    assert [parser.get_subgraph_nodes(i) for i in range(parser.num_subgraphs)] == [[0], [2]]


def test_a_model_without_nodes_that_fail_has_no_subgraphs():
    """What is wrong lies elsewhere, so cutting it up would not help."""
    model = partly()
    del model.graph.node[2:]
    parser, *_ = new_parser()
    assert not parser.supports_model_v2(model.SerializeToString())
    assert parser.num_subgraphs == 0
    assert parser.get_error(0).code() == CODES.INVALID_GRAPH


WEIGHTS = np.array([1, -2, 3, -4], np.float32)


def with_external(path) -> onnx.ModelProto:
    """x + w + v, where w lies in a file beside the model."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "v"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)],
        [
            numpy_helper.from_array(WEIGHTS, "w"),
            helper.make_tensor("v", TensorProto.DOUBLE, [1], [0.5]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    onnx.save(model, path, save_as_external_data=True, size_threshold=8, location="w.bin")
    return onnx.load(path, load_external_data=False)


def test_external_data_lies_beside_the_path(tmp_path):
    path = tmp_path / "model.onnx"
    proto = with_external(path).SerializeToString()
    for given in (path, str(path)):
        parser, network, _ = new_parser()
        assert parser.parse(proto, path=given)
        assert_close(run(network), X + WEIGHTS + np.float32(0.5))
    parser, network, _ = new_parser()
    assert parser.parse_from_file(path)
    parser, *_ = new_parser()
    assert not parser.parse(bytearray(proto))
    assert "pass its path" in parser.get_error(0).desc()


def test_initializers_that_the_program_gives(tmp_path):
    """They take the place of what lies in the model, or beside it, or nowhere."""
    path = tmp_path / "model.onnx"
    model = with_external(path)
    (tmp_path / "w.bin").unlink()
    model.graph.initializer[1].ClearField("double_data")
    parser, network, _ = new_parser()
    assert not parser.load_initializer("w", WEIGHTS.ctypes.data, WEIGHTS.nbytes)
    assert not parser.parse_model_proto()
    assert parser.load_model_proto(model.SerializeToString(), path=str(path))
    assert not parser.load_model_proto(model.SerializeToString())
    assert "loaded already" in parser.get_error(0).desc()
    given, half = WEIGHTS * 10, np.array([0.25])
    assert not parser.load_initializer("nobody", given.ctypes.data, given.nbytes)
    assert not parser.load_initializer("w", given.ctypes.data, given.nbytes - 4)
    assert "has 12 bytes" in parser.get_error(0).desc()
    assert parser.load_initializer("w", WEIGHTS.ctypes.data, WEIGHTS.nbytes)
    assert parser.load_initializer("w", given.ctypes.data, given.nbytes)
    given = given.copy()
    assert parser.load_initializer("v", half.ctypes.data, half.nbytes)
    assert parser.num_errors == 0
    assert parser.parse_model_proto()
    assert_close(run(network), X + WEIGHTS * 10 + np.float32(0.25))
    # Without them the model says what is missing.
    parser, *_ = new_parser()
    assert parser.load_model_proto(model.SerializeToString())
    assert not parser.parse_model_proto()
    assert "'w'" in parser.get_error(0).desc()


def test_what_a_builder_config_and_libraries_have_to_do_with_it():
    log = Log()
    builder = trt.Builder(log)
    parser = trt.OnnxParser(builder.create_network(), log)
    assert parser.set_builder_config(builder.create_builder_config()) is True
    for wrong in (None, builder):
        with pytest.raises(TypeError, match="IBuilderConfig"):
            parser.set_builder_config(wrong)
    assert parser.get_used_vc_plugin_libraries() == []


def polygraphy(*arguments: str) -> str:
    """What a Polygraphy command says, which takes this project for TensorRT."""
    code = "import sys, polygraphy.tools as t; sys.argv[0] = 'polygraphy'; sys.exit(t.main())"
    command = f"import opwright.trt; opwright.trt.install(); {code}"
    done = subprocess.run(
        [sys.executable, "-c", command, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_polygraphy_tells_what_is_supported(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(partly(), path)
    found = polygraphy("inspect", "capability", str(path), "-o", str(tmp_path / "listed"))
    assert "Frob" in found and "UNSUPPORTED_NODE" in found

    parts = tmp_path / "parts"
    found = polygraphy("inspect", "capability", str(path), "--with-partitioning", "-o", str(parts))
    assert sorted(p.name for p in parts.glob("*.onnx")) == [
        "supported_subgraph-nodes-0-1.onnx",
        "supported_subgraph-nodes-3-4.onnx",
        "supported_subgraph-nodes-6-6.onnx",
        "unsupported_subgraph-nodes-2-2.onnx",
        "unsupported_subgraph-nodes-5-5.onnx",
    ]
    assert "Whirl" in found

    model = partly()
    del model.graph.node[2:]
    model.graph.node[1].output[0] = "y"
    onnx.save(model, path)
    assert "fully supported" in polygraphy("inspect", "capability", str(path))
