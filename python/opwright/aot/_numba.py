"""Kernels from Python functions that Numba compiles."""

from __future__ import annotations

import marshal
import re
import tempfile
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .._core import DataType
from . import _toolchain
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
    DataType.FLOAT: "float32",
    DataType.HALF: "uint16",
    DataType.BF16: "uint16",
    DataType.INT8: "int8",
    DataType.UINT8: "uint8",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
    DataType.BOOL: "bool_",
    DataType.FP8: "uint8",
}
_SCALARS = by_symbol(
    {
        "int8": ("int8", "i8"),
        "int16": ("int16", "i16"),
        "int32": ("int32", "i32"),
        "int64": ("int64", "i64"),
        "float32": ("float32", "float"),
        "float64": ("float64", "double"),
        "pointer": ("int64", "ptr"),
    }
)


def _element(dtype: DataType) -> str:
    if dtype not in _ELEMENTS:
        raise CompileError(f"aot.numba: there is no Numba type for elements of type {dtype}")
    return _ELEMENTS[dtype]


def _identity(value: Any, seen: set[int]) -> Any:
    """Everything that a function's result depends on besides its arguments, as values that marshal
    takes. Raises ValueError if that cannot be found out."""
    if id(value) in seen:
        return "again"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, tuple):
        return tuple(_identity(entry, seen) for entry in value)
    if isinstance(value, types.ModuleType):
        return ("module", value.__name__, str(getattr(value, "__version__", "")))
    value = getattr(value, "py_func", value)
    value = getattr(value, "_defn", value)  # functions of numba.extending.intrinsic
    if isinstance(value, types.BuiltinFunctionType):
        return ("builtin", value.__module__, value.__name__)
    if isinstance(value, types.FunctionType):
        seen.add(id(value))
        names = sorted(_names(value.__code__))
        found = [
            (n, _identity(value.__globals__[n], seen)) for n in names if n in value.__globals__
        ]
        cells = [_identity(cell.cell_contents, seen) for cell in value.__closure__ or ()]
        return ("function", marshal.dumps(value.__code__), tuple(found), tuple(cells))
    raise ValueError(f"{value!r} has no content to go by")


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _compile_ir(function: Callable[..., Any], signature: Any, name: str) -> tuple[str, str]:
    """The LLVM IR of the function, and the function's name in it."""
    import numba
    from numba.core import errors

    try:
        options: dict[str, Any] = {"error_model": "numpy", "boundscheck": False}
        options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        compiled = numba.njit(signature, **options)(function)
    except errors.NumbaError as error:
        raise CompileError(f"the Numba kernel '{name}' does not compile:\n{error}") from error
    overload = compiled.overloads[compiled.signatures[0]]
    if overload.library.has_dynamic_globals:
        raise CompileError(
            f"the Numba kernel '{name}' uses a global array that is too large to be embedded (1 "
            "MB); pass it as an input of the plugin"
        )
    return overload.library.get_llvm_str(), overload.fndesc.llvm_func_name


def _wrapper(symbol: str, function: str, scalars: list[str]) -> str:
    """IR of the exported function, which unpacks args. `scalars` has the LLVM type of each
    argument."""
    lines = [f"define void @{symbol}(ptr %args, i64 %x, i64 %y, i64 %z) {{"]
    lines += ["  %ret = alloca ptr", "  %exc = alloca ptr"]
    arguments = ["ptr %ret", "ptr %exc"]
    for i, scalar in enumerate(scalars):
        lines += [
            f"  %slot{i} = getelementptr ptr, ptr %args, i64 {i}",
            f"  %pointer{i} = load ptr, ptr %slot{i}",
            f"  %value{i} = load {scalar}, ptr %pointer{i}",
        ]
        arguments.append(f"{scalar} %value{i}")
    arguments += ["i64 %x", "i64 %y", "i64 %z"]
    lines += [f'  %status = call i32 @"{function}"({", ".join(arguments)})', "  ret void", "}"]
    return "\n".join(lines)


def _check_cannot_raise(ir: str, function: str, name: str) -> None:
    body = re.search(
        rf'^define [^\n]*@"?{re.escape(function)}"?\(.*?^}}', ir, re.MULTILINE | re.DOTALL
    )
    if body is None:
        raise CompileError(f"the Numba kernel '{name}' has no code")
    if any(value != "0" for value in re.findall(r"\bret i32 ([^\s,]+)", body.group())):
        raise CompileError(
            f"the Numba kernel '{name}' may raise an exception, which nothing could receive in an "
            "engine without Python: remove raise and assert, and what may raise, such as "
            "indexing tuples by variables"
        )


