"""Kernels of NVIDIA Warp."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from .._core import DataType
from .._core._plugin import ShapeExpr
from . import _cuda
from ._adapter import Adapter, Given
from ._arrays import ELEMENTS, Array
from ._code import Code, CompileError, by_symbol
from ._gpu import cached_with_facts
from ._saved import portable

_ELEMENTS = {each: name for each, name in ELEMENTS.items() if each != DataType.FP8}
_SCALARS = by_symbol(
    {
        "int8": ("int8", "signed char"),
        "int16": ("int16", "short"),
        "int32": ("int32", "int"),
        "int64": ("int64", "long long"),
        "float32": ("float32", "float"),
        "float64": ("float64", "double"),
        "pointer": None,
    }
)
_MOST_AXES = 4


def _import() -> Any:
    try:
        import warp
    except ImportError as error:
        raise CompileError(
            "aot.warp needs Warp where engines are built; it needs no GPU: python -m pip install "
            f"warp-lang ({error})"
        ) from error
    return warp


def _element(dtype: Any) -> tuple[Any, tuple[int, ...]]:
    """The scalar type of an array's elements, and their extents: a vec3 has (3,)."""
    return getattr(dtype, "_wp_scalar_type_", dtype), tuple(getattr(dtype, "_shape_", ()))


def _is_array(kind: Any) -> bool:
    return hasattr(kind, "ndim") and hasattr(kind, "dtype")


def _specialized(warp: Any, kernel: Any, kinds: list[Any], block: int) -> Any:
    """A copy of the kernel in a module of its own, for these types of its arguments."""
    types = "_".join(re.sub(r"\W+", "_", repr(kind)) for kind in kinds)
    module = f"opwright_{kernel.key}_{hashlib.sha256(types.encode()).hexdigest()[:16]}"
    copy = warp.kernel(kernel.func, enable_backward=False, module=module)
    options = {**kernel.module.options, **kernel.options, "enable_backward": False}
    copy.module.options.update(options)
    copy.module.options["block_dim"] = block
    if copy.is_generic:
        copy = warp.overload(copy, kinds)
    return copy


