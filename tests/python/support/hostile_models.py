"""Hostile models: small files that refer to missing things, or stand for endless work.

`main` builds the model of a case, runs it if it can be built, and prints the outcome with the seconds and
the memory that it took. It is for a process that does nothing else.
"""

from __future__ import annotations

import json
import re
import resource
import time
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opwright

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
HUGE = 1 << 60
value = helper.make_tensor_value_info
node = helper.make_node

# The function that builds the model, and the pattern of the error. None: a result is also accepted.
CASES: dict[str, tuple[Callable[[], bytes], str | None]] = {}


def case(pattern: str | None):
    def add(function: Callable[[], bytes]):
        CASES[function.__name__] = (function, pattern)
        return function

    return add


def model(nodes, inputs=None, outputs=None, weights=(), functions=(), opset=21, **more) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        inputs if inputs is not None else [value("x", FLOAT, [2, 3, 8, 8])],
        outputs if outputs is not None else [value("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(weights).items()],
        **more,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))
    return made.SerializeToString()


# --- Names


@case(r"node 'first' \(Add\).*'b'.*made by no node before")
def cycle_of_two():
    return model(
        [
            node("Add", ["x", "b"], ["a"], "first"),
            node("Relu", ["a"], ["b"]),
            node("Relu", ["b"], ["y"]),
        ]
    )


@case(r"node 'own' \(Add\).*'y'.*made by no node before")
def cycle_of_one():
    return model([node("Add", ["x", "y"], ["y"], "own")])


@case(r"node 'n' \(Relu\).*'nothing'")
def undefined_name():
    return model([node("Relu", ["nothing"], ["y"], "n")])


@case(r"node 'second' \(Neg\).*'y'.*already")
def two_nodes_make_one_name():
    return model([node("Relu", ["x"], ["y"], "first"), node("Neg", ["x"], ["y"], "second")])


@case(r"node 'n' \(Relu\).*'x'.*already")
def node_makes_an_input():
    return model([node("Relu", ["x"], ["x"], "n"), node("Relu", ["x"], ["y"])])


@case(r"node 'n' \(Relu\).*'w'.*already")
def node_makes_an_initializer():
    return model(
        [node("Relu", ["x"], ["w"], "n"), node("Add", ["x", "w"], ["y"])],
        weights={"w": np.ones(1, "f")},
    )


@case(r"node 'n' \(Split\).*'y'.*already")
def node_makes_a_name_twice():
    return model([node("Split", ["x"], ["y", "y"], "n", axis=2, num_outputs=2)])


@case(r"two inputs of the name 'x'")
def two_inputs_of_one_name():
    return model([node("Relu", ["x"], ["y"])], [value("x", FLOAT, [1]), value("x", FLOAT, [2])])


@case(r"output 'z' is made by no node")
def undefined_output():
    return model([node("Relu", ["x"], ["y"])], outputs=[value("z", FLOAT, None)])


@case(r"two initializers of the name 'w'")
def two_initializers_of_one_name():
    made = onnx.load_from_string(
        model([node("Add", ["x", "w"], ["y"])], weights={"w": np.ones(1, "f")})
    )
    made.graph.initializer.append(numpy_helper.from_array(np.zeros(1, "f"), "w"))
    return made.SerializeToString()


def in_branch(nodes, weights=()) -> bytes:
    """An If with a branch of these nodes, whose result is `out`."""
    branches = {
        "then_branch": helper.make_graph(list(nodes), "t", [], [value("out", FLOAT, None)]),
        "else_branch": helper.make_graph(
            [node("Identity", ["x"], ["other"])], "e", [], [value("other", FLOAT, None)]
        ),
    }
    branches["then_branch"].initializer.extend(weights)
    made = node("If", ["go"], ["y"], "n", **branches)
    return model([made], [value("go", BOOL, []), value("x", FLOAT, [3, 4])])


@case(r"node 'n/.*' \(Add\).*'missing'")
def undefined_name_in_a_branch():
    return in_branch([node("Add", ["x", "missing"], ["out"], "inner")])


