"""What a call of a small module costs: PyTorch, torch.compile with backends, an engine alone.

    python bench/torch_call.py

Prints microseconds at best of rounds that take turns, on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

import opwright


class Twice(nn.Module):
    """Two results, and an operator between them that engines do not compute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = torch.lgamma(torch.tanh(self.first(x).relu() * 2 + 1))
        return torch.sigmoid(self.last(values).relu() * 2 + 1)


def seconds(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.randn(1, 16)
    modules = {
        "one engine": nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval(),
        "two engines": Twice().eval(),
    }
    print(f"| {'':12} | eager | inductor | opwright | built | opwright/inductor |")
    print("|---|---|---|---|---|---|")
    for name, module in modules.items():
        calls = {"eager": module}
        for backend in ("inductor", "opwright"):
            torch._dynamo.reset()
            calls[backend] = torch.compile(module, backend=backend)
        if name == "one engine":
            calls["built"] = opwright.build(module, (x,), device="cpu")
        best = dict.fromkeys(calls, float("inf"))
        with torch.inference_mode():
            for call in calls.values():
                call(x)
            for _ in range(options.rounds):
                for which, call in calls.items():
                    best[which] = min(
                        best[which], seconds(lambda call=call: call(x), options.calls)
                    )
        times = [
            f"{best[which] * 1e6:.1f}" if which in best else ""
            for which in ("eager", "inductor", "opwright", "built")
        ]
        print(f"| {name} | {' | '.join(times)} | {best['opwright'] / best['inductor']:.2f} |")


if __name__ == "__main__":
    main()
