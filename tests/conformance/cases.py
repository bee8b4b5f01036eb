"""What the tests of this folder share: building engines, running them on NumPy arrays between guards, references."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import case_server
import opwright as trt

FOLDER = Path(os.environ.get(case_server.FOLDER, "."))
LOGGER = trt.Logger(trt.Logger.ERROR)
STRONGLY_TYPED = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


class Log(trt.ILogger):
    """A logger that keeps what it is told, as (severity, message) pairs."""

    def __init__(self):
        trt.ILogger.__init__(self)
        self.lines = []

    def log(self, severity, message):
        self.lines.append((severity, message))

    def errors(self):
        severe = (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR)
        return [message for severity, message in self.lines if severity in severe]

    def has(self, *words, severities=None):
        """Whether there is a message with all these words."""
        return any(
            all(word in message for word in words)
            and (severities is None or severity in severities)
            for severity, message in self.lines
        )


class Boom(Exception):
    pass


class Null(Exception):
    """A step gave TensorRT's null or false instead of a result."""


def step(name, result):
    if result is None or result is False:
        raise Null(name)
    return result


def error_of(action, *arguments):
    """The text of the exception that an action raises, or None where it raises none."""
    try:
        action(*arguments)
    except Exception as problem:
        return str(problem) or type(problem).__name__
    return None


def in_new_process(function, *arguments):
    """What a function of a test file prints in a process that knows no plugin."""
    names = function.__code__.co_varnames
    given = dict(zip(names, map(str, arguments)))
    status, output = case_server.run(function.__module__, function.__name__, **given)
    assert status == 0, f"the new process ended with {status}: {output}"
    return output


# ---- building and running engines ----


def start(flags=0, logger=LOGGER):
    builder = trt.Builder(logger)
    return builder, builder.create_network(flags), builder.create_builder_config()


def mark(network, tensor, name):
    tensor.name = name
    network.mark_output(tensor)


def build(builder, network, config):
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, "build_serialized_network returned None"
    return plan


def load(plan):
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(plan)
    assert engine is not None, "deserialize_cuda_engine returned None"
    return engine


def new_context(engine):
    context = engine.create_execution_context()
    assert context is not None, "create_execution_context returned None"
    return context


class Guarded:
    """An array between two guards of 256 bytes; all is filled so that missing and stray writes show."""

    def __init__(self, shape, dtype):
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self.memory = np.full(size + 768, 0xA5, np.uint8)
        self.start = 256 + -self.memory.ctypes.data % 256
        self.stop = self.start + size
        self.array = self.memory[self.start : self.stop].view(dtype).reshape(shape)
        self.address = self.memory.ctypes.data + self.start

    def check(self, name):
        before, after = self.memory[: self.start], self.memory[self.stop :]
        stray = (before != 0xA5).any() or (after != 0xA5).any()
        assert not stray, f"something was written outside the buffer of {name}"


def aligned(shape, dtype):
    """An uninitialized array that begins at a multiple of 256."""
    return Guarded(shape, dtype).array


def infer(context, inputs, bounds=None):
    """Runs `context` on NumPy arrays and returns its outputs by name.

    `bounds` gives an upper bound of the shape for each output whose shape depends on data.
    """
    engine, guarded = context.engine, {}
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    for name, array in inputs.items():
        shape, address = tuple(array.shape), array.ctypes.data
        assert context.set_input_shape(name, shape), f"set_input_shape refused {name} {shape}"
        assert context.set_tensor_address(name, address), f"set_tensor_address refused {name}"
    assert not context.infer_shapes(), "infer_shapes still misses inputs"
    for name in names:
        if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
            shape = (bounds or {}).get(name) or tuple(context.get_tensor_shape(name))
            assert -1 not in shape, f"the shape of {name} is {shape}, and all inputs have theirs"
            guarded[name] = Guarded(shape, trt.nptype(engine.get_tensor_dtype(name)))
            is_set = context.set_tensor_address(name, guarded[name].address)
            assert is_set, f"set_tensor_address refused {name}"
    assert context.execute_async_v3(0), "execute_async_v3 returned False"
    for name, buffer in guarded.items():
        buffer.check(name)
    return {name: buffer.array for name, buffer in guarded.items()}


def view(address, shape, dtype):
    """The memory at an address as an array."""
    count = int(np.prod(tuple(shape), dtype=np.int64))
    if count == 0:
        return np.empty(tuple(shape), dtype)
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype).reshape(tuple(shape))


def circular_pad(x, pads):
    """The reference: gathers along each padded axis; pads are (before, after) from the last axis backwards."""
    for i in range(len(pads) // 2):
        axis = x.ndim - 1 - i
        source = np.arange(-pads[2 * i], x.shape[axis] + pads[2 * i + 1]) % x.shape[axis]
        x = np.take(x, source, axis)
    return x


def random(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def in_saved_engine(plan, function, *arguments):
    """What a function of a test file prints in a process that knows no plugin, given the engine's file and more."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.engine"
        path.write_bytes(plan)
        return in_new_process(function, path, *arguments)


def compiled(source):
    """C++ source as the bytes of a shared object; all tests share what one has compiled."""
    text = "#include <cstdint>\n#include <unistd.h>\n" + source
    library = FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()}.so"
    if not library.exists():
        file = library.with_suffix(".cpp")
        file.write_text(text)
        command = [os.environ.get("CXX", "g++"), "-O1", "-shared", "-fPIC", "-o", library, file]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"the kernel does not compile: {done.stderr}"
    return read(library)


def read(path):
    return Path(path).read_bytes()
