"""Latency of whole networks in FP16 on the GPU, beside PyTorch in a CUDA graph and torch.compile(reduce-overhead), all
in one process and in turns; with the layers of each that take longest in all, how far these are from what the memory
and the tensor cores allow, and how long a build takes.

python bench/gpu_models.py [--only NAME ...] [--peers graph compile cublaslt one-stream] [--cache FOLDER]
                           [--markdown FILE] [--quantized FOLDER]

--quantized: beside each row those of the quantized models of the network that bench/quantized_models.py has written
there; their ratio is to our engine of FP16, their error that from ONNX Runtime's results.

Weights are random. A result that differs from PyTorch's in FP32 by more than FP16's error ends the program.
"""

from __future__ import annotations

import argparse
import collections
import copy
import io
import math
import statistics
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpu
import numpy as np
import quantized_models
import torch

import opwright

# Limits relative to the norm of the results, for FP16 through some fifty layers, and for layers
# that round to bytes. A number near the border between two bytes falls on either side in different
# sums.
MAX_ERROR, MAX_ERROR_OF_BYTES = 0.02, 0.2


class Case(NamedTuple):
    name: str
    make: Callable[[], torch.nn.Module]
    input: Callable[[], torch.Tensor]
    goal: float  # factor of the faster peer's time


def calm(model: torch.nn.Module) -> torch.nn.Module:
    """Scales residual blocks down, since with random weights each would double its input."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            if name.endswith(("bn3", "conv.3")):
                module.weight.data.fill_(0.3)
    return model


class Output(torch.nn.Module):
    """The main output of a network with several outputs."""

    def __init__(self, model: torch.nn.Module, key: str):
        super().__init__()
        self.model, self.key = model, key

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)[self.key]


def resnet() -> torch.nn.Module:
    import torchvision

    return calm(torchvision.models.resnet50())


def googlenet() -> torch.nn.Module:
    import torchvision

    return calm(torchvision.models.googlenet(weights=None, aux_logits=False, init_weights=False))


def inception() -> torch.nn.Module:
    import torchvision

    return calm(torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False))


def squeezenet() -> torch.nn.Module:
    import torchvision

    return torchvision.models.squeezenet1_1()


def mobilenet() -> torch.nn.Module:
    import torchvision

    return calm(torchvision.models.mobilenet_v2())


def vit() -> torch.nn.Module:
    import torchvision

    model = torchvision.models.vit_b_16()
    torch.nn.init.normal_(model.heads.head.weight, std=0.02)  # otherwise the weights are 0
    return model


def deeplab() -> torch.nn.Module:
    import torchvision

    make = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large
    return Output(calm(make(weights=None, weights_backbone=None)), "out")


def bert() -> torch.nn.Module:
    import transformers

    config = transformers.BertConfig(attn_implementation="sdpa")
    return Output(transformers.BertModel(config, add_pooling_layer=False), "last_hidden_state")


def images(count: int, size: int = 224) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(count, 3, size, size)


def tokens(count: int, length: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, 30000, (count, length))


CASES = [
    Case("ResNet-50, batch 1", resnet, images(1), 0.62),
    Case("ResNet-50, batch 32", resnet, images(32), 0.79),
    Case("BERT-base, 1 x 128", bert, tokens(1, 128), 0.56),
    Case("BERT-base, 32 x 128", bert, tokens(32, 128), 0.68),
    Case("ViT-B/16, batch 1", vit, images(1), 0.65),
    Case("ViT-B/16, batch 32", vit, images(32), 0.75),
    Case("DeepLabV3-MobileNet, 1 x 320", deeplab, images(1, 320), 0.68),
    Case("MobileNetV2, batch 1", mobilenet, images(1), 1.0),
    Case("GoogLeNet, batch 1", googlenet, images(1), 1.0),
    Case("Inception v3, batch 1", inception, images(1, 299), 1.0),
    Case("SqueezeNet 1.1, batch 1", squeezenet, images(1), 1.0),
]


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_):
    """Scaled dot-product attention, written with operators that ONNX has."""
    scores = q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    return torch.softmax(scores if attn_mask is None else scores + attn_mask, -1) @ v


def export(model: torch.nn.Module, x: torch.Tensor) -> bytes:
    file = io.BytesIO()
    with unittest.mock.patch("torch.nn.functional.scaled_dot_product_attention", attention):
        write(model, x, file)
    return file.getvalue()


def write(model: torch.nn.Module, x: torch.Tensor, file: io.BytesIO) -> None:
    torch.onnx.export(
        model, (x,), file, input_names=["x"], output_names=["y"], opset_version=17, dynamo=False
    )


def captured(model: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    """Captures the model in a CUDA graph and returns a function that replays it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return graph.replay


