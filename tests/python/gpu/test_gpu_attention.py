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
