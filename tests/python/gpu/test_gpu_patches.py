"""Images that become tokens, and tokens that become images, where they lie: against PyTorch in FP32."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import opwright as trt
from cuda_driver import DeviceArray

torch = pytest.importorskip("torch")
nn = torch.nn


def exported(module, x, dynamic=False) -> bytes:
    file = io.BytesIO()
    axes = {"x": {0: "batch"}} if dynamic else None
    torch.onnx.export(
        module, (x,), file, input_names=["x"], output_names=["y"], dynamic_axes=axes, dynamo=False
    )
    return file.getvalue()


class Tokens(nn.Module):
    """Patches as tokens, in one of the ways that models write it."""

    def __init__(self, way: str):
        super().__init__()
        self.way = way
        self.project, self.norm = nn.Conv2d(3, 24, 8, 8), nn.LayerNorm(24)
        self.out = nn.Linear(24, 16)

    def forward(self, x):
        return self.out(self.norm(tokens(self.project(x), self.way)))


def tokens(x, way):
    if way == "flatten":
        return x.flatten(2).transpose(1, 2)
    if way == "reshape":
        return x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
    return x.permute(0, 2, 3, 1)


class Back(nn.Module):
    """Tokens that become an image again, which a convolution reads."""

    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(16, 64), nn.Conv2d(64, 24, 3, padding=1)

    def forward(self, x):
        return self.out(self.project(x).transpose(1, 2).reshape(x.shape[0], 64, 6, 7))


class Line(nn.Module):
    """A sequence that a convolution reads before a transformer, as in models of speech."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Conv1d(20, 32, 3, padding=1), nn.Linear(32, 16)

    def forward(self, x):
        return self.out(self.first(x).relu().transpose(1, 2))


class Volume(nn.Module):
    """Patches of a video."""

    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Conv3d(3, 24, (2, 8, 8), (2, 8, 8)), nn.Linear(24, 16)

    def forward(self, x):
        return self.out(self.project(x).flatten(2).transpose(1, 2))


CASES = {
    "flatten": (lambda: Tokens("flatten"), (2, 3, 32, 40)),
    "reshape": (lambda: Tokens("reshape"), (2, 3, 32, 40)),
    "permute": (lambda: Tokens("permute"), (2, 3, 32, 40)),
    "back": (Back, (2, 42, 16)),
    "line": (Line, (2, 20, 31)),
    "volume": (Volume, (1, 3, 4, 24, 32)),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_pytorch(name, device):
    torch.manual_seed(1)
    make, shape = CASES[name]
    module, x = make().eval(), torch.randn(shape)
    for dtype in (torch.float32, torch.float16) if device == "cuda" else (torch.float32,):
        half = copy.deepcopy(module).to(dtype)
        for dynamic in (False, True):
            model = exported(half, x.to(dtype), dynamic and name != "back")
            rest = tuple(shape[1:])
            spans = {"x": ((1, *rest), shape, (4, *rest))} if dynamic and name != "back" else None
            engine = trt.build(model, shapes=spans, device=device)
            for batch in (1, 4) if spans else (shape[0],):
                a = torch.randn(batch, *rest)
                with torch.no_grad():
                    want = module(a).numpy()
                got = engine(a.to(dtype).numpy()).astype(np.float32)
                atol = (2e-5, 1e-2)[dtype == torch.float16]
                np.testing.assert_allclose(got, want, rtol=0, atol=atol)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("way", ["flatten", "reshape", "permute"])
def test_an_image_with_the_channels_last_is_its_tokens(way, device):
    class Move(nn.Module):
        def forward(self, x):
            return tokens(x, way) * 2

    torch.manual_seed(2)
    x = torch.randn(2, 24, 4, 5)
    engine = built_in_format(exported(Move(), x), trt.TensorFormat.HWC, None, device)
    kinds = [layer["LayerType"] for layer in engine.layers]
    assert not {"Transpose", "Reformat"} & set(kinds), kinds
    want = tokens(x, way) * 2
    got = run(engine, device, x.permute(0, 2, 3, 1).numpy(), want.shape)
    np.testing.assert_array_equal(got, want.numpy())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("reshaped", [True, False], ids=["rows", "pixels"])
def test_tokens_are_an_image_with_the_channels_last(reshaped, device):
    class Move(nn.Module):
        def forward(self, x):
            x = x * 2
            if reshaped:
                return x.transpose(1, 2).reshape(2, 24, 4, 5)
            return x.permute(0, 3, 1, 2)

    torch.manual_seed(3)
    x = torch.randn((2, 20, 24) if reshaped else (2, 4, 5, 24))
    engine = built_in_format(exported(Move(), x), None, trt.TensorFormat.HWC, device)
    kinds = [layer["LayerType"] for layer in engine.layers]
    assert not {"Transpose", "Reformat"} & set(kinds), kinds
    np.testing.assert_array_equal(run(engine, device, x.numpy(), x.shape), 2 * x.numpy())


def run(engine, device, x, shape) -> np.ndarray:
    """The elements of the output as they lie in memory, for those of the input."""
    context = engine.engine.create_execution_context()
    x, y = np.ascontiguousarray(x), np.full(shape, np.nan, np.float32)
    if device == "cpu":
        assert context.execute_v2([x.ctypes.data, y.ctypes.data])
        return y
    on_device = [DeviceArray(x), DeviceArray(y)]
    assert context.execute_v2([array.ptr for array in on_device])
    return on_device[1].numpy()


def built_in_format(model, of_input, of_output, device):
    builder = trt.Builder(trt.Logger())
    network = builder.create_network()
    assert trt.OnnxParser(network, trt.Logger()).parse(model)
    if of_input is not None:
        network.get_input(0).allowed_formats = 1 << int(of_input)
    if of_output is not None:
        network.get_output(0).allowed_formats = 1 << int(of_output)
    return trt.build(network, device=device, timing=False)
