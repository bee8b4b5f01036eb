"""Kernels that Triton compiles."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from .._core import DataType
from .._core._plugin import SymExprs
from . import _ptx
from ._arrays import places
from ._code import Code, CompileError, by_symbol, element_types, input_types
from ._gpu import cached_with_facts, chosen_architecture, kind
from ._saved import portable

_ELEMENTS = {
    DataType.FLOAT: "fp32",
    DataType.HALF: "fp16",
    DataType.BF16: "bf16",
    DataType.INT8: "i8",
    DataType.UINT8: "u8",
    DataType.INT32: "i32",
    DataType.INT64: "i64",
    DataType.BOOL: "i1",
    DataType.FP8: "fp8e4nv",
}
_SCALARS = by_symbol(
    {
        "int8": "i8",
        "int16": "i16",
        "int32": "i32",
        "int64": "i64",
        "float32": "fp32",
        "float64": "fp64",
        "pointer": "*i64",
    }
)
_MULTIPLE = 16  # the alignment in bytes, or the factor of an integer, that Triton makes use of


def imported() -> Any:
    try:
        import triton.backends.compiler
        import triton.compiler
    except ImportError as error:
        raise CompileError(
            "aot.triton needs Triton where engines are built; it needs no GPU: python -m pip "
            "install triton"
        ) from error
    return triton


def _kernel(triton: Any, kernel: Any) -> Any:
    """The kernel to compile. A kernel that was decorated for Triton's interpreter is converted."""
    if isinstance(kernel, triton.JITFunction):
        return kernel
    if type(kernel).__name__ == "InterpretedFunction":
        return triton.JITFunction(kernel.fn)
    if isinstance(getattr(kernel, "fn", None), triton.JITFunction):
        raise CompileError(
            f"aot.triton: the kernel '{kernel.fn.fn.__name__}' is decorated with "
            f"triton.{type(kernel).__name__.lower()}, which needs a GPU; pass the kernel that it "
            "decorates, with a tactic of the plugin for each configuration"
        )
    raise TypeError(
        f"aot.triton: the kernel must be a function decorated with triton.jit; "
        f"{type(kernel).__name__} came"
    )


class _Signature:
    """Maps a kernel's parameters to inputs, extra arguments, outputs and constants."""

    def __init__(self, kernel: Any, constexprs: Mapping[str, Any]):
        self.text = f"{kernel.fn.__name__}{inspect.signature(kernel.fn)}"
        names = [parameter.name for parameter in kernel.params]
        for name in constexprs:
            if name not in names:
                self.fail(f"constexprs names '{name}', which it does not have")
        self.constexprs = dict(constexprs)
        for parameter in kernel.params:
            if parameter.is_constexpr and parameter.name not in constexprs:
                if not parameter.has_default:
                    self.fail(
                        f"the constexpr '{parameter.name}' has no value: "
                        f"constexprs={{'{parameter.name}': ...}}"
                    )
                self.constexprs[parameter.name] = parameter.default
        self.names = names
        self.arguments = [name for name in names if name not in self.constexprs]

    def fail(self, reason: str) -> NoReturn:
        raise CompileError(f"aot.triton: the kernel `{self.text}`: {reason}")

    def take(self, order: Iterable[str] | None) -> tuple[int, ...]:
        """Sets the order of the arguments. Returns the argument of each parameter; empty if they
        have the kernel's order."""
        if order is None:
            return ()
        names, self.arguments = self.arguments, list(order)

        def fail(reason: str) -> CompileError:
            return CompileError(f"aot.triton: the kernel `{self.text}`: {reason}")

        return tuple(places(names, self.arguments, fail))

    def check_count(self, inputs: int, extra: int, outputs: int) -> None:
        if len(self.arguments) != inputs + extra + outputs:
            self.fail(
                f"it has {len(self.arguments)} parameters beside its constexprs "
                f"({', '.join(self.arguments)}), but {inputs} inputs, {extra} extra arguments and "
                f"{outputs} outputs come, in this order"
            )


