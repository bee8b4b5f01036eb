"""Attention in every layout, with masks and few queries, on the GPU against PyTorch in FP32."""

from __future__ import annotations

import copy

import pytest

import opwright as trt

pytestmark = pytest.mark.usefixtures("on_gpu")

TYPES = ["float32", "float16", "bfloat16"]
# Of the norm of the result: inputs and weights are rounded to the type.
LIMIT = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
NAMES = ["BERT, eager", "BERT, sdpa", "ViT, eager", "ViT, sdpa", "MultiheadAttention"]
NAMES += ["GPT-2, eager", "GPT-2, sdpa", "Llama, eager", "Llama, sdpa"]


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_exports_become_one_kernel(torch, name, dtype, dynamic):
    import attention_models as models

    if dynamic and name.startswith("Multihead"):
        pytest.skip("the exporter makes the first extent of the keys constant")
    if dtype == "bfloat16" and name.endswith("sdpa"):
        pytest.skip("the exporter writes FP32 masks beside it")
    kind = getattr(torch, dtype)
    torch.manual_seed(1)
    module = models.MODELS[name]().eval().to(kind)
    with torch.no_grad():
        engine = models.built(module, dynamic, dtype=kind, device="cuda")
        assert len(models.steps(engine, "FusedAttention")) == 1
        assert not models.steps(engine, "Transpose") and not models.steps(engine, "Softmax")
        for batch, length in [(2, 24), (1, 1), (2, 63)] if dynamic else [(2, 24)]:
            arguments = [a.to(kind).cuda() for a in models.arguments_of(module, batch, length)]
            exact = copy.deepcopy(module).float().cuda()
            want = exact(*(a.float() for a in arguments))
            got = engine(**dict(zip(module.inputs, arguments)))
            error = float((got.float() - want).norm() / want.norm())
            assert error < 3 * LIMIT[dtype], f"off by {error:.1e}"


def attention_model(torch, heads, shared, size, causal):
    """x [batch, length, (heads + 2 shared) size] holds queries, keys and values side by side; keys and values may come
    from a cache."""

    class Attention(torch.nn.Module):
        inputs = ("q", "k", "v")

        def forward(self, q, k, v):
            split = [x.unflatten(-1, (-1, size)).transpose(1, 2) for x in (q, k, v)]
            mask = None
            if causal:
                n, m = q.shape[1], k.shape[1]
                mask = torch.full((n, m), -torch.inf, dtype=q.dtype).triu(m - n + 1)
            group = heads // shared
            repeated = [
                x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for x in split[1:]
            ]
            scores = split[0] @ repeated[0].transpose(-1, -2) * size**-0.5
            if mask is not None:
                scores = scores + mask.to(scores.device)
            return (scores.softmax(-1) @ repeated[1]).transpose(1, 2).flatten(2)

    return Attention()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    "shape",
    [(1, 12, 12, 128, 128, 64), (2, 4, 2, 100, 300, 128), (1, 32, 8, 1, 1024, 128)]
    + [(1, 8, 8, 5, 777, 80), (2, 3, 1, 333, 333, 32), (1, 2, 2, 65, 129, 256), (1, 1, 1, 1, 1, 8)],
    ids=str,
)
def test_shapes(torch, shape, causal, dtype):
    import attention_models as models

    batch, heads, shared, queries, keys, size = shape
    module = attention_model(torch, heads, shared, size, causal).eval()
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    given = [torch.randn(batch, queries, heads * size).to(kind)]
    given += [torch.randn(batch, keys, shared * size).to(kind) for _ in range(2)]
    with torch.no_grad():
        model = models.exported(module, given, module.inputs, False)
        engine = trt.build(model, device="cuda")
        assert len(models.steps(engine, "FusedAttention")) == 1
        want = module(*(x.double() for x in given)).cuda()
        first = None
        for _ in range(3):
            got = engine(**dict(zip(module.inputs, (x.cuda() for x in given))))
            error = float((got.double() - want).norm() / want.norm())
            assert error < 3 * LIMIT[dtype], f"off by {error:.1e}"
            # The parts of a tile are put together in one order.
            first = got if first is None else first
            assert torch.equal(first, got)
