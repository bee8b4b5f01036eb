"""Plugins that are an expression of single elements (`pointwise_impl`), against NumPy."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from opwright.plugin import elements as el

DEVICES = ["cpu", pytest.param("cuda", marks=emulated_gpu.required)]
erf = np.vectorize(math.erf)


def clear(plugin_id: str) -> None:
    trtp._decorators.plugins.pop(plugin_id, None)


@trtp.register("pointwise::soften")
def soften(x: trtp.TensorDesc, limit: float = 0.5) -> trtp.TensorDesc:
    return x.like()


@trtp.pointwise_impl("pointwise::soften")
def soften_elements(x, limit):
    return el.sign(x) * el.maximum(abs(x) - limit, 0)


@trtp.register("pointwise::gate")
def gate(x: trtp.TensorDesc, y: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.pointwise_impl("pointwise::gate")
def gate_elements(x, y):
    return el.where((x > y) & ~(y < -0.5), x * el.sigmoid(y), 2 - x / (1 + el.exp(-abs(y))) ** 2)


def gate_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    other = 2 - x / (1 + np.exp(-abs(y))) ** 2
    return np.where((x > y) & ~(y < -0.5), x / (1 + np.exp(-y)), other)


def soften_numpy(x: np.ndarray, limit: float) -> np.ndarray:
    return np.sign(x) * np.maximum(abs(x) - limit, 0)


def build(extents: list[tuple[int, ...]], make: Callable[..., Any], device: str, **options):
    network = trt.Builder(trt.Logger()).create_network()
    dtype = options.pop("dtype", trt.float32)
    inputs = [network.add_input(f"x{i}", dtype, shape) for i, shape in enumerate(extents)]
    network.mark_output(make(network, *inputs))
    return trt.build(network, device=device, timing=False, **options)


def random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def plugin(network, call):
    return network.add_plugin(call).get_output(0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("limit", [None, 0.25])
def test_an_expression_with_an_attribute(device, limit):
    options = {} if limit is None else {"limit": limit}
    engine = build(
        [(5, 70)],
        lambda network, x: plugin(network, trtp.op.pointwise.soften(x, **options)),
        device,
    )
    (x,) = random((5, 70))
    expected = soften_numpy(x, 0.5 if limit is None else limit)
    np.testing.assert_allclose(engine(x), expected, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_that_broadcast_in_open_shapes(device):
    engine = build(
        [(-1, 6, 9), (6, 1)],
        lambda network, x, y: plugin(network, trtp.op.pointwise.gate(x, y)),
        device,
        shapes={"x0": ((1, 6, 9), (4, 6, 9), (8, 6, 9))},
    )
    for n in (1, 5, 8):
        x, y = random((n, 6, 9), (6, 1))
        np.testing.assert_allclose(engine(x0=x, x1=y), gate_numpy(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_half_precision(device):
    engine = build(
        [(40, 30)],
        lambda network, x: plugin(network, trtp.op.pointwise.soften(x, limit=0.1)),
        device,
        dtype=trt.float16,
    )
    x = random((40, 30))[0].astype(np.float16)
    result = np.asarray(engine(x))
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, soften_numpy(x.astype(np.float32), 0.1), atol=2e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_neighbouring_layers_are_one_kernel_with_it(device):
    def make(network, x):
        doubled = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
        y = plugin(network, trtp.op.pointwise.soften(doubled))
        return network.add_activation(y, trt.ActivationType.TANH).get_output(0)

    engine = build([(9, 33)], make, device)
    assert len(engine.layers) == 1, engine.layers
    (x,) = random((9, 33))
    np.testing.assert_allclose(engine(x), np.tanh(soften_numpy(2 * x, 0.5)), atol=1e-5)


@emulated_gpu.required
@pytest.mark.parametrize("dtype, limit", [("float32", 1e-5), ("float16", 5e-3)])
def test_on_a_gpu_it_is_a_part_of_the_product_before_it(dtype, limit):
    weights = random((24, 40))[0].astype(dtype)

    def make(network, x):
        w = network.add_constant((24, 40), trt.Weights(weights)).get_output(0)
        none = trt.MatrixOperation.NONE
        y = network.add_matrix_multiply(x, none, w, none).get_output(0)
        return plugin(network, trtp.op.pointwise.soften(y))

    engine = build([(17, 24)], make, "cuda", dtype=getattr(trt, dtype))
    assert len(engine.layers) == 1, engine.layers
    x = (random((17, 24))[0] / 4).astype(dtype)
    expected = soften_numpy(x.astype(np.float64) @ weights.astype(np.float64), 0.5)
    np.testing.assert_allclose(engine(x), expected, rtol=limit, atol=limit)


@emulated_gpu.required
@pytest.mark.parametrize("dtype, limit", [("float32", 1e-4), ("float16", 2e-2)])
def test_on_a_gpu_it_is_a_part_of_the_convolution_before_it(dtype, limit):
    kernel, bias, x = (each.astype(dtype) for each in random((16, 8, 3, 3), (16,), (2, 8, 10, 10)))

    def make(network, x):
        layer = network.add_convolution_nd(x, 16, (3, 3), trt.Weights(kernel), trt.Weights(bias))
        return plugin(network, trtp.op.pointwise.soften(layer.get_output(0), limit=0.3))

    engine = build([(2, 8, 10, 10)], make, "cuda", dtype=getattr(trt, dtype))
    # In FP16 the best layout may not be the caller's.
    layers = [layer for layer in engine.layers if layer["LayerType"] != "Reformat"]
    assert len(layers) == 1, engine.layers
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    h = np.einsum("nchwij,mcij->nmhw", windows, kernel.astype(np.float64))
    h += bias.astype(np.float64)[:, None, None]
    np.testing.assert_allclose(engine(x), soften_numpy(h, 0.3), rtol=limit, atol=limit)


def test_an_engine_runs_where_the_plugin_is_unknown(tmp_path):
    engine = build([(4, 5)], lambda network, x: plugin(network, trtp.op.pointwise.soften(x)), "cpu")
    (x,) = random((4, 5))
    np.save(tmp_path / "x.npy", x)
    engine.save(tmp_path / "engine.plan")
    code = (
        "import sys, numpy as np, opwright\n"
        "x = np.load(sys.argv[1] + '/x.npy')\n"
        "np.save(sys.argv[1] + '/y.npy', opwright.load(sys.argv[1] + '/engine.plan')(x))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), soften_numpy(x, 0.5), atol=1e-6)


def define(name: str, function: Callable[..., Any]) -> Any:
    """A plugin of one tensor with that expression."""
    plugin_id = f"pointwise::{name}"
    clear(plugin_id)

    def shapes(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    trtp.register(plugin_id)(shapes)
    trtp.pointwise_impl(plugin_id)(function)
    return getattr(trtp.op.pointwise, name)


@pytest.mark.parametrize(
    "expression, message",
    [
        (lambda x: x if x > 0 else -x, "elements.where"),
        (lambda x: np.exp(x), "does not support ufuncs"),
        (lambda x: "x", "expected elements and numbers; str came"),
        (lambda x: (x > 0) + 1, "expected numbers; a comparison came"),
        (lambda x: x > 0, "register gives the output type FP32, but pointwise_impl computes BOOL"),
        (lambda x: el.where(x, x, x), "expected the result of a comparison"),
    ],
)
def test_expressions_that_are_none(expression, message):
    op = define("wrong", expression)
    with pytest.raises(Exception, match=message):
        build([(3, 4)], lambda network, x: plugin(network, op(x)), "cpu")


def test_tensors_of_integers_are_refused():
    with pytest.raises(Exception, match=r"soften.*input 0 is INT32; pointwise_impl takes floating"):
        build(
            [(3, 4)],
            lambda network, x: plugin(network, trtp.op.pointwise.soften(x)),
            "cpu",
            dtype=trt.int32,
        )


def test_a_shape_that_is_not_that_of_the_expression_is_refused():
    clear("pointwise::larger")

    @trtp.register("pointwise::larger")
    def larger(x: trtp.TensorDesc) -> trtp.TensorDesc:
        out = x.like()
        out.shape_expr[0] = x.shape_expr[0] * 2
        return out

    @trtp.pointwise_impl("pointwise::larger")
    def larger_elements(x):
        return x + 1

    with pytest.raises(Exception, match=r"register gives the output shape .*6.*inputs broadcast"):
        build([(3, 4)], lambda network, x: plugin(network, trtp.op.pointwise.larger(x)), "cpu")


def test_parameters_are_those_that_were_registered():
    with pytest.raises(trtp.SignatureError, match="pointwise_impl"):

        @trtp.pointwise_impl("pointwise::soften")
        def other(x, factor):
            return x * factor
