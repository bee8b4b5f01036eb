"""IOBinding: arrays for inputs and outputs of a session."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _errors as errors
from ._model import element_type_of
from ._options import CPU, RunOptions
from ._values import GpuArray, OrtValue, array_of, copy_array, is_gpu, to_dtype, to_value

if TYPE_CHECKING:
    from ._session import InferenceSession


class IOBinding:
    """Arrays for inputs and outputs of a session. Made by ``session.io_binding()``."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._fed: dict[str, Any] = {}
        self._wanted: dict[str, tuple[bool, int, OrtValue | None]] = {}
        self._results: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Binds an array in the host's memory."""
        self._bind(name, np.asarray(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds memory at an address: dense elements of a NumPy type, or of a number of
        onnx.TensorProto.DataType. On a GPU, writes to it must be complete when the session runs.

        :raises InvalidArgument: the model has no such input, or there is no memory at 0.
        """
        self._bind(name, _at(device_type, device_id, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an OrtValue."""
        self._bind(name, ortvalue)

    def _bind(self, name: str, value: Any) -> None:
        if name not in self._session._inputs:
            raise errors.InvalidArgument(f"Invalid input name: {name}")
        self._fed[name] = value

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Sets the place of an output: memory of the host or a GPU that the run allocates, or
        memory at an address.

        :raises ValueError: an address without a type or a shape.
        :raises InvalidArgument: the model has no such output, or there is no memory at 0.
        """
        into = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise ValueError(
                    "`element_type` and `shape` are to be provided if pre-allocated memory is provided"
                )
            into = to_value(_at(device_type, device_id, element_type, shape, buffer_ptr))
        self._want(name, is_gpu(device_type), device_id, into)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an OrtValue that the run writes."""
        self._want(name, is_gpu(ortvalue.device_name()), 0, ortvalue)

    def _want(self, name: str, on_gpu: bool, device_id: int, into: OrtValue | None) -> None:
        if name not in self._session._outputs:
            raise errors.InvalidArgument(f"Invalid output name: {name}")
        self._wanted[name] = (on_gpu, device_id, into)

    def synchronize_inputs(self) -> None:
        """Without effect: runs wait for their inputs."""

    def synchronize_outputs(self) -> None:
        """Without effect: a run has written its outputs when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs after a run, in the order of binding."""
        return [self._results[name] for name in self._wanted]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same as `get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """The bound outputs, copied to the host's memory."""
        return [np.array(value.numpy()) for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._fed.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._wanted.clear()
        self._results.clear()

    def _run(self, options: RunOptions | None) -> None:
        # The engine itself writes into memory of its GPU.
        into: dict[str, GpuArray] | None = None
        on_gpu = self._session.get_providers()[0] != CPU
        if on_gpu and any(wanted_there for wanted_there, _, _ in self._wanted.values()):
            arrays = {name: array_of(value) for name, (_, _, value) in self._wanted.items()}
            into = {name: each for name, each in arrays.items() if isinstance(each, GpuArray)}
        wanted = list(self._wanted)
        results = self._session._call(wanted, self._fed, options, into) if wanted else []
        for name, result in zip(wanted, results):
            wanted_there, device_id, bound = self._wanted[name]
            value = to_value(result)
            if bound is not None:
                _check_buffer(name, bound, value)
                if bound.data_ptr() != value.data_ptr():
                    copy_array(array_of(bound), array_of(value))
                value = bound
            elif wanted_there != (value.device_name() != "cpu"):
                device = "cuda" if wanted_there else "cpu"
                value = OrtValue.ortvalue_from_numpy(value.numpy(), device, device_id)
            self._results[name] = value


def _check_buffer(name: str, bound: OrtValue, value: OrtValue) -> None:
    if bound.data_type() != value.data_type() or bound.shape() != value.shape():
        raise errors.InvalidArgument(
            f"output '{name}' is {value.data_type()} of shape {value.shape()}; memory for "
            f"{bound.data_type()} of shape {bound.shape()} is bound"
        )


def _at(
    device_type: str, device_id: int, element_type: Any, shape: Sequence[int], address: int
) -> Any:
    dtype = to_dtype(element_type)
    element_type_of(dtype)  # checks that models have the type
    extents = tuple(int(extent) for extent in shape)
    size = math.prod(extents) * dtype.itemsize
    if min(extents, default=0) < 0 or size >= 1 << 63:
        raise errors.InvalidArgument(f"shape {list(extents)}: no memory is of that size")
    if address == 0 and size > 0:
        raise errors.InvalidArgument(f"buffer_ptr is 0; expected the address of {size} bytes")
    if is_gpu(device_type):
        return GpuArray(address, extents, dtype, device_id)
    if size == 0:
        return np.empty(extents, dtype)
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memoryview(memory), dtype).reshape(extents)
