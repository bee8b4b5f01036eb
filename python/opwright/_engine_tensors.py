"""Inputs and outputs of an engine, and its model's metadata, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, overload

from . import _core

Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Tensor:
    """An input or output of an engine."""

    name: str
    dtype: _core.DataType
    shape: tuple[int, ...]
    """The extents, -1 for those that vary."""
    dimension_names: tuple[str, ...]
    """The model's names of the extents; empty for unnamed ones."""
    range: Range | None
    """The smallest, typical and largest shape of an input in the first profile; None for an
    output."""
    values: Range | None
    """The smallest, typical and largest values of an input whose values decide shapes, else
    None."""

    @property
    def is_dynamic(self) -> bool:
        """Whether an extent varies."""
        return -1 in self.shape


def _tensor(engine: _core.ICudaEngine, name: str) -> Tensor:
    is_input = engine.get_tensor_mode(name) == _core.TensorIOMode.INPUT

    def ends(get: Any) -> Range:
        low, opt, high = (tuple(end) for end in get(name, 0))
        return low, opt, high

    decides = is_input and engine.is_shape_inference_io(name)
    return Tensor(
        name,
        engine.get_tensor_dtype(name),
        tuple(engine.get_tensor_shape(name)),
        tuple(engine._dimension_names(name)),
        ends(engine.get_tensor_profile_shape) if is_input else None,
        ends(engine.get_tensor_profile_values) if decides else None,
    )


class Tensors(Mapping[str, Tensor]):
    """The inputs or the outputs of an engine by their names, in the network's order.

    By position, ``tensors[0]`` is a name.
    """

    def __init__(self, engine: _core.ICudaEngine, mode: _core.TensorIOMode) -> None:
        self._engine = engine
        self._names = [name for name in engine if engine.get_tensor_mode(name) == mode]
        self._what = "input" if mode == _core.TensorIOMode.INPUT else "output"

    @overload
    def __getitem__(self, key: str) -> Tensor: ...
    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> list[str]: ...
    def __getitem__(self, key: str | int | slice) -> Tensor | str | list[str]:
        if isinstance(key, (int, slice)):
            return self._names[key]
        if key not in self._names:
            raise KeyError(f"the engine has no {self._what} {key!r}; it has {self._names}")
        return _tensor(self._engine, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __eq__(self, other: object) -> bool:
        """Whether the names are equal, in the same order."""
        if isinstance(other, (list, tuple)):
            return self._names == list(other)
        return isinstance(other, Tensors) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._what}s {self._engine._describe_ports(self._what == 'input')}>"


class ModelMetadata(dict[str, str]):
    """A model's metadata: a dict of its own entries, ONNX's ``metadata_props``."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        producer_name: str,
        producer_version: str,
        domain: str,
        description: str,
        version: int,
        graph_name: str,
        graph_description: str,
    ) -> None:
        super().__init__(properties)
        self.producer_name = producer_name
        self.producer_version = producer_version
        self.domain = domain
        self.description = description
        self.version = version
        self.graph_name = graph_name
        self.graph_description = graph_description
