"""What is checked: a plugin that is called, or whose kernel runs, under the eyes of the checks."""

from __future__ import annotations

import abc
import contextlib
import ctypes
import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core
from ._check_compare import Arrays
from ._check_memory import bytes_of
from ._core import DataType, DeviceType, TensorFormat
from ._types import nptype

# What memory holds before a run, as two values of a byte: what depends on it differs between them.
PATTERNS = (0x5A, 0xA5)

_DATA_TYPES = (
    DataType.FLOAT,
    DataType.HALF,
    DataType.INT8,
    DataType.UINT8,
    DataType.INT32,
    DataType.INT64,
    DataType.BOOL,
    DataType.BF16,
    DataType.FP8,
)


def data_type(dtype: np.dtype) -> DataType:
    """The engine's type of an array's."""
    for candidate in _DATA_TYPES:
        try:
            if np.dtype(nptype(candidate)) == dtype:
                return candidate
        except TypeError:
            continue  # ml_dtypes is not installed
    raise TypeError(f"no tensor of a network has the type {dtype}: convert the example's input")


@dataclass(frozen=True)
class Combination:
    """Types and formats of inputs and outputs, and a tactic (0: none)."""

    types: tuple[DataType, ...]
    formats: tuple[TensorFormat, ...]
    tactic: int

    def __str__(self) -> str:
        ports = (
            f"{t.name} {f.name}" if f != TensorFormat.LINEAR else t.name
            for t, f in zip(self.types, self.formats)
        )
        return ", ".join(ports) + (f", tactic {self.tactic}" if self.tactic else "")


