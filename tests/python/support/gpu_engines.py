"""Engines of the tests: built for the GPU, run with addresses of the device's memory."""

from __future__ import annotations

import itertools

import numpy as np

import opwright as trt
import opwright.plugin as trtp
from cuda_driver import DeviceArray

TYPES = {
    np.dtype(np.float32): trt.float32,
    np.dtype(np.float16): trt.float16,
    np.dtype(np.int32): trt.int32,
    np.dtype(np.int64): trt.int64,
    np.dtype(np.int8): trt.int8,
    np.dtype(np.uint8): trt.uint8,
    np.dtype(np.bool_): trt.bool,
}
_numbers = itertools.count()


class Log(trt.ILogger):
    """Keeps what it is told."""

    def __init__(self):
        trt.ILogger.__init__(self)
        self.lines: list[tuple[object, str]] = []

    def log(self, severity, message):
        self.lines.append((severity, message))

    @property
    def text(self) -> str:
        return "\n".join(message for _, message in self.lines)


def new_id(name: str) -> str:
    """A plugin id that no other test uses."""
    return f"gpu{next(_numbers)}::{name}"


def op_of(plugin_id: str):
    namespace, name = plugin_id.split("::")
    return getattr(getattr(trtp.op, namespace), name)


def network(flags: int = 0):
    return trt.Builder(trt.Logger()).create_network(flags)


def strongly_typed():
    return network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))


def mark(net, *tensors):
    """Makes them the outputs y0, y1..."""
    for i, tensor in enumerate(tensors):
        tensor.name = f"y{i}"
        net.mark_output(tensor)
    return net


def build(net, *outputs, **options) -> trt.Engine:
    """An engine for the GPU with these outputs."""
    return trt.build(mark(net, *outputs), device=trt.DeviceType.GPU, **options)


def one_plugin(
    plugin_id: str, *arrays: np.ndarray, aot=None, shapes=None, flags=None, **attributes
):
    """A network of inputs x0, x1... like the arrays and one plugin, and the plugin's layer."""
    net = strongly_typed() if flags is None else network(flags)
    shapes = shapes or [array.shape for array in arrays]
    inputs = [
        net.add_input(f"x{i}", TYPES[a.dtype], s) for i, (a, s) in enumerate(zip(arrays, shapes))
    ]
    return net, net.add_plugin(op_of(plugin_id)(*inputs, **attributes), aot=aot)


class Runner:
    """A context with buffers for its inputs and outputs, of static shapes or of the arrays'. They are in the memory of
    `device`, or, for None, of the thread's current context."""

    def __init__(self, engine: trt.Engine, *arrays: np.ndarray, device: int | None = 0):
        self.engine = engine.engine
        self.context = self.engine.create_execution_context()
        self.inputs = [DeviceArray(array, device) for array in arrays]
        for name, buffer in zip(engine.inputs, self.inputs):
            assert self.context.set_input_shape(name, buffer.shape)
            assert self.context.set_tensor_address(name, buffer.ptr)
        self.outputs = []
        for name in engine.outputs:
            dtype = np.dtype(trt.nptype(self.engine.get_tensor_dtype(name)))
            buffer = DeviceArray(
                np.zeros(tuple(self.context.get_tensor_shape(name)), dtype), device
            )
            assert self.context.set_tensor_address(name, buffer.ptr)
            self.outputs.append(buffer)

    def enqueue(self, stream=None) -> None:
        assert self.context.execute_async_v3(stream.handle if stream else 0)

    def run(self, stream=None) -> list[np.ndarray]:
        self.enqueue(stream)
        if stream:
            stream.synchronize()
        return [buffer.numpy(wait=stream is None) for buffer in self.outputs]


def wrap(x: np.ndarray, pads) -> np.ndarray:
    """Circular padding of the last axes by NumPy; pads[2 i], pads[2 i + 1] for the i-th last."""
    widths = [(0, 0)] * (x.ndim - len(pads) // 2)
    widths += [(int(pads[2 * i]), int(pads[2 * i + 1])) for i in reversed(range(len(pads) // 2))]
    return np.pad(x, widths, mode="wrap")
