"""Kernels of CuTe DSL, CUTLASS's language in Python."""

from __future__ import annotations

import inspect
import itertools
import linecache
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from .._core import DataType
from . import _ptx
from ._arrays import Array, Layout, arrays, check_alignment, left_out, places, symbols
from ._code import Code, CompileError, by_symbol
from ._gpu import cached_with_facts, chosen_architecture, kind
from ._numba import _identity
from ._saved import portable

_ELEMENTS = {
    DataType.FLOAT: "Float32",
    DataType.HALF: "Float16",
    DataType.BF16: "BFloat16",
    DataType.INT8: "Int8",
    DataType.UINT8: "Uint8",
    DataType.INT32: "Int32",
    DataType.INT64: "Int64",
    DataType.BOOL: "Boolean",
    DataType.FP8: "Float8E4M3FN",
}
_SCALARS = by_symbol(
    {
        "int8": "Int8",
        "int16": "Int16",
        "int32": "Int32",
        "int64": "Int64",
        "float32": "Float32",
        "float64": "Float64",
        "pointer": None,
    }
)
_numbers = itertools.count()


def _import() -> tuple[Any, Any]:
    try:
        import cutlass
        import cutlass.cute
    except ImportError as error:
        raise CompileError(
            "aot.cute needs CuTe DSL where engines are built; it needs no GPU: python -m pip "
            f"install nvidia-cutlass-dsl ({error})"
        ) from error
    return cutlass, cutlass.cute


def _extent_text(extent: Any, name: str) -> str:
    return str(extent) if isinstance(extent, int) else name


class _Wrapper:
    """A kernel of addresses and integers that makes tensors of them and calls the user's function."""

    def __init__(self, layout: Layout):
        self.layout = layout
        self.parameters: list[str] = []
        self.lines: list[str] = []
        self.arguments: list[str] = []

    def tensor(self, number: int, array: Array, is_pointer: bool) -> None:
        pointer = f"p{number}"
        self.parameters.append(f"{pointer}: cute.Pointer")
        self.layout.tensor(number)
        if is_pointer:
            self.arguments.append(pointer)
            return
        names = []
        for axis, extent in enumerate(array.extents):
            name = f"e{number}_{axis}"
            names.append(_extent_text(extent, name))
            if not isinstance(extent, int):
                self.parameters.append(f"{name}: Int32")
                self.layout.integer(extent)
        # Strides are 64 bits where they are open, as in tensors that the language makes of arrays.
        strides = []
        for axis in range(len(names)):
            factors = names[axis + 1 :]
            is_open = any(not factor.isdigit() for factor in factors)
            text = " * ".join(f"Int64({f})" if is_open else f for f in factors)
            strides.append(text or "1")
        shape, stride = ("".join(f"{each}, " for each in part) for part in (names, strides))
        self.lines.append(
            f"t{number} = cute.make_tensor({pointer}, cute.make_layout(({shape}), stride=({stride})))"
        )
        self.arguments.append(f"t{number}")

    def extra(self, number: int, type_name: str) -> None:
        self.parameters.append(f"s{number}: {type_name}")
        self.layout.extra(number)
        self.arguments.append(f"s{number}")

    def text(self, block: Sequence[int], constants: Iterable[str], shared: int | None) -> str:
        parameters = ", ".join(self.parameters)
        names = ", ".join(each.partition(":")[0] for each in self.parameters)
        arguments = ", ".join([*self.arguments, *(f"{name}=C_{name}" for name in constants)])
        body = "".join(f"    {line}\n" for line in [*self.lines, f"FUNCTION({arguments})"])
        smem = "" if shared is None else f", smem={shared}"
        return (
            f"@cute.kernel\ndef opwright_kernel({parameters}):\n{body}\n"
            f"@cute.jit\ndef opwright_host({parameters}):\n"
            f"    opwright_kernel({names}).launch(grid=(1, 1, 1), block={tuple(block)}{smem})\n"
        )