@case(r"node 'n/.*' \(Add\): input 'b'")
def cycle_in_a_branch():
    return in_branch(
        [node("Add", ["x", "b"], ["a"], "one"), node("Relu", ["a"], ["b"], "two"),
         node("Relu", ["b"], ["out"], "three")]
    )  # fmt: skip


@case(r"'twice'")
def name_that_a_branch_makes_twice():
    return in_branch(
        [node("Relu", ["x"], ["twice"], "one"), node("Neg", ["x"], ["twice"], "two"),
         node("Relu", ["twice"], ["out"], "three")]
    )  # fmt: skip


@case(r"'w'.*bytes")
def weight_of_a_branch_that_is_too_short():
    tensor = onnx.numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    tensor.raw_data = tensor.raw_data[:20]
    return in_branch([node("Add", ["x", "w"], ["out"], "inner")], [tensor])


# --- Initializers


def with_weight(change: Callable[[onnx.TensorProto], None], operator="Add") -> bytes:
    made = onnx.load_from_string(
        model([node(operator, ["x", "w"], ["y"], "n")], weights={"w": np.ones((2, 3, 8, 8), "f")})
    )
    change(made.graph.initializer[0])
    return made.SerializeToString()


@case(r"'w' has .* bytes; its shape 2x3x8x8 needs 1536")
def weight_too_short():
    return with_weight(lambda w: setattr(w, "raw_data", w.raw_data[:-4]))


@case(r"'w' has .* bytes; its shape 2x3x8x8 needs 1536")
def weight_too_long():
    return with_weight(lambda w: setattr(w, "raw_data", w.raw_data + b"\0" * 8))


@case(r"'w'")
def weight_of_negative_extent():
    def change(w):
        w.dims[0] = -2

    return with_weight(change)


@case(r"'w'")
def weight_of_huge_extents():
    def change(w):
        w.dims[:] = [1 << 40, 1 << 40]

    return with_weight(change)


@case(r"'w'")
def weight_whose_size_overflows_to_its_bytes():
    def change(w):
        w.dims[:] = [1 << 62, 4, 96]
        w.raw_data = b""

    return with_weight(change)


@case(r"'w'")
def weight_of_unknown_type():
    return with_weight(lambda w: setattr(w, "data_type", 999))


@case(r"'w'")
def weight_in_a_file_outside():
    def change(w):
        w.ClearField("raw_data")
        w.data_location = TensorProto.EXTERNAL
        w.external_data.add(key="location", value="../../../etc/passwd")

    return with_weight(change)


# --- Attributes and operands that decide extents


def one(operator: str, extra=(), weights=None, inputs=None, **attributes) -> bytes:
    names = ["x", *extra]
    return model([node(operator, names, ["y"], "n", **attributes)], inputs, weights=weights or {})


KERNEL = {"w": np.ones((4, 3, 3, 3), np.float32)}
WINDOWS = {
    "strides_zero": {"strides": [0, 1]},
    "strides_negative": {"strides": [-1, 1]},
    "strides_missing": {"strides": [1]},
    "dilations_zero": {"dilations": [0, 0]},
    "dilations_huge": {"dilations": [HUGE, HUGE]},
    "pads_negative": {"pads": [-9, -9, -9, -9]},
    "pads_huge": {"pads": [HUGE] * 4},
    "pads_that_overflow": {"pads": [(1 << 63) - 1] * 4},
    "group_zero": {"group": 0},
    "group_negative": {"group": -3},
    "group_huge": {"group": HUGE},
}
for name, attributes in WINDOWS.items():
    CASES[f"conv_{name}"] = (
        lambda attributes=attributes: one("Conv", ["w"], KERNEL, **attributes),
        r"node 'n' \(Conv\)",
    )
    if "group" not in name:
        CASES[f"pool_{name}"] = (
            lambda attributes=attributes: one("MaxPool", kernel_shape=[2, 2], **attributes),
            r"node 'n' \(MaxPool\)",
        )
        CASES[f"transposed_{name}"] = (
            lambda attributes=attributes: one(
                "ConvTranspose", ["w"], {"w": np.ones((3, 4, 3, 3), np.float32)}, **attributes
            ),
            r"node 'n' \(ConvTranspose\)" if name not in ("pads_negative",) else None,
        )
