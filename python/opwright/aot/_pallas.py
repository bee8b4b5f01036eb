"""Kernels of Pallas, JAX's language, which Triton compiles."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .._core import DataType
from . import _triton
from ._adapter import Adapter, Given
from ._arrays import ELEMENTS, Array, check_alignment
from ._code import Code, CompileError
from ._gpu import cached_with_facts
from ._saved import portable

_ELEMENTS = {**ELEMENTS, DataType.BOOL: "bool_"}
_CALL = "__gpu$xla.gpu.triton"


def _import() -> Any:
    try:
        import jax
        import jax.numpy
    except ImportError as error:
        raise CompileError(
            "aot.pallas needs JAX where engines are built; it needs no GPU: python -m pip install "
            f"jax triton ({error})"
        ) from error
    return jax


class _Kernel:
    """JAX's lowering of a function that is a single Triton kernel."""

    def __init__(self, lowered: Any, fail: Callable[[str], CompileError]):
        from jax._src.lib.mlir import ir

        module = lowered.compiler_ir()
        functions = {f.attributes["sym_name"].value: f for f in module.body.operations}
        block, calls, end, names = self._body(functions["main"])
        # A function that jax.jit decorates appears as a call.
        while names == ["func.call"] and self._passes_on(block, calls[0], end):
            callee = calls[0].attributes["callee"].value
            block, calls, end, names = self._body(functions[callee])
        if names != [_CALL]:
            listed = ", ".join(names) or "nothing"
            if any("mosaic" in name for name in names):
                raise fail(
                    "it is one of Mosaic GPU, which JAX's runtime launches; have Triton compile it: "
                    "pallas_call(..., compiler_params=pallas.triton.CompilerParams())"
                )
            raise fail(f"it must be one pallas_call and nothing else; it is {listed}")
        call = calls[0]
        config = call.attributes["mhlo.backend_config"]
        if "output_operand_aliases" in call.attributes and len(
            call.attributes["output_operand_aliases"]
        ):
            raise fail("input_output_aliases cannot be compiled into an engine")
        arguments = list(block.arguments)
        self.operands = [arguments.index(operand) for operand in call.operands]
        self.results = [list(call.results).index(result) for result in end.operands]
        self.grid = [int(config[f"grid_{axis}"]) for axis in "xyz"]
        self.num_warps, self.num_stages = int(config["num_warps"]), int(config["num_stages"])
        self.name = ir.StringAttr(config["name"]).value
        self.text = self._as_text(ir, ir.StringAttr(config["ir"]).value_bytes)

    @staticmethod
    def _body(function: Any) -> tuple[Any, list[Any], Any, list[str]]:
        """A function's block, the operations before its end, the end, and the names of these
        operations."""
        (block,) = function.regions[0].blocks
        *calls, end = block.operations
        names = [str(getattr(call, "call_target_name", call.operation.name)) for call in calls]
        return block, calls, end, [name.strip('"') for name in names]

    @staticmethod
    def _passes_on(block: Any, call: Any, end: Any) -> bool:
        """Whether a call passes on the caller's arguments and results in the same order."""
        return list(call.operands) == list(block.arguments) and list(call.results) == list(
            end.operands
        )

    @staticmethod
    def _as_text(ir: Any, code: bytes) -> str:
        """The operations as text, since two versions of Triton agree on it but not on the
        bytecode."""
        from jax._src.lib import triton

        with ir.Context() as context, ir.Location.unknown():
            triton.dialect.register_dialect(context)
            module = ir.Module.parse(code)
            return str(module.operation.get_asm(enable_debug_info=False))


_CACHE = re.compile(r"(?P<cache> cacheModifier = \w+)?(?P<evict> evictionPolicy = \w+)?(?= :)")


def _cache_policy(found: re.Match[str]) -> str:
    """Converts a cache policy from the older syntax, which JAX writes, to that of Triton 3.9 and
    later."""
    if not found[0]:
        return ""
    cache, evict = (
        each.rpartition(" ")[2] if each else none
        for each, none in ((found["cache"], "none"), (found["evict"], "evict_normal"))
    )
    return (
        f" {{cachePolicy = #tt.cache_policy<cache_modifier = {cache}, eviction_policy = {evict}>}}"
    )


