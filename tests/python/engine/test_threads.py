"""The pool of threads that engines on the CPU compute with: settings, results on any thread, and forks."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import opwright as trt
from chain_models import convolution_chain

SHAPE = (1, 16, 40, 40)


def _model() -> bytes:
    """Convolutions, each with a Softmax over its channels behind it."""
    return convolution_chain(
        4, SHAPE, lambda i, y: helper.make_node("Softmax", [y], [f"s{i}"], axis=1)
    )


@pytest.fixture(scope="module")
def case():
    model = _model()
    x = np.random.default_rng(4).standard_normal(SHAPE, np.float32)
    expected = onnxruntime.InferenceSession(model).run(None, {"x": x})[0]
    return trt.build(model), x, expected


def test_results_are_the_same_from_any_thread_and_beside_other_callers(case):
    engine, x, expected = case
    first = engine(x)
    np.testing.assert_allclose(first, expected, atol=1e-5)
    different: list[int] = []

    def call(index: int) -> None:
        for _ in range(30):
            if not np.array_equal(engine(x), first):
                different.append(index)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not different


def test_a_child_of_a_fork_computes(case):
    engine, x, expected = case
    engine(x)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        close = all(np.allclose(engine(x), expected, atol=1e-5) for _ in range(10))
        os._exit(0 if close else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_process_has_a_limit(case):
    engine, x, expected = case
    before = trt.max_threads()
    try:
        for count in (1, 3):
            trt.set_max_threads(count)
            assert trt.max_threads() == count
            np.testing.assert_allclose(engine(x), expected, atol=1e-5)
    finally:
        trt.set_max_threads(None)
    assert trt.max_threads() == before
    for wrong in (0, -1, 5000):
        with pytest.raises(trt.Error, match="expected 1 to 4096"):
            trt.set_max_threads(wrong)


def test_a_context_has_a_limit(case):
    engine, x, expected = case
    context = engine.engine.create_execution_context()
    assert context.max_threads == trt.max_threads()
    y = np.empty(SHAPE, np.float32)
    for count in (1, 3, 2):
        context.max_threads = count
        assert context.max_threads == count
        y[...] = 0
        context.execute_v2([x.ctypes.data, y.ctypes.data])
        np.testing.assert_allclose(y, expected, atol=1e-5)
    with pytest.raises(trt.Error, match="max_threads is 0"):
        context.max_threads = 0
    context.execute_v2([x.ctypes.data, y.ctypes.data])
