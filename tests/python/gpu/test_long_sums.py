"""Sums of very many products on a GPU are as exact as those of a CPU."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import opwright

LENGTH = 20000


@pytest.mark.parametrize("extent", [str(LENGTH), "k"])
def test_a_long_sum_of_products_is_exact(extent):
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[8, {extent}] a, float[{extent}, 8] b) => (float[8, 8] y) {{ y = MatMul (a, b) }}
    """)
    # Each addition of equal addends to a growing sum rounds the same way.
    a, b = np.full((8, LENGTH), 0.1, np.float32), np.full((LENGTH, 8), 0.1, np.float32)
    shapes = {"a": (a.shape,) * 3, "b": (b.shape,) * 3} if extent == "k" else None
    engine = opwright.build(model, device="cuda", shapes=shapes, timing=False)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(np.asarray(engine(a, b)), exact, rtol=2e-6)
