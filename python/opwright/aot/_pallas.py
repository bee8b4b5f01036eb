"""Kernels of Pallas, JAX's language, which Triton compiles."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .._core import DataType
from . import _triton
from ._arrays import ELEMENTS, arrays, check_alignment
from ._code import Code, CompileError
from ._gpu import cached_with_facts, chosen_architecture
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
    """What JAX makes of a function that is one kernel of Triton."""

    def __init__(self, lowered: Any, fail: Callable[[str], CompileError]):
        from jax._src.lib.mlir import ir

        module = lowered.compiler_ir()
        functions = {f.attributes["sym_name"].value: f for f in module.body.operations}
        block, calls, end, names = self._body(functions["main"])
        # A function that is decorated with jax.jit is one that is called.
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
        """A function's block, the operations before its end, the end, and what the former are."""
        (block,) = function.regions[0].blocks
        *calls, end = block.operations
        names = [str(getattr(call, "call_target_name", call.operation.name)) for call in calls]
        return block, calls, end, [name.strip('"') for name in names]

    @staticmethod
    def _passes_on(block: Any, call: Any, end: Any) -> bool:
        """Whether a call has the caller's arguments and results, in their order."""
        return list(call.operands) == list(block.arguments) and list(call.results) == list(
            end.operands
        )

    @staticmethod
    def _as_text(ir: Any, code: bytes) -> str:
        """Two versions of Triton agree on the text of its operations, not on their bytes."""
        from jax._src.lib import triton

        with ir.Context() as context, ir.Location.unknown():
            triton.dialect.register_dialect(context)
            module = ir.Module.parse(code)
            return str(module.operation.get_asm(enable_debug_info=False))


_CACHE = re.compile(r"(?P<cache> cacheModifier = \w+)?(?P<evict> evictionPolicy = \w+)?(?= :)")


def _cache_policy(found: re.Match[str]) -> str:
    """How Triton has it from 3.9 on, of what JAX writes as Triton had it before."""
    if not found[0]:
        return ""
    cache, evict = (
        each.rpartition(" ")[2] if each else none
        for each, none in ((found["cache"], "none"), (found["evict"], "evict_normal"))
    )
    return (
        f" {{cachePolicy = #tt.cache_policy<cache_modifier = {cache}, eviction_policy = {evict}>}}"
    )


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
    jax = _import()
    package = _triton.imported()
    arch = chosen_architecture("aot.pallas", arch)
    check_alignment("aot.pallas", alignment)
    inputs = list(inputs)
    ins = arrays("aot.pallas", "inputs", inputs, _ELEMENTS)
    outs = arrays("aot.pallas", "outputs", outputs, _ELEMENTS, inputs)
    called = getattr(function, "__name__", type(function).__name__)

    def fail(reason: str) -> CompileError:
        return CompileError(f"aot.pallas: the function '{called}': {reason}")

    samples = []
    for what, number, array in [
        *(("input", i, a) for i, a in enumerate(ins)),
        *(("output", i, a) for i, a in enumerate(outs)),
    ]:
        if array is None:
            raise fail(f"input {number} is absent, which no array of JAX is")
        if not all(isinstance(extent, int) for extent in array.extents):
            raise fail(
                f"{what} {number} has the extents {array.extents}; Pallas compiles for extents that "
                "are known. Build the engine for fixed shapes, or write an impl, which JAX runs"
            )
        dtype = getattr(jax.numpy, _ELEMENTS[array.dtype])
        samples.append(jax.ShapeDtypeStruct(tuple(array.extents), dtype))

    try:
        traced = jax.jit(function).trace(*samples[: len(ins)])
        lowered = traced.lower(lowering_platforms=("cuda",))
    except Exception as error:  # the tracer raises many kinds
        raise CompileError(f"the Pallas kernel of '{called}' does not compile: {error}") from error
    made = jax.tree_util.tree_leaves(lowered.out_info)
    if [(m.shape, m.dtype) for m in made] != [(s.shape, s.dtype) for s in samples[len(ins) :]]:
        given = ", ".join(f"{m.dtype}{list(m.shape)}" for m in made)
        wanted = ", ".join(f"{s.dtype}{list(s.shape)}" for s in samples[len(ins) :])
        raise fail(f"it returns {given}; the outputs are {wanted}")
    kernel = _Kernel(lowered, fail)

    # JAX promises alignment that callers' memory need not have.
    def aligned(found: re.Match[str]) -> str:
        return f"tt.divisibility = {min(int(found[1]), alignment or 1)} : i32"

    text = re.sub(r"tt\.divisibility = (\d+) : i32", aligned, kernel.text)
    if tuple(map(int, package.__version__.split(".")[:2])) >= (3, 9):
        text = re.sub(_CACHE, _cache_policy, text)
    settings = {
        "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages,
        "enable_fp_fusion": True,
    }

    def compile() -> tuple[dict[str, Any], bytes]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_]', '_', kernel.name)}.ttir"
            file.write_text(text)
            try:
                compiled = package.compile(
                    str(file), target=_triton.target_of(package, arch), options=settings
                )
            except Exception as error:  # the compiler's passes raise many kinds
                raise CompileError(
                    f"the Pallas kernel '{kernel.name}' does not compile for {arch} with Triton "
                    f"{package.__version__}: {error}"
                ) from error
            return _triton.known_of("aot.pallas", compiled, arch)

    parts = ["pallas", package.__version__, text, repr(sorted(settings.items())), arch]
    facts, code = cached_with_facts(parts, compile)
    # The kernel's outputs follow its inputs; the function may return them in another order.
    places = {result: place for place, result in enumerate(kernel.results)}
    order = [*kernel.operands, *(len(ins) + places[r] for r in sorted(places))]
    parameters = (len(ins), (), len(outs))
    return _triton.code_of(
        "aot.pallas",
        facts,
        code,
        parameters,
        arch,
        order=tuple(order),
        **dict(zip(("grid_x", "grid_y", "grid_z"), kernel.grid)),
    )
