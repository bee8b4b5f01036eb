"""Builds that compare whole engines, since libraries with threads of their own run in them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import opwright as trt
import opwright.plugin as trtp
from chain_models import convolution_chain
from plugin_testing import new_id
from v3_plugins import Log

SHAPE = (1, 16, 12, 12)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
SCALE = np.float32(1.5)


def numpy_scale():
    matrix = np.eye(SHAPE[1], dtype=np.float32) * SCALE
    return lambda x, y: np.matmul(matrix, x.reshape(SHAPE[1], -1), out=y.reshape(SHAPE[1], -1))


def numba_scale():
    numba = pytest.importorskip("numba")

    @numba.njit(parallel=True)
    def scale(x, y):
        for i in numba.prange(x.shape[1]):
            y[0, i] = x[0, i] * SCALE

    return scale


def compared(log):
    return [text for text in log.verbose() if text.startswith("Compared ")]


@pytest.mark.parametrize("make", [numpy_scale, numba_scale])
def test_the_choice_computes_the_same_and_is_remembered(make, tmp_path):
    scale, calls = make(), []
    plugin = new_id("scale_beside_layers")
    namespace, name = plugin.split("::")

    @trtp.register(plugin)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune(plugin)
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]

    @trtp.impl(plugin)
    def impl(x, outputs, stream, tactic):
        calls.append(tactic)
        scale(np.asarray(x), np.asarray(outputs[0]))

    def follow(index, tensor):
        return helper.make_node(name, [tensor], ["c"], domain=namespace) if index == 1 else None

    def build(model, log):
        return trt.build(model, logger=log, timing_cache=tmp_path / "times")

    (plain,) = ReferenceEvaluator(convolution_chain(4, SHAPE)).run(None, {"x": X})
    model, first, second = convolution_chain(4, SHAPE, follow), Log(), Log()
    engine = build(model, first)
    np.testing.assert_allclose(engine(X), SCALE * plain, rtol=1e-3, atol=1e-4)
    (text,) = compared(first)
    assert "engines as a whole" in text and text.count("\n  *  ") == 1
    assert "as the sum of separate times" in text

    calls.clear()
    again = build(model, second)
    assert calls == [], "the timing cache knows the times of the layers and of the engines"
    assert compared(second) == [text]
    np.testing.assert_array_equal(again(X), engine(X))
    assert len(set(calls)) == 1, "both have the same tactic"