for name, kernel in {
    "negative": [-1, -1],
    "zero": [0, 2],
    "huge": [HUGE, HUGE],
    "long": [2] * 40,
}.items():
    CASES[f"pool_kernel_{name}"] = (
        lambda kernel=kernel: one("AveragePool", kernel_shape=kernel),
        r"node 'n' \(AveragePool\)",
    )

ints = lambda *values: np.array(values, np.int64)  # noqa: E731
OPERANDS = {
    "reshape_minus_two": ("Reshape", [ints(-2, 4)], {}),
    "reshape_huge": ("Reshape", [ints(HUGE, HUGE)], {}),
    "reshape_of_40_axes": ("Reshape", [ints(*[1] * 40)], {}),
    "expand_huge": ("Expand", [ints(HUGE, 3, 8, 8)], {}),
    "expand_negative": ("Expand", [ints(-5, 3, 8, 8)], {}),
    "tile_huge": ("Tile", [ints(HUGE, HUGE, 1, 1)], {}),
    "tile_negative": ("Tile", [ints(-1, 1, 1, 1)], {}),
    "pad_huge": ("Pad", [ints(*[HUGE] * 8)], {}),
    "pad_takes_all_away": ("Pad", [ints(*[-100] * 8)], {}),
    "slice_steps_of_zero": ("Slice", [ints(0), ints(9), ints(0), ints(0)], {}),
    "slice_axis_beyond": ("Slice", [ints(0), ints(9), ints(77)], {}),
    "topk_huge": ("TopK", [ints(HUGE)], {}),
    "topk_negative": ("TopK", [ints(-1)], {}),
    "squeeze_beyond": ("Squeeze", [ints(99)], {}),
    "unsqueeze_twice": ("Unsqueeze", [ints(0, 0)], {}),
    "slice_twice": ("Slice", [ints(0, 0), ints(1, 1), ints(1, -3)], {}),
    "pad_twice": ("Pad", [ints(1, 1, 1, 1), np.float32(0), ints(2, -2)], {}),
    "crop_twice": ("CenterCropPad", [ints(1, 1)], {"axes": [0, 0]}),
    "perm_of_floats": ("Transpose", [], {"perm": [0.5, 1.5, 2.5, 3.5]}),
    "axis_of_text": ("Softmax", [], {"axis": "last"}),
    "resize_to_huge": ("Resize", [np.float32([]), np.float32([]), ints(*[HUGE] * 4)], {}),
    "resize_by_nan": ("Resize", [np.float32([]), np.float32([1, 1, np.nan, 1])], {}),
    "resize_by_negative": ("Resize", [np.float32([]), np.float32([1, 1, -2, 2])], {}),
    "resize_by_infinity": ("Resize", [np.float32([]), np.float32([1, 1, np.inf, 1])], {}),
    "split_negative": ("Split", [ints(-1, 3)], {"axis": 0}),
    "gather_beyond": ("Gather", [ints(0)], {"axis": 99}),
    "transpose_twice": ("Transpose", [], {"perm": [0, 0, 1, 2]}),
    "transpose_beyond": ("Transpose", [], {"perm": [0, 1, 2, 1 << 40]}),
    "concat_beyond": ("Concat", [], {"axis": 1 << 40}),
    "cast_to_nothing": ("Cast", [], {"to": 999}),
    "flatten_beyond": ("Flatten", [], {"axis": -99}),
    "softmax_beyond": ("Softmax", [], {"axis": 1 << 62}),
    "blocks_of_zero": ("DepthToSpace", [], {"blocksize": 0}),
    "blocks_huge": ("DepthToSpace", [], {"blocksize": 1 << 40}),
    "space_blocks_negative": ("SpaceToDepth", [], {"blocksize": -2}),
    "lrn_of_zero": ("LRN", [], {"size": 0}),
    "lrn_huge": ("LRN", [], {"size": HUGE}),
    "reduce_beyond": ("ReduceSum", [ints(1 << 50)], {}),
    "cumulative_beyond": ("CumSum", [ints(50)], {}),
    "trilu_of_axes": ("Trilu", [ints(HUGE)], {}),
}  # fmt: skip
HARMLESS = {"topk_huge", "trilu_of_axes", "lrn_huge", "pad_takes_all_away"}
for name, (operator, operands, attributes) in OPERANDS.items():

    def build(operator=operator, operands=operands, attributes=attributes):
        weights = {f"c{i}": array for i, array in enumerate(operands)}
        outputs = 2 if operator in ("TopK", "Split") else 1
        made = node(operator, ["x", *weights], ["y", "z"][:outputs], "n", **attributes)
        return model([made], weights=weights)

    CASES[name] = (build, None if name in HARMLESS else rf"node 'n' \({OPERANDS[name][0]}\)")


