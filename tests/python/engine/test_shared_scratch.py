"""Working memory that contexts on the CPU share: results in turns and at once, and what a process has resident."""

from __future__ import annotations

import threading

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opwright
import opwright as trt
import opwright.plugin as trtp

CONTEXTS = 16
CHANNELS = 16


def _model() -> bytes:
    """Convolutions, so that there is scratch memory, too; x [n, 16, h, 24] with open n and h."""
    random = np.random.default_rng(3)
    weights = [
        random.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32) * 0.1 for _ in range(3)
    ]
    nodes, last = [], "x"
    for i in range(3):
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Softmax", [f"c{i}"], [f"s{i}"], axis=1))
        last = f"s{i}"
    shape = ["n", CHANNELS, "h", 24]
    graph = helper.make_graph(
        nodes,
        "scratch",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


class _Caller:
    """A context and what it last computed."""

    def __init__(self, engine: trt.ICudaEngine, session: onnxruntime.InferenceSession, index: int):
        self.context = engine.create_execution_context()
        self.session = session
        self.random = np.random.default_rng(index)

    def is_right(self) -> bool:
        profile = int(self.random.integers(2))
        self.context.set_optimization_profile_async(profile)
        n, h = self.random.integers(1, 3), self.random.integers(1, 9)
        if profile == 1:
            n, h = n + 2, h + 8
        x = self.random.standard_normal((n, CHANNELS, h, 24), np.float32)
        y = np.full_like(x, np.nan)
        self.context.set_input_shape("x", x.shape)
        self.context.set_tensor_address("x", x.ctypes.data)
        self.context.set_tensor_address(self.output, y.ctypes.data)
        self.context.execute_async_v3(0)
        return bool(np.allclose(y, self.session.run(None, {"x": x})[0], atol=1e-5))

    output = "s2"


@pytest.fixture(scope="module")
def callers() -> list[_Caller]:
    model = _model()
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.ERROR))
    assert parser.parse(model)
    config = builder.create_builder_config()
    for low, high in [((1, 1), (2, 8)), ((3, 9), (4, 16))]:
        profile = builder.create_optimization_profile()
        shapes = [(n, CHANNELS, h, 24) for n, h in (low, high, high)]
        profile.set_shape("x", *shapes)
        config.add_optimization_profile(profile)
    engine = builder.build_engine_with_config(network, config)
    session = onnxruntime.InferenceSession(model)
    return [_Caller(engine, session, i) for i in range(CONTEXTS)]


def test_contexts_in_turns_compute_what_onnx_runtime_does(callers):
    for _ in range(5):
        assert [caller.is_right() for caller in callers] == [True] * CONTEXTS


def test_contexts_on_threads_compute_what_onnx_runtime_does(callers):
    wrong = []

    def work(caller: _Caller) -> None:
        for _ in range(10):
            if not caller.is_right():
                wrong.append(caller)

    threads = [threading.Thread(target=work, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_idle_contexts_have_the_memory_of_one():
    rows, columns = 4096, 1024
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (rows, columns))
    first = network.add_softmax(x)
    first.axes = 1 << 1
    second = network.add_softmax(first.get_output(0))
    second.axes = 1 << 0
    second.get_output(0).name = "y"
    network.mark_output(second.get_output(0))
    config = builder.create_builder_config()
    config.timing = False
    engine = builder.build_engine_with_config(network, config)
    between = rows * columns * 4  # bytes
    assert engine.device_memory_size_v2 >= between
    data, result = np.ones((rows, columns), np.float32), np.ones((rows, columns), np.float32)
    contexts = [engine.create_execution_context() for _ in range(CONTEXTS)]
    before = _resident()
    for context in contexts:
        context.set_tensor_address("x", data.ctypes.data)
        context.set_tensor_address("y", result.ctypes.data)
        context.execute_async_v3(0)
    assert _resident() - before < 2 * engine.device_memory_size_v2
    np.testing.assert_allclose(result, np.full_like(result, 1 / rows), rtol=1e-5)


def test_after_a_plugins_exception_others_take_the_memory():
    @trtp.register("shared_scratch::refuse")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("shared_scratch::refuse")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor, ...], stream: int) -> None:
        if np.asarray(x)[0] == np.float32(-0.75):  # no number that the tuner tries
            raise ValueError("softsign of -3")
        np.asarray(outputs[0])[:] = np.asarray(x)

    nodes = [
        helper.make_node("Softsign", ["x"], ["a"]),
        helper.make_node("refuse", ["a"], ["b"], domain="shared_scratch"),
        helper.make_node("Sqrt", ["b"], ["y"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1 << 20])] for name in ("x", "y")
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("shared_scratch", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "refusing", *ends), opset_imports=opsets, ir_version=8
    )
    engine = opwright.build(model)
    good = np.full(1 << 20, 3, np.float32)
    expected = np.full_like(good, np.sqrt(0.75))
    np.testing.assert_allclose(engine(good), expected, rtol=1e-6)
    before = _resident()
    for _ in range(CONTEXTS):
        with pytest.raises(ValueError, match="of -3"):
            engine(-good)
        np.testing.assert_allclose(engine(good), expected, rtol=1e-6)
    assert _resident() - before < 5 * good.nbytes
