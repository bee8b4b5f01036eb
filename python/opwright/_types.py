"""TensorRT's names for data types, and two helpers of its Python package."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ._core import DataType

float32 = DataType.FLOAT
float16 = DataType.HALF
bfloat16 = DataType.BF16
int8 = DataType.INT8
uint8 = DataType.UINT8
int32 = DataType.INT32
int64 = DataType.INT64
bool = DataType.BOOL
fp8 = DataType.FP8
int4 = DataType.INT4
fp4 = DataType.FP4
e8m0 = DataType.E8M0

_NUMPY = {
    DataType.FLOAT: np.float32,
    DataType.HALF: np.float16,
    DataType.INT8: np.int8,
    DataType.UINT8: np.uint8,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.BOOL: np.bool_,
}
_ML_DTYPES = {
    DataType.BF16: "bfloat16",
    DataType.FP8: "float8_e4m3fn",
    DataType.E8M0: "float8_e8m0fnu",
    DataType.INT4: "int4",
}


def nptype(dtype: DataType) -> Any:
    """The NumPy scalar type for a data type; from ml_dtypes if NumPy itself has none.

    :param dtype: such as `opwright.bfloat16`.
    :raises TypeError: neither has such a type.
    """
    if dtype in _NUMPY:
        return _NUMPY[dtype]
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"NumPy has no type for {dtype}: install ml_dtypes") from None
        return getattr(ml_dtypes, _ML_DTYPES[dtype])
    raise TypeError(f"NumPy has no type for {dtype}")


def volume(shape: Iterable[int]) -> int:
    """The number of elements of a tensor.

    :param shape: its extents.
    """
    return math.prod(shape)
