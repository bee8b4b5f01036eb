"""Element-wise and movement operators, each a model of one layer, from 1 KiB to 4 MiB of FP32, against ONNX Runtime
with as many threads: the ratio of the times per call. It stops if a result differs by more than 1e-5.

python bench/operators.py [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from timing import in_turns, threads

import opwright

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)  # bytes of the first input

Shape = Sequence[int]
Constants = dict[str, np.ndarray]


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def cases(rows: int, columns: int) -> dict[str, tuple[str, list[Shape], Constants, dict]]:
    """Operator, shapes of inputs, constants behind them, and attributes; for x of rows x columns."""
    x, heads, side = (rows, columns), columns // 4, columns // 8
    image = (1, rows * columns // side // side, side, side)
    return {
        "add": ("Add", [x, x], {}, {}),
        "add a row": ("Add", [x, (columns,)], {}, {}),
        "add a column": ("Add", [x, (rows, 1)], {}, {}),
        "relu": ("Relu", [x], {}, {}),
        "sigmoid": ("Sigmoid", [x], {}, {}),
        "erf": ("Erf", [x], {}, {}),
        "gelu": ("Gelu", [x], {}, {}),
        "softmax": ("Softmax", [x], {}, {"axis": -1}),
        "transpose 2-D": ("Transpose", [x], {}, {"perm": [1, 0]}),
        "transpose 3-D": ("Transpose", [(rows, 4, heads)], {}, {"perm": [1, 0, 2]}),
        "transpose 4-D": ("Transpose", [(1, rows, 4, heads)], {}, {"perm": [0, 2, 3, 1]}),
        "slice": (
            "Slice",
            [x],
            {"starts": whole(1), "ends": whole(columns - 1), "axes": whole(1)},
            {},
        ),
        "gather rows": ("Gather", [x], {"i": np.arange(rows)[::-1].copy()}, {"axis": 0}),
        "gather columns": ("Gather", [x], {"i": np.arange(columns)[::-2].copy()}, {"axis": 1}),
        "concat": ("Concat", [x, x], {}, {"axis": 1}),
        "pad": ("Pad", [image], {"pads": whole(0, 0, 1, 1, 0, 0, 1, 1)}, {}),
        "resize nearest": (
            "Resize",
            [image],
            {"": np.empty(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)},
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        ),
        "resize linear": (
            "Resize",
            [image],
            {"": np.empty(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)},
            {"mode": "linear"},
        ),
        "sum of rows": ("ReduceSum", [x], {"axes": whole(1)}, {}),
        "sum of columns": ("ReduceSum", [x], {"axes": whole(0)}, {}),
        "mean of all": ("ReduceMean", [x], {"axes": whole(0, 1)}, {}),
    }  # fmt: skip


def one_layer(op: str, shapes: list[Shape], constants: Constants, attributes: dict) -> bytes:
    inputs = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op, [*inputs, *constants], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "one_layer",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(inputs, shapes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def ratio(model: bytes, shapes: list[Shape]) -> float:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(model, options)
    context = opwright.build(model).engine.create_execution_context()
    rng = np.random.default_rng(0)
    inputs = {f"x{i}": rng.standard_normal(s, np.float32) for i, s in enumerate(shapes)}
    want = peer.run(None, inputs)[0]
    # Both write where they are told: what memory of results costs is another matter.
    result, binding = np.empty_like(want), peer.io_binding()
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(want)))
    context.set_tensor_address("y", result.ctypes.data)
    for name, x in inputs.items():
        binding.bind_cpu_input(name, x)
        context.set_tensor_address(name, x.ctypes.data)
    context.execute_async_v3(0)
    if not np.abs(result - want).max() <= 1e-5 * np.abs(want).max():
        raise SystemExit(f"bench/operators: the result of {model!r:.80} differs from ONNX Runtime's")
    ours, theirs = in_turns(
        [lambda: context.execute_async_v3(0), lambda: peer.run_with_iobinding(binding)],
        rounds=3,
        seconds=0.02,
    )
    return ours / theirs


def main(chosen: list[str]) -> None:
    print(f"threads: {threads()}, ONNX Runtime {onnxruntime.__version__}")
    print(f"{'':16}", *(f"{size >> 10:6} KiB" for size in SIZES))
    for name in chosen or cases(16, 16):
        row = []
        for size in SIZES:
            columns = 1 << (size.bit_length() // 2 - 1)
            op, shapes, constants, attributes = cases(size // 4 // columns, columns)[name]
            row.append(ratio(one_layer(op, shapes, constants, attributes), shapes))
        print(f"{name:16}", *(f"{value:10.2f}" for value in row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