def in_turns(functions: list[Callable[[], object]], rounds: int = 7) -> list[float]:
    """Seconds per run of each function, from many runs between two events. The median of the rounds
    counts."""
    times: list[list[float]] = [[] for _ in functions]
    runs = []
    for function in functions:
        for _ in range(5):
            function()
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        runs.append(max(5, min(200, math.ceil(0.05 / (time.perf_counter() - start)))))
    for _ in range(rounds):
        for index, function in enumerate(functions):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(runs[index]):
                function()
            end.record()
            torch.cuda.synchronize()
            times[index].append(begin.elapsed_time(end) * 1e-3 / runs[index])
    return [statistics.median(each) for each in times]


def built(model: bytes, cache: Path | None) -> tuple[Any, float]:
    start = time.perf_counter()
    engine = opwright.build(model, device="cuda", timing_cache=cache)
    return engine, time.perf_counter() - start


def with_cublaslt(config: Any) -> None:
    config.set_tactic_sources(1 << int(opwright.TacticSource.CUBLAS_LT))


def with_one_stream(config: Any) -> None:
    config.max_aux_streams = 0


OTHERS = {"cublaslt": with_cublaslt, "one-stream": with_one_stream}


def built_with(model: bytes, change: Callable[[Any], None]) -> Any:
    """The engine of a model with a changed config."""
    builder = opwright.Builder(opwright.Logger())
    network = builder.create_network()
    if not opwright.OnnxParser(network, opwright.Logger()).parse(model):
        raise RuntimeError("the model cannot be parsed")
    config = builder.create_builder_config()
    config.default_device_type = opwright.DeviceType.GPU
    change(config)
    engine = builder.build_engine_with_config(network, config)
    if engine is None:
        raise RuntimeError("no engine of another config")
    return opwright.Engine(engine)


def difference(y: torch.Tensor, expected: torch.Tensor) -> float:
    y, expected = y.double(), expected.double()
    return float((y - expected).norm() / expected.norm())


def quantized(case: Case, folder: Path | None, cache: Path | None) -> list[dict[str, Any]]:
    """A row for each of the network's quantized models, with `run`, which calls its engine."""
    rows = []
    for kind in ("int8", "fp8"):
        path = folder / f"{quantized_models.slug(case.name, kind)}.onnx" if folder else None
        # The file of results is written last.
        if path is None or not path.with_suffix(".npz").exists():
            continue
        known = np.load(path.with_suffix(".npz"))
        x, expected = (torch.from_numpy(known[name]).cuda() for name in ("x", "y"))
        start = time.perf_counter()
        engine = opwright.build(path, device="cuda", timing_cache=cache)
        row: dict[str, Any] = {"name": f"{case.name}, {kind.upper()}"}
        row["build"] = time.perf_counter() - start
        row["warm"], row["goal"] = float("nan"), 1.0
        row["error"] = difference(engine(x), expected)
        if not row["error"] < MAX_ERROR_OF_BYTES:
            raise SystemExit(f"bench/gpu_models: {row['name']} is off by {row['error']:.1e}")
        row["layers"] = sorted(engine.layers, key=lambda layer: -layer.get("TimeMs", 0))
        row["run"] = lambda engine=engine, x=x: engine(x)
        rows.append(row)
    return rows


