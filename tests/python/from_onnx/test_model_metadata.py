"""What an ONNX model says of itself stays with its engine."""

from __future__ import annotations

import json
import subprocess

import onnx
import onnx.parser
import pytest
from onnx import helper

import opwright
import opwright.onnxruntime as ort

PROPERTIES = {"names": "{0: 'cat', 1: 'dog'}", "stride": "32", "long": "x" * 1000}


def model(**properties: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 19]> net (float[3] x) => (float[3] y) { y = Relu(x) }""")
    made.producer_name, made.producer_version = "torch", "2.3"
    made.domain, made.doc_string, made.model_version = "org.example", "what it does", 7
    made.graph.doc_string = "the graph"
    helper.set_model_props(made, properties)
    return made


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("metadata") / "net.engine"
    opwright.build(model(**PROPERTIES), timing=False).save(path)
    return path


def test_the_engine_keeps_it(path):
    metadata = opwright.load(path).metadata
    assert metadata == PROPERTIES
    assert (metadata.producer_name, metadata.producer_version) == ("torch", "2.3")
    assert (metadata.domain, metadata.version) == ("org.example", 7)
    assert (metadata.description, metadata.graph_description) == ("what it does", "the graph")
    assert metadata.graph_name == "net"


def test_a_model_may_say_nothing():
    network = opwright.Builder(opwright.Logger(opwright.Logger.ERROR)).create_network()
    network.mark_output(
        network.add_identity(network.add_input("x", opwright.float32, (1,))).get_output(0)
    )
    metadata = opwright.build(network, timing=False).metadata
    assert metadata == {} and metadata.producer_name == "" and metadata.version == 0


def test_texts_that_are_no_unicode():
    made = model(key="VALUE").SerializeToString().replace(b"VALUE", b"\xff\xfeLUE")
    assert opwright.build(made, timing=False).metadata["key"] == "\\xff\\xfeLUE"


def test_it_is_shown(path, program):
    inspected = opwright.load(path).inspect()
    assert "'stride'" in inspected and "torch 2.3" in inspected and "what it does" in inspected
    assert "x" * 200 not in inspected and "(1000 bytes)" in inspected
    done = subprocess.run(
        [program, "inspect", path, "--json"], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)["Model"]
    assert told["Properties"] == PROPERTIES and told["ProducerName"] == "torch"
    assert (told["Version"], told["Domain"]) == (7, "org.example")


def test_sessions_of_engines_have_it(path):
    meta = ort.InferenceSession(path).get_modelmeta()
    assert meta.custom_metadata_map == PROPERTIES
    assert (meta.producer_name, meta.version, meta.graph_name) == ("torch", 7, "net")
