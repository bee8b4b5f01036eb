"""U-Nets on a GPU against PyTorch on the CPU: steps counted, and formats of what lies between them."""

from __future__ import annotations

import pytest

import opwright as trt

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.frameworks


class Block(nn.Module):
    def __init__(self, channels: int, maps: int):
        super().__init__()
        self.first, self.second = nn.GroupNorm(4, channels), nn.GroupNorm(4, maps)
        self.a = nn.Conv2d(channels, maps, 3, padding=1)
        self.b = nn.Conv2d(maps, maps, 3, padding=1)
        self.skip = nn.Conv2d(channels, maps, 1) if channels != maps else nn.Identity()

    def forward(self, x):
        y = self.a(F.silu(self.first(x)))
        return self.skip(x) + self.b(F.silu(self.second(y)))


class UNet(nn.Module):
    def __init__(self, width: int = 16, window: int = 2):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Block(c, c) for c in (width, 2 * width))
        self.less = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.more = nn.ConvTranspose2d(2 * width, width, window, stride=2, padding=window // 2 - 1)
        self.up, self.last = Block(2 * width, width), nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = self.down[0](self.first(x))
        x = self.down[1](self.less(kept))
        return self.last(self.up(torch.cat([self.more(x), kept], 1)))


def built(module, x):
    return trt.build(torch.export.export(module, (x,)), device="cuda", timing=False)


@pytest.mark.parametrize(("dtype", "window"), [("float32", 2), ("float16", 2), ("bfloat16", 4)])
def test_unet(dtype, window):
    torch.manual_seed(3)
    module, x = UNet(window=window).eval(), torch.randn(2, 3, 12, 20)
    kind = getattr(torch, dtype)
    module, x = module.to(kind), x.to(kind)
    with torch.no_grad():
        expected = module.float()(x.float())
        module = module.to(kind)
        engine = built(module, x)
        y = engine(x)
    y = torch.as_tensor(y).float()
    error = float((y - expected).norm() / expected.norm())
    assert error < {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype], error
    # Each activation is computed by the normalization before it.
    kinds = [layer["LayerType"] for layer in engine.layers]
    assert "Pointwise" not in kinds and kinds.count("FusedNormalization") == 6, kinds


if __name__ == "__main__":
    torch.manual_seed(3)
    module, x = UNet().eval().half(), torch.randn(2, 3, 12, 20).half()
    for layer in built(module, x).layers:
        print(layer["LayerType"], layer["Name"])
