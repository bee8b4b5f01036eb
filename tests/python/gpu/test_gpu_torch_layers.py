"""Layers of networks on the GPU against PyTorch in FP32, exported to ONNX: each type, fixed and open shapes."""

from __future__ import annotations

import copy
import io

import pytest

import opwright as trt

pytestmark = pytest.mark.usefixtures("on_gpu")

TYPES = ["float32", "float16", "bfloat16"]
# Of the norm of the result. PyTorch computes in FP32 from the same rounded weights and inputs.
LIMIT = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def exported(torch, module, x, axes) -> bytes:
    file = io.BytesIO()
    torch.onnx.export(
        module,
        (x,),
        file,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": axes} if axes else None,
        opset_version=17,
        dynamo=False,
    )
    return file.getvalue()


def check(
    torch, module, shape, dtype: str, open_axes=(), limit: float = 1.0, expected_type="float32"
) -> None:
    torch.manual_seed(2)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    kind = getattr(torch, dtype)
    module = module.eval().cuda().to(kind)
    x = torch.randn(*shape, device="cuda", dtype=kind)
    axes = {axis: f"n{axis}" for axis in open_axes}
    with torch.no_grad():
        wide = getattr(torch, expected_type)
        expected = copy.deepcopy(module).to(wide)(x.to(wide))
        model = exported(torch, module, x, axes)
        profile = {}
        if axes:
            largest = tuple(2 * n if i in axes else n for i, n in enumerate(shape))
            profile = {
                "x": (tuple(1 if i in axes else n for i, n in enumerate(shape)), shape, largest)
            }
        engine = trt.build(model, device="cuda", shapes=profile or None)
        y = engine(x)
    assert y.dtype == kind and y.shape == expected.shape
    error = float((y.double() - expected.double()).norm() / expected.double().norm())
    assert error < limit * LIMIT[dtype], f"off by {error:.1e}"


def convolutions(torch):
    nn = torch.nn
    return {
        "3x3": (nn.Conv2d(64, 96, 3, padding=1), (2, 64, 28, 28)),
        "1x1": (nn.Conv2d(64, 256, 1), (1, 64, 14, 14)),
        "stride": (nn.Conv2d(32, 64, 3, stride=2, padding=1), (2, 32, 29, 30)),
        "stem": (nn.Conv2d(3, 64, 7, stride=2, padding=3), (1, 3, 64, 64)),
        "dilated": (nn.Conv2d(40, 48, 3, padding=4, dilation=4), (1, 40, 20, 20)),
        "odd": (nn.Conv2d(5, 7, 3), (3, 5, 11, 13)),
        "groups": (nn.Conv2d(64, 64, 3, padding=1, groups=4), (1, 64, 14, 14)),
        "depthwise": (nn.Conv2d(96, 96, 3, stride=2, padding=1, groups=96), (1, 96, 28, 28)),
        "1d": (nn.Conv1d(32, 48, 5, padding=2), (2, 32, 100)),
        "3d": (nn.Conv3d(16, 24, 3, padding=1), (1, 16, 6, 10, 10)),
        "deep": (nn.Conv2d(512, 512, 3, padding=1), (1, 512, 7, 7)),
        "transposed": (nn.ConvTranspose2d(32, 24, 4, stride=2, padding=1), (1, 32, 14, 15)),
        "transposed groups": (nn.ConvTranspose2d(32, 16, 3, stride=2, groups=2), (1, 32, 9, 9)),
    }


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "name",
    ["3x3", "1x1", "stride", "stem", "dilated", "odd", "groups", "depthwise", "1d", "3d", "deep"]
    + ["transposed", "transposed groups"],
)
def test_convolution(torch, name, dtype):
    module, shape = convolutions(torch)[name]
    check(torch, module, shape, dtype)


@pytest.mark.parametrize("name", ["3x3", "stem", "depthwise", "transposed"])
def test_convolution_of_open_shapes(torch, name):
    module, shape = convolutions(torch)[name]
    check(torch, module, shape, "float16", (0, 2, 3))


