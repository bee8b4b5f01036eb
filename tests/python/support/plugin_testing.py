"""Shared code of the tests of plugins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import opwright as trt
from opwright.aot import _nvrtc

_numbers = itertools.count()


def need_nvrtc() -> None:
    """Skips the test if NVIDIA's compiler is not installed."""
    try:
        _nvrtc.nvrtc()
    except _nvrtc.NvrtcError as error:
        pytest.skip(f"NVRTC: {error}")


def new_id(name: str) -> str:
    """A plugin id that no other test uses."""
    return f"test{next(_numbers)}::{name}"


def op_of(plugin_id: str):
    """The `op.namespace.name` of an id."""
    namespace, name = plugin_id.split("::")
    return getattr(getattr(trt.plugin.op, namespace), name)


def network(flags: int = 0):
    """An empty network. Its builder does not keep it alive."""
    return trt.Builder(trt.Logger()).create_network(flags)


def build(net, *outputs, **options) -> trt.Engine:
    """The engine of a network with these output tensors, named y0, y1..."""
    for i, tensor in enumerate(outputs):
        tensor.name = f"y{i}"
        net.mark_output(tensor)
    return trt.build(net, **options)


def one_plugin(plugin_id: str, *arrays: np.ndarray, aot=None, flags: int = 0, **attributes):
    """A network with inputs like the arrays and one plugin on them, and the plugin's layer."""
    types = {np.dtype(trt.nptype(t)): t for t in (trt.float32, trt.float16, trt.int32, trt.int64)}
    net = network(flags)
    inputs = [net.add_input(f"x{i}", types[a.dtype], a.shape) for i, a in enumerate(arrays)]
    layer = net.add_plugin(op_of(plugin_id)(*inputs, **attributes), aot=aot)
    return net, layer


def wrap(x: np.ndarray, pads) -> np.ndarray:
    """Circular padding of the last axes by NumPy; pads[2 i], pads[2 i + 1] for the i-th last."""
    widths = [(0, 0)] * (x.ndim - len(pads) // 2)
    widths += [(int(pads[2 * i]), int(pads[2 * i + 1])) for i in reversed(range(len(pads) // 2))]
    return np.pad(x, widths, mode="wrap")
