"""Attributes of function plugins: every type and extreme value through networks, ONNX, engine files."""

from __future__ import annotations

import enum
import inspect
import json
import re
import struct
import subprocess
import sys
import types
from typing import Any, List, Tuple

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from onnx import TensorProto, helper, numpy_helper

import opwright as trt
import opwright.plugin as trtp
from opwright.plugin import _attributes
from plugin_testing import build, new_id, one_plugin

X = np.arange(3, dtype=np.float32)
ELEMENTS = [np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_]


class Mode(enum.Enum):
    REFLECT = "reflect"
    WRAP = "wrap"
    EDGE = 3


class Axis(enum.IntEnum):
    ROWS = 1
    COLUMNS = -2


class Pad(str, enum.Enum):
    ZERO = "zéro"
    ONE = "one"


def echo(
    hint: Any, default: Any = inspect.Parameter.empty, plugin_id: str = ""
) -> tuple[str, dict[str, Any]]:
    """A plugin that copies its input, and what its functions get for its attribute `k`."""
    plugin_id = plugin_id or new_id("echo")
    seen: dict[str, Any] = {}

    def desc(x, k):
        seen["register"] = k
        return x.like()

    def run(x, k, outputs, stream):
        seen["impl"] = k
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    def tune(x, k, outputs):
        seen["autotune"] = k
        return [trtp.AutoTuneCombination("FP32, FP32")]

    desc.__annotations__ = {"x": trtp.TensorDesc, "k": hint, "return": trtp.TensorDesc}
    run.__annotations__ = {"k": hint}
    if default is not inspect.Parameter.empty:
        desc.__defaults__ = (default,)
    trtp.register(plugin_id)(desc)
    trtp.impl(plugin_id)(run)
    trtp.autotune(plugin_id)(tune)
    return plugin_id, seen