def _emit(ir: str, function: str, symbol: str, scalars: list[str], cpu: str, name: str) -> bytes:
    from llvmlite import binding as llvm

    if "(ptr " not in ir:
        raise CompileError("aot.numba needs Numba 0.62 or newer: python -m pip install -U numba")
    text = ir + "\n" + _wrapper(symbol, function, scalars) + "\n"
    if re.search(r'^declare [^\n]*@"?NRT_MemInfo_call_dtor"?\(', ir, re.MULTILINE):
        # numba.carray refers to this function for arrays that own memory. Arrays here do not.
        text = re.sub(
            r'^declare [^\n]*@"?NRT_MemInfo_call_dtor"?\([^\n]*$',
            "define internal void @NRT_MemInfo_call_dtor(ptr %0) { ret void }",
            text,
            flags=re.MULTILINE,
        )
    for initialize in ("initialize_native_target", "initialize_native_asmprinter"):
        try:
            getattr(llvm, initialize)()
        except RuntimeError:
            pass  # newer llvmlite initializes by itself
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu, features="", opt=3, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(text)
    module.verify()
    with tempfile.TemporaryDirectory(prefix="opwright-") as folder:
        path = Path(folder)
        (path / "kernel.o").write_bytes(machine.emit_object(module))
        (path / "exports").write_text(f"{{ global: {symbol}; local: *; }};")
        options = ["-shared", "-Wl,-z,defs,-z,text", "-Wl,--version-script=exports"]
        options += ["-Wl,--gc-sections"]
        try:
            _toolchain.run([*options, "kernel.o", "-lm", "-o", "kernel.so"], path, name)
        except CompileError as error:
            undefined = sorted(set(re.findall(r"undefined reference to `([^']+)'", str(error))))
            if not undefined:
                raise
            raise CompileError(
                f"the Numba kernel '{name}' needs Python's or Numba's runtime "
                f"({', '.join(undefined)}): use loops over pointers and scalars, without array "
                "expressions, temporary arrays, printing or parallel=True"
            ) from None
        _check_cannot_raise(ir, function, name)
        return (path / "kernel.so").read_bytes()


@portable
def numba(
    function: Callable[..., Any],
    name: str,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
) -> Code:
    """Compiles a Python function with Numba into a kernel for the CPU that needs no Python.

    The engine calls it for each cell of the grid, with a pointer per input, the extra arguments, a
    pointer per output, and the cell's x, y, z as int64. Pointers are indexed like one-dimensional
    arrays, without bounds; an absent optional input is None. FP16 and BF16 elements are ``uint16``
    (their bits), FP8 ``uint8``. Code that needs Numba's runtime (array expressions, temporary
    arrays, exceptions, ``parallel``) is an error.

    The code is for the x86-64-v3 instruction set where this machine has it, and cached by content
    in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.

    :param function: plain or decorated with ``numba.njit``.
    :param name: of the kernel.
    :param inputs: the descriptors that ``aot_impl`` gets, or data types; None for an absent one.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :raises CompileError: with the part of the function that cannot be compiled.
    """
    try:
        import llvmlite
        import numba
        from numba import types as nbt
    except ImportError as error:
        raise CompileError(
            "aot.numba needs Numba where engines are built: python -m pip install numba"
        ) from error
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise CompileError(f"aot.numba: {name!r} is not a name for a kernel")
    python_function = getattr(function, "py_func", function)
    ins, extras, outs = input_types(inputs), scalar_types(extra), element_types("outputs", outputs)

    def pointer(dtype: DataType | None) -> Any:
        return nbt.none if dtype is None else nbt.CPointer(getattr(nbt, _element(dtype)))

    def argument(numba_type: str, llvm_type: str) -> Any:
        scalar = getattr(nbt, numba_type)
        return nbt.CPointer(scalar) if llvm_type == "ptr" else scalar

    scalars = [_SCALARS[t] for t in extras]
    signature = nbt.void(
        *map(pointer, ins),
        *(argument(*scalar) for scalar in scalars),
        *map(pointer, outs),
        nbt.int64,
        nbt.int64,
        nbt.int64,
    )
    symbol = f"opwright_kernel_{name}"
    target, cpu = baseline()
    llvm_types = ["ptr"] * len(ins) + [t for _, t in scalars] + ["ptr"] * len(outs)
    parameters = (len(ins), tuple(extras), len(outs))

    def compile() -> bytes:
        ir, ir_name = _compile_ir(python_function, signature, name)
        return _emit(ir, ir_name, symbol, llvm_types, cpu, name)

    try:
        content = marshal.dumps(_identity(python_function, set()))
    except ValueError:
        return Code(compile(), symbol, target, parameters)
    versions = f"{numba.__version__} {llvmlite.__version__}"
    parts: list[str | bytes] = ["numba", content, str(signature), symbol, target, versions]
    return Code(cached(parts, compile), symbol, target, parameters)
