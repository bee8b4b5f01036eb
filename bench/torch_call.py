"""What a call of a small module costs: PyTorch, torch.compile with backends, an engine by itself.

    python bench/torch_call.py [--device cuda]

Prints microseconds of the host at best of rounds that take turns, on one thread; on a GPU each round
ends when the work is done. `PyTorch's part` is torch.compile with a backend that returns the same
tensors in each call: guards, and what PyTorch runs around the function of a backend.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import opwright


class Twice(nn.Module):
    """A module of two engines, with an operator between them that engines do not compute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = torch.lgamma(torch.tanh(self.first(x).relu() * 2 + 1))
        return torch.sigmoid(self.last(values).relu() * 2 + 1)


class Solve(nn.Module):
    """A module of two engines, with an operator between them that may raise, which PyTorch wraps in
    another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = x.mT @ x + torch.eye(16, device=x.device)
        return torch.relu(torch.linalg.solve(a, x.mT)) * 2 + 1


class Cache(nn.Module):
    """A module with a cache of 4 MB. Each call writes a row of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(65536, 16))
        self.register_buffer("place", torch.tensor([7]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, self.place, x * 2)
        return self.rows[:4] + 1


class Given:
    """Returns tensors that already exist."""

    _boxed_call = True

    def __init__(self, results: list[torch.Tensor]):
        self._results = results

    def __call__(self, args: list[Any]) -> list[torch.Tensor]:
        args.clear()
        return self._results


def nothing(graph: Any, inputs: Any) -> Callable[..., Any]:
    def made(lowered: Any, fakes: Any) -> Callable[..., Any]:
        (output,) = [node for node in lowered.graph.nodes if node.op == "output"]
        metas = [node.meta["val"] for node in output.args[0]]
        return Given([torch.zeros(m.shape, dtype=m.dtype, device=m.device) for m in metas])

    return aot_autograd(fw_compiler=made, inference_compiler=made)(graph, inputs)


def seconds(call: Callable[[], object], calls: int, wait: Callable[[], None]) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    taken = time.perf_counter() - start
    wait()
    return taken / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("opwright.torch").setLevel(logging.ERROR)
    wait = torch.cuda.synchronize if options.device != "cpu" else lambda: None
    x = torch.randn(1, 16, device=options.device)
    modules = {
        "one engine": nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
        "two engines": Twice(),
        "solve": Solve(),
        "cache": Cache(),
    }
    backends = {"PyTorch's part": nothing, "inductor": "inductor", "opwright": "opwright"}
    columns = ["eager", *backends, "built"]
    print(f"| {'':12} | {' | '.join(columns)} | opwright/inductor |")
    print(f"|{'---|' * (len(columns) + 2)}")
    for name, module in modules.items():
        module = module.to(options.device).eval()
        calls: dict[str, Callable[..., Any]] = {"eager": module}
        for backend, made in backends.items():
            torch._dynamo.reset()
            calls[backend] = torch.compile(module, backend=made)
        if name == "one engine":
            calls["built"] = opwright.build(module, (x,), device=options.device)
        if name in ("solve", "cache"):
            del calls["PyTorch's part"]
        best = dict.fromkeys(calls, float("inf"))
        with torch.inference_mode():
            for call in calls.values():
                call(x)
            for _ in range(options.rounds):
                for which, call in calls.items():
                    taken = seconds(lambda call=call: call(x), options.calls, wait)
                    best[which] = min(best[which], taken)
        times = [f"{best[which] * 1e6:.1f}" if which in best else "" for which in columns]
        print(f"| {name:12} | {' | '.join(times)} | {best['opwright'] / best['inductor']:.2f} |")


if __name__ == "__main__":
    main()
