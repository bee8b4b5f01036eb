"""Compares random PyTorch modules, built with opwright.build, with PyTorch itself.

    python3 tools/torch_fuzzer.py --seconds 300 --seed 7
    python3 tools/torch_fuzzer.py --case 7/123
    python3 tools/torch_fuzzer.py --device cuda

A module is a chain of one to eight operations on tensors of random extents and types: views with
strides of their own, slices, casts, products, convolutions, normalizations, reductions, indexing.
Inputs are dense, transposed, sliced or expanded. Every other case has open extents. Inputs share
some of them as one `torch.export.Dim`. It runs at two sets of extents, and a run in which shared
extents differ must be refused. A module that torch.export refuses is not a case. A case runs in
this process: a crash ends it with the case's name on the last line. The exit status is 1 if a case
is wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import opwright

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 64, 65)
FLOATS = (torch.float32, torch.float32, torch.float16, torch.bfloat16)
EPSILON = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
UNARY: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.relu, torch.tanh, torch.sigmoid, F.gelu, F.silu, torch.neg, torch.abs, torch.cos, F.softplus, torch.erf,
    F.hardswish, F.leaky_relu, torch.square, lambda x: x.clamp(-0.5, 1.5), lambda x: torch.exp(-x.abs()),
    lambda x: x.abs().sqrt(), lambda x: torch.rsqrt(x * x + 1), lambda x: x.float().to(x.dtype),
)  # fmt: skip
BINARY: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, lambda a, b: a / (b.abs() + 0.5),
    lambda a, b: torch.where(b > 0, a, b), lambda a, b: torch.add(a, b, alpha=2), lambda a, b: torch.lerp(a, b, 0.25),
    lambda a, b: torch.fmod(a, b.abs() + 1), lambda a, b: a.masked_fill(b > 0.5, -1.0),
)  # fmt: skip


class Chain(nn.Module):
    """The operations in order, on the first input. Other inputs are second operands."""

    def __init__(
        self, steps: list[Callable[[Tensor, tuple[Tensor, ...]], Tensor]], parts: list[nn.Module]
    ) -> None:
        super().__init__()
        self.steps = steps
        self.parts = nn.ModuleList(parts)
        self.kept: set[int] = set()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        x, outputs = inputs[0], []
        for i, step in enumerate(self.steps):
            x = step(x, inputs)
            if i in self.kept:
                outputs.append(x)
        return (*outputs, x)


class Drawer:
    """Draws a module and its inputs. `x` is the chain's value so far, so that each step fits."""

    def __init__(self, seed: int, number: int) -> None:
        self.rng = np.random.default_rng([seed, number])
        torch.manual_seed(int(self.rng.integers(1 << 30)))
        self.kind = self.one_of(FLOATS)
        self.epsilon = EPSILON[self.kind]
        self.is_open = bool(self.rng.integers(2))
        self.words: list[str] = []
        self.steps: list[Any] = []
        self.parts: list[nn.Module] = []

    def one_of(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def tensor(self, shape: tuple[int, ...]) -> Tensor:
        """Normal numbers, dense or with other strides."""
        way = 0 if self.is_open else int(self.rng.integers(5))
        rank = len(shape)
        if way == 1 and rank >= 2:
            order = [int(i) for i in self.rng.permutation(rank)]
            back = [order.index(i) for i in range(rank)]
            return torch.randn([shape[i] for i in order]).to(self.kind).permute(back)
        if way == 2 and rank:
            return torch.randn(*shape[:-1], 2 * shape[-1]).to(self.kind)[..., ::2]
        if way == 3 and rank >= 2:
            return torch.randn(1, *shape[1:]).to(self.kind).expand(shape)
        return torch.randn(shape).to(self.kind)

    # Each way returns a step, or None if it does not fit.

    def unary(self, x: Tensor) -> Any:
        f = self.one_of(UNARY)
        return (lambda t, _: f(t)) if x.is_floating_point() else (lambda t, _: t + 1)

    def second(self, x: Tensor) -> Any:
        f, turned = self.one_of(BINARY), self.chance(0.4)
        if x.shape != self.x0.shape or not x.is_floating_point():
            return None
        return lambda t, inputs: (
            f(inputs[1].to(t.dtype), t) if turned else f(t, inputs[1].to(t.dtype))
        )

    def constant(self, x: Tensor) -> Any:
        if not x.is_floating_point() or self.is_open:
            return None
        shape = [n if self.chance(0.5) else 1 for n in x.shape][
            int(self.rng.integers(x.dim() + 1)) :
        ]
        c, f = torch.randn(shape).to(x.dtype), self.one_of(BINARY)
        self.parts.append(holder := nn.Module())
        holder.register_buffer("value", c)
        return lambda t, _: f(t, holder.value)

    def residual(self, x: Tensor) -> Any:
        return (lambda t, _: t + t.tanh()) if x.is_floating_point() else None

    def permute(self, x: Tensor) -> Any:
        order = [int(i) for i in self.rng.permutation(x.dim())]
        return lambda t, _: t.permute(order)

    def flatten(self, x: Tensor) -> Any:
        if x.dim() < 2:
            return None
        i = int(self.rng.integers(x.dim() - 1))
        return lambda t, _: t.flatten(i, i + 1)

    def unflatten(self, x: Tensor) -> Any:
        fit = [(i, d) for i, n in enumerate(x.shape) for d in (2, 3, 4, 8) if n % d == 0 and n > d]
        if not fit or x.dim() > 4 or self.is_open:
            return None
        axis, divisor = self.one_of(fit)
        return lambda t, _: t.unflatten(axis, (divisor, -1))

    def slice(self, x: Tensor) -> Any:
        axis = int(self.rng.integers(x.dim()))
        extent = x.shape[axis]
        if extent < 4 or self.is_open:
            return None
        first, step = int(self.rng.integers(3)), self.one_of([1, 1, 2, 3])
        return lambda t, _: t.movedim(axis, 0)[first : extent - 1 : step].movedim(0, axis)

    def concatenate(self, x: Tensor) -> Any:
        axis = int(self.rng.integers(x.dim()))
        return (lambda t, _: torch.cat([t, t.neg()], axis)) if x.numel() < 20000 else None

    def roll(self, x: Tensor) -> Any:
        axis, turns = int(self.rng.integers(x.dim())), self.chance(0.5)
        if not turns and self.is_open:  # the engine refuses it by name
            return None
        return lambda t, _: t.flip(axis) if turns else torch.roll(t, 1, axis)

    def cast(self, x: Tensor) -> Any:
        if not x.is_floating_point():
            return lambda t, _: t.to(torch.float32)
        kind = self.one_of(FLOATS)
        self.epsilon = max(self.epsilon, EPSILON[kind])
        return lambda t, _: t.to(kind)

    def reduce(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() < 2:
            return None
        axis, keep = int(self.rng.integers(x.dim())), self.chance(0.5)
        f = self.one_of([torch.sum, torch.mean, torch.amax, torch.amin, torch.logsumexp])
        return lambda t, _: f(t, axis, keepdim=keep)

    def softmax(self, x: Tensor) -> Any:
        axis = int(self.rng.integers(x.dim()))
        f = self.one_of([torch.softmax, torch.log_softmax])
        return (lambda t, _: f(t, axis)) if x.is_floating_point() else None

    def cumulative(self, x: Tensor) -> Any:
        axis = int(self.rng.integers(x.dim()))
        return (lambda t, _: torch.cumsum(t, axis)) if x.is_floating_point() else None

    def part(self, part: nn.Module, x: Tensor) -> Any:
        self.parts.append(part.to(x.dtype).eval())
        return lambda t, _: part(t)

    def linear(self, x: Tensor) -> Any:
        if not x.is_floating_point() or not self.is_fixed(x, -1):
            return None
        return self.part(nn.Linear(x.shape[-1], self.one_of(EXTENTS), bias=self.chance(0.6)), x)

    def matmul(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() < 2 or x.numel() > 20000:
            return None
        return lambda t, _: t @ t.transpose(-1, -2) * 0.1

    def convolution(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() not in (3, 4) or not self.is_fixed(x, 1):
            return None
        n = x.shape[1]
        group = self.one_of([1, 1, n])
        out = n * self.one_of([1, 2]) if group > 1 else self.one_of(EXTENTS)
        kernel = self.one_of([1, 3, 3, 5])
        flat = x.dim() == 3
        if self.chance(0.2):
            kind: Any = nn.ConvTranspose1d if flat else nn.ConvTranspose2d
            return self.part(
                kind(n, out, kernel, padding=kernel // 2, stride=self.one_of([1, 2]), groups=group),
                x,
            )
        kind = nn.Conv1d if flat else nn.Conv2d
        return self.part(
            kind(n, out, kernel, padding=kernel // 2, stride=self.one_of([1, 1, 2]), groups=group),
            x,
        )

    def norm(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() < 2:
            return None
        if x.dim() == 4 and self.is_fixed(x, 1) and self.chance(0.5):
            n = x.shape[1]
            groups = self.one_of([g for g in (1, 2, 4, n) if n % g == 0])
            return self.part(self.one_of([nn.BatchNorm2d(n), nn.GroupNorm(groups, n)]), x)
        return self.part(nn.LayerNorm(x.shape[-1]), x) if self.is_fixed(x, -1) else None

    def pool(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() != 4 or min(x.shape[2:]) < 3 or self.is_open:
            return None
        f = self.one_of([F.max_pool2d, F.avg_pool2d])
        return lambda t, _: f(t, 3, 2, 1)

    def interpolate(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() != 4 or x.numel() > 5000 or self.is_open:
            return None
        mode = self.one_of(["nearest", "bilinear", "nearest-exact"])
        size = [int(n * 1.5) + 1 for n in x.shape[2:]]
        return lambda t, _: F.interpolate(t, size=size, mode=mode)

    def gather(self, x: Tensor) -> Any:
        axis = int(self.rng.integers(x.dim()))
        if self.is_open:
            return None
        places = torch.from_numpy(self.rng.integers(0, x.shape[axis], self.one_of([1, 3, 8])))
        self.parts.append(holder := nn.Module())
        holder.register_buffer("value", places)
        return lambda t, _: t.index_select(axis, holder.value)

    def attention(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() != 4 or x.shape[-1] > 128 or x.numel() > 50000:
            return None
        if not self.is_fixed(x, -1):
            return None
        return lambda t, _: F.scaled_dot_product_attention(t, t * 0.5, t)

    def pad(self, x: Tensor) -> Any:
        if not x.is_floating_point() or x.dim() < 1 or self.is_open:
            return None
        return lambda t, _: F.pad(t, (1, 2))

    def is_fixed(self, x: Tensor, axis: int) -> bool:
        """Whether the extent is known in a case with open extents. Fixed extents are not tracked
        through views."""
        return not self.is_open or x.shape[axis] in self.fixed

    WAYS = """unary unary unary second second constant constant residual permute flatten unflatten slice concatenate
        roll cast reduce softmax cumulative linear linear matmul convolution convolution norm pool interpolate gather
        attention pad""".split()

    def draw(self) -> tuple[Chain, tuple[Tensor, ...], Any]:
        rank = self.one_of([1, 2, 3, 3, 4, 4])
        shape = [self.one_of(EXTENTS) for _ in range(rank)]
        while np.prod(shape) > 30000:
            shape[int(np.argmax(shape))] //= 2
        opened: list[int] = []
        if self.is_open:
            opened = sorted({int(self.rng.integers(rank)), 0})
            for i in opened:  # an extent that no other axis has, so that it can be recognized
                shape[i] = 10 + i
        self.fixed = {
            n for i, n in enumerate(shape) if i not in opened and n not in (10, 11, 12, 13)
        }
        self.x0 = self.tensor(tuple(shape))
        inputs = (self.x0, self.tensor(tuple(shape)))
        x = self.x0
        for _ in range(int(self.rng.integers(1, 9))):
            name = self.one_of(self.WAYS)
            step = getattr(self, name)(x)
            if step is None:
                continue
            with torch.no_grad():
                y = step(x, inputs)
            if (
                y.numel() > 200000
                or not y.numel()
                or not torch.isfinite(y).all()
                or y.abs().max() > 1e3
                or y.dim() < 1
            ):
                continue
            self.steps.append(step)
            self.words.append(name)
            x = y
        chain = Chain(self.steps, self.parts).eval()
        chain.kept = {i for i in range(len(self.steps) - 1) if self.chance(0.15)}
        dims = {i: torch.export.Dim(f"extent{i}", min=2, max=64) for i in opened}
        return chain, inputs, (dims, dims) if self.is_open else None


def differs(
    got: list[Tensor], want: tuple[Tensor, ...], exact: tuple[Tensor, ...], epsilon: float
) -> str | None:
    """The fault of a result. The tolerance follows from the narrowest type of the chain and from
    PyTorch's own error, which is large if rounding is amplified."""
    for i, (a, b, c) in enumerate(zip(got, want, exact, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {a.dtype} {tuple(a.shape)}, expected {b.dtype} {tuple(b.shape)}"
        a, b, c = a.double(), b.double(), c.double()
        allowed = epsilon * (b.abs().max() + 1) + 3 * (c - b).abs().max()
        if not ((a - b).abs() <= allowed).all():
            return f"output {i}: an error of {(a - b).abs().max():.3g}"
    return None


def in_double(
    chain: Chain, inputs: tuple[Tensor, ...], want: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """The chain's results in FP64, or those in its own types if its casts lead to operands of two
    types."""
    values = [*chain.parameters(), *chain.buffers()]
    kinds = [value.dtype for value in values]
    for value in values:
        value.data = value.data.double() if value.is_floating_point() else value.data
    try:
        return chain(*(x.double() for x in inputs))
    except RuntimeError:
        return want
    finally:
        for value, kind in zip(values, kinds):
            value.data = value.data.to(kind)


def as_list(made: Any) -> list[Tensor]:
    if isinstance(made, dict):
        return list(made.values())
    return list(made) if isinstance(made, (tuple, list)) else [made]


def judge(seed: int, number: int, device: str) -> tuple[str, str]:
    drawer = Drawer(seed, number)
    chain, inputs, dims = drawer.draw()
    if not drawer.steps:
        return "empty", ""
    said = f"{drawer.kind} {[tuple(x.shape) for x in inputs]} {' '.join(drawer.words)}"
    chain.to(device)
    inputs = tuple(x.to(device) for x in inputs)

    with torch.no_grad():
        try:
            torch.export.export(chain, inputs, dynamic_shapes=(dims,) if dims else None)
        except Exception:
            return "not exported", said
        try:
            engine = opwright.build(
                chain, inputs, dynamic_shapes=(dims,) if dims else None, device=device, timing=False
            )
        except opwright.Error as error:
            return "refused", f"{said}\n{error}"
        sets = [inputs]
        if dims:
            grown = [list(inputs[0].shape)]
            for axis in dims[0]:
                grown[0][axis] = 7 + axis
            sets.append(tuple(torch.randn(grown[0]).to(drawer.kind).to(device) for _ in inputs))
        for at in sets:
            want = chain(*at)
            try:
                got = as_list(engine(*at))
            except opwright.Error as error:
                return "wrong", f"{said} at {[tuple(x.shape) for x in at]}\n{error}"
            wrong = differs(got, want, in_double(chain, at, want), drawer.epsilon)
            if wrong:
                return "wrong", f"{said} at {[tuple(x.shape) for x in at]}\n{wrong}"
        if dims and "second" in drawer.words:
            shape = list(inputs[0].shape)
            shape[0] += 1
            other = torch.randn(shape).to(drawer.kind).to(device)
            try:
                engine(other, inputs[1])
            except opwright.Error:
                pass
            else:
                return "wrong", f"{said}\nextents that differ were taken"
    return "right", said


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare random PyTorch modules with PyTorch.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", metavar="SEED/NUMBER")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.case:
        seed, number = map(int, arguments.case.split("/"))
        print(*judge(seed, number, arguments.device))
        return 0
    end, counts, found = time.monotonic() + arguments.seconds, Counter(), 0
    for number in range(arguments.cases):
        if time.monotonic() > end:
            break
        print(f"case {arguments.seed}/{number}", end="\r", file=sys.stderr, flush=True)
        verdict, message = judge(arguments.seed, number, arguments.device)
        counts[verdict] += 1
        if verdict in ("wrong", "refused"):
            found += 1
            print(f"case {arguments.seed}/{number}: {verdict}: {message}", flush=True)
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
