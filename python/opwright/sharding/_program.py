"""The commands ``python -m opwright shard`` and ``python -m opwright run --ranks N``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ._engine import ShardedEngine
from ._plan import PLANS, Rule
from ._shards import Shards, shard


def open_for(path: str, ranks: int) -> Shards:
    """The shards of a manifest for so many ranks.

    :raises Error: it is for another number.
    """
    shards = Shards.open(path)
    if shards.ranks != ranks:
        raise _core.Error(
            f"'{shards.manifest}' is for {shards.ranks} ranks, and --ranks says {ranks}; cut the model "
            f"anew: python -m opwright shard MODEL --ranks {ranks}"
        )
    return shards


def add_shard_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command ``shard``."""
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("--ranks", type=int, required=True, help="how many processes there will be")
    parser.add_argument(
        "--plan", default="auto", help=f"auto (default), {', '.join(PLANS)}; none: only --rule"
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="PATTERN=ACTION",
        help="a rule instead of a plan: columns, rows, heads, vocabulary, experts, replicate, gather, or "
        "split:AXIS (repeatable; the first that matches counts)",
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", help="default: MODEL.Nranks")
    parser.add_argument(
        "--shapes",
        action="append",
        default=[],
        metavar="NAME:MIN,OPT,MAX",
        help="the shape of an input, or its range, as x:1x8,4x8,16x8 (repeatable)",
    )
    parser.add_argument("--fp16", action="store_true", help="allow FP16 if it is faster")
    parser.add_argument("--bf16", action="store_true", help="allow BF16 in the same way")
    parser.add_argument(
        "--device", help="cpu or cuda; default: a GPU for each rank if there are as many"
    )
    parser.add_argument("--no-engines", action="store_true", help="write only ONNX files")


def _rule(text: str) -> Rule:
    pattern, equals, action = text.rpartition("=")
    action, _, axis = action.partition(":")
    if not equals or (axis and not axis.lstrip("-").isdigit()):
        raise ValueError(f"--rule {text}: expected PATTERN=ACTION, as in '*.up.weight=columns'")
    return Rule(pattern, action, int(axis) if axis else None)


def _shape(text: str) -> tuple[str, Any]:
    name, colon, rest = text.rpartition(":")
    try:
        ends = [[int(extent) for extent in end.split("x")] for end in rest.split(",")]
    except ValueError:
        ends = []
    if not colon or len(ends) not in (1, 3):
        raise ValueError(
            f"--shapes {text}: expected NAME:SHAPE or NAME:MIN,OPT,MAX, as in x:1x8,4x8,16x8"
        )
    return name, ends[0] if len(ends) == 1 else tuple(ends)


def run_shard(options: argparse.Namespace) -> int:
    """Cuts a model and builds the engines of its ranks; returns the exit status."""
    try:
        plan: Any = [_rule(each) for each in options.rule] or options.plan
        shapes = dict(_shape(each) for each in options.shapes)
        shards = shard(options.model, ranks=options.ranks, plan=plan, folder=options.output)
        if not options.no_engines:
            shards = shards.build(
                shapes=shapes, fp16=options.fp16, bf16=options.bf16, device=options.device
            )
    except (_core.Error, ValueError) as error:
        print(f"python -m opwright shard: {error}", file=sys.stderr)
        return 1
    nodes = ", ".join(f"{count} {name}" for name, count in shards.collectives.items())
    print(f"{shards.manifest}: {shards.ranks} ranks, each with {nodes or 'no collective node'}")
    return 0


def _named(text: str, names: Sequence[str], option: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not equals and len(names) == 1:
        return names[0], text
    if not equals or name not in names:
        raise ValueError(f"{option} {text}: expected NAME=FILE.npy with a name of {list(names)}")
    return name, file


def run_ranks(arguments: Sequence[str]) -> int:
    """Runs ``run MANIFEST --ranks N`` and writes the outputs of rank 0; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m opwright run",
        description="Run the engines of a manifest, a process per rank",
    )
    parser.add_argument("manifest", help="what opwright.shard wrote, or its folder")
    parser.add_argument("--ranks", type=int, required=True, help="how many processes")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--output", action="append", default=[], metavar="NAME=FILE.npy")
    parser.add_argument("--plugins", action="append", default=[], metavar="FILE")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for a rank")
    parser.add_argument(
        "--devices", metavar="CUDA:0,CUDA:1", help="the GPU of each rank; default: rank r has GPU r"
    )
    parser.add_argument("--allow-host-code", action="store_true")
    parser.add_argument("--allow-device-code", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        shards = open_for(options.manifest, options.ranks)
        names = [port.name for port in shards.inputs]
        inputs = dict(_named(each, names, "--input") for each in options.input)
        targets = dict(
            _named(each, [port.name for port in shards.outputs], "--output")
            for each in options.output
        )
        arrays = {name: np.load(file, allow_pickle=False) for name, file in inputs.items()}
        with ShardedEngine(
            shards,
            devices=options.devices.split(",") if options.devices else None,
            timeout=options.timeout,
            plugins=options.plugins,
            allow_host_code=options.allow_host_code,
            allow_device_code=options.allow_device_code,
        ) as engine:
            start = time.perf_counter()
            results = engine(arrays)
            seconds = time.perf_counter() - start
        if not isinstance(results, dict):
            results = {engine.outputs[0]: results}
        for name, file in targets.items():
            np.save(file, results[name])
    except (_core.Error, ValueError, OSError) as error:
        print(f"python -m opwright run: error: {error}", file=sys.stderr)
        return 1
    if options.json:
        described = [
            {"name": name, "type": str(array.dtype), "shape": array.shape}
            for name, array in results.items()
        ]
        print(json.dumps({"outputs": described, "first_ms": seconds * 1e3}))
        return 0
    for name, array in results.items():
        print(f"{name}: {array.dtype} {'x'.join(map(str, array.shape)) or 'scalar'}")
    return 0