class _Function(Adapter):
    maker = "aot.pallas"
    elements = _ELEMENTS

    def __init__(self, function: Callable[..., Any], alignment: int | None, given: Given):
        self.jax, self.triton = _import(), _triton.imported()
        check_alignment(self.maker, alignment)
        self.function, self.alignment = function, alignment
        self.name = getattr(function, "__name__", type(function).__name__)
        super().__init__(f"'{self.name}'", given)
        self.samples: list[Any] = []

    def fail(self, reason: str) -> CompileError:
        return CompileError(f"{self.maker}: the function {self.kernel}: {reason}")

    def parameters(self) -> list[str]:
        """The parameters of the kernel that JAX makes: the inputs, then the outputs."""
        ports = (("input", self.inputs), ("output", self.outputs))
        return [f"{what} {number}" for what, arrays in ports for number in range(len(arrays))]

    def bind_extra(self, name: str, number: int) -> None:
        raise NotImplementedError  # attributes are numbers in the function

    def bind_tensor(self, name: str, number: int, array: Array | None) -> None:
        if array is None:
            raise self.fail(f"{name} is absent, which no array of JAX is")
        if not all(isinstance(extent, int) for extent in array.extents):
            raise self.fail(
                f"{name} has the extents {array.extents}; Pallas compiles for extents that are "
                "known. Build the engine for fixed shapes, or write an impl, which JAX runs"
            )
        dtype = getattr(self.jax.numpy, _ELEMENTS[array.dtype])
        self.samples.append(self.jax.ShapeDtypeStruct(tuple(array.extents), dtype))

    def compile(self) -> Code:
        kernel = self._lowered()
        text = self._text(kernel)
        settings = {
            "num_warps": kernel.num_warps,
            "num_stages": kernel.num_stages,
            "enable_fp_fusion": True,
        }
        parts = ["pallas", self.triton.__version__, text, repr(sorted(settings.items())), self.arch]
        facts, code = cached_with_facts(parts, lambda: self._compile(kernel.name, text, settings))
        # The kernel's outputs follow its inputs; the function may return them in another order.
        places = {result: place for place, result in enumerate(kernel.results)}
        order = [*kernel.operands, *(len(self.inputs) + places[r] for r in sorted(places))]
        grid = dict(zip(("grid_x", "grid_y", "grid_z"), kernel.grid))
        return _triton.code_of(
            self.maker, facts, code, self.layout.parameters, self.arch, order=tuple(order), **grid
        )

    def _lowered(self) -> _Kernel:
        count = len(self.inputs)
        try:
            traced = self.jax.jit(self.function).trace(*self.samples[:count])
            lowered = traced.lower(lowering_platforms=("cuda",))
        except Exception as error:  # the tracer raises many kinds
            raise CompileError(
                f"the Pallas kernel of '{self.name}' does not compile: {error}"
            ) from error
        made = self.jax.tree_util.tree_leaves(lowered.out_info)
        wanted = self.samples[count:]
        if [(m.shape, m.dtype) for m in made] != [(w.shape, w.dtype) for w in wanted]:
            returned, outputs = (
                ", ".join(f"{each.dtype}{list(each.shape)}" for each in arrays)
                for arrays in (made, wanted)
            )
            raise self.fail(f"it returns {returned}; the outputs are {outputs}")
        return _Kernel(lowered, self.fail)

    def _text(self, kernel: _Kernel) -> str:
        """The kernel in the syntax of the installed Triton, with less alignment: JAX promises more
        than callers' memory has."""

        def aligned(found: re.Match[str]) -> str:
            return f"tt.divisibility = {min(int(found[1]), self.alignment or 1)} : i32"

        text = re.sub(r"tt\.divisibility = (\d+) : i32", aligned, kernel.text)
        if tuple(map(int, self.triton.__version__.split(".")[:2])) >= (3, 9):
            text = re.sub(_CACHE, _cache_policy, text)
        return text

    def _compile(
        self, name: str, text: str, settings: dict[str, Any]
    ) -> tuple[dict[str, Any], bytes]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}.ttir"
            file.write_text(text)
            try:
                compiled = self.triton.compile(
                    str(file), target=_triton.target_of(self.triton, self.arch), options=settings
                )
            except Exception as error:  # the compiler's passes raise many kinds
                raise CompileError(
                    f"the Pallas kernel '{name}' does not compile for {self.arch} with Triton "
                    f"{self.triton.__version__}: {error}"
                ) from error
            return _triton.known_of(self.maker, compiled, self.arch)


@portable
def pallas(
    function: Callable[..., Any],
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    arch: str | None = None,
    alignment: int | None = None,
) -> Code:
    """Compiles a kernel of JAX Pallas for GPUs, without a GPU.

    JAX hands such a kernel to Triton, which compiles it. Its grid and block specifications are made
    of numbers, so all extents must be known when the engine is built. ``code.launch()`` has no
    arguments: the grid is the kernel's. Results are cached by content in ``$OPWRIGHT_CACHE_DIR`` or
    ``~/.cache/opwright``.

    :param function: of an array per input, that returns the arrays of the outputs, from one
        ``pallas_call`` with ``compiler_params=pallas.triton.CompilerParams()`` and nothing beside it.
        Attributes are numbers in it: there are no extra arguments.
    :param inputs: the descriptors that ``aot_impl`` was given. A pair of a data type and extents may
        stand for a descriptor, ``(x.dtype, [rows, columns])``.
    :param outputs: the same for the outputs.
    :param arch: ``"sm_90"`` for a cubin, ``"compute_90"`` for PTX. Default: the architecture of the
        GPU that the engine is built for.
    :param alignment: bytes that divide the addresses of all tensors, if callers promise that.
        Default: the size of an element.
    :raises CompileError: for extents that are open, for a function that is more than a kernel, with
        the compilers' messages, or saying which package is missing.
    """
    return _Function(function, alignment, Given(inputs, (), outputs, arch)).make(None)
