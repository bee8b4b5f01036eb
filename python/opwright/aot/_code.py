"""Compiled code, the types of its arguments, and where it is kept."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from .._cache import cache_folder, read_private, write_private
from .._core import DataType, Error
from .._core._plugin import (
    KernelLaunchParams,
    SymExprs,
    SymFloat32,
    SymFloat64,
    SymInt8,
    SymInt16,
    SymInt32,
    SymInt64,
    SymPointer,
    TensorDesc,
)

MOST_CODE = 1 << 32  # bytes of a file with code or source


class CompileError(Error):
    """Source that does not compile, or code that an engine cannot hold."""


class Code(bytes):
    """Code that holds one kernel: a shared object for the CPU that exports ``void name(void** args,
    int64_t x, int64_t y, int64_t z)``, PTX, or a cubin."""

    name: str
    """The exported symbol."""
    kind: str
    """``"elf"`` for the CPU; ``"ptx"`` or ``"cubin"`` for GPUs."""
    target: str
    """The architecture, and the instruction set that the code needs: ``"x86-64 avx2 fma"``,
    ``"sm_90"``."""
    parameters: tuple[int, tuple[type, ...], int] | None
    """The number of inputs, the classes of the extra arguments, the number of outputs, where they
    are known: what `aot_impl` returns must fit them."""
    scratch: tuple[int, ...]
    """Of code for GPUs that wants more pointers, after the outputs: how many bytes for each cell of
    the grid they point to. One of 0 bytes is null."""
    added: SymExprs | None
    """What the kernel takes beside the inputs, extra arguments and outputs, such as their extents:
    these follow the extra arguments."""
    order: tuple[int, ...]
    """Of a kernel that takes what it is given in another order: for each of its parameters the number
    of an argument among the inputs, the extra arguments, `added`, the outputs and `scratch`. Empty:
    as they are."""
    begins_early: bool
    """Whether the kernel waits by itself (PTX's ``griddepcontrol.wait``) for those before it: the
    engine then lets it begin while they end."""

    ports: Any
    """The tensors and extra arguments that a maker has compiled the kernel for."""

    _launch: dict[str, Any]

    def __new__(
        cls,
        code: bytes,
        name: str,
        target: str,
        parameters: tuple[int, tuple[type, ...], int] | None = None,
        *,
        kind: str = "elf",
        scratch: tuple[int, ...] = (),
        added: SymExprs | None = None,
        order: tuple[int, ...] = (),
        begins_early: bool = False,
        launch: dict[str, Any] | None = None,
    ) -> Code:
        made = super().__new__(cls, code)
        made.name = name
        made.kind = kind
        made.target = target
        made.parameters = parameters
        made.scratch = scratch
        made.added = added
        made.order = order
        made.begins_early = begins_early
        made.ports = None
        made._launch = launch or {}
        return made

    def launch(
        self, grid_x: Any = None, grid_y: Any = None, grid_z: Any = None, **block: Any
    ) -> KernelLaunchParams:
        """How to launch the kernel for a grid: with the block and the shared memory that it was
        compiled for.

        :param grid_x: of the grid, like `grid_y` and `grid_z`; 1 where it is left out, or what the
            kernel says itself: those of Warp, TileLang and Pallas do.
        :param block: ``block_x``, ``block_y``, ``block_z`` and ``shared_mem`` as
            `KernelLaunchParams` has them, for code that leaves them open.
        :raises ValueError: for one that the compiler has fixed.
        """
        given = {"grid_x": grid_x, "grid_y": grid_y, "grid_z": grid_z, **block}
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            if name in self._launch and value is not self._launch[name]:
                if name.startswith("grid") or value != self._launch[name]:
                    raise ValueError(
                        f"kernel '{self.name}' was compiled for {name}={self._launch[name]}; "
                        f"{value} came"
                    )
        grid = {"grid_x": 1, "grid_y": 1, "grid_z": 1}
        return KernelLaunchParams(**{**grid, **self._launch, **given})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the kernel to a file that `load` takes where an engine is built: on a machine that
        has neither the language nor its compiler, or by other processes.

        Compile it with numbers for extents, for these alone, or with `open_extents`.

        :param path: of the file; the makers' `arch` tells which GPUs it is for.
        :raises CompileError: for code of `object`, extents of a network, and a kernel that needs an
            open extent which no input has.
        """
        from ._saved import save

        save(self, path)

    def __repr__(self) -> str:
        return f"<Code {self.name} ({self.kind}) for {self.target}, {len(self)} bytes>"

    __str__ = __repr__


# The features of the x86-64-v3 level of the System V ABI, as Linux names them.
_V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe".split()


@lru_cache(maxsize=1)
def baseline() -> tuple[str, str]:
    """The target that code records, and the name that compilers know it by ('' for the default).

    The x86-64-v3 level where this machine has it, which every server since 2015 does.
    """
    machine = platform.machine()
    if machine != "x86_64":
        return machine, ""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        flags = next((line.split() for line in info if line.startswith("flags")), [])
    return ("x86-64-v3", "x86-64-v3") if set(_V3) <= set(flags) else ("x86-64", "x86-64")


def input_types(inputs: Iterable[Any]) -> list[DataType | None]:
    """Element types of descriptors; None of an input that is absent."""
    inputs = list(inputs)
    present = iter(element_types("inputs", [tensor for tensor in inputs if tensor is not None]))
    return [None if tensor is None else next(present) for tensor in inputs]


def element_types(what: str, tensors: Iterable[Any]) -> list[DataType]:
    """Element types of descriptors; a data type may stand for a descriptor."""
    types = []
    for tensor in tensors:
        if isinstance(tensor, TensorDesc):
            types.append(tensor.dtype)
        elif isinstance(tensor, DataType):
            types.append(tensor)
        else:
            raise TypeError(
                f"{what} must be tensor descriptors or data types; {type(tensor).__name__} came"
            )
    return types


def scalar_types(extra: Iterable[Any]) -> list[type]:
    """The symbol class of each extra argument."""
    if not isinstance(extra, SymExprs):
        extra = SymExprs.from_tuple(extra)
    return [type(argument) for argument in extra]


def by_symbol(table: dict[str, Any]) -> dict[type, Any]:
    """A table of scalar types by the class of the symbol."""
    classes = {
        "int8": SymInt8,
        "int16": SymInt16,
        "int32": SymInt32,
        "int64": SymInt64,
        "float32": SymFloat32,
        "float64": SymFloat64,
        "pointer": SymPointer,
    }
    return {classes[name]: value for name, value in table.items()}


_in_memory: dict[str, bytes] = {}


def cached(parts: Sequence[str | bytes], compile: Callable[[], bytes]) -> bytes:
    """What `compile` returns for these parts, which determine it: from memory, from the cache
    folder, or compiled now. A folder that cannot be used is no error, and one that others can write
    in a warning; a file that is damaged, or another kernel's, is ignored."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    key = digest.hexdigest()
    if key in _in_memory:
        return _in_memory[key]
    name = f"{key}.kernel"
    stored = read_private(cache_folder(), name)
    # The digest is of the key as well: what has the name of another kernel is none of this one.
    if len(stored) > 32 and hashlib.sha256(key.encode() + stored[32:]).digest() == stored[:32]:
        code = stored[32:]
    else:
        code = compile()
        write_private(cache_folder(), name, hashlib.sha256(key.encode() + code).digest() + code)
    _in_memory[key] = code
    return code