def _message(kernel: Any, error: Exception) -> str:
    """The compiler's message, with the line in the user's file if it names one."""
    line = getattr(getattr(error, "node", None), "lineno", None)
    reason = getattr(error, "error_message", None)
    if line is None or getattr(error, "src", None) != kernel.src:
        return str(error)
    lines, first = inspect.getsourcelines(kernel.fn)
    first += next(i for i, text in enumerate(lines) if text.lstrip().startswith("def "))
    place = f"{kernel.fn.__code__.co_filename}:{first + line - 1}"
    cause = str(error.__cause__ or "")
    cause = f": {cause}" if cause and cause != reason else ""
    return f"{place}: {reason or 'here'}{cause}\n    {kernel.src.splitlines()[line - 1].strip()}"


def target_of(triton: Any, arch: str) -> Any:
    """Triton's object for the architecture."""
    number = int(arch.partition("_")[2].rstrip("af"))
    return triton.backends.compiler.GPUTarget("cuda", number, 32)


def _compile(
    triton: Any, source: Any, arch: str, options: dict[str, Any], kernel: Any
) -> tuple[dict[str, Any], bytes]:
    target = target_of(triton, arch)
    name = kernel.fn.__name__
    try:
        made = triton.compile(source, target=target, options=options)
    except Exception as error:  # the compiler's passes raise many kinds
        raise CompileError(
            f"the Triton kernel '{name}' does not compile for {arch}: {_message(kernel, error)}"
        ) from error
    return known_of("aot.triton", made, arch)


def known_of(maker: str, made: Any, arch: str) -> tuple[dict[str, Any], bytes]:
    """The needed facts about a kernel that Triton has compiled, and its code."""
    facts, ptx = made.metadata, made.asm["ptx"]
    if getattr(facts, "num_ctas", 1) != 1:
        raise CompileError(
            f"{maker}: the kernel '{facts.name}' has num_ctas={facts.num_ctas}; kernels for "
            "clusters cannot be launched"
        )
    known = {
        "name": facts.name,
        "target": _ptx.target(ptx),
        "parameters": _ptx.entries(ptx)[facts.name],
        "waits": _ptx.waits(ptx, facts.name),
        "num_warps": facts.num_warps,
        "shared": facts.shared,
        "scratch": [
            getattr(facts, "global_scratch_size", 0),
            getattr(facts, "profile_scratch_size", 0),
        ],
    }
    return known, ptx.encode() if kind(arch) == "ptx" else made.asm["cubin"]


def code_of(
    maker: str,
    facts: dict[str, Any],
    code: bytes,
    parameters: _ptx.Parameters,
    arch: str,
    **launch: Any,
) -> Code:
    """Makes the code from the facts of `known_of`. `launch` has the kernel's own grid, and
    `order`."""
    found, scratch = facts["parameters"], tuple(facts["scratch"])
    inputs, extra, outputs = parameters
    added = len(found) - inputs - len(extra) - outputs
    if 0 <= added <= len(scratch) and not any(scratch[added:]):
        found, scratch = found[: len(found) - added], scratch[:added]
    order = launch.pop("order", ())
    if order and len(found) == len(order):
        given = [found[order.index(number)] for number in range(len(found))]
    else:
        given = list(found)
    _ptx.check(maker, facts["name"], given, parameters)
    if order:  # the order must also include the pointers that Triton adds
        first = inputs + len(extra) + outputs
        order = (*order, *range(first, first + len(scratch)))
    block = {"block_x": 32 * facts["num_warps"], "block_y": 1, "block_z": 1}
    return Code(
        code,
        facts["name"],
        facts["target"],
        parameters,
        kind=kind(arch),
        scratch=scratch,
        order=order,
        begins_early=facts.get("waits", False),
        launch={**launch, **block, "shared_mem": facts["shared"]},
    )


