"""Kernels of cuTile, NVIDIA's language of tiles."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterable, Mapping
from typing import Any

from .._core import DataType
from ._arrays import (
    ELEMENTS,
    SCALARS,
    Array,
    Layout,
    arrays,
    check_alignment,
    left_out,
    places,
    symbols,
)
from ._code import Code, CompileError, cached
from ._gpu import chosen_architecture, kind
from ._saved import portable

_ELEMENTS = {**ELEMENTS, DataType.BOOL: "bool_"}


def _import() -> tuple[Any, Any]:
    try:
        import cuda.tile
        import cuda.tile.compilation
    except ImportError as error:
        raise CompileError(
            "aot.cutile needs cuTile where engines are built; it needs no GPU: python -m pip install "
            f"'cuda-tile[tileiras]' ({error})"
        ) from error
    return cuda.tile, cuda.tile.compilation


def _divisor(value: Any, most: int) -> int:
    """The largest power of two up to `most` that divides an extent or a stride, as far as known."""
    if not isinstance(value, int) or value <= 0:
        return 1
    return min(value & -value, most)


def _constraint(
    tile: Any, array: Array, shared: str | None, alignment: int | None, index: Any
) -> Any:
    """What the compiler may assume of an array. Its memory is its own, unless `shared` names it."""
    most = max(16 // array.size, 1)
    rank = len(array.extents)
    strides = [array.stride(axis) for axis in range(rank)]
    return tile.compilation.ArrayConstraint(
        getattr(tile, _ELEMENTS[array.dtype]),
        rank,
        index_dtype=index,
        stride_lower_bound_incl=0,
        alias_groups=() if shared is None else (shared,),
        may_alias_internally=False,
        stride_constant=[*[None] * (rank - 1), 1][:rank],
        stride_divisible_by=[_divisor(stride, most) for stride in strides],
        shape_divisible_by=[_divisor(extent, most) for extent in array.extents],
        base_addr_divisible_by=max(alignment or 1, array.size),
    )


@portable
def cutile(
    kernel: Any,
    constants: Mapping[str, Any] | None = None,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    arch: str | None = None,
    alignment: int | None = None,
    index_bits: int = 32,
    order: Iterable[str] | None = None,
) -> Code:
    """Compiles a cuTile kernel for GPUs, without a GPU.

    Its parameters, beside the constants, are an array per input, the extra arguments, and an array
    per output, in this order. Arrays have the extents of the tensors, which may be open, in C order:
    the engine passes them. ``code.launch(grid_x=...)`` makes the launch parameters; the grid is one
    of tiles.

    The compiler is ``tileiras``, of NVIDIA's package ``nvidia-cuda-tileiras``. Results are cached by
    content in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.

    :param kernel: decorated with ``cuda.tile.kernel``.
    :param constants: the values of its parameters that are ``cuda.tile.Constant``.
    :param inputs: the descriptors that ``aot_impl`` gets. A pair of a data type and extents may
        replace a descriptor, ``(x.dtype, [x.shape_expr.numel()])``: for a kernel that sees other
        extents than the network's, or outside of a build.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param arch: ``"sm_90"``. Default: the architecture of the GPU that the engine is built for.
        cuTile makes only cubins.
    :param alignment: bytes that divide the addresses of all tensors, if callers promise that.
        Default: the size of an element.
    :param index_bits: of extents and strides: 64 for tensors of 2^31 elements and more. With 32 a
        larger one is an error when the shape is set.
    :param order: for a kernel with another order of parameters: their names in the order of the
        inputs, the extra arguments and the outputs, ``["x", "n", "y"]``.
    :raises CompileError: for wrong parameters, with the compiler's messages, or for a missing
        package.
    """
    tile, compilation = _import()
    if not isinstance(kernel, tile.kernel):
        raise TypeError(
            "aot.cutile: the kernel must be a function decorated with cuda.tile.kernel; "
            f"{type(kernel).__name__} came"
        )
    arch = chosen_architecture("aot.cutile", arch).rstrip("af")
    if kind(arch) == "ptx":
        raise CompileError(f"aot.cutile: cuTile makes cubins alone: arch='sm_90', not '{arch}'")
    check_alignment("aot.cutile", alignment)
    if index_bits not in (32, 64):
        raise ValueError(f"aot.cutile: index_bits is 32 or 64; {index_bits} came")
    inputs, given = list(inputs), symbols(extra)
    ins = arrays("aot.cutile", "inputs", inputs, _ELEMENTS)
    outs = arrays("aot.cutile", "outputs", outputs, _ELEMENTS, inputs)
    function = kernel._annotated_function.pyfunc
    name, text = function.__name__, f"{function.__name__}{inspect.signature(function)}"
    names, values = list(inspect.signature(function).parameters), dict(constants or {})
    free = [each for each in names if each not in values]
    without = left_out(len(free), len(ins) + len(given), outs)
    expected = len(ins) + len(given) + len(outs) - len(without)
    if len(free) != expected or not set(values) <= set(names):
        raise CompileError(
            f"aot.cutile: the kernel `{text}` has the parameters ({', '.join(free)}) beside the "
            f"constants ({', '.join(values)}), but {len(ins)} inputs, {len(given)} extra arguments "
            f"and {len(outs)} outputs come, in this order"
        )

    def fail(reason: str) -> CompileError:
        return CompileError(f"aot.cutile: the kernel `{text}`: {reason}")

    layout, constraints = Layout(len(ins), given, len(outs)), {}
    taken = [i for i in range(len(outs)) if len(ins) + len(given) + i not in without]
    # cuTile wants of each name of a memory that two arrays have it.
    aliased = {array.aliased for i in taken if (array := outs[i]) is not None} - {-1}
    index = tile.int32 if index_bits == 32 else tile.int64
    for place, parameter in zip(places(free, order, fail, without), free):
        number = place - len(ins)
        if 0 <= number < len(given):
            scalar = SCALARS[type(given[number])]
            if scalar is None:
                raise CompileError("aot.cutile: cuTile's kernels take no SymPointer")
            layout.extra(number)
            constraints[parameter] = compilation.ScalarConstraint(getattr(tile, scalar))
            continue
        tensor = place if number < 0 else place - len(given)
        array = [*ins, *outs][tensor]
        if array is None:
            raise CompileError(f"aot.cutile: input {tensor} is absent, which no array of cuTile is")
        layout.tensor(tensor)
        for extent in array.extents:
            layout.integer(extent, index_bits)
        for axis in range(len(array.extents)):
            layout.integer(array.stride(axis), index_bits)
        memory = array.aliased if array.aliased >= 0 else tensor
        shared = f"memory{memory}" if memory in aliased else None
        constraints[parameter] = _constraint(tile, array, shared, alignment, index)

    signature = compilation.KernelSignature(
        [constraints[n] if n in constraints else values[n] for n in names],
        compilation.CallingConvention.cutile_python_v1(),
        name,
    )

    def export(form: str) -> bytes:
        file = io.BytesIO()
        try:
            compilation.export_kernel(kernel, [signature], file, gpu_code=arch, output_format=form)
        except FileNotFoundError as error:
            raise CompileError(
                "aot.cutile needs tileiras, NVIDIA's compiler of tiles, where engines are built: "
                f"python -m pip install 'cuda-tile[tileiras]' ({error})"
            ) from error
        except Exception as error:  # the compiler's passes raise many kinds
            raise CompileError(
                f"the cuTile kernel '{name}' does not compile for {arch}: {error}"
            ) from error
        return file.getvalue()

    # The bytecode has all that the kernel is made of.
    parts: list[str | bytes] = ["cutile", tile.__version__, arch, export("tileir_bytecode")]
    code = cached(parts, lambda: export("cubin"))
    return Code(
        code,
        name,
        arch,
        layout.parameters,
        kind="cubin",
        added=layout.added,
        order=layout.order,
        launch={"block_x": 1, "block_y": 1, "block_z": 1, "shared_mem": 0},
    )
