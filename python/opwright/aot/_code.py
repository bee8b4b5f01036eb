"""Compiled code, the types of its arguments, and its cache."""

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

MOST_CODE = 1 << 32  # the most bytes of a file with code or source


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
    """The number of inputs, the classes of the extra arguments and the number of outputs, if they
    are known. The result of `aot_impl` must fit them."""
    scratch: tuple[int, ...]
    """Bytes for each cell of the grid behind additional pointers, which follow the outputs. Only
    for GPU code. A pointer to 0 bytes is null."""
    added: SymExprs | None
    """Further arguments of the kernel, such as extents, which follow the extra arguments."""
    order: tuple[int, ...]
    """For a kernel with another order of parameters: the number of each parameter's argument among
    the inputs, the extra arguments, `added`, the outputs and `scratch`. Empty: in this order."""
    begins_early: bool
    """Whether the kernel itself waits for the kernels before it (PTX's ``griddepcontrol.wait``).
    The engine then lets it begin while they end."""

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
        """Launch parameters of the kernel for a grid, with the block and the shared memory that it
        was compiled for.

        :param grid_x: of the grid, like `grid_y` and `grid_z`. Default: 1, or the kernel's own
            value, which kernels of Warp, TileLang and Pallas have.
        :param block: ``block_x``, ``block_y``, ``block_z`` and ``shared_mem`` as
            `KernelLaunchParams` has them, for code that leaves them open.
        :raises ValueError: for a value that the compiler has fixed.
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
        """Writes the kernel to a file that `load` reads in a build, on a machine without the
        language and its compiler, or in another process.

        Compile it with numbers for extents, which fixes them, or with `open_extents`.

        :param path: of the file; the makers' `arch` tells which GPUs it is for.
        :raises CompileError: for code of `object`, extents of a network, and a kernel that needs an
            open extent which no input has.
        """
        from ._saved import save

        save(self, path)

    def __repr__(self) -> str:
        return f"<Code {self.name} ({self.kind}) for {self.target}, {len(self)} bytes>"

    __str__ = __repr__


# Linux's names of the features of the x86-64-v3 level of the System V ABI.
_V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe".split()


@lru_cache(maxsize=1)
def baseline() -> tuple[str, str]:
    """The target that code records, and the compilers' name for it ('' for the default).

    It is the x86-64-v3 level if this machine has it, as every server since 2015 does.
    """
    machine = platform.machine()
    if machine != "x86_64":
        return machine, ""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        flags = next((line.split() for line in info if line.startswith("flags")), [])
    return ("x86-64-v3", "x86-64-v3") if set(_V3) <= set(flags) else ("x86-64", "x86-64")


def input_types(inputs: Iterable[Any]) -> list[DataType | None]:
    """Element types of descriptors, with None for an absent input."""
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
    """Converts a table by type names to one by symbol classes."""
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
    """The result of `compile`, which these parts determine: from memory, from the cache folder, or
    compiled now. A folder that cannot be used is no error. A folder that other users can write in
    gives a warning. A damaged file, or one of another kernel, is ignored."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    key = digest.hexdigest()
    if key in _in_memory:
        return _in_memory[key]
    name = f"{key}.kernel"
    stored = read_private(cache_folder(), name)
    # The digest includes the key, so that a file of another kernel under this name does not match.
    if len(stored) > 32 and hashlib.sha256(key.encode() + stored[32:]).digest() == stored[:32]:
        code = stored[32:]
    else:
        code = compile()
        write_private(cache_folder(), name, hashlib.sha256(key.encode() + code).digest() + code)
    _in_memory[key] = code
    return code
