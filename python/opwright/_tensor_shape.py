"""The shape of a tensor that a plugin computes with."""

from __future__ import annotations

from math import prod


class TensorShape(tuple[int, ...]):
    """A tuple of extents, which has what the `Shape` of a descriptor has, too."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return prod(self)

    @property
    def is_dynamic(self) -> bool:
        """False: memory has an extent."""
        return False

    @property
    def min(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self)

    @property
    def opt(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self)

    @property
    def max(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self)