@case(r"node 'n' \(Einsum\)")
def einsum_of_many_axes():
    letters = "abcdefghijklmnopqrstuvwxyz"
    return one("Einsum", ["x", "x"], equation=",".join([letters] * 3) + "->" + letters)


@case(r"node 'n' \(LSTM\)")
def lstm_of_negative_size():
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    made = node("LSTM", ["x", "w", "r"], ["y"], "n", hidden_size=-2)
    return model([made], [value("x", FLOAT, [4, 1, 9])], weights=weights)


@case(r"node 'n' \(OneHot\)|memory|GiB|bytes")
def one_hot_of_huge_depth():
    weights = {"d": ints(1 << 50), "v": np.float32([0, 1])}
    return model(
        [node("OneHot", ["x", "d", "v"], ["y"], "n")], [value("x", INT64, [4])], weights=weights
    )


@case(r"node 'n' \(Range\)|memory|GiB|bytes")
def range_of_huge_length():
    weights = {
        "a": np.array(0, np.int64),
        "b": np.array(1 << 50, np.int64),
        "s": np.array(1, np.int64),
    }
    nodes = [node("Range", ["a", "b", "s"], ["r"], "n"), node("Cast", ["r"], ["f"], to=FLOAT)]
    return model(
        [*nodes, node("ReduceSum", ["f"], ["s0"]), node("Add", ["x", "s0"], ["y"])], weights=weights
    )


@case(r"memory|GiB|bytes")
def constant_of_huge_shape():
    nodes = [
        node("ConstantOfShape", ["s"], ["c"], "n"),
        node("ReduceMax", ["c"], ["m"], keepdims=0),
    ]
    return model([*nodes, node("Add", ["x", "m"], ["y"])], weights={"s": ints(1 << 20, 1 << 20)})


@case(r"node 'Concat_54' \(Concat\).*more elements than can be counted")
def doubling_by_concatenation():
    nodes, at = [], "x"
    for i in range(60):
        nodes.append(node("Concat", [at, at], [f"t{i}"], axis=0))
        at = f"t{i}"
    return model([*nodes, node("ReduceMax", [at], ["y"])])


@case(None)
def constants_that_multiply():
    """A chain of Tiles of a constant, each 16 times as large as the one before."""
    nodes, at = [], "w"
    for i in range(8):
        nodes.append(node("Tile", [at, "r"], [f"t{i}"]))
        at = f"t{i}"
    nodes += [node("ReduceMax", [at], ["m"], keepdims=0), node("Add", ["x", "m"], ["y"])]
    return model(nodes, weights={"w": np.ones(16, np.float32), "r": ints(16)})


@case(r"")
def squares_of_extents():
    """The extent n^(2^20) as an expanded polynomial."""
    nodes = [node("Shape", ["x"], ["s0"])]
    for i in range(20):
        nodes += [
            node("Add", [f"s{i}", "one"], [f"a{i}"]),
            node("Mul", [f"a{i}", f"a{i}"], [f"s{i + 1}"]),
        ]
    nodes.append(node("Expand", ["x", "s20"], ["y"], "n"))
    return model(nodes, [value("x", FLOAT, ["n", "m", "k"])], weights={"one": ints(1)})


