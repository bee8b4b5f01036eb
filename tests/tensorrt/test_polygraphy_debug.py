"""Polygraphy's TrtRunner with debug tensors and results in place: it has a listener of its own, and binds outputs by an
allocator of its own."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import emulated_gpu
import opwright.plugin as trtp
import opwright.trt
from cuda_driver import driver
from plugin_testing import new_id, op_of

pytest.importorskip("polygraphy")
opwright.trt.install()

import tensorrt as trt  # noqa: E402
from polygraphy.backend.trt import (  # noqa: E402
    MarkDebug,
    TrtRunner,
    create_network,
    engine_from_network,
    network_from_onnx_bytes,
)

pytestmark = emulated_gpu.required

MODEL = """
    <ir_version: 9, opset_import: ["" : 19]>
    net (float[2, 6] x) => (float[2, 6] y) {
        r = Relu (x)
        e = Exp (r)
        y = Neg (e)
    }"""
X = np.random.default_rng(5).standard_normal((2, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cuda")
    for name, value in emulated_gpu.RUNTIME_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def parsed():  # type: ignore[no-untyped-def]
    return network_from_onnx_bytes(onnx.parser.parse_model(MODEL).SerializeToString())


@pytest.mark.parametrize("marked", [True, False])
def test_debug_tensors_are_among_the_outputs(marked: bool) -> None:
    builder, network, parser = parsed()
    if marked:
        network = MarkDebug((builder, network, parser), ["x", "r"])()
    else:
        network.mark_unfused_tensors_as_debug_tensors()
        network = builder, network, parser
    with TrtRunner(engine_from_network(network)) as runner:
        for _ in range(5):
            outputs = runner.infer({"x": X})
            assert set(outputs) == ({"x", "r", "y"} if marked else {"y"})
            np.testing.assert_allclose(outputs["y"], -np.exp(np.maximum(X, 0)), rtol=1e-6)
            if marked:
                np.testing.assert_array_equal(outputs["x"], X)
                np.testing.assert_array_equal(outputs["r"], np.maximum(X, 0))


def test_a_result_in_place_lies_in_the_runners_buffer() -> None:
    plugin_id = new_id("add_one")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased()

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        driver().write(outputs[0].data_ptr, driver().read(x.data_ptr, X.shape, X.dtype) + 1)

    builder, network = create_network()
    x = network.add_input("x", trt.float32, X.shape)
    y = network.add_plugin(op_of(plugin_id)(x)).get_output(0)
    y.name = "y"
    network.mark_output(y)
    engine = engine_from_network((builder, network))
    assert engine.get_aliased_input_tensor("y") == "x"
    with TrtRunner(engine) as runner:
        for _ in range(4):
            np.testing.assert_array_equal(runner.infer({"x": X})["y"], X + 1)
