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
        assert y.torch().data_ptr() == y.data_ptr and y.torch().shape == y.shape
        torch.from_dlpack(y).copy_(torch.as_tensor(x))
        y.torch().add_(x.torch())

    np.testing.assert_array_equal(inspect(look), X * 2)


# Types, formats and consumers ------------------------------------------------------------------


def tensor_over(array, dtype, shape=None, *, format=trt.TensorFormat.LINEAR, scale=0.0, **options):
    """A Tensor over the bytes of an array, as a plugin class makes one."""
    desc = trt.PluginTensorDesc()
    desc.type, desc.format, desc.scale = dtype, format, scale
    desc.dims = array.shape if shape is None else shape
    return trtp.Tensor(desc, array.ctypes.data, **options)


@pytest.mark.parametrize(
    "dtype, name", [(trt.bfloat16, "bfloat16"), (trt.fp8, "float8_e4m3fn")], ids=str
)
def test_types_beyond_numpy_share_memory(dtype, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    data = np.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3)
    tensor = tensor_over(data, dtype)
    views = (np.asarray, torch.from_dlpack, torch.as_tensor, trtp.Tensor.torch)
    for view in (make(tensor) for make in views):
        assert str(view.dtype).removeprefix("torch.") == name and view.shape == (2, 3)
    assert np.asarray(tensor).ctypes.data == data.ctypes.data
    assert torch.from_dlpack(tensor).data_ptr() == data.ctypes.data
    np.asarray(tensor)[1, 2] = 8
    assert float(data[1, 2]) == 8 and float(torch.from_dlpack(tensor)[1, 2]) == 8
    assert np.asarray(tensor, dtype=np.float32).tolist() == [[0, 1, 2], [3, 4, 8]]
    with pytest.raises(ValueError):
        np.asarray(tensor_over(data, dtype, read_only=True))[0, 0] = 1
    assert not hasattr(tensor, "__array_interface__")


def test_types_beyond_numpy_channels_last():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    data = np.arange(24).astype(ml_dtypes.bfloat16)
    tensor = tensor_over(data, trt.bfloat16, (1, 3, 2, 4), format=trt.TensorFormat.HWC)
    expected = np.arange(24).reshape(1, 2, 4, 3).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(np.asarray(tensor).astype(int), expected)


def test_four_bit_elements_come_as_bytes_of_two():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    values = [[-8, 7, 1, -1], [0, 3, -2, 5]]
    packed = np.array([[0x78, 0xF1], [0x30, 0x5E]], np.uint8)
    tensor = tensor_over(packed, trt.int4, (2, 4))
    assert tensor.shape == (2, 4) and tensor.strides == (4, 1)
    for view in (np.asarray(tensor), torch.from_dlpack(tensor), tensor.torch()):
        assert view.tolist() == packed.tolist() and str(view.dtype).endswith("uint8")
    np.asarray(tensor)[0, 0] = 0x12
    assert packed[0, 0] == 0x12
    packed[0, 0] = 0x78
    elements = np.asarray(tensor, dtype=ml_dtypes.int4)
    assert elements.dtype == ml_dtypes.int4 and elements.astype(int).tolist() == values
    assert np.asarray(tensor, dtype=np.int8).tolist() == values
    odd = tensor_over(packed, trt.int4, (1, 3))
    assert np.asarray(odd).tolist() == [0x78, 0xF1]
    assert np.asarray(odd, dtype=ml_dtypes.int4).astype(int).tolist() == [values[0][:3]]
    with pytest.raises(ValueError, match="only a copy"):
        tensor.__array__(dtype=ml_dtypes.int4, copy=False)
    with pytest.raises(BufferError, match="INT4"):
        memoryview(tensor)