# --- Shapes that contradict each other


@case(r"node 'n' \(MatMul\)")
def product_that_does_not_fit():
    return one("MatMul", ["w"], {"w": np.ones((5, 4), np.float32)})


@case(r"node 'n' \(Add\)")
def sum_that_does_not_fit():
    return one("Add", ["w"], {"w": np.ones((7,), np.float32)})


@case(r"node 'n' \(Conv\)")
def convolution_of_other_channels():
    return one("Conv", ["w"], {"w": np.ones((4, 5, 3, 3), np.float32)})


@case(r"node 'n' \(Concat\)")
def concatenation_that_does_not_fit():
    return one("Concat", ["w"], {"w": np.ones((2, 3, 8, 9), np.float32)}, axis=0)


@case(r"node 'n' \(Where\)")
def types_that_differ():
    weights = {"c": np.array(True), "w": np.array(1, np.int64)}
    return model([node("Where", ["c", "x", "w"], ["y"], "n")], weights=weights)


@case(r"node 'n' \(Reshape\)")
def reshape_to_more_elements():
    return one("Reshape", ["s"], {"s": ints(7, 11)})


@case(r"node 'n' \(Where\)")
def choice_that_does_not_fit():
    weights = {"c": np.ones((2, 3, 8, 8), bool), "w": np.ones((1, 5, 7, 9), np.float32)}
    return model([node("Where", ["c", "x", "w"], ["y"], "n")], weights=weights)


@case(r"node 'n' \(Gemm\)")
def product_with_a_bias_that_does_not_fit():
    weights = {"w": np.ones((4, 5), np.float32), "c": np.ones((7, 11), np.float32)}
    return one("Gemm", ["w", "c"], weights, [value("x", FLOAT, [3, 4])])


@case(r"node 'n' \(LSTM\)")
def lstm_whose_weights_contradict_its_size():
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    made = node("LSTM", ["x", "w", "r"], ["y"], "n", hidden_size=5)
    return model([made], [value("x", FLOAT, [4, 1, 3])], weights=weights)


@case(r"node 'n' \(If\)")
def branches_of_different_types():
    branches = {
        name: helper.make_graph(nodes, name, [], [value("out", kind, None)])
        for name, kind, nodes in (
            ("then_branch", FLOAT, [node("Relu", ["x"], ["out"])]),
            ("else_branch", INT64, [node("Cast", ["x"], ["out"], to=INT64)]),
        )
    }
    made = node("If", ["go"], ["y"], "n", **branches)
    return model([made], [value("go", BOOL, []), value("x", FLOAT, [3, 4])])


@case(r"node 'n' \(Scan\)")
def scan_of_lengths_that_differ():
    body = helper.make_graph(
        [node("Add", ["a", "b"], ["c"])],
        "body",
        [value("a", FLOAT, [4]), value("b", FLOAT, [4])],
        [value("c", FLOAT, [4])],
    )
    made = node("Scan", ["x", "z"], ["y"], "n", body=body, num_scan_inputs=2)
    return model([made], [value("x", FLOAT, [3, 4]), value("z", FLOAT, [5, 4])])


# --- Graphs in graphs


def header(number: int, length: int) -> bytes:
    """The bytes before a length-delimited field of Protocol Buffers."""
    size = b""
    while True:
        size += bytes([length & 127 | (128 if length > 127 else 0)])
        length >>= 7
        if not length:
            return bytes([number << 3 | 2]) + size


def field(number: int, content: bytes) -> bytes:
    return header(number, len(content)) + content


