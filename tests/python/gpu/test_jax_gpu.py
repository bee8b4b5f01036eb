"""Arrays of JAX on a GPU, by a stand-in for JAX: the emulated driver has no JAX of its own."""

from __future__ import annotations

import sys
import types

import numpy as np
import onnx.parser
import pytest

import opwright
from cuda_driver import DeviceArray


@pytest.fixture
def jax(monkeypatch):
    """A module `jax` with arrays that speak only DLPack, as JAX's do, and `jax.dlpack.from_dlpack`."""

    class Array:
        def __init__(self, held) -> None:
            self.held = held

        def __dlpack__(self, **options):
            return self.held.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.held.__dlpack_device__()

    Array.__module__ = "jaxlib._jax"

    def from_dlpack(producer) -> Array:
        # As JAX asks: for a capsule of the producer's device, in the version that it knows.
        assert producer.__dlpack_device__() == (2, 0)
        capsule = producer.__dlpack__(stream=1, max_version=(1, 0), dl_device=(2, 0), copy=None)
        assert "dltensor_versioned" in repr(capsule)
        return Array(producer)

    module, dlpack = types.ModuleType("jax"), types.ModuleType("jax.dlpack")
    module.dlpack, dlpack.from_dlpack, module.Array = dlpack, from_dlpack, Array
    monkeypatch.setitem(sys.modules, "jax", module)
    monkeypatch.setitem(sys.modules, "jax.dlpack", dlpack)
    return module


def on_gpu(array: np.ndarray):
    """Memory of the GPU that speaks DLPack: an engine's own."""
    held = DeviceArray(array)
    return opwright._core._device_array_at(held.ptr, array.dtype, array.shape, 0, held)


def test_arrays_of_jax_come_back_as_such(jax):
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[n, 4] x) => (float[n, 4] y, int64[m] k)
        { y = Relu(x)  all = Constant<value_ints = [-1]>()  f = Reshape(x, all)
          q = NonZero(f)  zero = Constant<value_int = 0>()  k = Gather<axis = 0>(q, zero) }""")
    engine = opwright.build(
        model, shapes={"x": ((1, 4), (2, 4), (8, 4))}, device="cuda", timing=False
    )
    x = np.float32([[1, -2, 0, 4], [0, 0, -7, 8]])
    results = engine(jax.Array(on_gpu(x)))
    assert all(type(array) is jax.Array for array in results.values())
    np.testing.assert_array_equal(results["y"].held.numpy(), np.maximum(x, 0))
    np.testing.assert_array_equal(results["k"].held.numpy(), np.flatnonzero(x))
    # And they are arguments again.
    again = engine(results["y"])["y"]
    np.testing.assert_array_equal(again.held.numpy(), np.maximum(x, 0))


def test_memory_of_results_speaks_dlpack():
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19]>
        net (float[2, 4] x) => (float[2, 4] y) { y = Relu(x) }""")
    engine = opwright.build(model, device="cuda", timing=False)
    result = engine(DeviceArray(np.ones((2, 4), np.float32)))
    assert type(result) is opwright.DeviceArray
    assert result.__dlpack_device__() == (2, result.device_id) == (2, 0)
    capsule = result.__dlpack__()
    assert "dltensor" in repr(capsule)
    with pytest.raises(BufferError):
        result.__dlpack__(copy=True)
    del capsule, result
