"""Attention on an emulated GPU: exports become one kernel, on multiply-adds and on tensor cores."""

from __future__ import annotations

import numpy as np
import pytest

import emulated_gpu

torch = pytest.importorskip("torch")

import attention_models as models  # noqa: E402 - needs torch

pytestmark = emulated_gpu.required


@pytest.mark.parametrize("name", ["BERT, eager", "ViT, sdpa", "GPT-2, sdpa", "Llama, sdpa"])
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