def bits(value: Any) -> Any:
    """What two values have in common exactly if they are of one type and the same to the bit."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value), [bits(element) for element in value]
    return type(value), struct.pack("d", value) if isinstance(value, float) else value


NAN32 = np.array([0x7FC00001, 0xFF800123, 0x80000000, 0x7F800000], np.uint32).view(np.float32)
NAN64 = struct.unpack("d", struct.pack("Q", 0x7FF8000000ABCDEF))[0]
VALUES = [
    (int, -(2**63)),
    (int, 2**63 - 1),
    (float, NAN64),
    (float, -0.0),
    (float, float("-inf")),
    (float, 5e-324),
    (bool, False),
    (str, ""),
    (str, "häßlich \0 名前 \U0001f600"),
    (bytes, b""),
    (bytes, b"\0\xff\0"),
    (Mode, Mode.EDGE),
    (Axis, Axis.COLUMNS),
    (Pad, Pad.ZERO),
    (List[int], [-(2**63), 0, 2**63 - 1]),
    (list[int], []),
    (List[float], [NAN64, -0.0, 1e308]),
    (List[float], []),
    (List[str], ["", "a\0b", "名前", ""]),
    (List[str], []),
    (List[str], [""]),
    (List[bool], [True, False]),
    (List[bool], []),
    (Tuple[int, ...], ()),
    (tuple[int, ...], (1, 2, 3)),
    (Tuple[int, int], (3, -4)),
    (Tuple[float, ...], (float("inf"), NAN64)),
    (Tuple[str, str], ("", "é")),
    (Tuple[bool, ...], (False,)),
    (npt.NDArray[np.float32], NAN32),
    (npt.NDArray[np.float32], NAN32.reshape(2, 1, 2)),
    (npt.NDArray[np.float16], np.array([[0x7C01, 0x8000]], np.uint16).view(np.float16)),
    (npt.NDArray[np.float64], np.array(NAN64)),
    (npt.NDArray[np.int8], np.zeros((0, 5, 2**33), np.int8)),
    (npt.NDArray[np.int64], np.full((1,) * 12, -(2**63), np.int64)),
    *((npt.NDArray[e], np.array([[1, 0, 1], [0, 1, 1]]).astype(e)) for e in ELEMENTS),
    *((npt.NDArray[e], np.zeros(0, e)) for e in ELEMENTS),
]


@pytest.mark.parametrize("hint, value", VALUES, ids=lambda v: str(v)[:40].replace("\0", "0"))
def test_every_type_arrives_everywhere_to_the_bit(hint, value, tmp_path):
    plugin_id, seen = echo(hint)
    net, layer = one_plugin(plugin_id, X, k=value)
    built = build(net, layer.get_output(0), timing=False)
    built(X)
    assert {name: bits(got) for name, got in seen.items()} == dict.fromkeys(
        ("register", "autotune", "impl"), bits(value)
    )
    built.save(tmp_path / "engine")
    seen.clear()
    trt.load(tmp_path / "engine")(X)
    assert bits(seen["impl"]) == bits(value)


@pytest.mark.parametrize("hint, value", VALUES, ids=lambda v: str(v)[:40].replace("\0", "0"))
def test_every_type_has_default_values(hint, value):
    plugin_id, seen = echo(hint, value)
    net, layer = one_plugin(plugin_id, X)
    build(net, layer.get_output(0), timing=False)(X)
    assert bits(seen["impl"]) == bits(value)
    seen.clear()
    trt.build(onnx_model(plugin_id), timing=False)(X)
    assert bits(seen["impl"]) == bits(value)


@pytest.mark.parametrize(
    "hint, given, expected",
    [
        (float, 3, 3.0),
        (float, np.float16(0.5), 0.5),
        (int, np.int8(-3), -3),
        (int, Axis.ROWS, 1),
        (bool, np.bool_(True), True),
        (Mode, "WRAP", Mode.WRAP),
        (Mode, "wrap", Mode.WRAP),
        (Mode, 3, Mode.EDGE),
        (Axis, np.int32(-2), Axis.COLUMNS),
        (List[int], (1, 2), [1, 2]),
        (List[int], range(3), [0, 1, 2]),
        (List[int], np.array([4, 5]), [4, 5]),
        (List[float], [1, np.float32(0.5)], [1.0, 0.5]),
        (Tuple[int, int], [1, 2], (1, 2)),
        (npt.NDArray[np.int32], [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.int32)),
        (npt.NDArray[np.float32], [[], []], np.zeros((2, 0), np.float32)),
        (npt.NDArray[np.float16], np.array([1.0, 65504]), np.array([1, 65504], np.float16)),
        (npt.NDArray[np.int16], np.arange(6, dtype=">i8").reshape(2, 3).T, None),
    ],
)
def test_values_become_the_registered_type(hint, given, expected):
    if expected is None:
        expected = given.astype(np.int16)
    plugin_id, seen = echo(hint)
    one_plugin(plugin_id, X, k=given)
    assert bits(seen["register"]) == bits(np.ascontiguousarray(expected)) or (
        bits(seen["register"]) == bits(expected)
    )


@pytest.mark.parametrize(
    "hint, given, message",
    [
        (int, 1.0, "`k: int` cannot be 1.0"),
        (int, True, "`k: int` cannot be True"),
        (int, 2**63, "does not fit 64 bits"),
        (float, 2**53 + 1, "it must be FLOAT64, which cannot hold 9007199254740993"),
        (float, 10**400, "does not fit 64 bits"),
        (float, "1", "`k: float` cannot be '1'"),
        (bool, 1, "`k: bool` cannot be 1"),
        (str, b"x", "`k: str` cannot be b'x'"),
        (str, "\udc80", "no text that UTF-8 can encode"),
        (bytes, "x", "`k: bytes` cannot be 'x'"),
        (Mode, "nope", "`k: Mode` cannot be 'nope': it must be one of REFLECT"),
        (Mode, True, "cannot be True"),
        (Axis, 2, r"it must be one of ROWS \(1\), COLUMNS \(-2\), but is 1 of INT64"),
        (List[int], 3, r"`k: List\[int\]` cannot be 3"),
        (List[int], None, "cannot be None"),
        (List[int], [1, 2.0], r"cannot be \[1, 2.0\]"),
        (List[int], np.zeros((2, 2), np.int64), "cannot be an array of int64"),
        (List[int], np.array(3), "cannot be an array of int64"),
        (List[str], "abc", r"`k: List\[str\]` cannot be 'abc'"),
        (List[str], [b"a"], "cannot be"),
        (List[bool], [1], "cannot be"),
        (
            Tuple[int, int],
            (1, 2, 3),
            r"`k: Tuple\[int, int\]` cannot be .*must be tuple of 2 INT64, but is 3",
        ),
        (Tuple[float, ...], "ab", r"`k: Tuple\[float, ...\]` cannot be 'ab'"),
        (npt.NDArray[np.int8], [128], r"must be INT8 \(-128 to 127\), but is 128"),
        (npt.NDArray[np.int32], [[1], [1, 2]], "its rows differ in length"),
        (npt.NDArray[np.int32], [0.5], "it must be INT32, but is FLOAT64"),
        (npt.NDArray[np.int32], 3, r"`k: NDArray\[int32\]` cannot be 3"),
        (npt.NDArray[np.int32], [None], "it is an array of object"),
        (npt.NDArray[np.float16], [1e5], "must be FLOAT16, which cannot hold 100000"),
        (npt.NDArray[np.float32], [2**24 + 1], "FLOAT32, which cannot hold 16777217"),
        (npt.NDArray[np.float64], [2**63 - 1], "which cannot hold 9223372036854775807"),
        (npt.NDArray[np.bool_], [2], "it must be BOOL array, but is a list of numbers"),
    ],
)
def test_values_of_other_types_are_refused(hint, given, message):
    plugin_id, _ = echo(hint)
    with pytest.raises(TypeError, match=message) as caught:
        one_plugin(plugin_id, X, k=given)
    assert plugin_id in str(caught.value)
    with pytest.raises(trtp.SignatureError, match="the default value of 'k'") as caught:
        echo(hint, given)
    assert "`desc(x: " in str(caught.value)


# ONNX ------------------------------------------------------------------------------------------


def onnx_model(plugin_id: str, inputs=("x",), initializers=(), node=None, **attributes):
    """A model of one node of the plugin; attributes that are AttributeProto stay as they are."""
    namespace, name = plugin_id.split("::")
    node = node or {"domain": namespace}
    made = helper.make_node(name, list(inputs), ["y"], "the node", **node)
    for key, value in attributes.items():
        is_made = isinstance(value, onnx.AttributeProto)
        made.attribute.append(value if is_made else helper.make_attribute(key, value))
    graph = helper.make_graph(
        [made],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, key) for key, value in initializers],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(made.domain or "unused", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def tensor(values: Any, dtype: Any, raw: bool = True) -> onnx.AttributeProto:
    array = np.asarray(values, dtype)
    made = numpy_helper.from_array(array)
    if not raw:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        made = helper.make_tensor("", kind, array.shape, array.reshape(-1).tolist())
    return helper.make_attribute("k", made)


def empty(kind: int) -> onnx.AttributeProto:
    return onnx.AttributeProto(name="k", type=kind)


INTS, FLOATS, STRINGS = (
    onnx.AttributeProto.INTS,
    onnx.AttributeProto.FLOATS,
    onnx.AttributeProto.STRINGS,
)
ONNX = [
    (int, -(2**63), -(2**63)),
    (int, tensor(5, np.int32), 5),
    (int, tensor([250], np.uint8), 250),
    (float, 3, 3.0),
    (float, 0.1, float(np.float32(0.1))),
    (float, tensor(0.1, np.float64), 0.1),
    (float, tensor(0.1, np.float64, raw=False), 0.1),
    (bool, 1, True),
    (bool, tensor(False, np.bool_), False),
    (str, "é\0", "é\0"),
    (bytes, b"\0\xff", b"\0\xff"),
    (Mode, "WRAP", Mode.WRAP),
    (Mode, "wrap", Mode.WRAP),
    (Mode, 3, Mode.EDGE),
    (Axis, -2, Axis.COLUMNS),
    (Axis, "ROWS", Axis.ROWS),
    (Pad, "zéro", Pad.ZERO),
    (List[int], [1, 2], [1, 2]),
    (List[int], 7, [7]),
    (List[int], tensor([1, 2], np.int8), [1, 2]),
    (List[int], empty(INTS), []),
    (List[int], empty(FLOATS), []),
    (List[int], empty(STRINGS), []),
    (List[float], [1, 2], [1.0, 2.0]),
    (List[float], [0.5], [0.5]),
    (List[bool], [0, 1], [False, True]),
    (List[str], ["", "名前", "a\0"], ["", "名前", "a\0"]),
    (List[str], empty(INTS), []),
    (Tuple[int, ...], [1, 2], (1, 2)),
    (Tuple[float, float], [1.5, 2.5], (1.5, 2.5)),
    (Tuple[str, str], ["a", "b"], ("a", "b")),
    (npt.NDArray[np.int32], 4, np.array([4], np.int32)),
    (npt.NDArray[np.int8], [-128, 127], np.array([-128, 127], np.int8)),
    (npt.NDArray[np.float16], [0.1, 2.0], np.array([0.1, 2], np.float32).astype(np.float16)),
    (npt.NDArray[np.float64], [1, 2], np.array([1.0, 2.0])),
    (npt.NDArray[np.bool_], [1, 0], np.array([True, False])),
    (npt.NDArray[np.float32], empty(INTS), np.zeros(0, np.float32)),
    (npt.NDArray[np.float32], tensor(NAN32.reshape(2, 2), np.float32), NAN32.reshape(2, 2)),
    (npt.NDArray[np.float64], tensor([[NAN64], [0.1]], np.float64), np.array([[NAN64], [0.1]])),
    (npt.NDArray[np.int16], tensor([[-3], [4]], np.int16), np.array([[-3], [4]], np.int16)),
    (npt.NDArray[np.int32], tensor(7, np.int64), np.array(7, np.int32)),
    (npt.NDArray[np.int32], tensor([[200]], np.uint8), np.array([[200]], np.int32)),
    (npt.NDArray[np.float32], tensor(np.zeros((2, 0)), np.float64), np.zeros((2, 0), np.float32)),
    *(
        (npt.NDArray[e], tensor(np.eye(2), e), np.eye(2).astype(e))
        for e in ELEMENTS  # each by a tensor of its own type
    ),
    *(
        (npt.NDArray[e], tensor(np.eye(2), f), np.eye(2).astype(e))
        for e, f in [(np.int8, np.int64), (np.float16, np.int32), (np.float32, np.float16)]
    ),
]


@pytest.mark.parametrize(
    "hint, given, expected", ONNX, ids=lambda v: str(v)[:40].replace("\0", "0")
)
def test_onnx_attributes_become_the_registered_type(hint, given, expected):
    plugin_id, seen = echo(hint)
    trt.build(onnx_model(plugin_id, k=given), timing=False)(X)
    assert bits(seen["impl"]) == bits(expected)


GRAPH = helper.make_attribute(
    "k",
    helper.make_graph(
        [helper.make_node("Identity", ["a"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    ),
)


@pytest.mark.parametrize(
    "hint, given, message",
    [
        (int, 1.0, "attribute 'k' must be INT64, but is FLOAT32"),
        (int, [1, 2], "must be one value, but has 2"),
        (int, "1", "must be INT64, but is CHAR"),
        (float, 2**53 + 1, "must be FLOAT64, which cannot hold 9007199254740993"),
        (bool, 2, "must be a boolean, but is 2"),
        (bool, 300, "must be INT8"),
        (str, 3, "must be text, but is 1 of INT64"),
        (str, ["a"], "must be text, but is a list of 1 texts"),
        (str, b"\xff", "no UTF-8; register it as bytes"),
        (bytes, [1], "must be bytes, but is 1 of INT64"),
        (Mode, "nope", r"one of REFLECT \('reflect'\), WRAP \('wrap'\), EDGE \(3\), but is 'nope'"),
        (Axis, 5, r"must be one of ROWS \(1\), COLUMNS \(-2\)"),
        (Mode, 1.5, "must be one of"),
        (List[int], [1.5], "must be INT64, but is FLOAT32"),
        (List[int], ["a"], "must be list of INT64, but is a list of 1 texts|but is CHAR"),
        (List[int], tensor([[1]], np.int64), "must be one-dimensional, but has 2 axes"),
        (List[str], "abc", "must be list of text, but is 'abc'"),
        (List[str], [1], "must be list of text, but is 1 of INT64"),
        (List[bool], [0, 7], "must be a boolean, but is 7"),
        (Tuple[int, int], [1, 2, 3], "must be tuple of 2 INT64, but is 3 of INT64"),
        (Tuple[str, str], ["a"], "must be tuple of 2 text, but is a list of 1 texts"),
        (npt.NDArray[np.int8], [128], r"must be INT8 \(-128 to 127\), but is 128"),
        (npt.NDArray[np.float16], [70000.0], "must be FLOAT16, which cannot hold 70000"),
        (npt.NDArray[np.float32], [2**24 + 1], "must be FLOAT32, which cannot hold 16777217"),
        (npt.NDArray[np.int32], [1.5], "must be INT32, but is FLOAT32"),
        (npt.NDArray[np.int32], "x", "must be INT32, but is CHAR"),
        (npt.NDArray[np.int32], GRAPH, "attribute 'k' is a graph; plugins cannot take graphs"),
        (
            npt.NDArray[np.float32],
            helper.make_attribute("k", helper.make_tensor("", TensorProto.STRING, [1], [b"a"])),
            "attribute 'k' is a tensor of texts",
        ),
    ],
    ids=lambda v: str(v)[:40].replace("\0", "0"),
)
def test_onnx_attributes_that_do_not_fit(hint, given, message):
    plugin_id, _ = echo(hint)
    with pytest.raises(trt.Error, match=message) as caught:
        trt.build(onnx_model(plugin_id, k=given), timing=False)
    assert "the node" in str(caught.value)


BOTH = [
    (int, 5),
    (int, -(2**63)),
    (int, tensor(1.5, np.float64)),
    (float, 3),
    (float, 2**53 + 1),
    (str, "é"),
    (Mode, "WRAP"),
    (Mode, "wrap"),
    (Mode, 3),
    (Mode, "nope"),
    (Axis, 5),
    (List[int], [1, 2]),
    (List[int], tensor([0.5], np.float64)),
    (List[int], tensor([[1]], np.int64)),
    (List[float], tensor([0.1, 2], np.float64)),
    (List[str], ["", "名前"]),
    (Tuple[int, int], [1, 2, 3]),
    (Tuple[str, str], ["a"]),
    (npt.NDArray[np.int8], [-128, 127]),
    (npt.NDArray[np.int8], [128]),
    (npt.NDArray[np.int16], tensor([[255]], np.uint8)),
    (npt.NDArray[np.float16], tensor([0.1, 65504], np.float64)),
    (npt.NDArray[np.float16], tensor([1e5], np.float64)),
    (npt.NDArray[np.float32], [2**24 + 1]),
    (npt.NDArray[np.int32], tensor([1.5], np.float32)),
]


def outcome(work, seen: dict[str, Any]) -> Any:
    """What the functions get, or how the attribute must be."""
    seen.clear()
    try:
        work()
    except (TypeError, trt.Error) as error:
        return re.search(r"must be .*?(?=: k = |$)", str(error))[0]  # what came stands behind
    return bits(seen["register"])


@pytest.mark.parametrize("hint, given", BOTH, ids=lambda v: str(v)[:40].replace("\n", " "))
def test_values_from_python_and_from_onnx_are_fitted_alike(hint, given):
    plugin_id, seen = echo(hint)
    is_tensor = isinstance(given, onnx.AttributeProto)
    value = numpy_helper.to_array(given.t) if is_tensor else given
    if is_tensor and hint in (int, float):
        value = value.item()
    from_python = outcome(lambda: one_plugin(plugin_id, X, k=value), seen)
    from_onnx = outcome(lambda: trt.build(onnx_model(plugin_id, k=given), timing=False), seen)
    assert from_python == from_onnx


def test_where_onnx_nodes_name_the_plugin():
    """`plugin_namespace` says the namespace, else the domain does; the version is "1"."""
    plugin_id, seen = echo(int)
    namespace = plugin_id.split("::")[0]
    for node in (
        {"domain": namespace},
        {"domain": namespace, "plugin_version": "1"},
        {"domain": "elsewhere", "plugin_namespace": namespace},
        {"plugin_namespace": namespace},
        {"domain": namespace, "plugin_namespace": "elsewhere"},
        {"domain": namespace, "aot": 0},
    ):
        seen.clear()
        trt.build(onnx_model(plugin_id, node=node, k=4), timing=False)(X)
        assert seen["impl"] == 4
    for node in (
        {"domain": "elsewhere"},
        {"plugin_namespace": "elsewhere"},
        {"plugin_namespace": ""},
    ):
        with pytest.raises(trt.Error, match="echo"):
            trt.build(onnx_model(plugin_id, node=node, k=4), timing=False)
    with pytest.raises(trt.Error, match="has the version 1, but .*'plugin_version' says '2'"):
        trt.build(onnx_model(plugin_id, node={"domain": namespace, "plugin_version": "2"}, k=4))
    with pytest.raises(trt.Error, match="aot=True, but has no aot_impl"):
        trt.build(onnx_model(plugin_id, node={"domain": namespace, "aot": 1}, k=4))


def test_onnx_initializers_are_inputs():
    plugin_id = new_id("weighted")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc, w: trtp.TensorDesc, gain: float = 2.0) -> trtp.TensorDesc:
        assert [e.constant_value() for e in w.shape_expr] == [2, 3]
        return trtp.from_shape_expr((w.shape_expr[0],), x.dtype)

    @trtp.impl(plugin_id)
    def run(x, w, gain, outputs, stream):
        np.copyto(np.asarray(outputs[0]), gain * np.asarray(w) @ np.asarray(x))

    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = onnx_model(plugin_id, ["x", "w"], [("w", w)])
    np.testing.assert_array_equal(trt.build(model)(X), 2 * w @ X)


# Engine files ----------------------------------------------------------------------------------

MODULE = """
import enum, json, struct, sys
from typing import List, Tuple
import numpy as np
import numpy.typing as npt
import opwright as trt
import opwright.plugin as trtp