def _shared_memory(module: str) -> int | None:
    """What the launch in the host's part of a module asks for: the third field of the structure that
    it fills."""
    field = re.search(
        r"(%\w+) = llvm\.getelementptr %\w+\[0, 2\] : \(!llvm\.ptr\) -> !llvm\.ptr, "
        r"!llvm\.struct<\(array<3 x i32>, array<3 x i32>, i64, ",
        module,
    )
    stored = field and re.search(rf"llvm\.store (%\w+), {field[1]} : i64", module)
    value = stored and re.search(rf"{stored[1]} = llvm\.mlir\.constant\((\d+) : i64\)", module)
    return int(value[1]) if value else None


def _code_object(text: str, file: str) -> Any:
    return compile(text, file, "exec", dont_inherit=True)


@portable
def cute(
    kernel: Any,
    constants: Mapping[str, Any] | None = None,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    block: int | Sequence[int] = 128,
    shared_mem: int | None = None,
    arch: str | None = None,
    alignment: int | None = None,
    order: Iterable[str] | None = None,
) -> Code:
    """Compiles a kernel of CuTe DSL for GPUs, without a GPU.

    Its parameters, beside the constants, are a ``cute.Tensor`` per input, the extra arguments, and
    a ``cute.Tensor`` per output, in this order. A tensor has the extents of the network's, in C
    order: those that are known when the engine is built are static, others are `Int32`, which the
    engine passes. A parameter that is annotated as ``cute.Pointer`` gets only the address.

    An engine has no host function that computes layouts or a copy's atoms before a launch: the
    kernel makes them itself. ``code.launch(grid_x=...)`` makes the launch parameters. Results are
    cached by content in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.

    :param kernel: decorated with ``cute.kernel``.
    :param constants: the values of its parameters that are ``cutlass.Constexpr``.
    :param inputs: the descriptors that ``aot_impl`` gets. A pair of a data type and extents may
        replace a descriptor, ``(x.dtype, [x.shape_expr.numel()])``: for a kernel that sees other
        extents than the network's, or outside of a build.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param block: the number of threads, or a tuple of up to three.
    :param shared_mem: dynamic shared memory in bytes; without it, what the kernel allocates with
        ``cutlass.utils.SmemAllocator``.
    :param arch: ``"sm_90a"`` for a cubin, ``"compute_90"`` for PTX. Default: the architecture of
        the GPU that the engine is built for.
    :param alignment: bytes that divide the addresses of all tensors, if callers promise that.
        Default: the size of an element.
    :param order: for a kernel with another order of parameters: their names in the order of the
        inputs, the extra arguments and the outputs, ``["x", "n", "y"]``.
    :raises CompileError: for wrong parameters, with the compiler's messages, or for a missing
        package.
    """
    cutlass, package = _import()
    function = getattr(kernel, "__wrapped__", None)
    if not inspect.isfunction(function) or getattr(kernel, "_decorator_kind", None) != "kernel":
        raise TypeError(
            "aot.cute: the kernel must be a function decorated with cute.kernel; "
            f"{getattr(kernel, '__name__', type(kernel).__name__)} came"
        )
    arch = chosen_architecture("aot.cute", arch)
    target = arch.replace("compute_", "sm_")
    if (
        target in ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
        and kind(arch) != "ptx"
    ):
        target += "a"  # as CuTe DSL itself compiles for such a GPU
    check_alignment("aot.cute", alignment)
    inputs, given = list(inputs), symbols(extra)
    ins = arrays("aot.cute", "inputs", inputs, _ELEMENTS)
    outs = arrays("aot.cute", "outputs", outputs, _ELEMENTS, inputs)
    signature = inspect.signature(function)
    values = dict(constants or {})
    free = [name for name in signature.parameters if name not in values]
    without = left_out(len(free), len(ins) + len(given), outs)
    expected = len(ins) + len(given) + len(outs) - len(without)
    if len(free) != expected or not set(values) <= set(signature.parameters):
        raise CompileError(
            f"aot.cute: the kernel `{function.__name__}{signature}` has the parameters "
            f"({', '.join(free)}) beside the constants ({', '.join(values)}), but {len(ins)} "
            f"inputs, {len(given)} extra arguments and {len(outs)} outputs come, in this order"
        )
    threads = [*([block] if isinstance(block, int) else block), 1, 1][:3]

    def fail(reason: str) -> CompileError:
        return CompileError(f"aot.cute: the kernel `{function.__name__}{signature}`: {reason}")

    wrapper = _Wrapper(Layout(len(ins), given, len(outs)))
    samples: list[Any] = []
    for place, name in zip(places(free, order, fail, without), free):
        number = place - len(ins)
        if 0 <= number < len(given):
            scalar = _SCALARS[type(given[number])]
            if scalar is None:
                raise CompileError("aot.cute: kernels of CuTe DSL take no SymPointer")
            wrapper.extra(number, scalar)
            samples.append(getattr(cutlass, scalar)(0))
            continue
        tensor = place if number < 0 else place - len(given)
        array = [*ins, *outs][tensor]
        if array is None:
            raise CompileError(f"aot.cute: input {tensor} is absent, which no tensor of CuTe is")
        is_pointer = "Pointer" in str(signature.parameters[name].annotation)
        samples.append(
            package.runtime.make_ptr(
                getattr(cutlass, _ELEMENTS[array.dtype]),
                0,
                package.AddressSpace.gmem,
                assumed_align=max(alignment or 1, array.size),
            )
        )
        before = wrapper.layout.count
        wrapper.tensor(tensor, array, is_pointer)
        samples += [cutlass.Int32(1)] * (wrapper.layout.count - before - 1)

    text = wrapper.text(threads, values, shared_mem)

    def compile() -> tuple[dict[str, Any], bytes]:
        # The function is taken as one of the device. The preprocessor reads sources by their names.
        inner = FunctionType(
            getattr(function, "_original_code", function.__code__),
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        inner.__annotations__ = function.__annotations__
        inner.__kwdefaults__ = function.__kwdefaults__
        known = {f"C_{name}": value for name, value in values.items()}
        known |= {"cute": package, "FUNCTION": package.jit(inner), "__name__": __name__}
        known |= {name: getattr(cutlass, name) for name in {*_SCALARS.values()} - {None}}
        file = f"<opwright {next(_numbers)}: {function.__name__}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        try:
            exec(_code_object(text, file), known)
            with tempfile.TemporaryDirectory() as folder:
                made = package.compile(
                    known["opwright_host"],
                    *samples,
                    options=f"--gpu-arch {target} --keep-cubin --keep-ptx --dump-dir {folder}",
                )
                ptx, cubin, module = made.__ptx__, made.__cubin__, str(made.ir_module)
        except Exception as error:  # the compiler's passes raise many kinds
            raise CompileError(
                f"the kernel '{function.__name__}' of CuTe DSL does not compile for {target}: {error}"
            ) from error
        finally:
            linecache.cache.pop(file, None)
        ((symbol, parameters),) = _ptx.entries(ptx).items()
        shared = shared_mem if shared_mem is not None else _shared_memory(module)
        if shared is None:
            raise CompileError(
                f"aot.cute: how much shared memory the kernel '{function.__name__}' takes is not "
                "known; say so: shared_mem=..."
            )
        facts = {
            "name": symbol,
            "target": _ptx.target(ptx),
            "parameters": parameters,
            "shared": shared,
        }
        return facts, ptx.encode() if kind(arch) == "ptx" else bytes(cubin)

    try:
        content = repr(_identity(function, set()))
    except ValueError:
        facts, code = compile()
    else:
        described = repr((sorted(values.items()), [str(s) for s in samples], alignment))
        versions = getattr(cutlass, "__version__", "")
        parts: list[str | bytes] = ["cute", versions, content, text, described, target, arch]
        facts, code = cached_with_facts(parts, compile)
    if len(facts["parameters"]) != wrapper.layout.count:
        raise CompileError(
            f"aot.cute: the kernel '{function.__name__}' was compiled to one of "
            f"{len(facts['parameters'])} parameters; {wrapper.layout.count} were expected"
        )
    names = ("block_x", "block_y", "block_z")
    return Code(
        code,
        facts["name"],
        facts["target"],
        wrapper.layout.parameters,
        kind=kind(arch),
        added=wrapper.layout.added,
        order=wrapper.layout.order,
        launch={**dict(zip(names, threads)), "shared_mem": facts["shared"]},
    )