def measure(
    case: Case, peers: list[str], cache: Path | None, of_bytes: list[dict[str, Any]]
) -> dict[str, Any]:
    torch.manual_seed(1)
    model = case.make().eval().cuda()
    x = case.input().cuda()
    with torch.inference_mode():
        torch.backends.mha.set_fastpath_enabled(False)
        expected = model(x)
        half = copy.deepcopy(model).half()
        if x.is_floating_point():
            x = x.half()
        onnx = export(half, x)
        engine, seconds = built(onnx, cache)
        # Timings and kernels are now cached.
        _, again = built(onnx, cache) if cache else (None, float("nan"))
        variants = {name: built_with(onnx, OTHERS[name]) for name in peers if name in OTHERS}
        row: dict[str, Any] = {"name": case.name, "build": seconds, "warm": again}
        row["error"] = difference(engine(x), expected)
        row["peer_error"] = difference(half(x), expected)
        if not row["error"] < MAX_ERROR:
            raise SystemExit(f"bench/gpu_models: {case.name} is off by {row['error']:.1e}")
        functions: dict[str, Callable[[], object]] = {"ours": lambda: engine(x)}
        if x.dim() == 4:
            half = half.to(memory_format=torch.channels_last)
            x_last = x.to(memory_format=torch.channels_last)
        else:
            x_last = x
        for name, variant in variants.items():
            if not difference(variant(x), expected) < MAX_ERROR:
                raise SystemExit(f"bench/gpu_models: {case.name} with {name} is off")
            functions[name] = lambda variant=variant: variant(x)
        if "graph" in peers:
            functions["graph"] = captured(half, x_last)
        if "compile" in peers:
            compiled = torch.compile(half, mode="reduce-overhead")
            functions["compile"] = lambda: compiled(x_last)
        times = in_turns([*functions.values(), *(other["run"] for other in of_bytes)])
        row.update(zip(functions, times))
        for other, seconds in zip(of_bytes, times[len(functions) :]):
            other["ours"] = seconds
        row["layers"] = sorted(engine.layers, key=lambda layer: -layer.get("TimeMs", 0))
    return row


def copy_speed() -> float:
    """The bytes per second that a copy within the device's memory reads and writes."""
    x = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return 2 * x.numel() / in_turns([lambda: y.copy_(x)])[0]


# Operations per second of tensor cores with dense FP16, by NVIDIA's data sheets.
TENSOR_SPEED = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}


def tensor_speed() -> float:
    name = torch.cuda.get_device_name()
    return next((speed for part, speed in TENSOR_SPEED.items() if part in name), float("nan"))


def shape_of(port: dict[str, Any] | None) -> list[int]:
    dims = port.get("Dimensions", []) if port else []
    return [dim for dim in dims if isinstance(dim, int)] if isinstance(dims, list) else []


def bytes_of(port: dict[str, Any] | None) -> int:
    text = str(port.get("Format/Datatype", "")) if port else ""
    sizes = {"FP32": 4, "INT32": 4, "INT64": 8, "FP16": 2, "BF16": 2, "FP8": 1, "INT8": 1}
    return math.prod(shape_of(port)) * next((n for t, n in sizes.items() if t in text), 1)


def operations(layer: dict[str, Any]) -> float:
    """The multiplications and additions of a layer of products; 0 for other layers."""
    inputs, kind = [shape_of(port) for port in layer["Inputs"]], layer["LayerType"]
    result = shape_of(layer["Outputs"][0])
    if kind == "Convolution":  # weights [maps, channels of a group, ...]
        return 2 * math.prod(result) * math.prod(inputs[1][1:])
    if kind in ("MatrixMultiply", "CublasLtProduct") and min(map(len, (*inputs[:2], result))) >= 2:
        a, b, y = (math.prod(shape[-2:]) for shape in (*inputs[:2], result))
        return 2 * math.prod(result) * math.sqrt(a * b / max(y, 1))
    if kind == "FusedAttention":
        keys = inputs[1][1] if len(inputs[1]) == 3 else inputs[1][-2]
        return 4 * math.prod(inputs[0]) * keys
    return 0


