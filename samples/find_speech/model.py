"""The recurrent network that the package silero-vad ships, from samples to stretches of speech in one engine."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PACKAGE, FILE = "silero-vad", "silero_vad_16k_sequence.onnx"
RATE, FRAME, CONTEXT = 16000, 512, 64  # a frame is heard with the end of the one before
SEGMENTS = {"begin": 0.5, "end": 0.35, "least_speech": 8, "least_pause": 8}


def shipped() -> onnx.ModelProto:
    for file in importlib.metadata.files(PACKAGE) or []:
        if file.name == FILE:
            return onnx.load(Path(str(file.locate())))
    raise SystemExit(f"{PACKAGE} has no {FILE}; this sample was written for version 6.2")


def speech_model() -> onnx.ModelProto:
    """FP32 [frames * 512] at 16 kHz to the segments and the probabilities of speech."""
    model = shipped()
    graph = model.graph
    weights = {
        "frames/shape": np.array([-1, FRAME], np.int64),
        "frames/end": np.array([FRAME], np.int64),
        "frames/context": np.array([FRAME - CONTEXT], np.int64),
        "frames/last": np.array([-1], np.int64),
        "frames/zero": np.array([0], np.int64),
        "frames/one": np.array([1], np.int64),
        "frames/silence": np.zeros((1, CONTEXT), np.float32),
        "h": np.zeros((1, 1, 128), np.float32),
        "c": np.zeros((1, 1, 128), np.float32),
    }
    node = helper.make_node
    frames = [
        node("Reshape", ["samples", "frames/shape"], ["frames/own"]),
        node(
            "Slice", ["frames/own", "frames/context", "frames/end", "frames/one"], ["frames/ends"]
        ),
        node(
            "Slice", ["frames/ends", "frames/zero", "frames/last", "frames/zero"], ["frames/before"]
        ),
        node("Concat", ["frames/silence", "frames/before"], ["frames/heard"], axis=0),
        node("Concat", ["frames/heard", "frames/own"], ["input"], axis=1),
    ]
    for made in reversed(frames):
        graph.node.insert(0, made)
    graph.node.append(
        node(
            "segments", ["speech_probs"], ["segments", "segments/count"], "segments",
            domain="speech", plugin_namespace="speech", **SEGMENTS,
        )
    )  # fmt: skip
    graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())
    del graph.input[:], graph.output[:]
    graph.input.append(helper.make_tensor_value_info("samples", TensorProto.FLOAT, ["samples"]))
    graph.output.append(helper.make_tensor_value_info("segments", TensorProto.INT32, None))
    graph.output.append(helper.make_tensor_value_info("speech_probs", TensorProto.FLOAT, None))
    model.opset_import.append(helper.make_opsetid("speech", 1))
    return model
