"""Attention on an emulated GPU: exports become one kernel, on multiply-adds and on tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt

torch = pytest.importorskip("torch")

import attention_models as models  # noqa: E402 - needs torch
import decoder_models as decoders  # noqa: E402


@pytest.mark.parametrize(
    "name",
    ["BERT, eager", "ViT, sdpa", "MultiheadAttention, batch first", "GPT-2, sdpa", "Llama, sdpa"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_exports_become_one_kernel(name, dtype):
    torch.manual_seed(1)
    module = models.MODELS[name]().eval()
    arguments = models.arguments_of(module, 2, 24)
    with torch.no_grad():
        want = module(*arguments).numpy()
        engine = models.built(module.to(dtype), False, dtype=dtype, device="cuda")
    (step,) = models.steps(engine, "FusedAttention")
    assert step["TacticName"].startswith("tensor" if dtype == torch.float16 else "scalar")
    assert not models.steps(engine, "Transpose") and not models.steps(engine, "Softmax")
    got = engine(**{n: a.to(dtype).numpy() for n, a in zip(module.inputs, arguments)})
    np.testing.assert_allclose(got, want, rtol=0, atol=(2e-5, 1e-2)[dtype == torch.float16])


class ShiftedWindows(torch.nn.Module):
    """Attention in windows of 7 x 7 that an image is rolled for, as in Swin transformers."""

    def __init__(self, heads, size):
        super().__init__()
        self.heads, self.size, width = heads, size, heads * size
        self.joined, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.bias = torch.nn.Parameter(torch.randn(1, heads, 49, 49))

    def masks(self, x, height, width):
        regions = x.new_zeros(height, width)
        edges = ((0, -7), (-7, -3), (-3, None))
        for i, rows in enumerate(edges):
            for k, columns in enumerate(edges):
                regions[slice(*rows), slice(*columns)] = 3 * i + k
        regions = regions.view(height // 7, 7, width // 7, 7).permute(0, 2, 1, 3).reshape(-1, 49)
        others = regions.unsqueeze(1) - regions.unsqueeze(2)
        return others.masked_fill(others != 0, -100.0).masked_fill(others == 0, 0.0)

    def forward(self, x):
        n, height, width, channels = x.shape
        x = torch.nn.functional.pad(x, (0, 0, 0, -width % 7, 0, -height % 7))
        x = torch.roll(x, (-3, -3), (1, 2))
        rows = x.view(n, height // 7, 7, width // 7, 7, channels).transpose(2, 3)
        joined = self.joined(rows.reshape(-1, 49, channels))
        joined = joined.reshape(-1, 49, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        scores = joined[0] * self.size**-0.5 @ joined[1].transpose(-2, -1) + self.bias
        scores = scores.view(n, -1, self.heads, 49, 49)
        scores = scores + self.masks(x, height, width).unsqueeze(1).unsqueeze(0)
        y = scores.view(-1, self.heads, 49, 49).softmax(-1) @ joined[2]
        y = self.out(y.transpose(1, 2).reshape(-1, 49, channels))
        y = y.view(n, height // 7, width // 7, 7, 7, channels).transpose(2, 3)
        return torch.roll(y.reshape(n, height, width, channels), (3, 3), (1, 2))


@pytest.mark.parametrize("images", [1, 2])
def test_attention_in_shifted_windows_is_one_step(images):
    torch.manual_seed(3)
    module = ShiftedWindows(2, 16).eval().half()
    x = torch.randn(images, 14, 21, 32).half()
    with torch.no_grad():
        engine = trt.build(module, (x,), device="cuda", timing=False)
        want = module.double()(x.double()).numpy()
    kinds = [step["LayerType"] for step in models.layers(engine)]
    assert kinds.count("FusedAttention") == 1
    assert not {"Softmax", "Gather"} & set(kinds) and kinds.count("Slice") == 2, kinds
    error = np.linalg.norm(engine(x.numpy()) - want) / np.linalg.norm(want)
    assert error < 3e-3


class GroupedAttention(torch.nn.Module):
    """Attention among the positions of each group of an image: [images, groups, length, channels].
    `how`: the products as einsum or as matrix products. `mask`: shape of a bias of the scores."""

    def __init__(self, how, mask, heads=2, size=16):
        super().__init__()
        self.how, self.heads, self.size = how, heads, size
        self.joined, self.out = (torch.nn.Linear(heads * size, n * heads * size) for n in (3, 1))
        self.bias = torch.nn.Parameter(torch.randn(mask))

    def forward(self, x):
        images, groups, length, channels = x.shape
        joined = self.joined(x).reshape(images, groups, length, 3, self.heads, self.size)
        q, k, v = joined.permute(3, 0, 1, 4, 2, 5)
        k = k * self.size**-0.5
        if self.how == "einsum":
            scores = torch.einsum("bghid,bghjd->bghij", q, k)
            y = torch.einsum("bghij,bghjd->bghid", (scores + self.bias).softmax(-1), v)
        else:
            y = (q @ k.transpose(-2, -1) + self.bias).softmax(-1) @ v
        return self.out(y.transpose(2, 3).reshape(images, groups, length, channels))


@pytest.mark.parametrize(
    "mask, images, is_fused",
    [
        ((2, 20, 20), 3, True),
        ((1, 1, 2, 20, 20), 2, True),
        ((3, 5, 1, 20, 20), 3, True),
        ((5, 2, 20, 20), 1, True),
        ((5, 2, 20, 20), 3, False),  # it repeats along the images, not along the groups
    ],
)
@pytest.mark.parametrize("how", ["einsum", "products"])
def test_attention_in_groups_is_one_step(how, mask, images, is_fused):
    torch.manual_seed(4)
    module = GroupedAttention(how, mask).eval().half()
    x = torch.randn(images, 5, 20, 32).half()
    with torch.no_grad():
        engine = trt.build(module, (x,), device="cuda", timing=False)
        want = module.double()(x.double()).numpy()
    kinds = [step["LayerType"] for step in models.layers(engine)]
    assert kinds.count("FusedAttention") == is_fused, kinds
    assert not is_fused or not {"Softmax", "Transpose"} & set(kinds), kinds
    error = np.linalg.norm(engine(x.numpy()) - want) / np.linalg.norm(want)
    assert error < 3e-3


def test_weights_of_small_attentions_are_not_rounded():
    """Within a unit of the result's last place, which weights in FP16 miss by more."""
    torch.manual_seed(4)
    q, k, v = (torch.rand(2, 3, length, 8).half() for length in (4, 6, 6))
    want = models.sdpa(q.double(), k.double(), v.double())

    class Attend(torch.nn.Module):
        def forward(self, q, k, v):
            return models.eager(q, k, v)

    model = models.exported(Attend(), (q, k, v), "qkv", False)
    engine = trt.build(model, timing=False, device="cuda")
    assert [step["LayerType"] for step in models.layers(engine)] == ["FusedAttention"]
    got = engine(q=q.numpy(), k=k.numpy(), v=v.numpy())
    error = np.abs(got.astype(np.float64) - want.numpy())
    assert (error <= 0.51 * np.spacing(want.half().numpy()).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_decoders_become_few_steps(dtype, interleaved, is_open):
    torch.manual_seed(2)
    module = decoders.Decoder(decoders.documents, shared=2, interleaved=interleaved).eval()
    module = module.to(dtype)
    extents = torch.export.Dim("length", min=2, max=40)
    shapes = ({1: extents},) if is_open else None
    lengths = (24, 3) if is_open else (24,)
    inputs = [torch.randn(2, length, decoders.WIDTH).to(dtype) for length in lengths]
    with torch.no_grad():
        engine = trt.build(module, (inputs[0],), dynamic_shapes=shapes, device="cuda", timing=False)
        (step,) = models.steps(engine, "FusedAttention")
        assert len(step["Inputs"]) == 3, "the causal mask is no operand"
        assert models.steps(engine, "RotaryEmbedding")
        if not is_open:  # the angles of open lengths are computed in each run
            assert len(models.steps(engine, "RotaryEmbedding")) == 1
            assert len(models.steps(engine, "MatrixMultiply")) == 2
            assert not models.steps(engine, "Transpose") and not models.steps(engine, "Slice")
        got = [engine(x) for x in inputs]
        exact = module.double()
        for x, y in zip(inputs, got):
            want = exact(x.double())
            error = float((torch.as_tensor(y).double() - want).norm() / want.norm())
            limit = {torch.float32: 1e-5, torch.float16: 6e-3, torch.bfloat16: 5e-2}[dtype]
            assert error < limit, f"off by {error:.1e}"