def nested(depth: int) -> bytes:
    """An If in the branch of an If, and so on. It is serialized by hand, since no library
    serializes many levels."""
    leaf = helper.make_graph([node("Relu", ["x"], ["r"])], "leaf", [], [value("r", FLOAT, None)])
    leaf_bytes = leaf.SerializeToString()
    output = field(12, value("r", FLOAT, None).SerializeToString())
    kind = b"\xa0\x01\x05"  # AttributeProto.type = GRAPH
    names = field(1, b"c") + field(2, b"r") + field(4, b"If")
    otherwise = field(5, field(1, b"else_branch") + field(6, leaf_bytes) + kind)
    # The bytes before and behind each graph are joined once, since there may be megabytes of them.
    before, behind, length = [], [], len(leaf_bytes)
    for _ in range(depth):
        branch = field(1, b"then_branch") + header(6, length)
        made = names + header(5, len(branch) + length + len(kind)) + branch
        after = kind + otherwise
        before.append(header(1, len(made) + length + len(after)) + made)
        behind.append(after + output)
        length += len(before[-1]) + len(behind[-1])
    graph = b"".join(before[::-1]) + leaf_bytes + b"".join(behind)
    for name, element, shape in (("x", FLOAT, [4]), ("c", BOOL, [])):
        graph += field(11, value(name, element, shape).SerializeToString())
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x12")


@case(None)
def branches_20_deep():
    return nested(20)


@case(r"deep|nest|levels")
def branches_80_deep():
    return nested(80)


@case(r"deep|nest|levels")
def branches_20000_deep():
    return nested(20000)


def function(name: str, nodes, inputs=("a",), outputs=("b",)):
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, list(inputs), list(outputs), nodes, opsets)


@case(r"calls itself")
def function_that_calls_itself():
    made = function("f", [node("f", ["a"], ["b"], "again", domain="own")])
    return model([node("f", ["x"], ["y"], "n", domain="own")], functions=[made])


@case(r"too large|nodes")
def functions_that_double():
    made = [function("f0", [node("Relu", ["a"], ["b"])])]
    for i in range(1, 40):
        calls = [
            node(f"f{i - 1}", ["a"], ["h"], domain="own"),
            node(f"f{i - 1}", ["h"], ["b"], domain="own"),
        ]
        made.append(function(f"f{i}", calls))
    return model([node("f39", ["x"], ["y"], "n", domain="own")], functions=made)


# --- Loops


def loop(
    body_nodes, trips, condition, states=("x",), stacked=(), weights=None, shape=(4,)
) -> bytes:
    body = helper.make_graph(
        list(body_nodes),
        "body",
        [
            value("i", INT64, []),
            value("c", BOOL, []),
            *(value(f"{s}_in", FLOAT, None) for s in states),
        ],
        [
            value("c_out", BOOL, []),
            *(value(f"{s}_out", FLOAT, None) for s in states),
            *(value(s, FLOAT, None) for s in stacked),
        ],
    )
    outputs = ["y", *(f"stack{i}" for i in range(len(stacked)))]
    made = node("Loop", [trips, condition, *states], outputs, "n", body=body)
    return model(
        [made],
        [value("x", FLOAT, list(shape)), value("limit", FLOAT, [])],
        [value(output, FLOAT, None) for output in outputs],
        weights=weights or {},
    )


GO_ON = node("Identity", ["c"], ["c_out"])
STEP = node("Sin", ["x_in"], ["x_out"])


@case(r"node 'n' \(Loop\).*never ends")
def loop_without_end():
    return loop([GO_ON, STEP], "", "")


@case(r"layer 'n'.*iterations.*trip count")
def loop_whose_data_never_ends_it():
    nodes = [
        node("ReduceSum", ["x_in"], ["s"], keepdims=0),
        node("Less", ["s", "limit"], ["c_out"]),
        node("Mul", ["x_in", "x_in"], ["x_out"]),
    ]
    return loop(nodes, "", "")


@case(r"layer 'n'.*iterations.*trip count")
def loop_of_the_largest_count():
    nodes = [
        node("ReduceSum", ["x_in"], ["s"], keepdims=0),
        node("Less", ["s", "limit"], ["c_out"]),
        node("Mul", ["x_in", "x_in"], ["x_out"]),
    ]
    return loop(nodes, "m", "", weights={"m": np.array((1 << 63) - 1, np.int64)})


