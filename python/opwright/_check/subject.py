"""The subject of the checks: a plugin that is called, or whose kernel runs, while the checks
watch."""

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

from .. import _core
from .._core import DataType, DeviceType, TensorFormat
from .._types import nptype
from .compare import Arrays
from .memory import bytes_of

# Two byte values that fill memory before a run. Results that depend on old content differ between
# them.
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
    """The engine's type for an array's type."""
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
    """The second list of ``add_plugin_v3``, for a plugin that is a class."""
    is_made: bool = False

    def __str__(self) -> str:
        arrays = [*self.inputs, *self.shape_inputs]
        shown = ("None" if x is None else f"{x.dtype}{list(x.shape)}" for x in arrays)
        inputs = ", ".join(shown)
        values = ", ".join(f"{k}={' '.join(repr(v).split())}" for k, v in self.attributes.items())
        return inputs + (f"; {values}" if values else "")


class Watch:
    """Instructions for the plugin of one engine, and observations of its last call."""

    def __init__(
        self,
        chosen: Combination | None = None,
        pretends: bool = False,
        clones: bool = True,
    ):
        self.chosen = chosen
        """The only combination in which the plugin runs; None: all."""
        self.pretends = pretends
        """Whether calls are only noted."""
        self.clones = clones
        """Whether the engine works with clones; False: with the original object."""
        self.seen: dict[Combination, None] = {}
        self.combination: Combination | None = None
        self.addresses: list[int] = []
        self.shapes: list[tuple[int, ...]] = []
        self.stored: dict[str, bytes] = {}
        """The data that an engine stores of a plugin that is a class; `part` is the part that ran
        last."""
        self.part: Any = None
        self.not_cloned = self.changed = ""
        """Faults of a clone, and changes of the attributes by a call; empty: none."""
        self.aliased: dict[int, int] = {}
        """The aliased input of each aliased output."""
        self.workspace = 0
        """Bytes of workspace that the plugin requests."""
        self.scratch = self.outside = PATTERNS[0]
        """The value of each byte of the workspace, and of the guard bytes around it."""
        self.damage = ""
        """A description of overwritten guard bytes of the workspace."""
        self.device = DeviceType.CPU
        """The device on which the engine runs."""
        self.barrier: threading.Barrier | None = None
        """If set, calls wait for each other."""

    def set_to_zero(
        self,
        outputs: Iterable[tuple[Sequence[int], DataType, TensorFormat, int]],
        stream: int,
    ) -> None:
        """Sets each (shape, type, format, address) to 0, for a call that is only noted. The engine
        checks that outputs are written, and reads the values of size tensors."""
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
    """An example in the form that the plugin takes."""

    arrays: list[np.ndarray]
    """Arrays of the present inputs."""
    names: list[str]
    """The user's names of the arrays."""
    fields: Any
    """The fields that the engine stores for the attributes."""
    slots: list[int | None]
    """The index of each tensor of the plugin's functions among the arrays; None: absent."""
    shape_inputs: frozenset[int] = frozenset()
    """The indices of arrays whose values decide shapes."""

    @property
    def ports(self) -> list[int]:
        """Slots of the arrays that take part in combinations."""
        return [slot for slot in self.slots if slot is not None]

    def with_arrays(self, arrays: list[np.ndarray]) -> Call:
        """The same call with other arrays."""
        return dataclasses.replace(self, arrays=arrays)

    def types(self, combination: Combination | None = None) -> list[DataType]:
        """The types of the network's inputs, in a combination or else of the arrays."""
        types = [data_type(x.dtype) for x in self.arrays]
        if combination is not None:
            for i, t in zip(self.ports, combination.types):
                types[i] = t
        return types

    def cast(self, combination: Combination, arrays: Sequence[np.ndarray] | None = None) -> Arrays:
        """The call's arrays, or the given ones, in the types of a combination."""
        types = self.types(combination)
        with np.errstate(over="ignore"):
            return [x.astype(nptype(t)) for x, t in zip(arrays or self.arrays, types)]


# Adds the plugin to a network with these inputs, as a compiled kernel or not.
AddLayer = Callable[[_core.INetworkDefinition, list[Any], bool], Any]
# Whether each tensor that a plugin takes is present.
Layout = tuple[bool, ...]


class Subject(abc.ABC):
    """A plugin to be checked, of any kind."""

    id: str
    checks: tuple[str, ...]
    """The checks that the plugin can fail."""
    call_name: str
    """The name of the function that computes when the plugin is called; empty: there is none."""
    kernel_name: str
    """The name of the function that makes the compiled kernel; empty: there is none."""
    missing: str
    """The message if nothing computes."""
    says_shapes: str
    """The name of the function that tells the outputs' shapes."""
    device = DeviceType.CPU
    """The device on which the plugin is checked."""
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
        """Lets engines use the watched plugin if they are built meanwhile with a builder of this
        registry."""

    @abc.abstractmethod
    def functions(self) -> list[Callable[..., Any]]:
        """The user's functions, whose files an error may point at."""

    @abc.abstractmethod
    def place(self, what: str) -> str:
        """The place in the user's source that tells ``"shapes"`` or ``"types"``, computes
        (``"call"``, ``"kernel"``), or makes (``"create"``), copies (``"clone"``) or stores
        (``"store"``) a plugin."""

    def stored_again(self, call: Call) -> str:
        """A difference in the stored fields of a plugin that is made of the stored attributes;
        empty: none."""
        return ""

    def runs_unattached(self) -> bool:
        """Whether the original plugin may run in place of its clones. Without a context it must at
        worst raise an exception."""
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
        """The names of attributes that an example must or may give."""

    def lost_by_clone(self, watch: Watch) -> str:
        """A difference between the stored fields of the clone that ran last and the plugin's;
        empty: none."""
        return ""

    def nothing_to_compare(self) -> str:
        """Why there are not both a called function and a compiled kernel to compare."""
        return f"there is no {'aot_impl' if self.call_name else 'impl'} to compare with"

    def layouts(self) -> list[list[Layout]]:
        """Layouts of inputs to try without an example. The first accepted entry of the outer list
        counts, with all layouts of its inner list."""
        return [[(True,) * count] for count in (1, 2, 3)]

    def load(self, data: Any, watch: Watch, call: Call) -> _core.ICudaEngine:
        """Loads an engine with the plugin, watched if that is possible."""
        runtime = _core.Runtime(_core.Logger(_core.Logger.ERROR))
        runtime.engine_host_code_allowed = True
        return runtime.deserialize_cuda_engine(data)
