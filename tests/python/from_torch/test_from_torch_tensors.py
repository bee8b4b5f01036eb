"""Operators of PyTorch with optional tensors and lists of tensors, as plugins."""

from __future__ import annotations

from typing import List

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import build, network

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(2)


def run(op, arrays, call):
    net = network()
    inputs = [net.add_input(f"x{i}", trt.float32, (-1, 3)) for i in range(len(arrays))]
    layer = net.add_plugin(call(op, *inputs))
    shapes = {f"x{i}": ((1, 3), (2, 3), (9, 3)) for i in range(len(arrays))}
    engine = build(net, layer.get_output(0), shapes=shapes)
    return engine(**{f"x{i}": a for i, a in enumerate(arrays)})


def arrays(count, rows=4):
    return [RNG.standard_normal((rows, 3), np.float32) for _ in range(count)]


def test_optional_tensors():
    @torch.library.custom_op("opwright_tensors::affine", mutates_args=())
    def affine(
        x: torch.Tensor,
        scale: torch.Tensor | None,
        power: int,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        y = x**power if scale is None else x**power * scale
        return y.clone() if bias is None else y + bias

    @affine.register_fake
    def _(x, scale, power, bias=None):
        return torch.empty_like(x)

    op = trtp.from_torch("opwright_tensors::affine")
    x, a = arrays(2)
    for call, expected in [
        (lambda op, x, a: op(x, power=2), x**2),
        (lambda op, x, a: op(x, a, power=2), x**2 * a),
        (lambda op, x, a: op(x, None, a, power=3), x**3 + a),
        (lambda op, x, a: op(x, a, a, power=1), x * a + a),
        (lambda op, x, a: op(x, bias=a, power=2), x**2 + a),
    ]:
        np.testing.assert_allclose(run(op, [x, a], call), expected, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_list_of_tensors(count):
    op = trtp.from_torch("aten::cat")
    x = arrays(count)
    y = run(op, x, lambda op, *inputs: op(*inputs))
    np.testing.assert_array_equal(y, np.concatenate(x))
    y = run(op, x, lambda op, *inputs: op(*inputs, dim=1))
    np.testing.assert_array_equal(y, np.concatenate(x, 1))


def test_tensors_and_a_list():
    @torch.library.custom_op("opwright_tensors::blend", mutates_args=())
    def blend(x: torch.Tensor, others: List[torch.Tensor], weights: List[float]) -> torch.Tensor:
        return x + sum(w * other for w, other in zip(weights, others))

    @blend.register_fake
    def _(x, others, weights):
        return torch.empty_like(x)

    op = trtp.from_torch("opwright_tensors::blend")
    x, a, b = arrays(3)
    y = run(op, [x, a, b], lambda op, x, a, b: op(x, a, b, weights=[0.5, -2.0]))
    np.testing.assert_allclose(y, x + 0.5 * a - 2 * b, rtol=1e-5, atol=1e-6)
