"""Engines read from IStreamReader and IStreamReaderV2, and written to an IStreamWriter."""

from __future__ import annotations

import numpy as np
import pytest

import opwright as trt

LOGGER = trt.Logger(trt.Logger.ERROR)


def _network(builder: trt.Builder) -> trt.INetworkDefinition:
    """y = -x for x of three elements."""
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (3,))
    y = network.add_unary(x, trt.UnaryOperation.NEG).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network


def _config(builder: trt.Builder) -> trt.IBuilderConfig:
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    config.timing = False
    return config


@pytest.fixture(scope="module")
def file() -> bytes:
    builder = trt.Builder(LOGGER)
    return bytes(builder.build_serialized_network(_network(builder), _config(builder)))


def _negated(engine: trt.ICudaEngine, x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    engine.create_execution_context().execute_v2([x.ctypes.data, y.ctypes.data])
    return y


class Reader(trt.IStreamReader):
    """Gives bytes, at most `piece` at once."""

    def __init__(self, data: bytes, piece: int = 1 << 30):
        trt.IStreamReader.__init__(self)
        self.data, self.piece, self.position = data, piece, 0

    def read(self, size: int) -> bytes:
        start = self.position
        self.position = min(start + min(size, self.piece), len(self.data))
        return self.data[start : self.position]


class ReaderV2(trt.IStreamReaderV2):
    """Gives bytes as what has the buffer protocol."""

    def __init__(self, data: bytes):
        trt.IStreamReaderV2.__init__(self)
        self.data, self.position, self.streams = data, 0, set()

    def read(self, num_bytes: int, stream: int) -> memoryview:
        self.streams.add(stream)
        start = self.position
        self.position += num_bytes
        return memoryview(self.data)[start : self.position]

    def seek(self, offset: int, where: trt.SeekPosition) -> bool:
        origins = {trt.SeekPosition.SET: 0, trt.SeekPosition.CUR: self.position}
        self.position = origins.get(where, len(self.data)) + offset
        return True


class Writer(trt.IStreamWriter):
    def __init__(self, piece: int = 1 << 30):
        trt.IStreamWriter.__init__(self)
        self.data, self.piece = b"", piece

    def write(self, data: bytes) -> int:
        self.data += data[: self.piece]
        return min(len(data), self.piece)


@pytest.mark.parametrize("piece", [1 << 30, 1000, 7])
def test_a_reader_gives_an_engine_in_pieces(file, piece):
    x = np.array([1, -2, 3], np.float32)
    reader = Reader(file, piece)
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(reader)
    assert reader.position == len(file)
    np.testing.assert_array_equal(_negated(engine, x), -x)


def test_a_reader_of_the_second_kind_is_told_a_stream(file):
    x = np.array([4, 5, -6], np.float32)
    reader = ReaderV2(b"before" + file + b"behind")
    assert reader.seek(6, trt.SeekPosition.SET)
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(reader)
    np.testing.assert_array_equal(_negated(engine, x), -x)
    assert reader.streams == {0}
    assert reader.position == 6 + len(file)  # what follows is left to others


def test_a_stream_that_ends_too_early_says_where(file):
    with pytest.raises(trt.Error, match=f"ends after 1000 bytes; the engine has {len(file)}"):
        trt.Runtime(LOGGER).deserialize_cuda_engine(Reader(file[:1000]))
    with pytest.raises(trt.Error, match="ends after 10 bytes"):
        trt.Runtime(LOGGER).deserialize_cuda_engine(Reader(file[:10]))


def test_a_stream_without_an_engine(file):
    with pytest.raises(trt.Error, match="has no Opwright engine"):
        trt.Runtime(LOGGER).deserialize_cuda_engine(Reader(b"x" * 1000))
    damaged = bytearray(file)
    damaged[4200] ^= 1
    with pytest.raises(trt.Error, match="hash"):
        trt.Runtime(LOGGER).deserialize_cuda_engine(Reader(bytes(damaged)))


def test_a_header_that_promises_too_much(file):
    size = int.from_bytes(file[16:24], "little")
    assert size == len(file)
    for promised in (5, 1 << 62):
        head = file[:16] + promised.to_bytes(8, "little") + file[24:]
        with pytest.raises(trt.Error, match=f"{promised} bytes"):
            trt.Runtime(LOGGER).deserialize_cuda_engine(Reader(head))


def test_readers_that_fail(file):
    class Raises(trt.IStreamReader):
        def read(self, size):
            raise OSError("the disk is gone")

    class GivesTooMuch(trt.IStreamReader):
        def read(self, size):
            return bytes(size + 1)

    class Lacks(trt.IStreamReader):
        pass

    runtime = trt.Runtime(LOGGER)
    with pytest.raises(OSError, match="the disk is gone"):
        runtime.deserialize_cuda_engine(Raises())
    with pytest.raises(trt.Error, match="were asked for"):
        runtime.deserialize_cuda_engine(GivesTooMuch())
    with pytest.raises(NotImplementedError, match=r"read\(self, size\)"):
        runtime.deserialize_cuda_engine(Lacks())


@pytest.mark.parametrize("piece", [1 << 30, 1000])
def test_a_writer_gets_what_a_file_has(file, piece):
    builder = trt.Builder(LOGGER)
    writer = Writer(piece)
    assert builder.build_serialized_network_to_stream(_network(builder), _config(builder), writer)
    assert writer.data == file


def test_a_writer_that_takes_nothing():
    builder = trt.Builder(LOGGER)
    with pytest.raises(trt.Error, match="returned 0 for"):
        builder.build_serialized_network_to_stream(_network(builder), _config(builder), Writer(0))
