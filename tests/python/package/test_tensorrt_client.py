"""A client of TensorRT's binary interface, which knows nothing but the described tables and calls them by number."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

import pytest

import opwright

LIBRARIES = Path(opwright.__file__).parent / "lib"
TABLES = ctypes.CDLL(str(LIBRARIES / "libopwright_tensorrt.so"))
TABLES.opwrightTensorrtTables.restype = c_char_p
# A flag with which building is an error, and strong typing, in the numbers of each version.
STRICT_NANS = {10: 24, 11: 23}
STRONGLY_TYPED = {10: 1, 11: 0}


class Dims(ctypes.Structure):
    _fields_ = [("count", c_int32), ("extents", c_int64 * 8)]


class Client:
    """Entry points of one version, a logger with its table, and calls by a class's and a method's name."""

    def __init__(self, major: int) -> None:
        self.major = major
        self.slots = {}
        for line in TABLES.opwrightTensorrtTables(major).decode().splitlines():
            table, number, name, *_ = line.split("\t")
            self.slots.setdefault((table, name), int(number))
        self.lines: list[str] = []
        log = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
        self.log = log(lambda _, severity, text: self.lines.append(f"{severity} {text.decode()}"))
        nothing = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: None)
        end = ctypes.cast(nothing, c_void_p).value
        written = ctypes.cast(self.log, c_void_p).value
        table = [end, end, end, end, written] if major == 11 else [written, end, end]
        self.kept = (nothing, (c_void_p * len(table))(*table))
        self.logger = (c_void_p * 1)(ctypes.addressof(self.kept[1]))
        self.library = ctypes.CDLL(str(LIBRARIES / f"libopwright_nvinfer_{major}.so"))

    def create(self, function: str, version: int) -> int | None:
        entry = getattr(self.library, function)
        entry.restype = c_void_p
        return entry(c_void_p(ctypes.addressof(self.logger)), version)

    def call(self, face: int, method: str, result, *arguments, part: int = 1):
        table, _, name = method.partition("::")
        implementation = c_void_p.from_address(face + 8 * part).value
        functions = c_void_p.from_address(implementation).value
        address = c_void_p.from_address(functions + 8 * self.slots[table, name]).value
        types = [type(argument) for argument in arguments]
        return ctypes.CFUNCTYPE(result, c_void_p, *types)(address)(implementation, *arguments)

    def delete(self, face: int) -> None:
        table = c_void_p.from_address(face).value
        ctypes.CFUNCTYPE(None, c_void_p)(c_void_p.from_address(table + 8).value)(face)


@pytest.fixture(params=[10, 11])
def client(request, monkeypatch):
    monkeypatch.setenv("OPWRIGHT_DEVICE", "cpu")
    return Client(request.param)


def network_of(client, builder):
    """A network of one layer, which is the second thing that is returned."""
    flags = c_uint32(1 << STRONGLY_TYPED[client.major])
    network = client.call(builder, "VBuilder::createNetworkV2", c_void_p, flags)
    assert client.call(network, "VNetworkDefinition::getFlags", c_uint32) == flags.value
    shape = Dims(2, (2, 3))
    x = client.call(
        network,
        "VNetworkDefinition::addInput",
        c_void_p,
        c_char_p(b"x"),
        c_int32(0),
        c_void_p(ctypes.addressof(shape)),
    )
    layer = client.call(
        network, "VNetworkDefinition::addActivation", c_void_p, c_void_p(x), c_int32(3)
    )
    y = client.call(layer, "VLayer::getOutput", c_void_p, c_int32(0))
    assert y == client.call(layer, "VLayer::getOutput", c_void_p, c_int32(0))
    client.call(y, "VTensor::setName", None, c_char_p(b"y"))
    client.call(network, "VNetworkDefinition::markOutput", None, c_void_p(y))
    return network, layer


def test_a_client_builds_and_runs(client):
    builder = client.create("createInferBuilder_INTERNAL", client.major * 10000)
    network, layer = network_of(client, builder)
    client.call(layer, "VActivationLayer::setAlpha", None, c_float(0.5), part=2)
    config = client.call(builder, "VBuilder::createBuilderConfig", c_void_p)
    plan = client.call(
        builder, "VBuilder::buildSerializedNetwork", c_void_p, c_void_p(network), c_void_p(config)
    )
    runtime = client.create("createInferRuntime_INTERNAL", client.major * 10000)
    data = client.call(plan, "VHostMemory::data", c_void_p)
    size = client.call(plan, "VHostMemory::size", c_size_t)
    engine = client.call(
        runtime, "VRuntime::deserializeCudaEngine", c_void_p, c_void_p(data), c_size_t(size)
    )
    context = client.call(engine, "VCudaEngine::createExecutionContext", c_void_p, c_int32(0))
    assert client.call(context, "VExecutionContext::getEngine", c_void_p) == engine
    given, result = (c_float * 6)(-1, 2, -3, 4, -5, 6), (c_float * 6)()
    for name, array in ((b"x", given), (b"y", result)):
        address = c_void_p(ctypes.addressof(array))
        assert client.call(
            context, "VExecutionContext::setTensorAddress", ctypes.c_bool, c_char_p(name), address
        )
    assert client.call(context, "VExecutionContext::enqueueV3", ctypes.c_bool, c_void_p(0))
    assert list(result) == [-0.5, 2, -1.5, 4, -2.5, 6]
    for face in (context, engine, runtime, plan, config, network, builder):
        client.delete(face)


def test_flags_have_the_versions_numbers_and_errors_reach_the_logger(client):
    builder = client.create("createInferBuilder_INTERNAL", client.major * 10000)
    network, _ = network_of(client, builder)
    config = client.call(builder, "VBuilder::createBuilderConfig", c_void_p)
    flag = c_int32(STRICT_NANS[client.major])
    client.call(config, "VBuilderConfig::setFlag", None, flag)
    assert client.call(config, "VBuilderConfig::getFlags", c_uint32) == 1 << flag.value
    build = "VBuilder::buildSerializedNetwork"
    assert client.call(builder, build, c_void_p, c_void_p(network), c_void_p(config)) is None
    assert any("STRICT_NANS" in line for line in client.lines), client.lines
    for face in (config, network, builder):
        client.delete(face)


def test_older_versions_are_refused(client):
    assert client.create("createInferBuilder_INTERNAL", 80601) is None
    assert client.create("createInferRuntime_INTERNAL", 90300) is None
