"""The detector and the recognizer that the package rapidocr-onnxruntime ships, with the operators of this sample put
in: each becomes one engine, from the pixels to boxes or letters."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PACKAGE = "rapidocr-onnxruntime"
DETECTOR, RECOGNIZER = "ch_PP-OCRv4_det_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx"
HEIGHT = 48  # of a line, for the recognizer
BOXES = {"threshold": 0.3, "least_score": 0.5, "unclip": 1.6, "most": 200}


def shipped(name: str) -> onnx.ModelProto:
    for file in importlib.metadata.files(PACKAGE) or []:
        if file.name == name:
            return onnx.load(Path(str(file.locate())))
    raise SystemExit(f"{PACKAGE} has no {name}; this sample was written for version 1.4")


def from_pixels(model: onnx.ModelProto, height: int | str, mean, deviation) -> None:
    """The model takes an image as it comes, UINT8 [height, width, 3]."""
    graph = model.graph
    taken = graph.input[0].name
    weights = {
        "pixels/mean": np.float32(mean).reshape(-1, 1, 1) * 255,
        "pixels/deviation": np.float32(deviation).reshape(-1, 1, 1) * 255,
        "pixels/batch": np.array([0], np.int64),
    }
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels/real"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["pixels/real"], ["pixels/planes"], perm=[2, 0, 1]),
        helper.make_node("Sub", ["pixels/planes", "pixels/mean"], ["pixels/centered"]),
        helper.make_node("Div", ["pixels/centered", "pixels/deviation"], ["pixels/scaled"]),
        helper.make_node("Unsqueeze", ["pixels/scaled", "pixels/batch"], [taken]),
    ]
    if model.opset_import[0].version < 13:  # axes were an attribute
        nodes[-1] = helper.make_node("Unsqueeze", ["pixels/scaled"], [taken], axes=[0])
        del weights["pixels/batch"]
    for node in reversed(nodes):
        graph.node.insert(0, node)
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())
    del graph.input[:]
    shape = [height, "width", 3]
    graph.input.append(helper.make_tensor_value_info("image", TensorProto.UINT8, shape))


def with_operator(model: onnx.ModelProto, name: str, outputs: list[tuple[str, int]], **attributes):
    """The model's result goes through a custom operator of the namespace "text"."""
    graph = model.graph
    names = [output for output, _ in outputs]
    made = graph.output[0].name
    graph.node.append(
        helper.make_node(
            name,
            [made],
            [*names, f"{name}/count"],
            name,
            domain="text",
            plugin_namespace="text",
            **attributes,
        )
    )
    del graph.output[:]
    graph.output.extend(helper.make_tensor_value_info(n, kind, None) for n, kind in outputs)
    model.opset_import.append(helper.make_opsetid("text", 1))
    return model


def detector() -> onnx.ModelProto:
    """An image whose sides are multiples of 32 to boxes."""
    model = shipped(DETECTOR)
    from_pixels(model, "height", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    return with_operator(model, "boxes", [("boxes", TensorProto.INT32)], **BOXES)


def recognizer() -> tuple[onnx.ModelProto, list[str]]:
    """An image of one line, 48 pixels high, to letters; and what the letters are."""
    model = shipped(RECOGNIZER)
    alphabet = next(p.value for p in model.metadata_props if p.key == "character").splitlines()
    from_pixels(model, HEIGHT, (0.5,) * 3, (0.5,) * 3)
    outputs = [("letters", TensorProto.INT32), ("sure", TensorProto.FLOAT)]
    return with_operator(model, "decode", outputs), ["", *alphabet, " "]
