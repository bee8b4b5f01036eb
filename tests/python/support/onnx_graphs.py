"""ONNX models made in tests, and ONNX Runtime's results for them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
# The beginning of a model in ONNX's text form.
HEAD = '<ir_version: 9, opset_import: ["" : 18]>'


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list]],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """A model. Inputs are (element type, shape); a name in a shape is a dynamic extent."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


def reference_session(made: onnx.ModelProto | str) -> onnxruntime.InferenceSession:
    """The model in ONNX Runtime with two threads."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    source = made if isinstance(made, str) else made.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def as_list(results: np.ndarray | dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of an engine in order."""
    return list(results.values()) if isinstance(results, dict) else [results]


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-4) -> None:
    """Asserts that the largest error is within `tolerance` of the largest magnitude, and that
    integers are equal."""
    got = np.asarray(got)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if not np.issubdtype(want.dtype, np.floating):
        np.testing.assert_array_equal(got, want)
        return
    scale = float(np.abs(want).max(initial=0)) or 1.0
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


def roi_align(transformation: str, ratio: int, mode: str) -> onnx.NodeProto:
    """A RoiAlign to regions of 3 x 2 elements, in half of an image's coordinates."""
    return helper.make_node(
        "RoiAlign",
        ["x", "rois", "images"],
        ["y"],
        output_height=3,
        output_width=2,
        sampling_ratio=ratio,
        spatial_scale=0.5,
        mode=mode,
        coordinate_transformation_mode=transformation,
    )
