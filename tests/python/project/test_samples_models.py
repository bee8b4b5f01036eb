"""The samples around models that packages ship run, and find what is there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from paths import SAMPLES
from real_models import IMAGENET, Missing, onnx_runtime, package_file, page, planes, voice

need = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("scipy", "PIL")),
    reason="SciPy and Pillow are not installed",
)


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, f"{name}.py", *map(str, arguments)]
    environment = {**os.environ, "OPWRIGHT_DEVICE": "cpu"}
    done = subprocess.run(
        command, cwd=SAMPLES / name, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def module(name: str, file: str):
    spec = importlib.util.spec_from_file_location(f"{name}_{file}", SAMPLES / name / f"{file}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def reading_models():
    try:
        package_file("rapidocr-onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx")
    except Missing as missing:
        pytest.skip(str(missing))


@need
def test_text_is_read(reading_models, tmp_path):
    output = run("read_text", "--picture", tmp_path / "page.png")
    lines = [re.fullmatch(r"\d+,\d+,\d+,\d+ +([\d.]+) +(.*)", line) for line in output.splitlines()]
    assert all(float(line[1]) > 0.9 for line in lines)
    assert [re.sub(r" +", " ", line[2]) for line in lines] == [
        "A custom operator and the model",
        "around it become one engine file.",
        "Invoice 2048-77 June 2026",
        "Total: 1,592.00 EUR",
    ]
    assert (tmp_path / "page.png").stat().st_size > 1000


@need
def test_boxes_are_those_of_the_bare_model(reading_models):
    """ONNX Runtime runs the model, and the operator's function follows it."""
    import opwright

    operators, models = module("read_text", "operators"), module("read_text", "models")
    engine = opwright.build(
        models.detector(),
        shapes={"image": ((32, 32, 3), (480, 640, 3), (800, 800, 3))},
        device="cpu",
        timing=False,
    )
    model = package_file("rapidocr-onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx").read_bytes()
    for width, height in ((640, 480), (320, 256), (64, 32)):
        image = page(width, height)
        (result,) = onnx_runtime(model, [{"x": planes(image, *IMAGENET)}])
        (probabilities,) = result.values()
        wanted = operators.find_boxes(probabilities[0, 0], **models.BOXES)
        np.testing.assert_allclose(engine(image), wanted, atol=1)


@pytest.fixture
def sound():
    try:
        package_file("silero-vad", "data/silero_vad_16k_sequence.onnx")
        return voice()
    except Missing as missing:
        pytest.skip(str(missing))


@need
def test_speech_is_found(sound, tmp_path):
    output = run("find_speech", "--picture", tmp_path / "speech.png")
    stretches = re.findall(r"([\d.]+) to +([\d.]+) s", output)
    assert len(stretches) == 3
    begins, ends = np.array(stretches, float).T
    # A second of silence stands before each sentence, and behind the last.
    assert 0.9 < begins[0] < 1.2
    assert (begins[1:] - ends[:-1] > 0.8).all()
    assert (tmp_path / "speech.png").stat().st_size > 1000


@need
def test_speech_is_that_of_the_bare_model(sound):
    import opwright

    operators, model = module("find_speech", "operators"), module("find_speech", "model")
    engine = opwright.build(
        model.speech_model(),
        shapes={"samples": ((512,), (51200,), (512 * 1000,))},
        device="cpu",
        timing=False,
    )
    bare = package_file("silero-vad", "data/silero_vad_16k_sequence.onnx").read_bytes()
    state = {name: np.zeros((1, 1, 128), np.float32) for name in ("h", "c")}
    for count in (1, 40, 200):
        samples = sound[: count * 512]
        frames = np.concatenate([np.zeros(64, np.float32), samples])
        frames = np.ascontiguousarray(
            np.lib.stride_tricks.sliding_window_view(frames, 576)[::512], np.float32
        )
        (wanted,) = onnx_runtime(bare, [{"input": frames, **state}])
        found = engine(samples)
        np.testing.assert_allclose(found["speech_probs"], wanted["speech_probs"], atol=1e-4)
        segments = operators.find_segments(wanted["speech_probs"], **model.SEGMENTS)
        np.testing.assert_array_equal(found["segments"], segments)
