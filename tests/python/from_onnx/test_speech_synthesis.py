"""Kokoro TTS part by part against ONNX Runtime, each part on what ONNX Runtime computed before it.

As a whole the wave cannot be equal. Layers round to bytes, so that a millionth more at the front moves what follows by
tenths, in ONNX Runtime itself; the phases of the oscillators are sums over the sentence, some 6,000 radians in FP32
where half a unit is 2e-4; and the angles of a spectrum's bins that hold next to nothing are those of rounding errors.
So the parts are fed the same, and what rounds nothing is compared tightly; what rounds to bytes, by how far ONNX
Runtime moves itself.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opwright
from real_models import MODELS, Missing, difference, loudness, onnx_runtime

pytest.importorskip("scipy")

GENERATOR = "/decoder/decoder/generator/"
SOURCE = GENERATOR + "m_source/l_sin_gen/"
TEXT = [
    "/encoder/MatMul_1_output_0", "/encoder/Reshape_1_output_0", "/encoder/Reshape_output_0", "onnx::Add_6479",
]  # fmt: skip
FEATURES = "/decoder/decoder/decode.3/Div_4_output_0"
PHASES, IS_VOICED = SOURCE + "Transpose_3_output_0", SOURCE + "Cast_output_0"
SPECTRUM = GENERATOR + "Transpose_3_output_0"
MAGNITUDES, ANGLES = GENERATOR + "Sqrt_output_0", GENERATOR + "Where_1_output_0"
HARMONICS = GENERATOR + "Concat_3_output_0"
BOUNDS = {"/encoder/Cast_1_output_0": 120}


def with_wide_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """LSTMs in FP32 in the place of those for which ONNX Runtime rounds inputs and states to bytes."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    for node in made.graph.node:
        if node.op_type != "DynamicQuantizeLSTM":
            continue
        names = list(node.input)
        for place, scale, zero in ((1, 8, 9), (2, 10, 11)):
            directions = known[names[place]].shape[0]
            shift = known[names[zero]].astype(np.float32).reshape(directions, 1, -1)
            wide = known[names[place]].astype(np.float32) - shift
            wide = wide * known[names[scale]].reshape(directions, 1, -1)
            names[place] += "_wide"
            made.graph.initializer.append(
                numpy_helper.from_array(np.ascontiguousarray(wide.transpose(0, 2, 1)), names[place])
            )
        node.op_type, node.domain = "LSTM", ""
        del node.input[:]
        node.input.extend(names[:8])
    return made


class Parts:
    """The model, and what ONNX Runtime computes in it."""

    def __init__(self, model: onnx.ModelProto, call: dict[str, np.ndarray]) -> None:
        self.model, self.call = with_wide_weights(model), call
        graph = self.model.graph
        self.makers = {name: node for node in graph.node for name in node.output if name}
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        names = [*TEXT, FEATURES, PHASES, IS_VOICED, SPECTRUM, HARMONICS]
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        self.known = call | onnx_runtime(made.SerializeToString(), [call])[0]

    def between(self, inputs: list[str], outputs: list[str]) -> tuple[bytes, dict[str, np.ndarray]]:
        """The nodes from some tensors to others as a model of their own, and its inputs."""
        seen: set[str] = set()
        nodes: set[int] = set()
        pending, fed = list(outputs), []
        while pending:
            name = pending.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in inputs or name in self.call:
                fed.append(name)
            elif name in self.makers:
                nodes.add(id(self.makers[name]))
                pending += self.makers[name].input
            else:
                assert name in self.constants, f"{name} is no part of {inputs}"
        feeds = {name: self.known[name] for name in fed}
        graph = helper.make_graph(
            [node for node in self.model.graph.node if id(node) in nodes],
            "part",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in feeds.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [tensor for name, tensor in self.constants.items() if name in seen],
        )
        made = helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )
        return made.SerializeToString(), feeds

    def compare(self, inputs: list[str], outputs: list[str], **options) -> dict[str, float]:
        """How far the outputs are apart, in units of the largest element."""
        data, feeds = self.between(inputs, outputs)
        wanted = onnx_runtime(data, [feeds])[0]
        got = opwright.build(data, device="cpu", timing=False, **options)(**feeds)
        got = got if isinstance(got, dict) else {outputs[0]: got}
        return {name: difference(got[name], wanted[name]) for name in outputs}


@pytest.fixture(scope="module")
def parts() -> Parts:
    model = next(model for model in MODELS if "kokoro" in model.package)
    try:
        data, calls = model.read(), model.make()
    except Missing as missing:
        pytest.skip(str(missing))
    return Parts(onnx.load_from_string(data), calls[0])


def moved(feeds: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """By a millionth."""
    rng = np.random.default_rng(seed)
    return {
        name: (array * (1 + 1e-6 * rng.standard_normal(array.shape))).astype(array.dtype)
        if array.dtype == np.float32
        else array
        for name, array in feeds.items()
    }


def test_what_is_read_of_the_text(parts):
    """Durations, pitch, loudness and what the decoder reads, through 60 layers that round to bytes: where weights move
    by a millionth, ONNX Runtime itself gives up to 8 of the 46 frames more."""
    apart = parts.compare(list(parts.call), TEXT, bounds=BOUNDS)
    assert apart["onnx::Add_6479"] == 0
    assert apart["/encoder/MatMul_1_output_0"] < 1e-5
    assert max(apart.values()) < 0.05


def test_features_and_phases(parts):
    apart = parts.compare(TEXT, [FEATURES, SOURCE + "Resize_1_output_0", IS_VOICED])
    assert apart[FEATURES] < 1e-5
    # Of some thousand radians.
    assert apart[SOURCE + "Resize_1_output_0"] < 2e-6
    assert apart[IS_VOICED] == 0


def test_the_spectrum_of_the_oscillators(parts):
    assert parts.compare([*TEXT, PHASES, IS_VOICED], [SPECTRUM])[SPECTRUM] < 1e-5


def test_magnitudes_and_angles_of_a_spectrum(parts):
    """Also of bins that hold next to nothing: the same numbers have the same angle."""
    apart = parts.compare([*TEXT, SPECTRUM], [MAGNITUDES, ANGLES])
    assert apart[MAGNITUDES] < 1e-6
    assert apart[ANGLES] < 1e-6


def test_the_wave_of_given_angles(parts):
    data, feeds = parts.between([*TEXT, FEATURES, HARMONICS], ["audio"])
    runs = onnx_runtime(data, [feeds, *(moved(feeds, seed) for seed in range(3))])
    wanted, *others = (each["audio"] for each in runs)
    got = opwright.build(data, device="cpu", timing=False)(**feeds)
    got = got["audio"] if isinstance(got, dict) else got
    assert difference(got, wanted) <= 2 * max(difference(other, wanted) for other in others)
    assert np.corrcoef(got, wanted)[0, 1] > 0.99
    assert difference(loudness(got), loudness(wanted)) < 0.05
