"""Which device an engine is built for, and what becomes of layers that it cannot run."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

import cuda_driver
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
    """Registers y = 2 * x, only for the CPU."""
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


def write_zeros(y: trtp.Tensor, stream: int) -> None:
    """FP32, in memory of the GPU."""
    cuda_driver.driver().call_here(
        "cuMemsetD32Async",
        *(
            ctypes.c_uint64(y.data_ptr),
            0,
            ctypes.c_size_t(math.prod(y.shape)),
            ctypes.c_void_p(stream),
        ),
    )


@pytest.fixture
def gpu_plugin() -> str:
    """Registers y = 0, only for the GPU."""
    plugin_id = new_id("gpu_only")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id, device="cuda")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        write_zeros(outputs[0], stream)

    return plugin_id


def layered(logger: Logger, lacking: str, *plugins: str) -> trt.INetworkDefinition:
    """A network of these plugins, named by their functions, and two layers of one that the GPU lacks."""
    net = trt.Builder(logger).create_network()
    tensor = net.add_input("x", trt.float32, (1, 4, 8, 8))
    layers = [(f"plugin{number}", plugin_id) for number, plugin_id in enumerate(plugins)]
    for layer_name, plugin_id in [*layers, ("lacks0", lacking), ("lacks1", lacking)]:
        namespace, name = plugin_id.split("::")
        layer = net.add_plugin(getattr(getattr(trtp.op, namespace), name)(tensor))
        layer.name = layer_name
        tensor = layer.get_output(0)
    net.mark_output(tensor)
    return net


def build_network(net: trt.INetworkDefinition, logger: Logger, device: trt.DeviceType | None):
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    if device is not None:
        config.default_device_type = device
    return builder.build_serialized_network(net, config)


def test_all_layers_that_the_gpu_lacks_are_named(
    cpu_plugin: str, logger: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPWRIGHT_DEVICE", raising=False)
    net = layered(logger, cpu_plugin, cpu_plugin)
    with pytest.raises(trt.Error) as raised:
        build_network(net, logger, trt.DeviceType.GPU)
    lines = str(raised.value).splitlines()
    assert lines[0] == "the GPU cannot run 3 layers:"
    for line, start in zip(lines[1:], ("layer 'plugin0'", "layer 'lacks0'", "layer 'lacks1'")):
        assert line.startswith("  " + start), line
    assert len(lines) == 4
    assert lines[3].endswith("; build the engine for the CPU")
    assert not logger.of(trt.ILogger.WARNING)
    assert build_network(net, logger, None) is not None
    [warning] = [m for m in logger.of(trt.ILogger.WARNING) if "built for the CPU" in m]
    for name in ("plugin0", "lacks0", "lacks1"):
        assert f"'{name}'" in warning


def test_a_build_that_fails_on_the_cpu_says_why_it_was_built_for_it(
    cpu_plugin: str, gpu_plugin: str, logger: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPWRIGHT_DEVICE", raising=False)
    with pytest.raises(trt.Error) as raised:
        build_network(layered(logger, cpu_plugin, gpu_plugin), logger, None)
    message = str(raised.value)
    assert "has no impl function for the CPU" in message
    assert "because the GPU cannot run all of the network" in message
    assert "'lacks0'" in message and "'lacks1'" in message
    assert message.index("no impl") < message.index("because")


def test_what_a_plugin_raises_on_the_cpu_is_told_with_the_reason(
    cpu_plugin: str, logger: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a plugin does whose function wraps its addresses as memory of the GPU."""
    monkeypatch.delenv("OPWRIGHT_DEVICE", raising=False)
    plugin_id = new_id("wraps_gpu_memory")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        if not hasattr(x, "__cuda_array_interface__"):
            raise RuntimeError("this address is no GPU's")
        write_zeros(outputs[0], stream)

    with pytest.raises(RuntimeError, match="this address is no GPU's") as raised:
        build_network(layered(logger, cpu_plugin, plugin_id), logger, None)
    [note] = [n for n in raised.value.__notes__ if "because the GPU cannot run" in n]
    assert "where plugins get host addresses" in note
    assert "'lacks0'" in note and "'lacks1'" in note


WHERE = """
import numpy as np, opwright as trt
net = trt.Builder(trt.Logger()).create_network()
layer = net.add_unary(net.add_input("x", trt.float32, (4,)), trt.UnaryOperation.NEG)
net.mark_output(layer.get_output(0))
from cuda_driver import DeviceArray
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
        ("cuda:2", "OPWRIGHT_DEVICE is cuda:2, and there are 2, numbered from 0"),
        ("cuda:x", "expected cpu, cuda or cuda:1"),
    ],
)
def test_the_environment_names_one_of_several_gpus(choice: str, expected: str) -> None:
    done = emulated_gpu.run_program(WHERE, OPWRIGHT_DEVICE=choice, OPWRIGHT_EMULATED_DEVICES="2")
    assert expected in done.stdout, done.stdout + done.stderr


def test_who_names_a_gpu_does_not_get_that_of_the_environment() -> None:
    source = WHERE.replace("device=None", "device='cuda:1'")
    done = emulated_gpu.run_program(source, OPWRIGHT_DEVICE="cuda:0", OPWRIGHT_EMULATED_DEVICES="2")
    assert "on GPU 1>" in done.stdout, done.stdout + done.stderr