@portable
def triton(
    kernel: Any,
    constexprs: Mapping[str, Any] | None = None,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    num_warps: int = 4,
    num_stages: int | None = None,
    arch: str | None = None,
    multiples_of_16: Iterable[str] = (),
    options: Mapping[str, Any] | None = None,
    order: Iterable[str] | None = None,
) -> Code:
    """Compiles a Triton kernel for GPUs, without a GPU.

    Its parameters, beside the constexprs, are a pointer per input, the extra arguments, and a
    pointer per output, in this order or in that of `order`. An absent optional input (None) is a
    null pointer to int8. A BOOL is a pointer to ``int1``, FP8 to ``float8e4nv``.

    ``code.launch(grid_x=...)`` makes the launch parameters, with the block and the shared memory
    that Triton chose. Triton adds pointers after the outputs. ``code.scratch`` declares them, and
    the engine fills them.

    Triton knows which integer extra arguments are constant multiples of 16. Addresses are only as
    aligned as the elements, since callers bring their own memory, and extents may be anything. With
    `multiples_of_16` you promise more, and Triton loads and stores 16 bytes at once.

    A kernel that calls ``tl.extra.cuda.gdc_wait()`` before it reads or writes begins while the
    kernels before it end. The option ``launch_pdl`` has no effect.

    The first compilation of a process takes a second. Results are cached by content in
    ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.

    :param kernel: decorated with ``triton.jit``.
    :param constexprs: the values of its constexpr parameters; those with a default may be left out.
    :param inputs: the descriptors that ``aot_impl`` gets, or data types; None for an absent one.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param num_warps: of 32 threads in each block.
    :param num_stages: of the software pipeline; None for Triton's own choice.
    :param arch: ``"sm_90"`` for a cubin, ``"compute_90"`` for PTX. Default: the architecture of the
        GPU that the engine is built for.
    :param multiples_of_16: names of parameters: pointers that are always aligned to 16 bytes, and
        integers that are always multiples of 16.
    :param options: further options of Triton's compiler, ``{"maxnreg": 128}``.
    :param order: for a kernel with another order of parameters: their names in the order of the
        inputs, the extra arguments and the outputs, ``["x", "n", "y"]``.
    :raises CompileError: for wrong parameters, with the compiler's messages, or for a missing
        package.
    """
    package = imported()
    function = _kernel(package, kernel)
    arch = chosen_architecture("aot.triton", arch)
    symbols = list(extra if isinstance(extra, SymExprs) else SymExprs.from_tuple(extra))
    ins, outs = input_types(inputs), element_types("outputs", outputs)
    parameters = (len(ins), tuple(type(symbol) for symbol in symbols), len(outs))
    signature = _Signature(function, constexprs or {})
    taken = signature.take(order)
    signature.check_count(len(ins), len(symbols), len(outs))
    for dtype in [*ins, *outs]:
        if dtype is not None and dtype not in _ELEMENTS:
            raise CompileError(f"aot.triton: there is no Triton type for elements of type {dtype}")

    kinds = ["*i8" if t is None else f"*{_ELEMENTS[t]}" for t in ins]
    kinds += [_SCALARS[type(symbol)] for symbol in symbols]
    kinds += [f"*{_ELEMENTS[t]}" for t in outs]
    types = dict(zip(signature.arguments, kinds))
    types |= dict.fromkeys(signature.constexprs, "constexpr")
    multiples = set(multiples_of_16)
    if not multiples <= set(signature.arguments):
        unknown = ", ".join(sorted(multiples - set(signature.arguments)))
        signature.fail(f"multiples_of_16 names {unknown}, which is no parameter")
    for name, symbol in zip(signature.arguments[len(ins) :], symbols):
        is_integer = _SCALARS[type(symbol)].startswith("i")
        if is_integer and symbol.is_constant and symbol.constant_value() % _MULTIPLE == 0:
            multiples.add(name)
    hint = [["tt.divisibility", _MULTIPLE]]
    attributes = {(i,): hint for i, name in enumerate(signature.names) if name in multiples}
    settings: dict[str, Any] = {"num_warps": num_warps, "enable_fp_fusion": True}
    if num_stages is not None:
        settings["num_stages"] = num_stages
    settings |= options or {}

    def compile() -> tuple[dict[str, Any], bytes]:
        source = package.compiler.ASTSource(
            fn=function,
            signature={name: types[name] for name in signature.names},
            constexprs=signature.constexprs,
            attrs=attributes,
        )
        return _compile(package, source, arch, settings, function)

    described = repr((types, sorted(signature.constexprs.items()), sorted(multiples), settings))
    parts = ["triton", package.__version__, function.cache_key, described, arch]
    facts, code = cached_with_facts(parts, compile)
    return code_of("aot.triton", facts, code, parameters, arch, order=taken)
