"""Kernels for GPUs from Python functions that Numba-CUDA compiles."""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Iterable
from typing import Any

from .._core import DataType
from . import _ptx
from ._code import Code, CompileError, by_symbol, cached, element_types, input_types, scalar_types
from ._gpu import chosen_architecture
from ._numba import _ELEMENTS as _CPU_ELEMENTS
from ._numba import _identity
from ._saved import portable

# Numba computes with FP16 on a GPU, but not on the CPU.
_ELEMENTS = {**_CPU_ELEMENTS, DataType.HALF: "float16"}
_SCALARS = by_symbol(
    {
        "int8": "int8",
        "int16": "int16",
        "int32": "int32",
        "int64": "int64",
        "float32": "float32",
        "float64": "float64",
        "pointer": "*int64",
    }
)


def _import() -> tuple[Any, Any, str]:
    """Numba's CUDA target, its types, and the versions of the compilers."""
    try:
        import numba
        import numba_cuda
        from numba import cuda, types
    except ImportError as error:
        raise CompileError(
            "aot.numba_cuda needs Numba-CUDA where engines are built; it needs no GPU: python -m "
            "pip install numba-cuda nvidia-nvvm"
        ) from error
    return cuda, types, f"{numba.__version__} {numba_cuda.__version__}"


def _compile(
    cuda: Any, function: Callable[..., Any], signature: Any, number: int, symbol: str, name: str
) -> bytes:
    from numba.core.errors import NumbaError

    try:
        ptx, _ = cuda.compile_ptx(function, signature, cc=divmod(number, 10))
    except NumbaError as error:
        raise CompileError(f"the Numba-CUDA kernel '{name}' does not compile:\n{error}") from error
    except Exception as error:  # NVVM's package is loaded at its first use
        if "nvvm" not in str(error).lower():
            raise
        raise CompileError(
            "aot.numba_cuda needs NVVM, NVIDIA's compiler library, where engines are built; it "
            f"needs no GPU: python -m pip install nvidia-nvvm ({error})"
        ) from error
    (mangled,) = _ptx.entries(ptx)
    return str(ptx).replace(mangled, symbol).encode()


@portable
def numba_cuda(
    function: Callable[..., Any],
    name: str,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    arch: str | None = None,
) -> Code:
    """Compiles a Python function with Numba-CUDA into a kernel for GPUs, without a GPU.

    Its parameters are a pointer per input, the extra arguments, and a pointer per output. Pointers
    are indexed like one-dimensional arrays, without bounds; an absent optional input is None. A
    thread reads its place in the grid from ``numba.cuda.blockIdx`` and the like, as in every
    Numba-CUDA kernel. FP16 elements are ``float16``, those of BF16 ``uint16`` (their bits), FP8
    ``uint8``.

    The result is PTX, which the driver compiles for the GPU when an engine is loaded. Results are
    cached by content in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.
    ``code.launch(grid_x=..., block_x=256)`` makes the launch parameters.

    :param function: plain or decorated with ``numba.cuda.jit``.
    :param name: of the kernel.
    :param inputs: the descriptors that ``aot_impl`` gets, or data types; None for an absent one.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param arch: ``"compute_80"``: the oldest GPUs that are to run the kernel. Without it: those like
        the one that the engine is built for.
    :raises CompileError: saying what in the function cannot be compiled, or which package is
        missing.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise CompileError(f"aot.numba_cuda: {name!r} is not a name for a kernel")
    cuda, types, versions = _import()
    arch = chosen_architecture("aot.numba_cuda", arch)
    python_function = getattr(function, "py_func", function)
    ins, extras, outs = input_types(inputs), scalar_types(extra), element_types("outputs", outputs)

    def pointer(dtype: DataType | None) -> Any:
        if dtype is None:
            return types.none
        if dtype not in _ELEMENTS:
            raise CompileError(
                f"aot.numba_cuda: there is no Numba type for elements of type {dtype}"
            )
        return types.CPointer(getattr(types, _ELEMENTS[dtype]))

    def scalar(type_name: str) -> Any:
        made = getattr(types, type_name.lstrip("*"))
        return types.CPointer(made) if type_name.startswith("*") else made

    arguments = [*map(pointer, ins), *(scalar(_SCALARS[t]) for t in extras), *map(pointer, outs)]
    signature = types.void(*arguments)
    symbol = f"opwright_kernel_{name}"
    number = int(re.sub(r"\D", "", arch))

    def compile() -> bytes:
        return _compile(cuda, python_function, signature, number, symbol, name)

    try:
        content = marshal.dumps(_identity(python_function, set()))
    except ValueError:
        ptx = compile()
    else:
        parts: list[str | bytes] = ["numba_cuda", content, str(signature), symbol, arch, versions]
        ptx = cached(parts, compile)
    parameters = (len(ins), tuple(extras), len(outs))
    return _ptx.make("aot.numba_cuda", ptx.decode(), symbol, parameters)
