"""Outputs that are views of what layers compute, and layers that read views of inputs: nothing is copied."""

from __future__ import annotations

import ctypes
import json
import re

import numpy as np
import onnx.parser
import pytest

import opwright as trt
from plugin_testing import network

RNG = np.random.default_rng(1)


def build(shape: str, nodes: str, **options) -> trt.Engine:
    """x with a dynamic extent of 1 to 4, and y, a result that the nodes make of it."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 19]> net (float[{shape}] x) => (float y) {{ {nodes} }}""")
    return trt.build(model, timing=False, **options)


def places(engine: trt.Engine) -> set[str]:
    """Where the tensors of the engine lie."""
    page = re.search(r'id="data">(.*?)</script>', engine.view().html, re.S)
    assert page is not None
    return {tensor["Location"] for tensor in json.loads(page[1])[0]["Tensors"]}


def space_to_depth(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, 4 * c, h // 2, w // 2)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


CASES = {
    "space to depth": ("n, 3, 4, 6", "y = SpaceToDepth <blocksize = 2> (x)", space_to_depth),
    "channels last": (
        "2, 3, 4, 6",
        "y = Transpose <perm = [0, 2, 3, 1]> (x)",
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "flatten": (
        "n, 3, 4, 6",
        "a = Softmax (x) y = Flatten (a)",
        lambda x: softmax(x).reshape(len(x), -1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_lies_in_the_arena(name: str) -> None:
    shape, nodes, expected = CASES[name]
    is_dynamic = shape.startswith("n")
    shapes = {"x": ((1, 3, 4, 6), (2, 3, 4, 6), (4, 3, 4, 6))} if is_dynamic else None
    engine = build(shape, nodes, shapes=shapes)
    assert places(engine) <= {"input", "output"}
    context = engine.engine.create_execution_context()
    for rows in (4, 1, 2) if is_dynamic else (2,):
        x = RNG.random((rows, 3, 4, 6), np.float32)
        np.testing.assert_allclose(engine(x), expected(x), rtol=1e-6)
        # Addresses are only as aligned as elements, and the memory behind the output is not written.
        memory = np.full(x.size + 2, -1, np.float32)
        source = np.concatenate([np.zeros(1, np.float32), x.reshape(-1)])
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", source[1:].ctypes.data)
        context.set_tensor_address("y", memory[1:].ctypes.data)
        assert context.execute_async_v3(0)
        y = memory[1:-1].reshape(tuple(context.get_tensor_shape("y")))
        np.testing.assert_allclose(y, expected(x), rtol=1e-6)
        assert memory[0] == memory[-1] == -1


class Allocator(trt.IOutputAllocator):
    def __init__(self) -> None:
        super().__init__()
        self.array, self.shape = np.empty(0, np.float32), ()

    def reallocate_output_async(self, name, memory, size, alignment, stream):
        self.array = np.empty(size // 4, np.float32)
        return self.array.ctypes.data

    def notify_shape(self, name, shape):
        self.shape = tuple(shape)


def test_memory_of_an_output_allocator() -> None:
    shape, nodes, expected = CASES["flatten"]
    engine = build(shape, nodes, shapes={"x": ((1, 3, 4, 6), (2, 3, 4, 6), (4, 3, 4, 6))})
    context, allocator = engine.engine.create_execution_context(), Allocator()
    context.set_output_allocator("y", allocator)
    for rows in (3, 1):
        x = RNG.random((rows, 3, 4, 6), np.float32)
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", x.ctypes.data)
        assert context.execute_async_v3(0)
        assert allocator.shape == (rows, 72)
        np.testing.assert_allclose(allocator.array.reshape(rows, 72), expected(x), rtol=1e-6)


def test_what_data_decides_is_copied() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]> net (float[24] x) => (int64[k] y)
        <int64[1] axis = {0}> { a = NonZero (x) y = Squeeze (a, axis) }""")
    engine = trt.build(model, timing=False)
    x = np.where(RNG.random(24) < 0.5, 0, 1).astype(np.float32)
    np.testing.assert_array_equal(engine(x), np.flatnonzero(x))


class Listener(trt.IDebugListener):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, np.ndarray] = {}

    def process_debug_tensor(self, addr, location, type, shape, name, stream):
        count = int(np.prod(tuple(shape)))
        memory = (ctypes.c_float * count).from_address(addr)
        self.seen[name] = np.array(memory, np.float32).reshape(tuple(shape))
        return True


def test_debug_tensors_are_shown_in_their_shapes() -> None:
    net = network()
    x = net.add_input("x", trt.float32, (2, 6))
    layer = net.add_softmax(x)
    layer.axes = 0b10
    made = layer.get_output(0)
    made.name = "made"
    shuffle = net.add_shuffle(made)
    shuffle.reshape_dims = (3, 4)
    shuffle.get_output(0).name = "y"
    net.mark_output(shuffle.get_output(0))
    net.mark_debug(made)
    engine = trt.build(net, timing=False)
    assert "arena" not in places(engine)
    context, listener = engine.engine.create_execution_context(), Listener()
    context.set_debug_listener(listener)
    context.set_tensor_debug_state("made", True)
    data, y = RNG.random((2, 6), np.float32), np.empty((3, 4), np.float32)
    context.set_tensor_address("x", data.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert context.execute_async_v3(0)
    np.testing.assert_allclose(listener.seen["made"], softmax(data), rtol=1e-6)
    np.testing.assert_allclose(y, softmax(data).reshape(3, 4), rtol=1e-6)
