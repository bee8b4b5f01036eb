"""Recurrent layers on the GPU beside PyTorch's (cuDNN) in a CUDA graph, in turns.

python bench/gpu_recurrence.py [--only TEXT] [--cache FOLDER] [--tactics]

A result whose largest difference from PyTorch's in double precision is more than three times that of cuDNN's, and more
than the type's error, ends the program.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import NamedTuple

import torch
from gpu_models import built, captured, export, in_turns

ERRORS = {torch.float32: 2e-3, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


class Case(NamedTuple):
    cell: str
    steps: int
    batch: int
    input: int
    hidden: int
    bidirectional: bool
    type: torch.dtype

    def __str__(self) -> str:
        both = ", both directions" if self.bidirectional else ""
        name = {torch.float32: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16"}[self.type]
        sizes = f"{self.steps} x {self.batch} x {self.input}, {self.hidden}"
        return f"{self.cell} {sizes}{both}, {name}"


CASES = [
    Case("LSTM", 64, 1, 128, 128, False, torch.float32),
    Case("LSTM", 64, 8, 256, 256, False, torch.float32),
    Case("LSTM", 64, 1, 128, 128, False, torch.float16),
    Case("LSTM", 100, 4, 256, 256, True, torch.float16),
    Case("LSTM", 200, 1, 512, 512, True, torch.float16),
    Case("LSTM", 50, 64, 128, 128, False, torch.float16),
    Case("LSTM", 100, 32, 512, 512, False, torch.float16),
    Case("LSTM", 50, 64, 128, 128, False, torch.float32),
    Case("LSTM", 50, 256, 256, 256, False, torch.float16),
    Case("GRU", 100, 32, 512, 512, False, torch.float16),
    Case("GRU", 50, 64, 128, 128, True, torch.bfloat16),
    Case("RNN", 100, 32, 256, 256, False, torch.float16),
]


class Sequences(torch.nn.Module):
    """A module that returns only the states of all steps."""

    def __init__(self, case: Case):
        super().__init__()
        self.cell = getattr(torch.nn, case.cell)(
            case.input, case.hidden, bidirectional=case.bidirectional
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]


def measure(case: Case, cache: Path | None, shows_tactics: bool) -> None:
    torch.manual_seed(1)
    model = Sequences(case).eval().to("cuda", case.type)
    model.cell.flatten_parameters()
    x = torch.randn(case.steps, case.batch, case.input, device="cuda", dtype=case.type)
    with torch.inference_mode():
        exact = copy.deepcopy(model).cpu().double()(x.cpu().double())
        engine, seconds = built(export(model, x), cache)

        def error(y: torch.Tensor) -> float:
            return float((y.double().cpu() - exact).abs().max())

        ours, theirs = error(engine(x)), error(model(x))
        functions = [lambda: engine(x), captured(model, x)]
        times = [1e6 * each for each in in_turns(functions)]
        print(
            f"| {case} | {times[0]:.0f} | {times[1]:.0f} | {times[0] / times[1]:.2f} "
            f"| {ours:.1e} | {theirs:.1e} | {seconds:.0f} |",
            flush=True,
        )
        if shows_tactics:
            for layer in engine.layers:
                print("  ", layer.get("TacticName"), layer.get("TimeMs"), flush=True)
        if ours > max(3 * theirs, ERRORS[case.type]):
            raise SystemExit(f"bench/gpu_recurrence: {case} is off by {ours:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains it")
    parser.add_argument("--cache", type=Path, help="folder of timing caches")
    parser.add_argument("--tactics", action="store_true", help="what computes each layer")
    arguments = parser.parse_args()
    print("| steps x batch x input, hidden | us | cuDNN, us | ratio | error | cuDNN's | build, s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for case in CASES:
        if arguments.only in str(case):
            measure(case, arguments.cache, arguments.tactics)


if __name__ == "__main__":
    main()
