"""Kernels that were compiled elsewhere."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from .. import _core
from . import _ptx
from ._code import MOST_CODE, Code, CompileError

_MACHINES = {"EM_X86_64": "x86-64", "EM_AARCH64": "aarch64"}


def _open(data: bytes) -> Any:
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise CompileError(
            "aot.object needs pyelftools to look into ELF files: python -m pip install pyelftools"
        ) from error
    return ELFFile(io.BytesIO(data))


def _functions(elf: Any, section: str) -> list[str]:
    """The names of the functions that a symbol table exports."""
    table = elf.get_section_by_name(section)
    symbols = [] if table is None else table.iter_symbols()
    return sorted(
        s.name
        for s in symbols
        if s["st_shndx"] != "SHN_UNDEF"
        and s["st_info"]["type"] in ("STT_FUNC", "STT_GNU_IFUNC")
        and s["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK")
        and s["st_other"]["visibility"] in ("STV_DEFAULT", "STV_PROTECTED")
    )


def _cubin_architecture(elf: Any) -> str:
    # The layout of the flags changed with version 8 of NVIDIA's ABI, in CUDA 13.
    flags = elf.header["e_flags"]
    is_new = elf.header["e_ident"]["EI_ABIVERSION"] >= 8
    return f"sm_{flags >> 8 & 0xFFFF if is_new and flags >> 8 & 0xFF else flags & 0xFF}"


def _host_target(what: str, architecture: str, target: str | None) -> str:
    if target is None:
        return architecture
    first = target.split()[0] if target.split() else ""
    if first == architecture or (architecture == "x86-64" and first.startswith("x86-64-v")):
        return target
    if first in _MACHINES.values() or first.startswith("x86-64"):
        raise CompileError(f"{what} is for {architecture}, but target={target!r} was given")
    return f"{architecture} {target}"


def _gpu_target(what: str, architecture: str, target: str | None) -> str:
    if target is not None and target.rstrip("af") != architecture.rstrip("af"):
        raise CompileError(f"{what} is for {architecture}, but target={target!r} was given")
    return target or architecture


def _from_elf(data: bytes, name: str, target: str | None, what: str) -> Code:
    elf = _open(data)
    machine, kind = elf.header["e_machine"], elf.header["e_type"]
    is_gpu = machine == "EM_CUDA"
    if is_gpu:
        known = _functions(elf, ".symtab")
        target = _gpu_target(what, _cubin_architecture(elf), target)
    else:
        if machine not in _MACHINES:
            raise CompileError(
                f"{what} is for the machine {machine}; expected x86-64, aarch64 or a GPU of NVIDIA"
            )
        if kind != "ET_DYN":
            raise CompileError(
                f"{what} is an ELF file of type {kind}; expected a shared object (ET_DYN): link it "
                "with -shared"
            )
        known = _functions(elf, ".dynsym")
        target = _host_target(what, _MACHINES[machine], target)
    if name not in known:
        listed = ", ".join(f"'{each}'" for each in known) or "none"
        hint = "" if is_gpu else '; one of C++ needs extern "C" and default visibility'
        raise CompileError(f"{what} exports no '{name}'; it exports: {listed}{hint}")
    return Code(data, name, target, kind="cubin" if is_gpu else "elf")


def object(code: bytes | os.PathLike[str], name: str, target: str | None = None) -> Code:
    """Wraps a kernel that was compiled elsewhere: a shared object for the CPU, PTX, or a cubin.

    For the CPU it exports ``void name(void** args, int64_t x, int64_t y, int64_t z)``, which is
    called for each cell of the grid. ``args[i]`` points to argument i: a pointer for each input, the
    extra arguments, a pointer for each output. Kernels for GPUs have these as their parameters.

    The architecture is read from the code. A shared object may need further features of the
    processor. `target` lists them by Linux's names, and an engine with the code loads only on a
    processor that has them.

    :param code: the bytes, or the path of a file.
    :param name: of the kernel, as it is exported.
    :param target: for the CPU the features that the code needs, ``"avx2 fma"``, or a level,
        ``"x86-64-v3"``; for a GPU the architecture, if it is more special than the code says:
        ``"sm_90a"``.
    :raises CompileError: for data that is not such code, has another architecture than `target`, or
        does not export the name, with the names that it has.
    """
    what = "aot.object: the code"
    if isinstance(code, os.PathLike):
        path = Path(code)
        what = f"aot.object: {path}"
        try:
            code = _core._read_file(os.fspath(path), MOST_CODE)
        except _core.Error as error:
            raise CompileError(f"{what} cannot be read: {error}") from error
    if isinstance(code, str):
        code = code.encode()
    if not isinstance(code, (bytes, bytearray, memoryview)):
        raise TypeError(
            "aot.object: the code must be bytes or the pathlib.Path of a file; "
            f"{type(code).__name__} came"
        )
    data = bytes(code)
    if data[:4] == b"\x7fELF":
        try:
            return _from_elf(data, name, target, what)
        except CompileError:
            raise
        except Exception as error:  # pyelftools raises many kinds for a damaged file
            raise CompileError(f"{what} is a damaged ELF file: {error!r}") from error
    text = data.rstrip(b"\0").decode("utf-8", "replace")
    architecture = _ptx.target(text)
    if architecture is None:
        raise CompileError(
            f"{what} is neither ELF nor PTX; it has {len(data)} bytes and begins with {data[:16]!r}"
        )
    made = _ptx.make(what, text, name, None)
    made.target = _gpu_target(what, architecture, target)
    return made
