"""The ONNX project's own node tests, for every operator that the parser takes over."""

from __future__ import annotations

import re
import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import opwright
from onnx_graphs import reference_session

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    CASES = collect_testcases("")

TYPES = {np.dtype(t) for t in ("float32", "float16", "int8", "uint8", "int32", "int64", "bool")}
TYPES |= {np.dtype(t) for t in ("float64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)}

# What the engine does not support, and says so: the name of the tests, the reason in the message.
REFUSED = {
    r"arg(max|min)_.*select_last_index": "select_last_index",
    r"maxpool_with_argmax.*": "the output of indices is not supported",
    r"resize_.*antialias.*": "antialias",
    r"resize_.*(not_larger|not_smaller)": "keep_aspect_ratio_policy",
    r"resize_.*half_pixel_symmetric": "half_pixel_symmetric",
    r"resize_tf_crop_and_resize.*": "tf_crop_and_resize",
    r"training_dropout_(default|zero_ratio|mask|default_mask|zero_ratio_mask)": "training_mode",
    r"batchnorm_.*_training_mode": "training_mode",
    r"not_[234]d": "opset 1 ",
}

# What the reference of ONNX computes otherwise than ONNX Runtime, which decides: with aligned corners
# it divides by extent * scale instead of by the extent of the output, which is rounded down.
DECIDED_BY_RUNTIME = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}

# Inputs that the operators read as shapes or options: given as inputs by the tests, constants in real models.
CONSTANT_INPUTS = {
    "Reshape": {1},
    "Expand": {1},
    "Tile": {1},
    "Slice": {1, 2, 3, 4},
    "Split": {1},
    "Pad": {1, 3},
    "Resize": {1, 2, 3},
    "Upsample": {1},
    "Squeeze": {1},
    "Unsqueeze": {1},
    "ConstantOfShape": {0},
    "Range": {0, 1, 2},
    "OneHot": {1},
    "TopK": {1},
    "Dropout": {2},
    "Loop": {0, 1},
}


# A loop that makes as many elements as its inputs say, which are constants.
EXPANDED_RANGE = re.compile("test_range_.*_expanded")


def operators(graph: onnx.GraphProto) -> set[str]:
    """Those of bodies among them."""
    found = {node.op_type for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= operators(attribute.g)
    return found


def is_candidate(case) -> bool:
    model = case.model
    if model is None or len(model.functions) or len(case.data_sets) != 1:
        return False
    if any(node.domain not in ("", "ai.onnx") for node in model.graph.node):
        return False
    if not all(opwright.OnnxParser.supports_operator(op) for op in operators(model.graph)):
        return False
    if not all(
        value.type.HasField("tensor_type") for value in (*model.graph.input, *model.graph.output)
    ):
        return False
    inputs, outputs = case.data_sets[0]
    arrays = [*inputs, *outputs]
    kinds = (np.ndarray, np.generic) if EXPANDED_RANGE.fullmatch(case.name) else np.ndarray
    if not all(isinstance(a, kinds) and a.dtype in TYPES for a in arrays):
        return False
    # Random numbers have no expected values.
    return not any(op.startswith("Random") for op in operators(model.graph))


def with_constants(case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model with inputs that are shapes or options made initializers, and the remaining inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    arrays = dict(zip((i.name for i in graph.input), case.data_sets[0][0]))
    constant = set()
    for node in graph.node:
        wanted = CONSTANT_INPUTS.get(node.op_type, set())
        if node.op_type.startswith("Reduce"):
            wanted = {1}
        constant |= {name for i, name in enumerate(node.input) if i in wanted and name in arrays}
    if case.name.startswith("test_affine_grid"):
        constant.add("size")
    if EXPANDED_RANGE.fullmatch(case.name):
        constant |= set(arrays)
    for name in constant:
        graph.initializer.append(numpy_helper.from_array(np.asarray(arrays.pop(name)), name))
    kept = [i for i in graph.input if i.name in arrays]
    del graph.input[:]
    graph.input.extend(kept)
    for value in graph.input:
        # The tests leave extents of optional batch axes open although the arrays have them.
        del value.type.tensor_type.shape.dim[:]
        value.type.tensor_type.shape.SetInParent()
        for extent in arrays[value.name].shape:
            value.type.tensor_type.shape.dim.add().dim_value = extent
    return model, arrays


def in_single_precision(array: np.ndarray) -> np.ndarray:
    """Double precision as the engine takes it."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def refusal(name: str) -> str | None:
    for pattern, reason in REFUSED.items():
        if re.fullmatch(pattern, name.removeprefix("test_")):
            return reason
    return None


def shape_values(case) -> dict | None:
    """The ranges of inputs that the tests' models compute shapes from."""
    if not case.name.startswith("test_center_crop_pad"):
        return None
    shape = case.data_sets[0][0][1].tolist()
    return {"shape": (shape, shape, shape)}


CANDIDATES = [case for case in CASES if is_candidate(case)]


def test_most_node_tests_are_run():
    assert len(CANDIDATES) > 900


@pytest.mark.parametrize("case", CANDIDATES, ids=lambda case: case.name)
def test_node(case):
    model, inputs = with_constants(case)
    reason = refusal(case.name)
    if reason is not None:
        with pytest.raises(opwright.Error, match=re.escape(reason)):
            opwright.build(model.SerializeToString(), timing=False)
        return
    engine = opwright.build(model.SerializeToString(), timing=False, values=shape_values(case))
    inputs = {name: in_single_precision(array) for name, array in inputs.items()}
    results = engine(**inputs)
    wanted = case.data_sets[0][1]
    if case.name in DECIDED_BY_RUNTIME:
        wanted = reference_session(model).run(None, inputs)
    expected = dict(zip((o.name for o in model.graph.output), wanted))
    if not isinstance(results, dict):
        results = {next(iter(expected)): results}
    for name, want in expected.items():
        want = in_single_precision(want)
        got = np.asarray(results[name])
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        if want.dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
            got, want = got.astype(np.float32), want.astype(np.float32)
        tolerance = 2e-2 if expected[name].dtype.itemsize < 4 else 2e-4
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 0.1)
