"""Kernels of cuTile, NVIDIA's language of tiles."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterable, Mapping
from typing import Any

from .._core import DataType
from ._adapter import Adapter, Given
from ._arrays import ELEMENTS, SCALARS, Array, check_alignment
from ._code import Code, CompileError, cached
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
    """The largest power of two up to `most` that is known to divide an extent or a stride."""
    if not isinstance(value, int) or value <= 0:
        return 1
    return min(value & -value, most)


def _constraint(
    tile: Any, array: Array, shared: str | None, alignment: int | None, index: Any
) -> Any:
    """The compiler's assumptions about an array. The array shares its memory only if `shared` names
    the memory."""
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


class _Kernel(Adapter):
    maker = "aot.cutile"
    elements = _ELEMENTS

    def __init__(
        self,
        kernel: Any,
        constants: Mapping[str, Any],
        alignment: int | None,
        index_bits: int,
        given: Given,
    ):
        self.tile, self.compilation = _import()
        if not isinstance(kernel, self.tile.kernel):
            raise TypeError(
                "aot.cutile: the kernel must be a function decorated with cuda.tile.kernel; "
                f"{type(kernel).__name__} came"
            )
        check_alignment(self.maker, alignment)
        if index_bits not in (32, 64):
            raise ValueError(f"aot.cutile: index_bits is 32 or 64; {index_bits} came")
        function = kernel._annotated_function.pyfunc
        self.tile_kernel, self.name = kernel, function.__name__
        self.signature = inspect.signature(function)
        super().__init__(f"`{self.name}{self.signature}`", given, constants)
        self.arch = self.arch.rstrip("af")
        if self.is_ptx:
            raise CompileError(
                f"aot.cutile: cuTile makes only cubins: arch='sm_90', not '{self.arch}'"
            )
        self.alignment, self.index_bits = alignment, index_bits
        self.constraints = dict(constants)

    def parameters(self) -> list[str]:
        return list(self.signature.parameters)

    def bind_extra(self, name: str, number: int) -> None:
        scalar = SCALARS[type(self.extra[number])]
        if scalar is None:
            raise CompileError("aot.cutile: cuTile's kernels take no SymPointer")
        self.layout.extra(number)
        self.constraints[name] = self.compilation.ScalarConstraint(getattr(self.tile, scalar))

    def bind_tensor(self, name: str, number: int, array: Array | None) -> None:
        if array is None:
            raise CompileError(f"aot.cutile: input {number} is absent, which no array of cuTile is")
        self.layout.tensor(number)
        for extent in array.extents:
            self.layout.integer(extent, self.index_bits)
        for axis in range(len(array.extents)):
            self.layout.integer(array.stride(axis), self.index_bits)
        memory = array.aliased if array.aliased >= 0 else number
        shared = f"memory{memory}" if memory in self._shared_memories() else None
        index = self.tile.int32 if self.index_bits == 32 else self.tile.int64
        self.constraints[name] = _constraint(self.tile, array, shared, self.alignment, index)

    def _shared_memories(self) -> set[int]:
        """The inputs whose memory two arrays share: cuTile requires two arrays for each named
        memory."""
        first = len(self.inputs) + len(self.extra)
        taken = [each for i, each in enumerate(self.outputs) if first + i in self.places]
        return {array.aliased for array in taken if array is not None} - {-1}

    def compile(self) -> Code:
        # The bytecode contains everything that determines the kernel.
        bytecode = self._export("tileir_bytecode")
        parts: list[str | bytes] = ["cutile", self.tile.__version__, self.arch, bytecode]
        code = cached(parts, lambda: self._export("cubin"))
        return self.code(code, self.name, self.arch, block_x=1, block_y=1, block_z=1, shared_mem=0)

    def _export(self, form: str) -> bytes:
        signature = self.compilation.KernelSignature(
            [self.constraints[name] for name in self.parameters()],
            self.compilation.CallingConvention.cutile_python_v1(),
            self.name,
        )
        file = io.BytesIO()
        try:
            self.compilation.export_kernel(
                self.tile_kernel, [signature], file, gpu_code=self.arch, output_format=form
            )
        except FileNotFoundError as error:
            raise CompileError(
                "aot.cutile needs tileiras, NVIDIA's compiler of tiles, where engines are built: "
                f"python -m pip install 'cuda-tile[tileiras]' ({error})"
            ) from error
        except Exception as error:  # the compiler's passes raise many kinds
            raise CompileError(
                f"the cuTile kernel '{self.name}' does not compile for {self.arch}: {error}"
            ) from error
        return file.getvalue()


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
    given = Given(inputs, extra, outputs, arch)
    return _Kernel(kernel, constants or {}, alignment, index_bits, given).make(order)
