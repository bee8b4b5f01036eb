"""Classes that programs for TensorRT derive from or refer to, without the features behind them.

There is no calibration: assigning a calibrator to ``IBuilderConfig.int8_calibrator`` raises
``Error``, which says what to do instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from .._plugins.classes import IVersionedInterface

__all__ = [
    "CalibrationAlgoType",
    "FallbackString",
    "IInt8Calibrator",
    "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2",
    "IInt8LegacyCalibrator",
    "IInt8MinMaxCalibrator",
    "NodeIndices",
]


class CalibrationAlgoType(IntEnum):
    """How TensorRT finds the ranges that INT8 elements cover."""

    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class IInt8Calibrator(IVersionedInterface):
    """Gives batches of inputs for finding ranges. Opwright never requests them."""

    _algorithm: CalibrationAlgoType

    def get_batch_size(self) -> int:
        """The number of samples in a batch."""
        raise NotImplementedError(f"class {type(self).__name__} must define get_batch_size(self)")

    def get_batch(self, names: Sequence[str]) -> Sequence[int] | None:
        """The addresses of the inputs with these names; None after the last batch."""
        raise NotImplementedError(f"class {type(self).__name__} must define get_batch(self, names)")

    def read_calibration_cache(self) -> Any:
        """The bytes that ``write_calibration_cache`` got; None if there are none."""
        return None

    def write_calibration_cache(self, cache: Any) -> None:
        """Keep the bytes for another build."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """How ranges are found."""
        return self._algorithm


class IInt8LegacyCalibrator(IInt8Calibrator):
    """The calibrator of TensorRT's first versions."""

    _algorithm = CalibrationAlgoType.LEGACY_CALIBRATION


class IInt8EntropyCalibrator(IInt8Calibrator):
    """The calibrator with ranges that lose the least information."""

    _algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """The entropy calibrator with a range for each tensor."""

    _algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION_2


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """The calibrator with ranges that hold all elements."""

    _algorithm = CalibrationAlgoType.MINMAX_CALIBRATION


class FallbackString(str):
    """A text, under the name of TensorRT's binding for texts in its structures."""


class NodeIndices(list[int]):
    """The numbers of nodes of a model. Methods here return lists."""
