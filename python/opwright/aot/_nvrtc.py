"""NVRTC, NVIDIA's compiler of CUDA C++: the needed functions of its library, called by ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Folders of NVIDIA's Python packages, relative to entries of sys.path.
_PACKAGES = (
    "nvidia/cu13",
    "nvidia/cuda_nvrtc",
    "nvidia/cuda_runtime",
    "nvidia/cublas",
    "nvidia/cudnn",
    "nvidia/nccl",
)
_TOOLKIT = Path("/usr/local/cuda")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


class NvrtcError(Exception):
    """The library is missing, or one of its functions failed."""


class CompilationError(Exception):
    """The source does not compile; the argument is the compiler's log."""


@dataclass
class Compiled:
    """Result of compiling a program."""

    symbol: str
    """The name of the requested function in the code."""
    ptx: bytes
    cubin: bytes
    """Empty if no cubin was requested."""


def package_folders() -> Iterator[Path]:
    """Folders in which NVIDIA's Python packages may have lib and include."""
    for entry in sys.path:
        for name in _PACKAGES:
            yield Path(entry) / name


def _files() -> Iterator[str]:
    """Possible paths of the library, the best first."""
    named = os.environ.get("OPWRIGHT_NVRTC")
    if named:
        yield named
        return
    yield from _NAMES
    folders = [Path(f) for f in os.environ.get("OPWRIGHT_CUDA_PATH", "").split(":") if f]
    folders += [folder / "lib" for folder in package_folders()]
    for folder in (*folders, _TOOLKIT / "lib64"):
        yield from (str(folder / name) for name in _NAMES if (folder / name).is_file())


def header_folders() -> list[str]:
    """The installed folders of CUDA's headers: cuda_fp16.h, cuda/std/..."""
    found = []
    for folder in (*package_folders(), _TOOLKIT):
        for include in (folder / "include", folder / "include" / "cccl"):
            if (include / "cuda_fp16.h").is_file() or (include / "cuda" / "std").is_dir():
                found.append(str(include))
    return found


class Nvrtc:
    """The loaded library. Raises NvrtcError if there is none."""

    def __init__(self) -> None:
        reasons = []
        for file in _files():
            try:
                self._library = ctypes.CDLL(file)
                break
            except OSError as error:
                reasons.append(str(error))
        else:
            raise NvrtcError(reasons[0])
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise NvrtcError(self._library.nvrtcGetErrorString(status).decode())

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, data)
        return data.raw

    def compile(
        self, text: str, file: str, options: Sequence[str], expression: str, *, cubin: bool
    ) -> Compiled:
        """Compiles a program to PTX, and also to a cubin if `cubin` is set, which needs a real
        architecture ("sm_..."). Finds the symbol of the function that a C++ expression names.
        Raises CompilationError."""
        program = ctypes.c_void_p()
        source, name = text.encode(), file.encode()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, name, 0, None, None)
        try:
            self._call("nvrtcAddNameExpression", program, expression.encode())
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if self._library.nvrtcCompileProgram(program, len(options), given) != 0:
                log = self._read(program, "ProgramLog").decode("utf-8", "replace")
                raise CompilationError(log.strip("\0 \n"))
            symbol = ctypes.c_char_p()
            self._call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(symbol))
            ptx = self._read(program, "PTX").rstrip(b"\0 ")
            code = self._read(program, "CUBIN") if cubin else b""
            return Compiled((symbol.value or b"").decode(), ptx, code)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))


@functools.lru_cache(maxsize=1)
def nvrtc() -> Nvrtc:
    return Nvrtc()