def describe(layer: dict[str, Any], memory: float, tensor: float) -> str:
    """A line on the layer, with its distance from its bound."""
    name, kind = str(layer.get("Name", "")), str(layer.get("LayerType", ""))
    tactic = str(layer.get("TacticName", layer.get("Tactic", "")))
    seconds = layer.get("TimeMs", 0) * 1e-3
    moved = sum(bytes_of(port) for port in (*layer["Inputs"], *layer["Outputs"])) / memory
    computed = operations(layer) / tensor
    limit, what = max((moved, "memory"), (computed, "tensor cores"))
    share = f", {limit / seconds:.0%} of the {what}' limit" if seconds > 0 else ""
    share = share.replace("memory'", "memory's")
    return f"{seconds * 1e6:.1f} us{share}: {kind} {name[-40:]} ({tactic})"


def key(layer: dict[str, Any]) -> tuple[Any, ...]:
    """A key that is the same for layers that the tuner timed only once."""
    ports = [tuple(shape_of(port)) for port in (*layer["Inputs"], *layer["Outputs"])]
    return layer["TimeMs"], layer["LayerType"], tuple(ports)


def table_line(row: dict[str, Any]) -> str:
    columns = ("ours", "one-stream", "cublaslt", "graph", "compile")
    verdict = f"{row['goal']:g}" + ("" if row["ratio"] <= row["goal"] else " missed")
    times = [f"{row[k] * 1e3:.3f}" if k in row else "" for k in columns]
    return (
        f"| {row['name']} | {' | '.join(times)} | {row['ratio']:.2f} | {verdict} | {row['error']:.1e} "
        f"| {row['build']:.0f} | {row['warm']:.1f} |"
    )


def layers_of(row: dict[str, Any], memory: float, tensor: float) -> list[str]:
    """Lines on the layers that take longest."""
    kinds = collections.Counter()
    for layer in row["layers"]:
        kinds[layer["LayerType"]] += layer["TimeMs"] * 1e3
    shares = ", ".join(f"{kind} {us:.0f}" for kind, us in kinds.most_common(6))
    text = f"{row['name']}, {len(row['layers'])} layers, us by kind: {shares}; the slowest:"
    # Layers of one tactic and one shape take the same time, so each such group is listed once.
    groups = collections.Counter(key(layer) for layer in row["layers"])
    different = {key(layer): layer for layer in reversed(row["layers"])}
    several = sorted(groups, key=lambda k: -groups[k] * different[k]["TimeMs"])[:5]
    return [
        "",
        text,
        *(f"- {groups[k]} x {describe(different[k], memory, tensor)}" for k in several),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument(
        "--peers",
        nargs="*",
        default=["graph", "compile"],
        choices=["graph", "compile", *OTHERS],
        help="cublaslt: the same engine with that library's products among the candidates; "
        "one-stream: with nothing beside anything",
    )
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--quantized", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    gpu.need_gpu()
    memory, tensor = copy_speed(), tensor_speed()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    lines = [
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, FP16, random weights; limits: "
        f"{memory * 1e-12:.2f} TB/s, as a copy reached, and {tensor * 1e-12:.0f} TFLOP/s",
        "",
    ]
    lines += [
        "| model | ours ms | one stream | with cuBLASLt | CUDA graph | compile | ratio | goal | error | build s "
        "| warm |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|---|"]
    slow: list[str] = []
    print("\n".join(lines), flush=True)
    for case in CASES:
        if options.only and not any(name in case.name for name in options.only):
            continue
        try:
            of_bytes = quantized(case, options.quantized, options.cache)
            row = measure(case, options.peers, options.cache, of_bytes)
        except (RuntimeError, ImportError) as error:
            lines.append(f"| {case.name} | {str(error).splitlines()[0]} |||||||||")
            print(lines[-1], flush=True)
            continue
        known = [row[peer] for peer in ("graph", "compile") if peer in row]
        row["ratio"] = row["ours"] / min(known) if known else float("nan")
        row["goal"] = case.goal
        for other in of_bytes:
            other["ratio"] = other["ours"] / row["ours"]
        for each in (row, *of_bytes):
            lines.append(table_line(each))
            print(lines[-1], flush=True)
        for each in (row, *of_bytes):
            slowest = layers_of(each, memory, tensor)
            slow += slowest
            print("\n".join(slowest[1:]), flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join([*lines, *slow]) + "\n")


if __name__ == "__main__":
    main()
