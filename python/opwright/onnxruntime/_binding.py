"""IOBinding: arrays for inputs and outputs of a session."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _errors as errors
from ._model import element_type_of, type_of
from ._options import CPU, RunOptions
from ._values import GpuArray, OrtValue, array_of, is_gpu, to_dtype, to_value

if TYPE_CHECKING:
    from ._session import InferenceSession


class IOBinding:
    """Arrays for inputs and outputs of a session. Made by ``session.io_binding()``."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._fed: dict[str, Any] = {}
        self._wanted: dict[str, tuple[str, int, Any]] = {}
        self._results: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """An array in the host's memory."""
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
        """Memory at an address: dense elements of a NumPy type."""
        self._bind(name, _at(device_type, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """An OrtValue."""
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
        """Where an output goes: memory of the host or a GPU that the run makes, or that is at an
        address."""
        into = None
        if buffer_ptr is not None:
            if is_gpu(device_type):
                errors.not_here(
                    "an output at an address of a GPU",
                    "leave buffer_ptr out and take the OrtValue, or use an execution context's "
                    "set_tensor_address",
                )
            into = _at(device_type, element_type, shape or (), buffer_ptr)
        self._want(name, device_type, device_id, into)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An OrtValue that is written."""
        self._want(name, ortvalue.device_name(), 0, ortvalue)

    def _want(self, name: str, device_type: str, device_id: int, into: Any) -> None:
        if name not in self._session._outputs:
            raise errors.InvalidArgument(f"Invalid output name: {name}")
        self._wanted[name] = (device_type, device_id, into)

    def synchronize_inputs(self) -> None:
        """Without effect: runs wait for what they read."""

    def synchronize_outputs(self) -> None:
        """Without effect: a run has written its outputs when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """Those that are bound, in that order, after a run."""
        return [self._results[name] for name in self._wanted]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """They, in the host's memory."""
        return [np.array(value.numpy()) for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._fed.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._wanted.clear()
        self._results.clear()

    def _run(self, options: RunOptions | None) -> None:
        feed = dict(self._fed)
        on_gpu = self._session.get_providers()[0] != CPU
        if on_gpu and any(is_gpu(device) for device, _, _ in self._wanted.values()):
            # What an engine gives lies where its arguments do.
            for name, value in feed.items():
                if isinstance(array_of(value), np.ndarray):
                    feed[name] = GpuArray.of(array_of(value))
        results = self._session._call(list(self._wanted), feed, options) if self._wanted else []
        for name, result in zip(self._wanted, results):
            device_type, device_id, into = self._wanted[name]
            value = to_value(result)
            if into is None:
                if is_gpu(device_type) == (value.device_name() == "cpu"):
                    value = OrtValue.ortvalue_from_numpy(value.numpy(), device_type, device_id)
                self._results[name] = value
            elif isinstance(into, OrtValue):
                into.update_inplace(value.numpy())
                self._results[name] = into
            else:
                _check_buffer(name, into, value)
                np.copyto(into, value.numpy())
                self._results[name] = OrtValue(into)


def _check_buffer(name: str, into: np.ndarray, value: OrtValue) -> None:
    if into.dtype != to_dtype(value.element_type()) or list(into.shape) != value.shape():
        raise errors.InvalidArgument(
            f"output '{name}' is {value.data_type()} of shape {value.shape()}; memory for "
            f"{type_of(into.dtype)} of shape {list(into.shape)} is bound"
        )


def _at(device_type: str, element_type: Any, shape: Sequence[int], address: int) -> Any:
    dtype = to_dtype(element_type)
    element_type_of(dtype)  # one that models have
    if is_gpu(device_type):
        return GpuArray(address, shape, dtype)
    size = int(np.prod(tuple(shape), dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memoryview(memory), dtype).reshape(tuple(shape))
