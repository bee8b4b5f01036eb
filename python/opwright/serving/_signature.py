"""Inputs and outputs of an engine in the protocol's terms, and checks of requests against them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from ..sharding import ShardedEngine


class BadRequestError(ValueError):
    """A request that cannot be served. The text says why."""


# Names of types in the protocol and in NumPy. NumPy has BF16 if ml_dtypes is installed.
_TYPES = {
    _core.DataType.BOOL: ("BOOL", "bool"),
    _core.DataType.UINT8: ("UINT8", "uint8"),
    _core.DataType.INT8: ("INT8", "int8"),
    _core.DataType.INT32: ("INT32", "int32"),
    _core.DataType.INT64: ("INT64", "int64"),
    _core.DataType.HALF: ("FP16", "float16"),
    _core.DataType.BF16: ("BF16", "bfloat16"),
    _core.DataType.FLOAT: ("FP32", "float32"),
}

ShapeRange = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class TensorSpec:
    """An input or an output: its type by the protocol's name, and its shape, with -1 for extents
    that vary."""

    name: str
    datatype: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numpy_type(self) -> np.dtype[Any]:
        if self.dtype == "bfloat16":
            import ml_dtypes  # NumPy has no such type of its own

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.dtype)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs, and the smallest and largest shape of each input in each profile."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    profiles: tuple[Mapping[str, ShapeRange], ...]

    @classmethod
    def of(cls, engine: _core.Engine | ShardedEngine) -> Signature:
        """The signature of an engine.

        :raises Error: the protocol has no type for a tensor of the engine.
        """
        native = engine.engine
        profiles = []
        for number in range(native.num_optimization_profiles):
            ranges = {}
            for name in engine.inputs:
                low, _, high = native.get_tensor_profile_shape(name, number)
                ranges[name] = (tuple(low), tuple(high))
            profiles.append(ranges)
        return cls(
            tuple(_spec(native, name) for name in engine.inputs),
            tuple(_spec(native, name) for name in engine.outputs),
            tuple(profiles),
        )

    @property
    def max_bytes(self) -> int:
        """Bytes of all inputs of the largest request that any profile takes."""
        sizes = {spec.name: spec.numpy_type.itemsize for spec in self.inputs}
        return max(
            sum(sizes[name] * math.prod(high) for name, (_, high) in profile.items())
            for profile in self.profiles
        )

    @property
    def max_elements(self) -> int:
        """Elements of all inputs of the largest request that any profile takes."""
        return max(
            sum(math.prod(high) for _, high in profile.values()) for profile in self.profiles
        )

    def input(self, name: object) -> TensorSpec:
        return _find(self.inputs, name, "input")

    def output(self, name: object) -> TensorSpec:
        return _find(self.outputs, name, "output")

    def fits(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether one profile takes all these shapes."""
        return any(
            all(_within(shapes[name], bounds) for name, bounds in profile.items())
            for profile in self.profiles
        )

    def max_batch(self, shapes: Mapping[str, Sequence[int]]) -> int:
        """The most rows (the first extent of every input) that a profile takes with these other
        extents; 0 if none does."""
        rows = 0
        for profile in self.profiles:
            if all(
                len(shapes[name]) == len(high)
                and all(a <= b <= c for a, b, c in zip(low[1:], shapes[name][1:], high[1:]))
                for name, (low, high) in profile.items()
            ):
                rows = max(rows, min(high[0] for _, high in profile.values()))
        return rows

    def check(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Checks the arrays of a request.

        :raises BadRequestError: the engine does not take them.
        """
        missing = [spec.name for spec in self.inputs if spec.name not in arrays]
        if missing:
            raise BadRequestError(
                f"the request lacks the inputs {missing}; it needs {[s.name for s in self.inputs]}"
            )
        shapes = {name: array.shape for name, array in arrays.items()}
        if not self.fits(shapes):
            wanted = "; or ".join(
                ", ".join(f"'{name}' {_range_text(bounds)}" for name, bounds in profile.items())
                for profile in self.profiles
            )
            given = ", ".join(f"'{name}' {list(shape)}" for name, shape in shapes.items())
            raise BadRequestError(f"the model takes no inputs of shapes {given}; it takes {wanted}")


def _spec(native: _core.ICudaEngine, name: str) -> TensorSpec:
    dtype = native.get_tensor_dtype(name)
    if dtype not in _TYPES:
        raise _core.Error(
            f"tensor '{name}' is of type {dtype.name}, which the KServe protocol does not have; "
            "convert it in the network (ICastLayer)"
        )
    spec = TensorSpec(name, *_TYPES[dtype], tuple(native.get_tensor_shape(name)))
    try:
        spec.numpy_type  # noqa: B018
    except ImportError:
        raise _core.Error(
            f"tensor '{name}' is of type BF16, which NumPy has only with ml_dtypes: "
            "pip install ml_dtypes"
        ) from None
    return spec


def _find(specs: Sequence[TensorSpec], name: object, kind: str) -> TensorSpec:
    for spec in specs:
        if spec.name == name:
            return spec
    raise BadRequestError(
        f"the model has no {kind} {str(name)[:100]!r}; it has {[spec.name for spec in specs]}"
    )


def _within(shape: Sequence[int], bounds: ShapeRange) -> bool:
    low, high = bounds
    return len(shape) == len(low) and all(a <= b <= c for a, b, c in zip(low, shape, high))


def _range_text(bounds: ShapeRange) -> str:
    low, high = bounds
    return str([a if a == b else f"{a}..{b}" for a, b in zip(low, high)]).replace("'", "")