@pytest.mark.parametrize("use", [np.asarray, np.from_dlpack, memoryview, lambda t: t.strides])
def test_vectorized_formats_say_how_their_memory_lies(use):
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 2, 2)
    memory = np.full((1, 2, 2, 2, 4), -1, np.float32)
    for channel in range(6):
        memory[:, channel // 4, :, :, channel % 4] = x[:, channel]
    tensor = tensor_over(memory, trt.float32, x.shape, format=trt.TensorFormat.CHW4)
    message = r"CHW4.*t\.aliased\(\(1, 2, 2, 2, 4\)\), or list LINEAR for it in autotune"
    with pytest.raises((trt.Error, BufferError), match=message):
        use(tensor)
    whole = tensor.aliased((1, 2, 2, 2, 4))
    assert whole.format == trt.TensorFormat.LINEAR and whole.data_ptr == memory.ctypes.data
    np.testing.assert_array_equal(np.asarray(whole), memory)
    with pytest.raises(trt.Error, match="32 elements"):
        tensor.aliased((24,))


def test_aliased_takes_every_shape_that_fits():
    memory = np.arange(12, dtype=np.float32)
    tensor = tensor_over(memory, trt.float32, (3, 4))
    desc = trt.PluginTensorDesc()
    desc.dims = (2, 5)
    for shape in ((2, 5), [2, 5], trtp.Shape((2, 5)), trt.Dims((2, 5)), np.array([2, 5]), desc):
        view = tensor.aliased(shape)
        assert view.shape == (2, 5) and view.is_aliased and view.data_ptr == memory.ctypes.data
        np.testing.assert_array_equal(np.asarray(view), memory[:10].reshape(2, 5))
    assert tensor.aliased((12,)).numel() == 12 and tensor.aliased((0, 7)).numel() == 0
    assert tensor.aliased((2, 5)).aliased((3,)).strides == (1,)
    for shape in ((13,), (3, 5)):
        with pytest.raises(trt.Error, match="12 elements"):
            tensor.aliased(shape)
    with pytest.raises(trt.Error, match="not negative"):
        tensor.aliased((-1, -2))


def test_the_shape_of_a_tensor_is_a_tuple_with_a_number_of_elements():
    shape = tensor_over(np.zeros((3, 4), np.float32), trt.float32).shape
    assert isinstance(shape, tuple) and shape == (3, 4) and shape + (1,) == (3, 4, 1)
    assert shape.numel() == 12 and not shape.is_dynamic and shape.opt == shape.max == (3, 4)
    assert np.prod(shape) == 12 and np.empty(shape).shape == (3, 4)
    torch = pytest.importorskip("torch")
    assert torch.empty(shape).shape == (3, 4)


def test_channels_last_has_no_other_shape():
    memory = np.zeros((1, 2, 2, 6), np.float32)
    tensor = tensor_over(memory, trt.float32, (1, 6, 2, 2), format=trt.TensorFormat.HWC)
    with pytest.raises(trt.Error, match="HWC, which cannot be given another shape"):
        tensor.aliased((24,))


def test_scale():
    data = np.zeros(4, np.int8)
    assert tensor_over(data, trt.int8, scale=0.5).scale == 0.5
    assert tensor_over(data, trt.int8).scale == 1
    assert tensor_over(data, trt.int8, scale=0.5).aliased((2, 2)).scale == 0.5


def test_what_a_tensor_is_not():
    tensor = tensor_over(X, trt.float32)
    assert not hasattr(tensor, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="host's memory: it has __array_interface__"):
        tensor.__cuda_array_interface__  # noqa: B018
    with pytest.raises(TypeError):
        len(tensor)
    with pytest.raises(TypeError):
        tensor[0]


def test_dlpack_is_for_the_host():
    tensor = tensor_over(X, trt.float32)
    tensor.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match=r"device \(1, 0\)"):
        tensor.__dlpack__(dl_device=(2, 0))


def test_numba_functions():
    numba = pytest.importorskip("numba")

    @numba.njit
    def shift(x, y):
        for i in range(x.shape[0]):
            y[i] = x[i] + 1

    x = np.arange(6, dtype=np.float32)
    result = inspect(lambda x, y: shift(np.asarray(x), np.asarray(y)), x)
    np.testing.assert_array_equal(result, x + 1)
    with pytest.raises(numba.TypingError, match="[Rr]ead-?only"):
        inspect(lambda x, y: shift(np.asarray(y), np.asarray(x)), x)


def test_torch_and_read_only_inputs():
    """As torch does it: its own arrays know no protection, so it warns where NumPy's would be lost."""
    torch = pytest.importorskip("torch")

    def look(x, y):
        torch.set_warn_always(True)  # rather than once in a process
        try:
            with pytest.warns(UserWarning, match="not writable"):
                assert torch.asarray(memoryview(x)).data_ptr() == x.data_ptr
        finally:
            torch.set_warn_always(False)
        torch.from_dlpack(y).copy_(torch.from_dlpack(x))

    np.testing.assert_array_equal(inspect(look), X)