@case(r"memory|GiB|bytes")
def loop_that_stacks_without_end():
    nodes = [GO_ON, STEP, node("Identity", ["x_in"], ["part"])]
    return loop(
        nodes,
        "m",
        "",
        stacked=["part"],
        weights={"m": np.array((1 << 31) - 1, np.int64)},
        shape=(4096,),
    )


@case(r"node 'n' \(Loop\)")
def loop_whose_state_grows():
    nodes = [GO_ON, node("Concat", ["x_in", "x_in"], ["x_out"], axis=0)]
    return loop(nodes, "m", "", weights={"m": np.array(1 << 20, np.int64)})


@case(r"node 'n/60/.*' \(Concat\).*does not fit 64 bits")
def loop_whose_state_doubles():
    nodes = [GO_ON, node("Concat", ["x_in", "x_in"], ["x_out"], axis=0)]
    return loop(nodes, "m", "", weights={"m": np.array(70, np.int64)})


@case(r"node 'n' \(Loop\)")
def loop_whose_state_changes_its_type():
    cast = node("Cast", ["x_in"], ["x_out"], to=INT64)
    return loop([GO_ON, cast], "m", "", weights={"m": np.array(3, np.int64)})


@case(r"node 'n' \(Loop\)")
def loop_without_a_body():
    return model([node("Loop", ["", "", "x"], ["y"], "n")], [value("x", FLOAT, [4])])


@case(r"")
def loops_in_loops():
    """Nested loops. Each is short enough to be unrolled, but together they have 64^6 iterations."""
    inner = [node("Identity", ["c"], ["c_out"]), node("Sin", ["x_in"], ["x_out"])]
    for depth in range(6):
        body = helper.make_graph(
            inner,
            f"b{depth}",
            [value("i", INT64, []), value("c", BOOL, []), value("x_in", FLOAT, None)],
            [value("c_out", BOOL, []), value("x_out", FLOAT, None)],
        )
        again = node("Loop", ["m", "", "x_in"], ["x_out"], f"loop{depth}", body=body)
        inner = [node("Identity", ["c"], ["c_out"]), again]
    return loop(inner, "m", "", weights={"m": np.array(64, np.int64)})


@case(r"node 'n' \(SplitToSequence\).*'l'")
def sequence_of_unknown_length():
    made = [
        node("SequenceEmpty", [], ["s"]),
        node("SplitToSequence", ["x", "l"], ["q"], "n", keepdims=0),
        node("SequenceAt", ["q", "at"], ["y"]),
    ]
    return model(
        made, [value("x", FLOAT, ["k", 4]), value("l", INT64, ["p"]), value("at", INT64, [])]
    )


@case(r"position|sequence|index")
def sequence_position_beyond():
    made = [
        node("SequenceConstruct", ["x", "x"], ["q"]),
        node("SequenceAt", ["q", "at"], ["y"], "n"),
    ]
    return model(made, weights={"at": np.array(HUGE, np.int64)})


# --- One run of a case


def current() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main(name: str) -> None:
    # What a case may never take, whatever is wrong.
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    relu = helper.make_graph(
        [node("Relu", ["x"], ["y"])], "g", [value("x", FLOAT, [4])], [value("y", FLOAT, [4])]
    )
    opwright.build(
        helper.make_model(relu, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    )
    data = CASES[name][0]()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak
    before, start = current(), time.process_time()
    outcome = "result"
    try:
        engine = opwright.build(data, device="cpu", timing=False)
        feeds = {}
        proto = onnx.load_from_string(data)
        for given in proto.graph.input:
            if given.name not in engine.inputs:
                continue
            tensor = given.type.tensor_type
            extents = [d.dim_value or 2 for d in tensor.shape.dim]
            feeds[given.name] = np.zeros(extents, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        if "limit" in feeds:
            feeds["limit"] += 1
        engine(**feeds)
    except opwright.Error as error:
        outcome = str(error)
    except MemoryError as error:  # NumPy's, for an output
        outcome = f"memory: {error}"
    seconds = time.process_time() - start
    peak = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read()).group(1)) * 1024
    print(json.dumps({"outcome": outcome, "seconds": seconds, "bytes": peak - before}))
