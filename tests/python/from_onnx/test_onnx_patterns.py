"""Groups of ONNX nodes that exporters write for one operation of the framework."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import opwright
from onnx_graphs import FLOAT, INT64, assert_close, model, reference_session


def pad_nodes(mode: str = "constant") -> list:
    """What torch.nn.functional.pad becomes: `pads` holds (begin, end) of the last axes, the last one first."""
    node = helper.make_node
    return [
        node("Sub", ["twice_rank", "given"], ["missing"]),
        node(
            "ConstantOfShape",
            ["missing"],
            ["zeros"],
            value=numpy_helper.from_array(np.zeros(1, np.int64)),
        ),
        node("Concat", ["pads", "zeros"], ["all"], axis=0),
        node("Reshape", ["all", "pairs_shape"], ["pairs"]),
        node("Slice", ["pairs", "last", "first", "axis", "last"], ["reversed"]),
        node("Transpose", ["reversed"], ["columns"], perm=[1, 0]),
        node("Reshape", ["columns", "flat_shape"], ["flat"]),
        node("Cast", ["flat"], ["as_integers"], to=INT64),
        node("Pad", ["x", "as_integers", "fill"], ["y"], mode=mode),
    ]


def pad_constants(rank: int, given: int) -> dict[str, np.ndarray]:
    return {
        "twice_rank": np.array([2 * rank]),
        "given": np.array([given]),
        "pairs_shape": np.array([-1, 2]),
        "flat_shape": np.array([-1]),
        "last": np.array([-1]),
        "first": np.array([np.iinfo(np.int64).min + 1]),
        "axis": np.array([0]),
        "fill": np.array(0.5, np.float32),
    }


def check(nodes: list, constants: dict[str, np.ndarray]) -> None:
    """One engine agrees with ONNX Runtime on images of several sizes."""
    made = model(nodes, {"x": (FLOAT, ["n", 3, "h", "w"])}, ["y"], constants)
    spans = {"x": ((1, 3, 4, 4), (1, 3, 6, 6), (2, 3, 16, 16))}
    engine = opwright.build(made.SerializeToString(), shapes=spans, timing=False)
    session = reference_session(made)
    rng = np.random.default_rng(0)
    for shape in [(1, 3, 5, 4), (2, 3, 4, 9), (1, 3, 8, 15)]:
        x = rng.normal(size=shape).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        assert_close(engine(x=x), want)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("pads", [[1, 2], [1, 2, 0, 3], [3, 0, 1, 2, 0, 0, 0, 0]])
def test_pad_by_constants(mode, pads):
    check(pad_nodes(mode), pad_constants(4, len(pads)) | {"pads": np.array(pads)})


def test_pad_to_a_multiple():
    """As before the windows of a vision transformer: the pads follow from the image's extents."""
    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "width_and_height"], ["extents"]),
        node("Mod", ["extents", "window"], ["used"]),
        node("Sub", ["window", "used"], ["free"]),
        node("Mod", ["free", "window"], ["ends"]),
        node("Concat", ["zero", "ends"], ["begin_and_ends"], axis=0),
        node("Gather", ["begin_and_ends", "order"], ["pads"]),
        *pad_nodes(),
    ]
    constants = pad_constants(4, 4) | {
        "width_and_height": np.array([3, 2]),
        "window": np.array([4]),
        "zero": np.array([0]),
        "order": np.array([0, 1, 0, 2]),
    }
    check(nodes, constants)
