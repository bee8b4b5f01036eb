"""What mixtures of experts need of PyTorch: tokens are counted by expert, sorted, and multiplied in groups."""

from __future__ import annotations

import pytest

import emulated_gpu
import opwright

torch = pytest.importorskip("torch")

from opwright.torch._converters import CONVERTERS  # noqa: E402
from opwright.torch._writer import Writer  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]
RANGES = {
    "experts": dict(bins=8, min=0, max=7),
    "that of the data": {},
    "odd": dict(bins=7, min=-1.3, max=0.7),
    "one value": dict(bins=4, min=2, max=2),
}
SPECIAL = [float("nan"), float("inf"), -float("inf"), 7, 0, 0.7, -1.3]
DATA = {
    "normal": lambda: torch.randn(900, generator=torch.Generator().manual_seed(0)) * 2,
    "whole": lambda: torch.arange(8.0).repeat(25),
    "equal": lambda: torch.full((3, 4), 2.0),
    "none": lambda: torch.zeros(0),
}


class Histogram(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return torch.histc(x, **self.options)


def run(module, *args, **options):
    """The engine's result and PyTorch's."""
    program = torch.export.export(module, args)
    engine = opwright.build(program, timing=False, **options)
    return torch.as_tensor(engine(*args)), module(*args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", RANGES)
def test_histograms_are_equal(name, dtype):
    options = RANGES[name]
    for kind, make in DATA.items():
        x = make().to(dtype)
        if kind == "normal":
            x = x[:200]  # BF16 counts no further than 256
            if options.get("min", 0) != options.get("max", 0):
                x = torch.cat([x, torch.tensor(SPECIAL).to(dtype)])
        got, want = run(Histogram(**options), x, device="cpu")
        assert got.dtype == want.dtype
        assert torch.equal(got, want), kind


@pytest.mark.parametrize("device", DEVICES)
def test_integers_are_counted(device):
    """PyTorch does so only on GPUs, and exports it only there."""
    x = torch.arange(-3, 12, dtype=torch.int32).repeat(7)
    network = opwright.Builder(opwright.Logger()).create_network()
    writer = Writer(network)
    writer.meta = torch.empty(8, dtype=torch.int32, device="meta")
    given = network.add_input("x", opwright.int32, tuple(x.shape))
    convert = CONVERTERS[torch.ops.aten.histc.default]
    network.mark_output(convert(writer, given, bins=8, min=0, max=7))
    got = torch.as_tensor(opwright.build(network, device=device, timing=False)(x=x))
    assert torch.equal(got, torch.histc(x.float(), bins=8, min=0, max=7).int())


class Experts(torch.nn.Module):
    """As transformers writes it for `grouped_mm`, with the product in groups of PyTorch."""

    def __init__(self, experts=4, hidden=16, inner=24, chosen=2):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.router = torch.nn.Parameter(torch.randn(experts, hidden, generator=generator))
        self.up = torch.nn.Parameter(torch.randn(experts, hidden, inner, generator=generator) / 4)
        self.down = torch.nn.Parameter(torch.randn(experts, inner, hidden, generator=generator) / 4)
        self.chosen = chosen

    def forward(self, x):
        scores, chosen = (x @ self.router.T).softmax(-1).topk(self.chosen)
        chosen, order = torch.sort(chosen.reshape(-1))
        experts = len(self.router)
        counts = torch.histc(chosen.float(), bins=experts, min=0, max=experts - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        rows = x[order // self.chosen]
        for weights in (self.up, self.down):
            rows = torch._grouped_mm(rows, weights, offs=ends).relu()
        weighted = rows * scores.reshape(-1)[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, order // self.chosen, weighted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.usefixtures("no_gradients")
def test_a_mixture_of_experts(device):
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this PyTorch has no products in groups")
    # PyTorch exports such products only of BF16.
    x = torch.randn(9, 16, generator=torch.Generator().manual_seed(2)).bfloat16()
    got, want = run(Experts().bfloat16(), x, device=device)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_rows_behind_the_last_group_are_zero():
    class Groups(torch.nn.Module):
        def forward(self, a, b, ends):
            return torch._grouped_mm(a, b, offs=ends)

    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this PyTorch has no products in groups")
    a, b = torch.randn(10, 8).bfloat16(), torch.randn(3, 8, 16).bfloat16()
    ends = torch.tensor([4, 4, 9], dtype=torch.int32)
    got, want = run(Groups(), a, b, ends, device="cpu")
    torch.testing.assert_close(got[:9], want[:9], rtol=1e-2, atol=1e-2)
    assert torch.equal(got[9:], torch.zeros(1, 16).bfloat16())
