"""Kernels from C++ source."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .._core import DataType
from . import _source, _toolchain
from ._code import (
    Code,
    CompileError,
    baseline,
    by_symbol,
    cached,
    element_types,
    input_types,
    scalar_types,
)
from ._saved import portable

_ELEMENTS = {
    DataType.FLOAT: "float",
    DataType.HALF: "_Float16",
    DataType.BF16: "std::uint16_t",
    DataType.INT8: "std::int8_t",
    DataType.UINT8: "std::uint8_t",
    DataType.INT32: "std::int32_t",
    DataType.INT64: "std::int64_t",
    DataType.BOOL: "bool",
    DataType.FP8: "std::uint8_t",
}
_SCALARS = by_symbol(
    {
        "int8": "std::int8_t",
        "int16": "std::int16_t",
        "int32": "std::int32_t",
        "int64": "std::int64_t",
        "float32": "float",
        "float64": "double",
        "pointer": "const std::int64_t*",
    }
)

# GCC accepts the name _Float16 in C++ on Arm from version 13 on. The older type also computes in
# float.
_FLOAT16 = """\
#if defined(__aarch64__) && !defined(__clang__) && __GNUC__ < 13
using _Float16 = __fp16;
#endif
"""


def _element(dtype: DataType) -> str:
    if dtype not in _ELEMENTS:
        raise CompileError(f"aot.cpp: there is no C++ type for elements of type {dtype}")
    return _ELEMENTS[dtype]


def _wrapper(symbol: str, name: str, types: Sequence[str | None]) -> str:
    """Source of the exported function, which unpacks args. The type None stands for an absent
    input."""
    arguments = [
        "nullptr" if type is None else f"*static_cast<{type}*>(args[{i}])"
        for i, type in enumerate(types)
    ]
    call = ", ".join([*arguments, "x", "y", "z"])
    return (
        f'extern "C" __attribute__((visibility("default"))) void {symbol}(\n'
        "    void** args, std::int64_t x, std::int64_t y, std::int64_t z) {\n"
        f"  {name}({call});\n"
        "}\n"
    )


@portable
def cpp(
    source: str | os.PathLike[str],
    name: str,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    flags: Sequence[str] = (),
) -> Code:
    """Compiles the C++ function `name` of `source` into a kernel for the CPU.

    The engine calls it for each cell of the grid, with ``const T*`` per input, the extra
    arguments, ``T*`` per output, and the cell's x, y, z as ``int64_t``. It may be a template or overloaded.
    Element types: FP32 ``float``, FP16 ``_Float16``, BF16 ``uint16_t`` (its bits), INT8 to INT64
    ``intN_t``, UINT8 and FP8 ``uint8_t``, BOOL ``bool``; ``SymInt32`` is ``int32_t`` and so on,
    ``SymPointer`` is ``const int64_t*``. An absent optional input (None) is ``nullptr``. It fits a
    parameter ``const float*``, and one of a template's own type (``std::nullptr_t``).

    The compiler is ``$CXX`` or the system's, with ``-std=c++20 -O3`` for the x86-64-v3
    instruction set where this machine has it, and `flags` added. Results are cached by content
    in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``; the files that the source includes from its
    own folder, or from one that `flags` names, are part of the content.

    :param source: C++20, which may include what the compiler finds, or the path of a file with it.
    :param name: of the function, also one in a namespace: ``"ns::f"``.
    :param inputs: the descriptors that ``aot_impl`` gets, or data types; None for an absent one.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param flags: further options of the compiler.
    :raises CompileError: with the compiler's messages, in the source's own line numbers, or when
        there is no compiler.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", name):
        raise CompileError(f"aot.cpp: {name!r} is not the name of a function")
    ins, extras, outs = input_types(inputs), scalar_types(extra), element_types("outputs", outputs)
    pointers: list[str | None] = [None if t is None else f"{_element(t)} const* const" for t in ins]
    pointers += [f"{_SCALARS[t]} const" for t in extras]
    pointers += [f"{_element(t)}* const" for t in outs]
    symbol = "opwright_kernel_" + name.replace("::", "_")
    file = f"{name.rpartition(':')[2]}.cpp"
    read = _source.read("aot.cpp", source, file)
    flags, folders = _source.absolute_folders(flags)
    text = f'#include <cstdint>\n{_FLOAT16}{read.line_directive}{read.text}\n#line 1 "call of {name}"\n'
    text += _wrapper(symbol, name, pointers)

    parameters = (len(ins), tuple(extras), len(outs))
    target, march = baseline()
    options = ["-std=c++20", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,defs"]
    options += [f"-march={march}"] if march else []
    options += flags
    if read.folder is not None:
        options += ["-iquote", str(read.folder)]
    command, version = _toolchain.find()

    def compile() -> bytes:
        with tempfile.TemporaryDirectory(prefix="opwright-") as folder:
            path = Path(folder)
            (path / file).write_text(text)
            _toolchain.run([*options, file, "-o", "kernel.so"], path, f"the C++ kernel '{name}'")
            return (path / "kernel.so").read_bytes()

    depends = _source.included(read, folders)
    if depends is None:
        return Code(compile(), symbol, target, parameters)
    parts: list[str | bytes] = [
        "cpp",
        text,
        "\0".join(options),
        "\0".join(command),
        version,
        *depends,
    ]
    return Code(cached(parts, compile), symbol, target, parameters)
