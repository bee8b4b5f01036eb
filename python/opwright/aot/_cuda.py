"""Kernels from CUDA C++ source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from .._core import DataType
from . import _ptx, _source
from ._code import Code, CompileError, by_symbol, element_types, input_types, scalar_types
from ._gpu import cached_with_facts, chosen_architecture, kind
from ._nvrtc import CompilationError, Nvrtc, NvrtcError, header_folders, nvrtc
from ._saved import portable

_ELEMENTS = {
    DataType.FLOAT: "float",
    DataType.HALF: "__half",
    DataType.BF16: "__nv_bfloat16",
    DataType.INT8: "signed char",
    DataType.UINT8: "unsigned char",
    DataType.INT32: "int",
    DataType.INT64: "long long",
    DataType.BOOL: "bool",
    DataType.FP8: "unsigned char",
}
_HEADERS = {DataType.HALF: "cuda_fp16.h", DataType.BF16: "cuda_bf16.h"}
_SCALARS = by_symbol(
    {
        "int8": "signed char",
        "int16": "short",
        "int32": "int",
        "int64": "long long",
        "float32": "float",
        "float64": "double",
        "pointer": "const long long*",
    }
)
# NVRTC has no <cstdint> of its own.
_PRELUDE = (
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; "
    "typedef long long int64_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t; "
    "typedef unsigned int uint32_t; typedef unsigned long long uint64_t;\n"
)


def compiler(maker: str = "aot.cuda") -> Nvrtc:
    try:
        return nvrtc()
    except NvrtcError as error:
        raise CompileError(
            f"{maker} needs NVRTC, NVIDIA's compiler library, where engines are built; it needs no "
            "GPU: python -m pip install nvidia-cuda-nvrtc, or name its file with the environment "
            f"variable OPWRIGHT_NVRTC ({error})"
        ) from error


def _function_name(name: str) -> str:
    """The name without namespaces and template arguments."""
    return name.partition("<")[0].rpartition("::")[2]


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def _is_kernel(text: str, name: str) -> bool:
    """Whether the function is already a kernel."""
    last = _function_name(name)
    return re.search(rf"__global__[^;{{}}]*\b{last}\s*\(", _without_comments(text)) is not None


def _wrapper_name(name: str) -> str:
    return "opwright_kernel_" + re.sub(r"\W+", "_", name)


def _wrapper(name: str, types: Sequence[str | None]) -> str:
    """Source of a kernel that calls the function. The type None stands for an absent input."""
    parameters = ", ".join(f"{type or 'const void*'} a{i}" for i, type in enumerate(types))
    arguments = ", ".join("nullptr" if t is None else f"a{i}" for i, t in enumerate(types))
    return (
        f'\n#line 1 "call of {name}"\n'
        f'extern "C" __global__ void {_wrapper_name(name)}({parameters}) {{ {name}({arguments}); }}\n'
    )


def compile_source(
    text: str,
    file: str,
    options: list[str],
    name: str,
    expression: str,
    is_ptx: bool,
    maker: str = "aot.cuda",
    language: str = "CUDA",
) -> tuple[dict[str, Any], bytes]:
    """Compiles source. Returns facts about the kernel, and its code."""
    try:
        made = compiler(maker).compile(text, file, options, expression, cubin=not is_ptx)
    except CompilationError as error:
        hint = ""
        if re.search(r'could not open source file "cuda_\w+\.h"', str(error)):
            hint = "\nCUDA's headers: python -m pip install nvidia-cuda-runtime"
        raise CompileError(
            f"the {language} kernel '{name}' does not compile ({' '.join(options)}):\n{error}{hint}"
        ) from None
    except NvrtcError as error:
        raise CompileError(
            f"{maker}: the {language} kernel '{name}': NVRTC says {error}"
        ) from error
    text = made.ptx.decode()
    facts = {
        "name": made.symbol,
        "target": _ptx.target(text),
        "parameters": _ptx.entries(text).get(made.symbol, []),
        "waits": _ptx.waits(text, made.symbol),
    }
    return facts, made.ptx if is_ptx else made.cubin


@portable
def cuda(
    source: str | os.PathLike[str],
    name: str,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    arch: str | None = None,
    flags: Sequence[str] = (),
) -> Code:
    """Compiles the CUDA function `name` of `source` into a kernel for GPUs, without a GPU.

    A ``__global__`` function is the kernel; a template among them is named with its arguments,
    ``"scale<float>"``. A ``__device__`` function may be a template or overloaded. A generated
    kernel calls it, with types that follow the descriptors. The parameters are ``const T*`` per
    input, the extra arguments, ``T*`` per output. Element types: FP32 ``float``, FP16 ``__half``,
    BF16 ``__nv_bfloat16``, INT8 to INT64 ``intN_t``, UINT8 and FP8 ``uint8_t``, BOOL ``bool``;
    ``SymInt32`` is ``int32_t`` and so on, ``SymPointer`` is ``const int64_t*``. An absent optional
    input (None) is a null pointer.

    The compiler is NVRTC (``python -m pip install nvidia-cuda-nvrtc``), with ``--std=c++17`` and
    `flags` added; CUDA's headers are found where ``nvidia-cuda-runtime`` is installed. Results are
    cached by content in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.
    ``code.launch(grid_x=..., block_x=256)`` makes the launch parameters. A kernel that waits for
    the kernels before it (``cudaGridDependencySynchronize()``, or ``griddepcontrol.wait`` as
    inline PTX) begins while they end.

    :param source: CUDA C++, or the path of a file with it.
    :param name: of the function, also one in a namespace: ``"ns::f"``.
    :param inputs: the descriptors that ``aot_impl`` gets, or data types; None for an absent one.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param arch: ``"sm_90"`` for a cubin, which runs only on that architecture, ``"compute_90"`` for
        PTX, which newer ones run, too. Default: the architecture of the GPU that the engine is
        built for.
    :param flags: further options of NVRTC.
    :raises CompileError: with the compiler's messages, in the source's own line numbers, or for a
        missing package.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*(<[^;{}]*>)?", name):
        raise CompileError(f"aot.cuda: {name!r} is not the name of a function")
    arch = chosen_architecture("aot.cuda", arch)
    ins, extras, outs = input_types(inputs), scalar_types(extra), element_types("outputs", outputs)
    for dtype in [*ins, *outs]:
        if dtype is not None and dtype not in _ELEMENTS:
            raise CompileError(f"aot.cuda: there is no CUDA type for elements of type {dtype}")
    read = _source.read("aot.cuda", source, f"{_function_name(name)}.cu")
    flags, folders = _source.absolute_folders(flags)
    text, expression = _PRELUDE + read.line_directive + read.text, name
    if not _is_kernel(read.text, name):
        headers = sorted({_HEADERS[t] for t in [*ins, *outs] if t is not None and t in _HEADERS})
        types: list[str | None] = [None if t is None else f"const {_ELEMENTS[t]}*" for t in ins]
        types += [_SCALARS[t] for t in extras]
        types += [f"{_ELEMENTS[t]}*" for t in outs]
        text = "".join(f"#include <{each}>\n" for each in headers) + text + _wrapper(name, types)
        expression = _wrapper_name(name)

    options = [f"--gpu-architecture={arch}", "--std=c++17", *flags]
    if read.folder is not None:
        options.append(f"-I{read.folder}")
    options += [f"-I{folder}" for folder in header_folders()]
    version = compiler().version

    def compile() -> tuple[dict[str, Any], bytes]:
        return compile_source(text, read.file, options, name, expression, kind(arch) == "ptx")

    parameters = (len(ins), tuple(extras), len(outs))
    depends = _source.included(read, folders)
    if depends is None:
        facts, code = compile()
    else:
        parts: list[str | bytes] = ["cuda", text, expression, "\0".join(options), version, *depends]
        facts, code = cached_with_facts(parts, compile)
    _ptx.check("aot.cuda", name, facts["parameters"], parameters)
    return Code(
        code,
        facts["name"],
        facts["target"],
        parameters,
        kind=kind(arch),
        begins_early=facts.get("waits", False),
    )
