"""Kernels of CuTe DSL, CUTLASS's language in Python."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import linecache
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from .._core import DataType
from . import _ptx
from ._adapter import Adapter, Given
from ._arrays import Array, Layout, check_alignment
from ._code import Code, CompileError, by_symbol
from ._gpu import cached_with_facts
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
    """Writes a kernel that takes addresses and integers, makes tensors of them, and calls the
    user's function."""

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
        # Open strides have 64 bits, as in tensors that the language makes of arrays.
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
    """The dynamic shared memory of the launch in a module's host code: the third field of the
    launch structure."""
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


def _target(arch: str, is_ptx: bool) -> str:
    """The architecture that CuTe DSL itself uses for such a GPU."""
    target = arch.replace("compute_", "sm_")
    generations = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
    return target + "a" if target in generations and not is_ptx else target


def _of_device(function: FunctionType) -> FunctionType:
    """The function, marked as a device function."""
    inner = FunctionType(
        getattr(function, "_original_code", function.__code__),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    inner.__annotations__ = function.__annotations__
    inner.__kwdefaults__ = function.__kwdefaults__
    return inner


@contextlib.contextmanager
def _as_file(name: str, text: str) -> Iterator[str]:
    """Registers source text under a file name, since the preprocessor reads sources by file
    name."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    try:
        yield name
    finally:
        linecache.cache.pop(name, None)


class _Kernel(Adapter):
    maker = "aot.cute"
    elements = _ELEMENTS

    def __init__(
        self,
        kernel: Any,
        constants: Mapping[str, Any],
        block: Sequence[int],
        shared_mem: int | None,
        alignment: int | None,
        given: Given,
    ):
        self.cutlass, self.cute = _import()
        function = getattr(kernel, "__wrapped__", None)
        if not inspect.isfunction(function) or getattr(kernel, "_decorator_kind", None) != "kernel":
            raise TypeError(
                "aot.cute: the kernel must be a function decorated with cute.kernel; "
                f"{getattr(kernel, '__name__', type(kernel).__name__)} came"
            )
        check_alignment(self.maker, alignment)
        self.function, self.signature = function, inspect.signature(function)
        super().__init__(f"`{function.__name__}{self.signature}`", given, constants)
        self.values, self.block = constants, [*block, 1, 1][:3]
        self.shared_mem, self.alignment = shared_mem, alignment
        self.target = _target(self.arch, self.is_ptx)
        self.wrapper = _Wrapper(self.layout)
        self.samples: list[Any] = []

    def parameters(self) -> list[str]:
        return list(self.signature.parameters)

    def bind_extra(self, name: str, number: int) -> None:
        scalar = _SCALARS[type(self.extra[number])]
        if scalar is None:
            raise CompileError("aot.cute: kernels of CuTe DSL take no SymPointer")
        self.wrapper.extra(number, scalar)
        self.samples.append(getattr(self.cutlass, scalar)(0))

    def bind_tensor(self, name: str, number: int, array: Array | None) -> None:
        if array is None:
            raise CompileError(f"aot.cute: input {number} is absent, which no tensor of CuTe is")
        self.samples.append(
            self.cute.runtime.make_ptr(
                getattr(self.cutlass, _ELEMENTS[array.dtype]),
                0,
                self.cute.AddressSpace.gmem,
                assumed_align=max(self.alignment or 1, array.size),
            )
        )
        before = self.layout.count
        is_pointer = "Pointer" in str(self.signature.parameters[name].annotation)
        self.wrapper.tensor(number, array, is_pointer)
        self.samples += [self.cutlass.Int32(1)] * (self.layout.count - before - 1)

    def compile(self) -> Code:
        text = self.wrapper.text(self.block, self.values, self.shared_mem)
        try:
            content = repr(_identity(self.function, set()))
        except ValueError:
            facts, code = self._compile(text)
        else:
            samples = [str(sample) for sample in self.samples]
            described = repr((sorted(self.values.items()), samples, self.alignment))
            version = getattr(self.cutlass, "__version__", "")
            parts = ["cute", version, content, text, described, self.target, self.arch]
            facts, code = cached_with_facts(parts, lambda: self._compile(text))
        if len(facts["parameters"]) != self.layout.count:
            raise CompileError(
                f"aot.cute: the kernel '{self.function.__name__}' was compiled to one of "
                f"{len(facts['parameters'])} parameters; {self.layout.count} were expected"
            )
        block = dict(zip(("block_x", "block_y", "block_z"), self.block))
        return self.code(code, facts["name"], facts["target"], **block, shared_mem=facts["shared"])

    def _compile(self, text: str) -> tuple[dict[str, Any], bytes]:
        name = self.function.__name__
        known = {f"C_{name}": value for name, value in self.values.items()}
        known |= {"cute": self.cute, "FUNCTION": self.cute.jit(_of_device(self.function))}
        known |= {each: getattr(self.cutlass, each) for each in {*_SCALARS.values()} - {None}}
        known["__name__"] = __name__
        try:
            with _as_file(f"<opwright {next(_numbers)}: {name}>", text) as file:
                exec(_code_object(text, file), known)
                with tempfile.TemporaryDirectory() as folder:
                    made = self.cute.compile(
                        known["opwright_host"],
                        *self.samples,
                        options=f"--gpu-arch {self.target} --keep-cubin --keep-ptx --dump-dir {folder}",
                    )
                    ptx, cubin, module = made.__ptx__, made.__cubin__, str(made.ir_module)
        except Exception as error:  # the compiler's passes raise many kinds
            raise CompileError(
                f"the kernel '{name}' of CuTe DSL does not compile for {self.target}: {error}"
            ) from error
        ((symbol, parameters),) = _ptx.entries(ptx).items()
        shared = self.shared_mem if self.shared_mem is not None else _shared_memory(module)
        if shared is None:
            raise CompileError(
                f"aot.cute: how much shared memory the kernel '{name}' takes is not known; say so: "
                "shared_mem=..."
            )
        facts = {
            "name": symbol,
            "target": _ptx.target(ptx),
            "parameters": parameters,
            "shared": shared,
        }
        return facts, ptx.encode() if self.is_ptx else bytes(cubin)


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
    threads = [block] if isinstance(block, int) else block
    given = Given(inputs, extra, outputs, arch)
    return _Kernel(kernel, constants or {}, threads, shared_mem, alignment, given).make(order)
