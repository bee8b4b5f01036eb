"""Attention on an emulated GPU: exports become one kernel, on multiply-adds and on tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt

torch = pytest.importorskip("torch")

import attention_models as models  # noqa: E402 - needs torch


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
