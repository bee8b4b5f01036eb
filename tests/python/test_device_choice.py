"""Which device an engine is built for, and what becomes of layers that it cannot run."""

from __future__ import annotations

import numpy as np
import pytest

import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from plugin_testing import new_id

pytestmark = emulated_gpu.required

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


class Logger(trt.ILogger):
    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.messages: dict[trt.ILogger.Severity, list[str]] = {}

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        self.messages.setdefault(severity, []).append(msg)

    def of(self, severity: trt.ILogger.Severity) -> list[str]:
        return self.messages.get(severity, [])


@pytest.fixture
def logger() -> Logger:
    return Logger()


@pytest.fixture
def cpu_plugin() -> str:
    """Registers y = 2 * x, for the CPU alone."""
    plugin_id = new_id("cpu_only")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cpu")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        np.multiply(np.asarray(x), 2, out=np.asarray(outputs[0]))

    return plugin_id


def build(plugin_id: str, logger: Logger, device: trt.DeviceType | None = None) -> bytes | None:
    """An engine of the plugin by a builder's config, which may choose a device."""
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, X.shape)
    namespace, name = plugin_id.split("::")
    y = network.add_plugin(getattr(getattr(trtp.op, namespace), name)(x))
    network.mark_output(y.get_output(0))
    config = builder.create_builder_config()
    if device is not None:
        config.default_device_type = device
    plan = builder.build_serialized_network(network, config)
    return None if plan is None else bytes(plan)


def test_falls_to_the_cpu_where_nobody_chose(
    cpu_plugin: str, logger: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPWRIGHT_DEVICE", raising=False)
    plan = build(cpu_plugin, logger)
    warnings = [m for m in logger.of(trt.ILogger.WARNING) if "built for the CPU" in m]
    assert len(warnings) == 1
    assert "has no impl function for the GPU" in warnings[0]
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    context, y = engine.create_execution_context(), np.empty_like(X)
    context.set_tensor_address("x", X.ctypes.data)
    context.set_tensor_address(engine.get_tensor_name(1), y.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(y, 2 * X)


@pytest.mark.parametrize("choose", ["config", "environment"])
def test_is_an_error_where_the_gpu_was_chosen(
    cpu_plugin: str, logger: Logger, monkeypatch: pytest.MonkeyPatch, choose: str
) -> None:
    device = None
    if choose == "config":
        monkeypatch.delenv("OPWRIGHT_DEVICE", raising=False)
        device = trt.DeviceType.GPU
    else:
        monkeypatch.setenv("OPWRIGHT_DEVICE", "cuda")
    with pytest.raises(trt.Error, match="layer '.*has no impl function for the GPU"):
        build(cpu_plugin, logger, device)
    assert not logger.of(trt.ILogger.WARNING)


WHERE = """
import numpy as np, opwright as trt
net = trt.Builder(trt.Logger()).create_network()
layer = net.add_unary(net.add_input("x", trt.float32, (4,)), trt.UnaryOperation.NEG)
net.mark_output(layer.get_output(0))
from emulated_gpu import DeviceArray
try:
    engine = trt.build(net, timing=False, device=None)
    print(engine(DeviceArray(np.ones(4, np.float32), device=1)))
except trt.Error as error:
    print(error)
"""


@pytest.mark.parametrize(
    "choice, expected",
    [
        ("cuda:1", "on GPU 1>"),
        ("cuda:0", "memory of GPU 1"),
        ("cuda", "memory of GPU 1"),
        ("cuda:2", "OPWRIGHT_DEVICE is cuda:2, and there are 2 GPUs, numbered from 0"),
        ("cuda:x", "it must be cpu, cuda or cuda:1"),
    ],
)
def test_the_environment_names_one_of_several_gpus(choice: str, expected: str) -> None:
    done = emulated_gpu.run_program(WHERE, OPWRIGHT_DEVICE=choice, OPWRIGHT_EMULATED_DEVICES="2")
    assert expected in done.stdout, done.stdout + done.stderr


def test_who_names_a_gpu_does_not_get_that_of_the_environment() -> None:
    source = WHERE.replace("device=None", "device='cuda:1'")
    done = emulated_gpu.run_program(source, OPWRIGHT_DEVICE="cuda:0", OPWRIGHT_EMULATED_DEVICES="2")
    assert "on GPU 1>" in done.stdout, done.stdout + done.stderr
