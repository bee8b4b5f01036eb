"""The shape of a tensor that a plugin computes with."""

from __future__ import annotations

from math import prod


class TensorShape(tuple[int, ...]):
    """A tuple of extents that also has the methods of a descriptor's `Shape`."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return prod(self)

    @property
    def is_dynamic(self) -> bool:
        """False: the extents of memory are known."""
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
