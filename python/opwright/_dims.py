"""Shapes of fixed rank with TensorRT's names. A tuple may replace each of them."""

from __future__ import annotations

from collections.abc import Iterable

from ._core import Dims

__all__ = ["Dims2", "Dims3", "Dims4", "DimsHW", "Permutation"]


class _FixedDims(Dims):
    """A fixed number of extents."""

    _rank: int

    def __init__(self, *extents: int | Iterable[int]):
        """Takes the extents, or one sequence of them; zeros by default."""
        given = extents or (0,) * self._rank
        if len(given) == 1 and not isinstance(given[0], int):
            given = tuple(given[0])
        if len(given) != self._rank:
            raise ValueError(
                f"{type(self).__name__} has {self._rank} extents; {len(given)} came: {given}"
            )
        super().__init__(given)


class Dims2(_FixedDims):
    """Two extents: ``Dims2(a, b)`` or ``Dims2((a, b))``."""

    _rank = 2


class DimsHW(Dims2):
    """Height and width."""

    @property
    def h(self) -> int:
        """The height."""
        return self[0]

    @h.setter
    def h(self, extent: int) -> None:
        self[0] = extent

    @property
    def w(self) -> int:
        """The width."""
        return self[1]

    @w.setter
    def w(self, extent: int) -> None:
        self[1] = extent


class Dims3(_FixedDims):
    """Three extents."""

    _rank = 3


class Dims4(_FixedDims):
    """Four extents."""

    _rank = 4


class Permutation(list[int]):
    """A reordering of axes: axis i of the result is axis ``permutation[i]``. A list or tuple does
    as well."""
