"""OrtValue: an array in the host's or a GPU's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _core
from ._errors import InvalidArgument, not_here
from ._model import ELEMENT_TYPES, element_type_of, numpy_type, type_of


def to_dtype(element_type: Any) -> np.dtype[Any]:
    """Of a NumPy type, or of a number of onnx.TensorProto.DataType."""
    if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
        return numpy_type(f"tensor({ELEMENT_TYPES[int(element_type)]})")
    return np.dtype(element_type)


class GpuArray:
    """A dense array in GPU memory, as __cuda_array_interface__ has it."""

    def __init__(self, address: int, shape: Sequence[int], dtype: Any, owner: Any = None) -> None:
        self.shape, self.dtype, self.address = tuple(shape), np.dtype(dtype), address
        self._owner = owner

    @classmethod
    def of(cls, array: np.ndarray) -> GpuArray:
        """A copy of an array."""
        dense = np.ascontiguousarray(array)
        memory = _core._to_device(dense.reshape(-1).view(np.uint8))
        return cls(memory.data_ptr, np.shape(array), dense.dtype, memory)

    def numpy(self) -> np.ndarray:
        """A copy in the host's memory; of memory that this object owns."""
        if not hasattr(self._owner, "numpy"):
            not_here(
                "reading GPU memory of another library",
                "read it with that library, or bind the output without buffer_ptr",
            )
        return np.asarray(self._owner.numpy()).view(self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }


class OrtValue:
    """A tensor on a device. Made by the functions that begin with ``ortvalue_from``."""

    def __init__(self, array: Any, device_type: str = "cpu", device_id: int = 0) -> None:
        self._array = array
        self._device, self._device_id = device_type, device_id

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """On the CPU the array itself, on a GPU ("cuda") a copy."""
        array = np.asarray(numpy_obj)
        if _is_gpu(device_type):
            return OrtValue(GpuArray.of(array), device_type, device_id)
        return OrtValue(np.require(array, requirements="C"), "cpu", device_id)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """An array of zeros of a NumPy type, or of a number of onnx.TensorProto.DataType."""
        array = np.zeros(tuple(shape), to_dtype(element_type))
        return OrtValue.ortvalue_from_numpy(array, device_type, device_id)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The array's bytes as a number of onnx.TensorProto.DataType says."""
        return OrtValue(np.require(data, requirements="C").view(to_dtype(onnx_element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """The memory of an array that speaks DLPack and lies on the CPU."""
        array = np.from_dlpack(data)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> np.ndarray:
        """The elements in the host's memory; of a GPU a copy."""
        return self._array.numpy() if self.device_name() != "cpu" else self._array

    def shape(self) -> list[int]:
        """The extents."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """ "tensor(float)" and the like."""
        return type_of(self._array.dtype)

    def element_type(self) -> int:
        """The number of onnx.TensorProto.DataType."""
        return element_type_of(self._array.dtype)

    def device_name(self) -> str:
        """ "cpu" or "cuda"."""
        return self._device.lower()

    def tensor_size_in_bytes(self) -> int:
        """Bytes of the elements."""
        return (
            int(np.prod(self._array.shape, dtype=np.int64)) * np.dtype(self._array.dtype).itemsize
        )

    def data_ptr(self) -> int:
        """The address of the first element."""
        if isinstance(self._array, np.ndarray):
            return int(self._array.ctypes.data)
        return int(getattr(self._array, "address", None) or self._array.data_ptr)

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

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Writes other elements of the same shape and type.

        :raises InvalidArgument: for another shape or type.
        """
        if np_arr.dtype != self._array.dtype or list(np_arr.shape) != self.shape():
            raise InvalidArgument(
                f"the OrtValue is {self.data_type()} of shape {self.shape()}; {type_of(np_arr.dtype)} of "
                f"shape {list(np_arr.shape)} was given"
            )
        if isinstance(self._array, np.ndarray):
            np.copyto(self._array, np_arr)
        else:
            self._array = GpuArray.of(np_arr)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.numpy().__dlpack_device__()


def _is_gpu(device_type: str) -> bool:
    name = device_type.lower()
    if name not in ("cpu", "cuda", "gpu"):
        raise InvalidArgument(f"unsupported device type '{device_type}'; expected cpu or cuda")
    return name != "cpu"


def is_gpu(device_type: str) -> bool:
    """Whether a device is a GPU.

    :raises InvalidArgument: for something else than "cpu" and "cuda".
    """
    return _is_gpu(device_type)


def array_of(value: Any) -> Any:
    """What an engine takes of what a feed has."""
    return value._array if isinstance(value, OrtValue) else value


def to_value(result: Any) -> OrtValue:
    """What an engine gave."""
    if isinstance(result, OrtValue):
        return result
    if isinstance(result, np.ndarray):
        return OrtValue(result)
    return OrtValue(result, "cuda")
