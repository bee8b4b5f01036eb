"""Latency of the networks of bench/networks.py on the GPU, beside PyTorch in a CUDA graph and
torch.compile(reduce-overhead), all in one process and in turns; with the layers of each that take longest in all, how
far these are from what the memory and the tensor cores allow, and how long a build takes.

python bench/gpu_models.py [--only NAME ...] [--types TYPE ...] [--peers graph compile cublaslt one-stream]
                           [--cache FOLDER] [--markdown FILE] [--candidates FILE] [--quantized FOLDER] [--seconds S]

--candidates: a file that gets a line of JSON for each network: its layers, with all candidates that were timed.
--quantized: beside each row those of the quantized models of the network that bench/quantized_models.py has written
there; their ratio is to our engine of FP16, their error that from ONNX Runtime's results.
--seconds: no network is begun after this time.

Weights are random. A result that differs from PyTorch's in FP32 by more than the type's error is reported as wrong, and
the exit status is 1.
"""

from __future__ import annotations

import argparse
import collections
import copy
import io
import json
import math
import statistics
import sys
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu
import numpy as np
import quantized_models
import torch
from networks import CASES, Case

import opwright

# Limits relative to the norm of the results, through some fifty layers, and for layers that round
# to bytes. A number near the border between two bytes falls on either side in different sums. A
# network may also be off by twice what PyTorch is in the same type.
MAX_ERRORS = {"fp16": 0.02, "bf16": 0.05, "tf32": 0.01, "fp32": 1e-4}
MAX_ERROR, MAX_ERROR_OF_BYTES = MAX_ERRORS["fp16"], 0.2
TYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "fp32": torch.float32,
}


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_):
    """Scaled dot-product attention, written with operators that ONNX has."""
    scores = q @ k.transpose(-2, -1) * (scale or q.shape[-1] ** -0.5)
    return torch.softmax(scores if attn_mask is None else scores + attn_mask, -1) @ v


def export(model: torch.nn.Module, *inputs: torch.Tensor) -> bytes:
    file = io.BytesIO()
    with unittest.mock.patch("torch.nn.functional.scaled_dot_product_attention", attention):
        write(model, inputs, file)
    return file.getvalue()


def write(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], file: io.BytesIO) -> None:
    names = ["x", *(f"x{i}" for i in range(1, len(inputs)))]
    torch.onnx.export(
        model, inputs, file, input_names=names, output_names=["y"], opset_version=17, dynamo=False
    )