@pytest.mark.parametrize("dtype", TYPES)
def test_residual_block(torch, dtype):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False)
            self.norm = torch.nn.BatchNorm2d(64)
            self.second = torch.nn.Conv2d(64, 64, 1)

        def forward(self, x):
            return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + x)

    check(torch, torch.nn.Sequential(Block(), Block()), (2, 64, 14, 14), dtype, limit=2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 128, 768), (5, 7, 768), (32, 768)])
def test_linear(torch, shape, dtype):
    check(torch, torch.nn.Linear(768, 1000), shape, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 128, 256), (3, 50, 256)])
def test_linear_with_a_chain_behind_it(torch, shape, dtype):
    """A bias, an activation, a residual, a gate and an embedding that the batch shares."""

    class Chain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.narrow = torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)
            self.embedding = torch.nn.Parameter(torch.randn(1, shape[1], 256))
            self.scale = torch.nn.Parameter(torch.randn(256))

        def forward(self, x):
            y = self.narrow(torch.nn.functional.gelu(self.wide(x)))
            return torch.tanh(y + x) * self.scale + self.embedding * torch.sigmoid(x)

    check(torch, Chain(), shape, dtype, limit=3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(32, 197, 768), (32, 128, 768)])
def test_products_of_a_large_batch(torch, shape, dtype):
    """Products whose tiles take all multiprocessors: with GELU, with a residual, with neither."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.narrow = torch.nn.Linear(768, 3072), torch.nn.Linear(3072, 768)
            self.square, self.last = torch.nn.Linear(768, 768), torch.nn.Linear(768, 2304)

        def forward(self, x):
            x = self.narrow(torch.nn.functional.gelu(self.wide(x))) + x
            return self.last(self.square(x) + x)

    check(torch, Layer(), shape, dtype, limit=3)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("groups", [1, 64])
def test_convolution_with_a_chain_behind_it(torch, groups, dtype):
    class Chain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(64, 64, 3, padding=1, groups=groups)
            self.scale = torch.nn.Parameter(torch.randn(1, 64, 1, 1))

        def forward(self, x):
            y = torch.relu(self.convolution(x)) + x
            return y * torch.sigmoid(y) * self.scale

    check(torch, Chain(), (2, 64, 14, 14), dtype, limit=3)


@pytest.mark.parametrize("dtype", TYPES)
def test_pooling_and_normalization(torch, dtype):
    nn = torch.nn
    layers = [
        nn.MaxPool2d(3, 2, 1),
        nn.AvgPool2d(2),
        nn.GroupNorm(4, 32),
        nn.InstanceNorm2d(32),
        nn.AdaptiveAvgPool2d(1),
    ]
    check(torch, nn.Sequential(nn.Conv2d(8, 32, 3), *layers[:4]), (2, 8, 40, 40), dtype, limit=4)
    check(torch, layers[-1], (2, 32, 9, 9), dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_attention(torch, dtype):
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(256)
            self.qkv, self.out = torch.nn.Linear(256, 768), torch.nn.Linear(256, 256)

        def forward(self, x):
            q, k, v = (
                each.reshape(*x.shape[:2], 4, 64).transpose(1, 2)
                for each in self.qkv(self.norm(x)).chunk(3, -1)
            )
            y = torch.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v
            return x + self.out(y.transpose(1, 2).reshape(x.shape))

    check(torch, Attention(), (2, 50, 256), dtype, limit=3)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "shape, hidden, bidirectional, open_axes",
    [
        ((20, 1, 32), 100, True, ()),
        ((30, 40, 64), 128, False, ()),
        ((12, 3, 40), 256, True, (0, 1)),
        ((40, 20, 512), 512, False, ()),
    ],
    ids=str,
)
def test_recurrent(torch, shape, hidden, bidirectional, open_axes, cell, dtype):
    class States(torch.nn.Module):
        """Only those of all steps."""

        def __init__(self):
            super().__init__()
            module = getattr(torch.nn, cell)
            self.cell = module(shape[2], hidden, bidirectional=bidirectional)

        def forward(self, x):
            return self.cell(x)[0]

    # A state is rounded in each step, and cuDNN takes TF32 for FP32.
    check(torch, States(), shape, dtype, open_axes, limit=2, expected_type="float64")
