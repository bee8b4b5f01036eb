"""Comparison of results."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._core import DataType

Arrays = list[np.ndarray]

# Tolerances relative to the largest element, for the lowest type that takes part. Other types are
# exact.
_TOLERANCES = {DataType.FLOAT: 1e-5, DataType.HALF: 5e-3, DataType.BF16: 4e-2, DataType.FP8: 0.3}


def tolerance(types: Iterable[DataType]) -> float:
    """The tolerance of the lowest of these types."""
    return max((_TOLERANCES[t] for t in types if t in _TOLERANCES), default=0.0)


def same(a: Arrays, b: Arrays) -> bool:
    """Whether arrays have the same shapes and bits."""
    return all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b))


def has_integers(x: np.ndarray) -> bool:
    """Whether the elements may be indices, which would be wrong with other values or shapes."""
    return x.dtype.kind in "iu"


def first_of(mask: np.ndarray) -> str:
    """The index of the first True of a mask, as text."""
    return str([int(i) for i in np.argwhere(mask)[0]])


def difference(got: Arrays, expected: Arrays, rtol: float) -> str:
    """The first difference beyond the tolerance, as text; empty if there is none."""
    for o, (y, e) in enumerate(zip(got, expected)):
        if y.shape != e.shape:
            return f"output {o} has the shape {list(y.shape)} instead of {list(e.shape)}"
        inexact = y.dtype.kind not in "iub"
        a, b = (v.astype(np.float64) if inexact else v for v in (y, e))
        if inexact:
            finite = np.abs(b[np.isfinite(b)])
            limit = rtol * finite.max() if finite.size else 0.0
            with np.errstate(invalid="ignore"):
                is_wrong = ~((np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b)))
        else:
            is_wrong = a != b
        if is_wrong.any():
            count, at = int(is_wrong.sum()), tuple(np.argwhere(is_wrong)[0])
            within = f", tolerance {limit:.3g}" if inexact else ""
            return (
                f"output {o} differs in {count} of {a.size} elements: at {first_of(is_wrong)} it "
                f"is {a[at]:.6g} instead of {b[at]:.6g}{within}"
            )
    return ""


def element_bytes(x: np.ndarray) -> np.ndarray:
    """[elements, bytes of each]"""
    return np.frombuffer(x.tobytes(), np.uint8).reshape(x.size, x.dtype.itemsize)