def captured(model: torch.nn.Module, *inputs: torch.Tensor) -> Callable[[], object]:
    """Captures the model in a CUDA graph and returns a function that replays it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*inputs)
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


def built(
    model: bytes | torch.nn.Module, cache: Path | None, *inputs: torch.Tensor
) -> tuple[Any, float]:
    """The engine of an ONNX model, or of a module with these inputs, and the seconds of its build."""
    start = time.perf_counter()
    engine = opwright.build(model, inputs or None, device="cuda", timing_cache=cache)
    return engine, time.perf_counter() - start


def with_cublaslt(config: Any) -> None:
    config.set_tactic_sources(1 << int(opwright.TacticSource.CUBLAS_LT))


def with_tf32(config: Any) -> None:
    config.set_flag(opwright.BuilderFlag.TF32)


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


def with_channels_last(x: torch.Tensor) -> torch.Tensor:
    if x.dim() not in (4, 5):
        return x
    return x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


def measure(
    case: Case, kind: str, peers: list[str], cache: Path | None, of_bytes: list[dict[str, Any]]
) -> dict[str, Any]:
    """The times of a network in a type, "fp16" and so on. TF32 is FP32 in ONNX."""
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = case.make().eval().cuda()
    inputs = tuple(x.cuda() for x in case.inputs())
    with torch.no_grad():
        torch.backends.mha.set_fastpath_enabled(False)
        expected = model(*inputs)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
        inputs = tuple(x.to(TYPES[kind]) if x.is_floating_point() else x for x in inputs)
        narrow = copy.deepcopy(model).to(TYPES[kind])
        peer_error = difference(narrow(*inputs), expected)
        del model
    name = f"{case.name}, {kind.upper()}"
    row: dict[str, Any] = {"name": name, "peer_error": peer_error, "goal": case.goal}
    is_onnx = case.way == "onnx" or kind in ("tf32", "fp32") or any(p in OTHERS for p in peers)
    with torch.no_grad():
        source = (export(narrow, *inputs),) if is_onnx else (narrow, *inputs)
        engine, row["build"] = (
            built(source[0], cache, *source[1:])
            if kind != "tf32"
            else timed(lambda: built_with(source[0], with_tf32))
        )
        # Timings and kernels are now cached.
        row["warm"] = built(source[0], cache, *source[1:])[1] if cache else float("nan")
        variants = {each: built_with(source[0], OTHERS[each]) for each in peers if each in OTHERS}
    row["layers"] = sorted(engine.layers, key=lambda layer: -layer.get("TimeMs", 0))
    most = max(MAX_ERRORS[kind], 2 * peer_error)
    with torch.no_grad():
        row["error"] = difference(engine(*inputs), expected)
        row["is_wrong"] = not row["error"] <= most
        functions: dict[str, Callable[[], object]] = {"ours": lambda: engine(*inputs)}
        for each, variant in variants.items():
            row["is_wrong"] |= not difference(variant(*inputs), expected) <= most
            functions[each] = lambda variant=variant: variant(*inputs)
        for parameter in narrow.parameters():
            parameter.data = with_channels_last(parameter.data)
        last = tuple(with_channels_last(x) for x in inputs)
        if "graph" in peers:
            functions["graph"] = captured(narrow, *last)
        if "compile" in peers:
            compiled = torch.compile(narrow, mode="reduce-overhead")
            row["compile s"] = timed(lambda: compiled(*last))[1]
            functions["compile"] = lambda: compiled(*last)
        times = in_turns([*functions.values(), *(other["run"] for other in of_bytes)])
        row.update(zip(functions, times))
        for other, seconds in zip(of_bytes, times[len(functions) :]):
            other["ours"] = seconds
    return row


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    torch.cuda.synchronize()
    return result, time.perf_counter() - start


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
    error = f"{row['error']:.1e}" + (" **wrong**" if row.get("is_wrong") else "")
    compiled = f"{row['compile s']:.0f}" if "compile s" in row else ""
    return (
        f"| {row['name']} | {' | '.join(times)} | {row['ratio']:.2f} | {verdict} | {error} "
        f"| {row['build']:.0f} | {row['warm']:.1f} | {compiled} |"
    )


def summary(ratios: dict[str, float]) -> str:
    """The geometric mean, the worst and the number above 1 of the ratios to the faster peer."""
    worst = max(ratios, key=lambda name: ratios[name])
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
    above = sum(ratio > 1 for ratio in ratios.values())
    return (
        f"{len(ratios)} rows: geometric mean {mean:.2f} of the faster peer, the worst "
        f"{ratios[worst]:.2f} ({worst}), {above} above 1."
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
    parser.add_argument("--types", nargs="*", choices=TYPES, default=list(TYPES))
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
    parser.add_argument("--candidates", type=Path)
    parser.add_argument("--quantized", type=Path, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    gpu.need_gpu()
    end = time.monotonic() + options.seconds
    memory, tensor = copy_speed(), tensor_speed()
    lines = [
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, random weights; limits: "
        f"{memory * 1e-12:.2f} TB/s, as a copy reached, and {tensor * 1e-12:.0f} TFLOP/s",
        "",
        "| model | ours ms | one stream | with cuBLASLt | CUDA graph | compile | ratio | goal | error | build s "
        "| warm | compile s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    slow: list[str] = []
    ratios: dict[str, float] = {}
    is_wrong = False
    print("\n".join(lines), flush=True)
    chosen = [
        (case, kind)
        for case in CASES
        if not options.only or any(name in case.name for name in options.only)
        for kind in case.types
        if kind in options.types
    ]
    for case, kind in chosen:
        if time.monotonic() > end:
            print(f"{case.name}, {kind}: no time left", flush=True)
            continue
        try:
            of_bytes = quantized(case, options.quantized, options.cache) if kind == "fp16" else []
            row = measure(case, kind, options.peers, options.cache, of_bytes)
        except (RuntimeError, ImportError) as error:
            lines.append(f"| {case.name}, {kind.upper()} | {str(error).splitlines()[0]} ||||||||||")
            print(lines[-1], flush=True)
            continue
        known = [row[peer] for peer in ("graph", "compile") if peer in row]
        row["ratio"] = row["ours"] / min(known) if known else float("nan")
        ratios[row["name"]] = row["ratio"]
        is_wrong |= row["is_wrong"]
        for other in of_bytes:
            other["ratio"] = other["ours"] / row["ours"]
        for each in (row, *of_bytes):
            lines.append(table_line(each))
            print(lines[-1], flush=True)
        for each in (row, *of_bytes):
            slowest = layers_of(each, memory, tensor)
            slow += slowest
            print("\n".join(slowest[1:]), flush=True)
        if options.candidates:
            with options.candidates.open("a") as file:
                file.write(json.dumps({"name": row["name"], "layers": row["layers"]}) + "\n")
    if ratios:
        slow = ["", summary(ratios), *slow]
        print(slow[1])
    if options.markdown:
        options.markdown.write_text("\n".join([*lines, *slow]) + "\n")
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
