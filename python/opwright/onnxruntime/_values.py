"""OrtValue: an array in the host's or a GPU's memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ._errors import InvalidArgument
from ._model import ELEMENT_TYPES, element_type_of, numpy_type, type_of


def to_dtype(element_type: Any) -> np.dtype[Any]:
    """The dtype of a NumPy type or of a number of onnx.TensorProto.DataType."""
    if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
        return numpy_type(f"tensor({ELEMENT_TYPES[int(element_type)]})")
    return np.dtype(element_type)


class GpuArray:
    """A dense array in GPU memory, of any type that NumPy has."""

    def __init__(
        self, address: int, shape: Sequence[int], dtype: Any, device_id: int = 0, owner: Any = None
    ) -> None:
        self.address, self.shape, self.dtype = int(address), tuple(shape), np.dtype(dtype)
        self.device_id, self._owner = device_id, owner

    @classmethod
    def of(cls, array: np.ndarray, device_id: int = 0) -> GpuArray:
        """A copy of an array."""
        dense = np.ascontiguousarray(array)
        memory = _core._to_device(dense.reshape(-1).view(np.uint8), device_id)
        return cls(memory.data_ptr, np.shape(array), dense.dtype, device_id, memory)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> np.ndarray:
        """A copy in the host's memory."""
        array = np.empty(self.shape, self.dtype)
        _core._copy_bytes(array.ctypes.data, self.address, self.nbytes, self.device_id)
        return array

    def write(self, array: np.ndarray | GpuArray) -> None:
        """Copies the elements of an array of the same type and shape."""
        if isinstance(array, GpuArray):
            source = array.address
        else:
            array = np.ascontiguousarray(array)
            source = array.ctypes.data
        _core._copy_bytes(self.address, source, self.nbytes, self.device_id)

    def for_engine(self) -> _core.DeviceArray:
        """The same memory as an array that engines take."""
        return _core._device_array_at(self.address, self.dtype, self.shape, self.device_id, self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)


class OrtValue:
    """A tensor on a device. Made by the functions that begin with ``ortvalue_from``."""

    def __init__(self, array: Any, device_type: str = "cpu", device_id: int = 0) -> None:
        self._array = array
        self._device, self._device_id = device_type, device_id

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """An OrtValue on the CPU of the array itself, or on a GPU ("cuda") of a copy."""
        array = np.asarray(numpy_obj)
        if is_gpu(device_type):
            return OrtValue(GpuArray.of(array, device_id), "cuda", device_id)
        return OrtValue(np.require(array, requirements="C"))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """An array of zeros of a NumPy type, or of a number of onnx.TensorProto.DataType."""
        array = np.zeros(tuple(shape), to_dtype(element_type))
        return OrtValue.ortvalue_from_numpy(array, device_type, device_id)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The array's bytes as elements of the type with this number in
        onnx.TensorProto.DataType."""
        return OrtValue(np.require(data, requirements="C").view(to_dtype(onnx_element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """An OrtValue over the memory of a DLPack array on the CPU."""
        array = np.from_dlpack(data)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> np.ndarray:
        """The elements in the host's memory, copied from a GPU."""
        return self._array.numpy() if self.device_name() != "cpu" else self._array

    def shape(self) -> list[int]:
        """The extents."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """ "tensor(float)" and the like."""
        return type_of(self._array.dtype)

    def element_type(self) -> int:
        """The type's number in onnx.TensorProto.DataType."""
        return element_type_of(self._array.dtype)

    def device_name(self) -> str:
        """ "cpu" or "cuda"."""
        return self._device.lower()

    def tensor_size_in_bytes(self) -> int:
        """Bytes of the elements."""
        return int(self._array.nbytes)

    def data_ptr(self) -> int:
        """The address of the first element."""
        array = self._array
        return int(array.address if isinstance(array, GpuArray) else array.ctypes.data)

    def has_value(self) -> bool:
        """True."""
        return True

    def is_tensor(self) -> bool:
        """True: there are no sequences."""
        return True

    def is_tensor_sequence(self) -> bool:
        """False."""
        return False

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def update_inplace(self, np_arr: np.ndarray | OrtValue) -> None:
        """Overwrites the elements with others of the same shape and type. The address stays.

        :param np_arr: an array of the host, or an OrtValue on any device.
        :raises InvalidArgument: for another shape or type.
        """
        array = array_of(np_arr)
        if array.dtype != self._array.dtype or list(array.shape) != self.shape():
            raise InvalidArgument(
                f"the OrtValue is {self.data_type()} of shape {self.shape()}; {type_of(array.dtype)} of "
                f"shape {list(array.shape)} was given"
            )
        copy_array(self._array, array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def _exported(self) -> Any:
        return self._array.for_engine() if isinstance(self._array, GpuArray) else self._array

    def __dlpack__(self, **options: Any) -> Any:
        return self._exported().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._exported().__dlpack_device__()


def is_gpu(device_type: str) -> bool:
    """Whether a device is a GPU.

    :raises InvalidArgument: for anything but "cpu", "cuda" and "gpu".
    """
    name = device_type.lower()
    if name not in ("cpu", "cuda", "gpu"):
        raise InvalidArgument(f"unsupported device type '{device_type}'; expected cpu or cuda")
    return name != "cpu"


def array_of(value: Any) -> Any:
    """The array of an OrtValue, or the value itself."""
    return value._array if isinstance(value, OrtValue) else value


def copy_array(into: np.ndarray | GpuArray, array: np.ndarray | GpuArray) -> None:
    """Copies elements between any two devices, of the same type and shape."""
    if isinstance(into, GpuArray):
        into.write(array)
    else:
        np.copyto(into, array.numpy() if isinstance(array, GpuArray) else array)


def to_value(result: Any) -> OrtValue:
    """An OrtValue of an engine's result."""
    if isinstance(result, OrtValue):
        return result
    if isinstance(result, _core.DeviceArray):
        result = GpuArray(result.data_ptr, result.shape, result.dtype, result.device_id, result)
    if isinstance(result, GpuArray):
        return OrtValue(result, "cuda", result.device_id)
    return OrtValue(np.asarray(result.cpu() if hasattr(result, "cpu") else result))