@contextlib.contextmanager
def _watching_writes(warp: Any) -> Iterator[None]:
    """Makes Warp note which arrays a kernel writes to. Hides its warnings, which concern
    gradients."""
    wanted = {"verify_autograd_array_access": True, "log_level": logging.ERROR}
    before = {name: getattr(warp.config, name) for name in wanted if hasattr(warp.config, name)}
    for name in before:
        setattr(warp.config, name, wanted[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(warp.config, name, value)


def _source(warp: Any, kernel: Any, number: int) -> tuple[str, dict[str, Any]]:
    """The source that Warp generates, and its metadata on shared memory."""
    with tempfile.TemporaryDirectory() as folder, _watching_writes(warp):
        warp.compile_aot_module(kernel.module, arch=number, module_dir=folder, use_ptx=True)
        (source,) = Path(folder).glob("*.cu")
        facts: dict[str, Any] = {}
        for meta in Path(folder).glob("*.meta"):
            facts |= json.loads(meta.read_text())
        return source.read_text(), facts


_KERNEL = re.compile(
    r'extern "C" __global__ (?P<attributes>[^;{}]*?)\bvoid (?:WP_\w+\([^)]*\)\s*)*'
    r"(?P<name>\w+_cuda_kernel_forward)\(\s*(?P<parameters>[^)]*?)\)\s*\{",
    re.DOTALL,
)


@dataclass
class _Bound:
    """A parameter of the kernel, bound to the wrapper that calls the kernel."""

    label: str
    place: int
    """The number of its argument among inputs, extra arguments and outputs."""
    kind: Any
    """Its type in Warp."""
    value: str
    """Its value from the wrapper's parameters. For an array a list of its members, with ELEMENT for
    the element type."""


class _Kernel(Adapter):
    maker = "aot.warp"
    elements = _ELEMENTS

    def __init__(self, kernel: Any, dim: list[Any], block_dim: int, given: Given):
        self.warp = _import()
        if not isinstance(kernel, self.warp.Kernel):
            raise TypeError(
                "aot.warp: the kernel must be a function decorated with warp.kernel; "
                f"{type(kernel).__name__} came"
            )
        self.name, self.warp_kernel = kernel.func.__name__, kernel
        super().__init__(f"`{self.name}{inspect.signature(kernel.func)}`", given)
        if not 1 <= len(dim) <= _MOST_AXES:
            raise self.fail(f"dim has {len(dim)} extents; expected 1 to {_MOST_AXES}")
        self.dim, self.block_dim = dim, block_dim
        self.types = {parameter.label: parameter.type for parameter in kernel.adj.args}
        self.bound: list[_Bound] = []
        self.declared: list[str] = []  # the wrapper's parameters

    def parameters(self) -> list[str]:
        return list(self.types)

    def bind_extra(self, name: str, number: int) -> None:
        scalar = _SCALARS[type(self.extra[number])]
        if scalar is None:
            raise self.fail("kernels of Warp take no SymPointer")
        wanted, given = getattr(self.warp, scalar[0]), self.types[name]
        if given is not Any and not self.warp.types.types_equal(given, wanted):
            raise self.fail(
                f"'{name}' is no {scalar[0]}, which extra argument {number} is; SymInt32 is int32, "
                "SymFloat32 float32 and so on"
            )
        place = len(self.inputs) + number
        self.layout.extra(number)
        self.declared.append(f"{scalar[1]} a{place}")
        self.bound.append(_Bound(name, place, wanted, f"a{place}"))

    def bind_tensor(self, name: str, number: int, array: Array | None) -> None:
        if not _is_array(self.types[name]):
            raise self.fail(f"'{name}' is no array, but a tensor comes for it")
        place = number if number < len(self.inputs) else number + len(self.extra)
        self.layout.tensor(number)
        self.declared.append(f"void* a{place}")
        if array is None:
            self.bound.append(_Bound(name, place, self.types[name], "{}"))
            return
        kind = self._kind(name, array)
        sizes = [f"a{place}_{axis}" for axis in range(kind.ndim)]
        for extent, size in zip(array.extents, sizes):
            self.layout.integer(extent)
            self.declared.append(f"int {size}")
        value = f"{{static_cast<ELEMENT*>(a{place}), {', '.join(sizes)}}}"
        self.bound.append(_Bound(name, place, kind, value))

    def _kind(self, name: str, array: Array) -> Any:
        """The parameter's type, checked against the array's elements."""
        given = self.types[name]
        scalar, inner = _element(given.dtype)
        wanted = getattr(self.warp, _ELEMENTS[array.dtype])
        if scalar is not Any and not self.warp.types.types_equal(scalar, wanted):
            raise self.fail(
                f"'{name}' has elements of another type than the tensor's, which are "
                f"{_ELEMENTS[array.dtype]}"
            )
        rank = given.ndim
        outer, own = array.extents[:rank], array.extents[rank:]
        if len(outer) != rank or (own and own != list(inner)) or len(own) != len(inner):
            shape = f"{rank} axes" + (f" and elements of {inner}" if inner else "")
            raise self.fail(f"'{name}' has {shape}; the tensor is {array.type_text}")
        return self.warp.array(dtype=wanted, ndim=rank) if scalar is Any else given

    def compile(self) -> Code:
        for axis, extent in enumerate(self.dim):
            self.layout.integer(extent)
            self.declared.append(f"int d{axis}")
        size = prod(self.dim)
        self.layout.integer(size, 64)
        self.declared.append("long long size")

        number = int(re.sub(r"\D", "", self.arch))
        kinds = [each.kind for each in self.bound]
        specialized = _specialized(self.warp, self.warp_kernel, kinds, self.block_dim)
        try:
            source, meta = _source(self.warp, specialized, number)
        except Exception as error:  # Warp raises many kinds
            raise CompileError(
                f"the Warp kernel '{self.name}' does not compile for {self.arch}: {error}"
            ) from error
        self._check_writes(specialized.adj.args)
        entry = f"{specialized.get_mangled_name()}_cuda_kernel_forward"
        facts, code = self._compile(self._wrapped(source, entry), specialized.module.options)
        blocks = size + self.block_dim - 1
        blocks = blocks // self.block_dim
        return self.code(
            code,
            facts["name"],
            facts["target"],
            grid_x=blocks if isinstance(blocks, (int, ShapeExpr)) else ShapeExpr(blocks),
            grid_y=1,
            grid_z=1,
            block_x=self.block_dim,
            block_y=1,
            block_z=1,
            shared_mem=int(meta.get(f"{entry}_smem_bytes", 0)),
        )

    def _check_writes(self, arguments: Iterable[Any]) -> None:
        updated = {array.aliased for array in self.outputs if array is not None}
        for place, argument in zip(self.places, arguments):
            if place < len(self.inputs) and place not in updated and argument.is_write:
                raise self.fail(
                    f"it writes to '{argument.label}', which takes input {place}, whose values an "
                    "engine keeps: describe an output as aliased to it, x.aliased()"
                )

    @property
    def _symbol(self) -> str:
        return f"opwright_kernel_{self.name}"

    def _wrapped(self, source: str, entry: str) -> str:
        """The source with a kernel that takes addresses and integers and calls Warp's."""
        found = [match for match in _KERNEL.finditer(source) if match["name"] == entry]
        if len(found) != 1:
            raise self.fail(f"Warp {self.warp.__version__} has generated no source that is known")
        head, attributes = found[0].group(0), found[0]["attributes"]
        bounds, *types = [p.rpartition(" ")[0].strip() for p in found[0]["parameters"].split(",\n")]
        rank = int(re.search(r"launch_bounds_t<(\d)>", bounds)[1])  # type: ignore[index]
        if rank > len(self.dim):
            raise self.fail(
                f"it asks for {rank} indices of its thread, but dim has {len(self.dim)} extents"
            )
        # Axes of dim beyond the indices that the kernel uses multiply the threads of each index.
        shape = ", ".join(f"static_cast<uint32_t>(d{axis})" for axis in range(rank))
        shared = " * ".join(["size_t(1)", *(f"d{axis}" for axis in range(rank, len(self.dim)))])
        arguments = [
            f"wp::launch_bounds_t<{rank}>{{{{{shape}}}, static_cast<size_t>(size), {shared}}}"
        ]
        for each, type_text in zip(self.bound, types):
            element = re.sub(r"^wp::array_t<(.*)>$", r"\1", type_text)
            is_array = each.value.startswith("{")
            arguments.append(
                type_text + each.value.replace("ELEMENT", element) if is_array else each.value
            )
        source = source.replace(
            head, head.replace('extern "C" __global__', "static __device__", 1), 1
        )
        return source + (
            f'\nextern "C" __global__ {attributes} void {self._symbol}('
            f"{', '.join(self.declared)}) {{\n  {entry}({', '.join(arguments)});\n}}\n"
        )

    def _compile(self, source: str, module: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        folder = Path(self.warp.__file__).parent / "native"
        options = [f"--gpu-architecture={self.arch}", "--std=c++17", f"-I{folder}", "-DNDEBUG"]
        options += ["-DWP_ENABLE_MATHDX=0", "--device-as-default-execution-space", "--restrict"]
        options += ["--extra-device-vectorization", "--diag-suppress=177,550"]
        if module.get("fast_math"):
            options.append("--use_fast_math")
        options.append(f"--fmad={'true' if module.get('fuse_fp', True) else 'false'}")
        parts = ["warp", self.warp.__version__, source, "\0".join(options[:2]), *options[3:]]
        parts.append(_cuda.compiler(self.maker).version)
        given = (f"{self.name}.cu", options, self.name, self._symbol, self.is_ptx)
        return cached_with_facts(
            parts, lambda: _cuda.compile_source(source, *given, self.maker, "Warp")
        )


@portable
def warp(
    kernel: Any,
    dim: Any,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    block_dim: int = 256,
    arch: str | None = None,
    order: Iterable[str] | None = None,
) -> Code:
    """Compiles a kernel of Warp for GPUs, without a GPU.

    Its parameters are an array per input, the extra arguments, and an array per output, in this
    order. Arrays have the extents of the tensors, which may be open, in C order: the engine passes
    them. An array of vectors, matrices or quaternions takes a tensor whose last axes are theirs. A
    generic kernel (``wp.array(dtype=Any)``) is compiled for the tensors' types.

    A kernel that writes to an array that it reads has one parameter for both: describe the output
    as ``x.aliased()``, and leave it out of the parameters. Other inputs must not be written to.

    The grid follows from `dim`, so ``code.launch()`` has no arguments. It has no gradients. Warp
    makes CUDA C++ of the kernel, and NVRTC (``python -m pip install nvidia-cuda-nvrtc``) the code.
    Results are cached by content in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.

    :param kernel: decorated with ``warp.kernel``.
    :param dim: the threads' extents as in ``warp.launch``: a number or extent, or up to four.
    :param inputs: the descriptors that ``aot_impl`` gets; None for an absent one. A pair of a
        data type and extents may stand for a descriptor, ``(x.dtype, [x.shape_expr.numel()])``: for
        a kernel that sees other extents than the network's, or outside of a build.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param block_dim: the threads of a block. A kernel of tiles is launched with ``dim=[...,
        block_dim]``, as by ``warp.launch_tiled``.
    :param arch: ``"sm_90"`` for a cubin, ``"compute_90"`` for PTX. Default: the architecture of the
        GPU that the engine is built for.
    :param order: for a kernel with another order of parameters: their names in the order of the
        inputs, the extra arguments and the outputs, ``["x", "n", "y"]``.
    :raises CompileError: for wrong parameters, with the compiler's messages, or for a missing
        package.
    """
    threads = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    return _Kernel(kernel, threads, block_dim, Given(inputs, extra, outputs, arch)).make(order)
