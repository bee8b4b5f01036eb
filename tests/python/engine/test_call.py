"""Engines called like functions: arguments, results, threads."""

from __future__ import annotations

import ctypes
import threading

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import opwright
import opwright.plugin as trtp

SUM = """
<ir_version: 9, opset_import: ["" : 17]>
net (float[n, 4] x, float[n, 4] y) => (float[n, 4] z) { z = Add (x, y) }
"""


@trtp.register("test_call::increment_")
def increment_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.aliased()


@trtp.impl("test_call::increment_")
def increment(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    np.asarray(outputs[0])[...] += 1


@trtp.register("test_call::unpack")
def unpack_desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return trtp.from_shape_expr(x.shape_expr, dtype=opwright.int8)


@trtp.impl("test_call::unpack")
def unpack(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    y = np.asarray(outputs[0])
    packed = np.frombuffer(ctypes.string_at(x.data_ptr, (y.size + 1) // 2), np.uint8)
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(-1)[: y.size].astype(np.int8)
    np.copyto(y, np.where(nibbles > 7, nibbles - 16, nibbles))


@pytest.fixture(scope="module")
def add() -> opwright.Engine:
    shape = ((1, 4), (2, 4), (64, 4))
    return opwright.build(
        onnx.parser.parse_model(SUM), shapes={"x": shape, "y": shape}, timing=False
    )


def test_arguments_by_position_and_by_name(add):
    x, y = np.ones((2, 4), np.float32), np.full((2, 4), 2, np.float32)
    for z in (add(x, y), add(x, y=y), add(y=y, x=x)):
        np.testing.assert_array_equal(z, np.full((2, 4), 3))


def test_results_are_fresh_arrays(add):
    x = np.ones((2, 4), np.float32)
    first = add(x, x)
    add(x * 5, x * 5)
    np.testing.assert_array_equal(first, np.full((2, 4), 2))


def test_views_and_lists(add):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(add(x.T, x), x.T + x)
    np.testing.assert_array_equal(add(x[::2], [[1, 2, 3, 4]] * 2), x[::2] + [[1, 2, 3, 4]] * 2)


def test_several_threads_at_once(add):
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            x = rng.random((int(rng.integers(1, 64)), 4), np.float32)
            if not np.array_equal(add(x, x), x + x):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_in_place_output_leaves_the_argument_alone():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17, "test_call" : 1]>
        net (float[3] x) => (float[3] y) { y = test_call.increment_ (x) }
    """)
    engine = opwright.build(model)
    x = np.array([1, 2, 3], np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(engine(x), [2, 3, 4])
        np.testing.assert_array_equal(x, [1, 2, 3])


def test_torch_tensors_come_back_as_torch_tensors(add):
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    z = add(x, x)
    assert isinstance(z, torch.Tensor)
    assert torch.equal(z, x + x)


def test_int4_arrays_are_packed_as_onnx_packs_them():
    values = np.array([-8, 7, 3, -1, 5], np.int8)
    network = opwright.Builder(opwright.Logger()).create_network()
    x = network.add_input("x", opwright.int4, values.shape)
    network.mark_output(network.add_plugin(trtp.op.test_call.unpack(x)).get_output(0))
    engine = opwright.build(network)
    assert np.array_equal(engine(values.astype(ml_dtypes.int4)), values)


def test_int4_results_are_refused():
    network = opwright.Builder(opwright.Logger()).create_network()
    x = network.add_input("x", opwright.int4, (4,))
    y = network.add_identity(x).get_output(0)
    y.name = "y"
    network.mark_output(y)
    engine = opwright.build(network)
    with pytest.raises(opwright.Error, match="output 'y' is INT4.*cast it to INT8"):
        engine(np.zeros(4, ml_dtypes.int4))