class Mode(enum.Enum):
    A = "a"
    B = 2

@trtp.register("stored::all")
def desc(x: trtp.TensorDesc, i: int, f: float, t: str, b: bytes, mode: Mode, ints: List[int],
         texts: Tuple[str, ...], grid: npt.NDArray[np.float32], gone: str) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("stored::all")
def run(x, grid, texts, ints, mode, b, t, f, i, outputs, stream):
    np.asarray(outputs[0])[...] = np.asarray(x)
    print(json.dumps([i, struct.pack("d", f).hex(), t, b.hex(), str(mode), ints,
                      [type(texts).__name__, *texts],
                      [str(grid.dtype), grid.shape, grid.tobytes().hex()]]))
"""
MAKE = """
from stored import *
net = trt.Builder(trt.Logger()).create_network()
x = net.add_input("x", trt.float32, (2,))
layer = net.add_plugin(trtp.op.stored.all(
    x, -2**63, struct.unpack("d", bytes.fromhex("efcdab000000f87f"))[0], "n\\0\\u00fcl", b"\\0\\xff",
    Mode.B, [2**63 - 1, -1], ("", "\\u540d"),
    np.array([[0x7f800001, 0x80000000]], np.uint32).view(np.float32), "a secret text"))
net.mark_output(layer.get_output(0))
trt.build(net, timing=False).save("engine")
trt.build(net, timing=False, embed_python_plugins=True).save("whole")
"""


def test_another_process_gets_every_bit_of_what_impl_takes(tmp_path):
    (tmp_path / "stored.py").write_text(MODULE)

    def python(program):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    python(MAKE)
    assert b"a secret text" not in (tmp_path / "engine").read_bytes()
    stored = [
        -(2**63),
        "efcdab000000f87f",
        "n\0ül",
        "00ff",
        "Mode.B",
        [2**63 - 1, -1],
        ["tuple", "", "名"],
        ["float32", [1, 2], "0100807f00000080"],
    ]
    load = "from stored import *\ntrt.load('engine')(np.zeros(2, np.float32))"
    assert json.loads(python(load)) == stored
    # Where the engine carries the source, its enum is one of that source's.
    whole = "trt.load('whole', allow_host_code=True)(np.zeros(2, np.float32))"
    assert json.loads(python(f"import numpy as np, opwright as trt\n{whole}")) == stored


@pytest.mark.parametrize(
    "hint, message",
    [
        (Mode, "must be one of REFLECT"),
        (List[str], "must be list of text, but is 1 of INT64"),
        (Tuple[int, int], "must be tuple of 2 INT64"),
        (npt.NDArray[np.int8], "must be INT8 array, but is 1 of INT64"),
        (float, "must be FLOAT64, but is 1 of INT64"),
        (bool, "must be BOOL, but is 1 of INT64"),
        (str, "must be text, but is 1 of INT64"),
    ],
)
def test_an_engine_of_another_definition_is_refused(hint, message, tmp_path):
    plugin_id, _ = echo(int)
    net, layer = one_plugin(plugin_id, X, k=300)
    build(net, layer.get_output(0), timing=False).save(tmp_path / "engine")
    echo(hint, plugin_id=plugin_id)
    with pytest.raises(trt.Error, match=f"{plugin_id}': attribute 'k' {message}"):
        trt.load(tmp_path / "engine")(X)


numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(blacklist_categories=["Cs"]))
arrays = st_np.arrays(
    st.sampled_from([np.dtype(np.float32)]),
    st_np.array_shapes(min_dims=0, max_dims=5, min_side=0),
    elements=st.floats(width=32),
)
everything = st.fixed_dictionaries(
    {
        "i": numbers,
        "f": st.floats(),
        "t": texts,
        "b": st.binary(),
        "switches": st.lists(st.booleans()),
        "ints": st.lists(numbers),
        "pair": st.tuples(st.floats(), st.floats()),
        "words": st.lists(texts).map(tuple),
        "grid": arrays,
    }
)


@pytest.fixture(scope="module")
def all_kinds() -> tuple[str, dict[str, Any]]:
    plugin_id = new_id("all_kinds")
    seen: dict[str, Any] = {}

    @trtp.register(plugin_id)
    def desc(
        x: trtp.TensorDesc,
        i: int,
        f: float,
        t: str,
        b: bytes,
        switches: List[bool],
        ints: List[int],
        pair: Tuple[float, float],
        words: Tuple[str, ...],
        grid: npt.NDArray[np.float32],
    ) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x, i, f, t, b, *, grid, words, pair, ints, switches, outputs, stream):
        seen.update(
            i=i, f=f, t=t, b=b, switches=switches, ints=ints, pair=pair, words=words, grid=grid
        )
        np.copyto(np.asarray(outputs[0]), np.asarray(x))

    return plugin_id, seen


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=everything)
def test_any_values_survive_the_engine_file(values, all_kinds, tmp_path):
    plugin_id, seen = all_kinds
    net, layer = one_plugin(plugin_id, X, **values)
    build(net, layer.get_output(0), timing=False).save(tmp_path / "engine")
    seen.clear()
    trt.load(tmp_path / "engine")(X)
    assert {k: bits(v) for k, v in seen.items()} == {k: bits(v) for k, v in values.items()}


def test_arrays_are_hinted_by_an_alias(monkeypatch):
    """As from NumPy 2.5 on: NDArray is no abbreviation but an alias with the type as its parameter."""

    class NDArray:
        __class_getitem__ = classmethod(types.GenericAlias)

    monkeypatch.setattr(_attributes, "NDArray", NDArray)
    assert str(_attributes.AttributeType.of(NDArray[np.int32])) == "NDArray[int32]"
    with pytest.raises(_attributes.HintError):
        _attributes.AttributeType.of(NDArray[np.complex64])
