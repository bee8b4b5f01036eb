"""Memory between guard bytes, on any device, and the layout of tensors in each format."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import _core
from .._core import DataType, DeviceType, TensorFormat

GUARD = 4096
ALIGNMENT = 64

_F = TensorFormat
# Whether channels come last, and the multiple that they are padded to.
_LAYOUTS = {
    _F.CHW2: (False, 2),
    _F.CHW4: (False, 4),
    _F.CHW16: (False, 16),
    _F.CHW32: (False, 32),
    _F.CDHW32: (False, 32),
    _F.HWC: (True, 1),
    _F.HWC8: (True, 8),
    _F.HWC16: (True, 16),
    _F.DHWC: (True, 1),
    _F.DHWC8: (True, 8),
}


class PaddedMemory:
    """`size` bytes of the value `inside` between guard bytes of the value `outside`.

    For a GPU they are filled on the host and copied to the device when the address is first read.
    """

    def __init__(self, size: int, inside: int, outside: int, device: DeviceType = DeviceType.CPU):
        raw = np.full(size + 2 * GUARD + ALIGNMENT, outside, np.uint8)
        is_host = device == DeviceType.CPU
        start = GUARD + (-(raw.ctypes.data + GUARD) % ALIGNMENT if is_host else 0)
        self._raw, self._start, self._size, self._outside = raw, start, size, outside
        self._is_host = is_host
        self._placed: _core.DeviceArray | None = None
        self.body[...] = inside

    @property
    def body(self) -> np.ndarray:
        """The host's copy of the bytes between the guards."""
        return self._raw[self._start : self._start + self._size]

    @property
    def address(self) -> int:
        """The address of `body` on the device."""
        if self._is_host:
            return self._raw.ctypes.data + self._start
        if self._placed is None:
            self._placed = _core._to_device(self._raw)
        return self._placed.data_ptr + self._start

    def fetch(self) -> None:
        """Copies the device's memory to the host, once the device has done its work."""
        if self._placed is not None:
            self._raw = self._placed.numpy()

    def damage(self) -> str:
        """A description of writes to the guard bytes; empty if there were none."""
        changed = np.flatnonzero(self._raw != self._outside) - self._start
        before, behind = changed[changed < 0], changed[changed >= self._size]
        parts = []
        if before.size:
            parts.append(f"{before.size} bytes before its start, from byte {before[0]} on")
        if behind.size:
            parts.append(
                f"{behind.size} bytes behind its end, from byte {behind[0]} of {self._size} on"
            )
        return " and ".join(parts)


def bytes_of(shape: Sequence[int], dtype: DataType, format: TensorFormat) -> int:
    """The bytes of a tensor with padding; 0 if an extent is not known."""
    extents = list(shape)
    _, block = _LAYOUTS.get(format, (False, 1))
    if block > 1:
        extents[1] = -(-extents[1] // block) * block
    return 0 if any(e < 0 for e in extents) else math.ceil(math.prod(extents) * dtype.itemsize)


def can_store(format: TensorFormat) -> bool:
    """Whether `stored` and `loaded` know the format."""
    return format == _F.LINEAR or format in _LAYOUTS


def stored(x: np.ndarray, format: TensorFormat) -> np.ndarray:
    """The tensor in the layout of its format, with zeros as padding of channels."""
    if format == _F.LINEAR:
        return np.array(x, order="C")
    last, block = _LAYOUTS[format]
    channels = -(-x.shape[1] // block) * block
    padded = np.zeros((x.shape[0], channels, *x.shape[2:]), x.dtype)
    padded[:, : x.shape[1]] = x
    if last:
        return np.ascontiguousarray(np.moveaxis(padded, 1, -1))
    blocks = padded.reshape(x.shape[0], channels // block, block, *x.shape[2:])
    return np.ascontiguousarray(np.moveaxis(blocks, 2, -1))


def loaded(
    memory: np.ndarray, dtype: np.dtype, format: TensorFormat, shape: Sequence[int]
) -> np.ndarray:
    """A copy of the tensor that `stored` put into these bytes."""
    like = stored(np.empty(tuple(shape), np.int8), format)
    values = memory[: like.size * dtype.itemsize].view(dtype).reshape(like.shape)
    if format == _F.LINEAR:
        return values.copy()
    last, _ = _LAYOUTS[format]
    if last:
        return np.moveaxis(values, -1, 1)[:, : shape[1]].copy()
    blocks = np.moveaxis(values, -1, 2)
    return blocks.reshape(shape[0], -1, *shape[2:])[:, : shape[1]].copy()