@dataclass
class Example:
    """Inputs and attributes to check a plugin with."""

    inputs: list[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    rtol: float | None = None
    shape_inputs: list[np.ndarray] = field(default_factory=list)
    """Of a class: the second list of ``add_plugin_v3``."""
    is_made: bool = False

    def __str__(self) -> str:
        arrays = [*self.inputs, *self.shape_inputs]
        shown = ("None" if x is None else f"{x.dtype}{list(x.shape)}" for x in arrays)
        inputs = ", ".join(shown)
        values = ", ".join(f"{k}={' '.join(repr(v).split())}" for k, v in self.attributes.items())
        return inputs + (f"; {values}" if values else "")


class Watch:
    """What the plugin of one engine is to do, and what it saw in its last call."""

    def __init__(
        self,
        chosen: Combination | None = None,
        pretends: bool = False,
        clones: bool = True,
    ):
        self.chosen = chosen
        """The one combination in which it is to run; None: all."""
        self.pretends = pretends
        """Whether calls are noted only."""
        self.clones = clones
        """Whether the engine works with clones; False: with the object that was made."""
        self.seen: dict[Combination, None] = {}
        self.combination: Combination | None = None
        self.addresses: list[int] = []
        self.shapes: list[tuple[int, ...]] = []
        self.stored: dict[str, bytes] = {}
        """What an engine stores of a plugin that is a class; `part` is what ran last of it."""
        self.part: Any = None
        self.not_cloned = self.changed = ""
        """What was seen of a clone, and of the attributes after a call, that must not be."""
        self.aliased: dict[int, int] = {}
        """The input of each output that is aliased to one."""
        self.workspace = 0
        """Bytes that it asked for."""
        self.scratch = self.outside = PATTERNS[0]
        """The value of each byte of the workspace, and of those around it."""
        self.damage = ""
        """Of the bytes around the workspace, as text."""
        self.device = DeviceType.CPU
        """Where the engine runs."""
        self.barrier: threading.Barrier | None = None
        """Where set, calls wait for each other."""

    def set_to_zero(
        self,
        outputs: Iterable[tuple[Sequence[int], DataType, TensorFormat, int]],
        stream: int,
    ) -> None:
        """Where a call is noted only: sets each (shape, type, format, address) to 0. The engine
        looks whether outputs are written, and at the values of size tensors."""
        for shape, dtype, format, address in outputs:
            size = bytes_of(shape, dtype, format)
            if size > 0 and self.device == DeviceType.CPU:
                ctypes.memset(address, 0, size)
            elif size > 0:
                _core._set_to_zero(address, size, stream)

    def saw(
        self,
        ports: Sequence[tuple[DataType, TensorFormat]],
        tactic: int,
        addresses: Sequence[int] = (),
        shapes: Sequence[Sequence[int]] = (),
    ) -> None:
        """Notes a call with these inputs and outputs."""
        types, formats = zip(*ports)
        self.combination = Combination(types, formats, tactic)
        self.seen[self.combination] = None
        self.addresses = list(addresses)
        self.shapes = [tuple(shape) for shape in shapes]

    def meet(self) -> None:
        """Waits for a call in another thread."""
        barrier = self.barrier
        if barrier is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(5)


@dataclass
class Call:
    """An example as the plugin takes it."""

    arrays: list[np.ndarray]
    """Of the inputs that are there."""
    names: list[str]
    """What the user calls each of them."""
    fields: Any
    """What the engine stores for the attributes."""
    slots: list[int | None]
    """For each tensor that the plugin's functions get, its place among the arrays; None: absent."""
    shape_inputs: frozenset[int] = frozenset()
    """Places of the arrays whose values decide shapes."""

    @property
    def ports(self) -> list[int]:
        """Places of the arrays that have part in combinations."""
        return [slot for slot in self.slots if slot is not None]

    def with_arrays(self, arrays: list[np.ndarray]) -> Call:
        """The same with other arrays."""
        return dataclasses.replace(self, arrays=arrays)

    def types(self, combination: Combination | None = None) -> list[DataType]:
        """Of the network's inputs, in a combination or as the arrays have them."""
        types = [data_type(x.dtype) for x in self.arrays]
        if combination is not None:
            for i, t in zip(self.ports, combination.types):
                types[i] = t
        return types

    def cast(self, combination: Combination, arrays: Sequence[np.ndarray] | None = None) -> Arrays:
        """The arrays, or others in their place, in the types of a combination."""
        types = self.types(combination)
        with np.errstate(over="ignore"):
            return [x.astype(nptype(t)) for x, t in zip(arrays or self.arrays, types)]


# Adds the plugin to a network with these inputs, as a compiled kernel or not.
AddLayer = Callable[[_core.INetworkDefinition, list[Any], bool], Any]
# For each tensor that a plugin takes, whether it is there.
Layout = tuple[bool, ...]


class Subject(abc.ABC):
    """A plugin to be checked, however it was written."""

    id: str
    checks: tuple[str, ...]
    """The checks that it can fail."""
    call_name: str
    """What computes where it is called; empty: nothing does."""
    kernel_name: str
    """What makes the compiled kernel; empty: nothing does."""
    missing: str
    """What to say where nothing computes."""
    says_shapes: str
    """What says the outputs' shapes."""
    device = DeviceType.CPU
    """Where it is checked."""
    is_machine_code = False
    """Whether calls do not hold Python's lock, unless they are watched."""

    @abc.abstractmethod
    def call(self, example: Example) -> Call:
        """The example with its attributes converted.

        :raises TypeError: for attributes or inputs that do not fit.
        """

    @abc.abstractmethod
    def installed(
        self, watch: Watch, call: Call, registry: _core.IPluginRegistry
    ) -> contextlib.AbstractContextManager[AddLayer]:
        """Lets engines that are built meanwhile, with a builder of this registry, use the plugin
        under these eyes."""

    @abc.abstractmethod
    def functions(self) -> list[Callable[..., Any]]:
        """The user's functions, whose files an error may point at."""

    @abc.abstractmethod
    def place(self, what: str) -> str:
        """Where the user says ``"shapes"`` or ``"types"``, computes (``"call"``, ``"kernel"``), or
        has what makes (``"create"``), copies (``"clone"``) or stores (``"store"``) a plugin."""

    def stored_again(self, call: Call) -> str:
        """What a plugin made of the stored attributes would store otherwise; empty: nothing."""
        return ""

    def runs_unattached(self) -> bool:
        """Whether what was made may run in place of its clones: without a context it must not do
        worse than to raise."""
        return True

    @property
    def advice(self) -> str:
        """How to give examples."""
        return f"add {self.example_call()} to the file"

    def example_call(self) -> str:
        """How to give examples, as code."""
        values = "".join(f", {name}=..." for name in self.attributes())
        return f"opwright.testing.example('{self.id}', inputs=[...]{values})"

    @abc.abstractmethod
    def attributes(self) -> list[str]:
        """The names of those that an example has to say, or may."""

    def lost_by_clone(self, watch: Watch) -> str:
        """What the clone that ran last would store otherwise than the plugin; empty: nothing."""
        return ""

    def nothing_to_compare(self) -> str:
        """Why there is no compiled kernel to compare with what is called."""
        return f"there is no {'aot_impl' if self.call_name else 'impl'} to compare with"

    def layouts(self) -> list[list[Layout]]:
        """Where no example says it: which inputs to try. Of the outer list the first that is
        accepted counts, of the inner lists all."""
        return [[(True,) * count] for count in (1, 2, 3)]

    def load(self, data: Any, watch: Watch, call: Call) -> _core.ICudaEngine:
        """Loads an engine with the plugin, under these eyes where that is possible."""
        runtime = _core.Runtime(_core.Logger(_core.Logger.ERROR))
        runtime.engine_host_code_allowed = True
        return runtime.deserialize_cuda_engine(data)
