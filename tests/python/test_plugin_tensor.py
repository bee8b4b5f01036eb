"""Tensor: the views that NumPy, DLPack and others get of a plugin's memory."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import opwright as trt
import opwright.plugin as trtp
from plugin_testing import build, new_id, one_plugin

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def inspect(function, x=X, aliased=False, autotune=None, **options):
    """Runs function(input tensor, output tensor) as the body of a plugin; the engine's result."""
    plugin_id = new_id("inspect")

    @trtp.register(plugin_id)
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.aliased() if aliased else x.like()

    @trtp.impl(plugin_id)
    def run(x, outputs, stream):
        assert stream == 0
        function(x, outputs[0])

    if autotune is not None:
        trtp.autotune(plugin_id)(lambda x, outputs: [autotune])
    net, layer = one_plugin(plugin_id, x)
    return build(net, layer.get_output(0), **options)(x)


def test_properties():
    def look(x, y):
        assert x.dtype == trt.float32 and x.format == trt.TensorFormat.LINEAR
        assert x.shape == (2, 3, 4) and x.strides == (12, 4, 1) and x.ndim == 3
        assert x.numel() == 24
        assert not x.is_aliased and x.get_aliased() is None and not x.is_data_dependent
        assert np.asarray(x).ctypes.data == x.data_ptr
        ctypes.memmove(y.data_ptr, x.data_ptr, X.nbytes)

    np.testing.assert_array_equal(inspect(look), X)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int64])
def test_views_share_memory_and_have_the_right_type(dtype):
    def look(x, y):
        for view in (np.asarray, np.from_dlpack, memoryview):
            assert np.asarray(view(x)).ctypes.data == x.data_ptr
            assert np.asarray(view(x)).dtype == dtype
        np.from_dlpack(y)[...] = np.asarray(x) + np.asarray(1, dtype)

    x = np.arange(6).astype(dtype)
    np.testing.assert_array_equal(inspect(look, x), x + dtype(1))


def test_array_interface():
    def look(x, y):
        interface = x.__array_interface__
        assert interface["shape"] == (2, 3, 4) and interface["typestr"] == "<f4"
        assert interface["data"] == (x.data_ptr, True)
        assert y.__array_interface__["data"] == (y.data_ptr, False)

        class Only:
            __array_interface__ = y.__array_interface__

        np.asarray(Only())[...] = np.asarray(x)

    np.testing.assert_array_equal(inspect(look), X)


def test_inputs_are_read_only():
    def look(x, y):
        for view in (np.asarray(x), np.from_dlpack(x)):
            assert not view.flags.writeable
            with pytest.raises(ValueError):
                view[...] = 0
        with pytest.raises((BufferError, TypeError)):
            (ctypes.c_float * 24).from_buffer(x)
        np.asarray(y)[...] = 1

    np.testing.assert_array_equal(inspect(look), np.ones_like(X))


def test_dlpack_capsules():
    def look(x, y):
        assert x.__dlpack_device__() == (1, 0)
        assert '"dltensor"' in repr(x.__dlpack__())
        assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(1, 0)))
        with pytest.raises(BufferError):
            x.__dlpack__(copy=True)
        np.asarray(y)[...] = 0

    inspect(look)


def test_bfloat16_through_dlpack_and_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    seen = []

    def look(x, y):
        if x.dtype == trt.bfloat16:
            view = np.asarray(x)
            assert view.dtype == ml_dtypes.bfloat16 and view.ctypes.data == x.data_ptr
            assert view.shape == X.shape
            with pytest.raises(BufferError, match="BF16"):
                memoryview(x)
            seen.append(True)
        np.copyto(np.asarray(y), np.asarray(x))

    combination = trtp.AutoTuneCombination("FP32|BF16, FP32|BF16")
    np.testing.assert_array_equal(inspect(look, autotune=combination, bf16=True), X)
    assert seen


def test_channels_last_strides():
    x = np.random.default_rng(0).random((1, 5, 4, 6), np.float32)
    seen = []

    def look(a, y):
        seen.append((a.format, a.strides))
        assert np.asarray(a).strides == tuple(4 * s for s in a.strides)
        np.copyto(np.asarray(y), 2 * np.asarray(a))

    combination = trtp.AutoTuneCombination("FP32, FP32", "HWC")
    np.testing.assert_array_equal(inspect(look, x, autotune=combination), 2 * x)
    assert (trt.TensorFormat.HWC, (120, 1, 30, 5)) in seen


def test_aliased_views_have_another_shape():
    def look(x, y):
        flat = y.aliased((24,))
        assert flat.shape == (24,) and flat.data_ptr == y.data_ptr and flat.is_aliased
        assert flat.get_aliased() is y
        assert y.aliased().shape == y.shape
        with pytest.raises(trt.Error, match="24 elements"):
            y.aliased((5, 5))
        np.asarray(flat)[...] = np.arange(24)[::-1]

    expected = np.arange(24)[::-1].reshape(X.shape)
    np.testing.assert_array_equal(inspect(look), expected)


def test_use_after_the_call_is_an_error():
    kept = []

    def look(x, y):
        kept.extend([x, y, y.aliased((24,))])
        np.asarray(y)[...] = 0

    inspect(look)
    for tensor in kept:
        for use in (
            lambda t: t.data_ptr,
            lambda t: t.__array_interface__,
            lambda t: t.__dlpack__(),
        ):
            with pytest.raises(trt.Error, match="used after its call"):
                use(tensor)
        with pytest.raises(BufferError, match="used after its call"):
            memoryview(tensor)


def test_tensors_can_be_dropped_on_other_threads():
    kept = []

    def look(x, y):
        kept.append(x)
        np.asarray(y)[...] = 0

    inspect(look)
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert not kept


def test_torch_views():
    torch = pytest.importorskip("torch")

    def look(x, y):
        assert torch.as_tensor(x).data_ptr() == x.data_ptr
        torch.from_dlpack(y).copy_(torch.as_tensor(x) * 2)

    np.testing.assert_array_equal(inspect(look), X * 2)
