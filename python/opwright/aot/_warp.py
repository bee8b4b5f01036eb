"""Kernels of NVIDIA Warp."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any

from .._core import DataType
from .._core._plugin import ShapeExpr
from . import _cuda
from ._arrays import ELEMENTS, Array, Layout, arrays, left_out, places, symbols
from ._code import Code, CompileError, by_symbol
from ._gpu import cached_with_facts, chosen_architecture, kind
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
    """The kernel alone in a module, for these types of its arguments."""
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
    """Warp then notes which arrays a kernel writes to. What it warns of is about gradients."""
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
    """What Warp generates, and what it says of shared memory."""
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
    :param dim: the threads' extents, as ``warp.launch`` has them: a number or extent, or up to four.
    :param inputs: the descriptors that ``aot_impl`` was given; None of one that is absent. A pair of a
        data type and extents may stand for a descriptor, ``(x.dtype, [x.shape_expr.numel()])``: for
        a kernel that sees other extents than the network has, or where no engine is being built.
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
    package = _import()
    if not isinstance(kernel, package.Kernel):
        raise TypeError(
            "aot.warp: the kernel must be a function decorated with warp.kernel; "
            f"{type(kernel).__name__} came"
        )
    arch = chosen_architecture("aot.warp", arch)
    number = int(re.sub(r"\D", "", arch))
    given = symbols(extra)
    inputs = list(inputs)
    ins = arrays("aot.warp", "inputs", inputs, _ELEMENTS)
    outs = arrays("aot.warp", "outputs", outputs, _ELEMENTS, inputs)
    threads = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    name, parameters = kernel.func.__name__, list(kernel.adj.args)
    text = f"{name}{inspect.signature(kernel.func)}"

    def fail(reason: str) -> CompileError:
        return CompileError(f"aot.warp: the kernel `{text}`: {reason}")

    if not 1 <= len(threads) <= _MOST_AXES:
        raise fail(f"dim has {len(threads)} extents; expected 1 to {_MOST_AXES}")
    without = left_out(len(parameters), len(ins) + len(given), outs)
    if len(parameters) + len(without) != len(ins) + len(given) + len(outs):
        raise fail(
            f"it has {len(parameters)} parameters, but {len(ins)} inputs, {len(given)} extra "
            f"arguments and {len(outs)} outputs come, in this order"
        )

    layout = Layout(len(ins), given, len(outs))
    declared, made, kinds = [], [], []
    taken = places([parameter.label for parameter in parameters], order, fail, without)
    for place, parameter in zip(taken, parameters):
        index = place - len(ins)
        if 0 <= index < len(given):
            scalar = _SCALARS[type(given[index])]
            if scalar is None:
                raise fail("kernels of Warp take no SymPointer")
            wanted = getattr(package, scalar[0])
            if parameter.type is not Any and not package.types.types_equal(parameter.type, wanted):
                raise fail(
                    f"'{parameter.label}' is no {scalar[0]}, which extra argument {index} is; "
                    "SymInt32 is int32, SymFloat32 float32 and so on"
                )
            layout.extra(index)
            declared.append(f"{scalar[1]} a{place}")
            made.append(f"a{place}")
            kinds.append(wanted)
            continue
        if not _is_array(parameter.type):
            raise fail(f"'{parameter.label}' is no array, but a tensor comes for it")
        tensor = place if index < 0 else place - len(given)
        array: Array | None = [*ins, *outs][tensor]
        layout.tensor(tensor)
        declared.append(f"void* a{place}")
        if array is None:
            made.append("{}")
            kinds.append(parameter.type)
            continue
        scalar_type, inner = _element(parameter.type.dtype)
        wanted = getattr(package, _ELEMENTS[array.dtype])
        if scalar_type is Any:
            kinds.append(package.array(dtype=wanted, ndim=parameter.type.ndim))
        elif not package.types.types_equal(scalar_type, wanted):
            raise fail(
                f"'{parameter.label}' has elements of another type than the tensor's, which are "
                f"{_ELEMENTS[array.dtype]}"
            )
        else:
            kinds.append(parameter.type)
        rank = parameter.type.ndim
        outer, own = array.extents[:rank], array.extents[rank:]
        if len(outer) != rank or (own and own != list(inner)) or len(own) != len(inner):
            shape = f"{rank} axes" + (f" and elements of {inner}" if inner else "")
            raise fail(f"'{parameter.label}' has {shape}; the tensor is {array.type_text}")
        sizes = []
        for axis, extent in enumerate(outer):
            layout.integer(extent)
            declared.append(f"int a{place}_{axis}")
            sizes.append(f"a{place}_{axis}")
        made.append(f"{{static_cast<TYPE{place}*>(a{place}), {', '.join(sizes)}}}")
    for axis, extent in enumerate(threads):
        layout.integer(extent)
        declared.append(f"int d{axis}")
    size = prod(threads)
    layout.integer(size, 64)
    declared.append("long long size")

    specialized = _specialized(package, kernel, kinds, block_dim)
    try:
        source, meta = _source(package, specialized, number)
    except Exception as error:  # Warp raises many kinds
        raise CompileError(
            f"the Warp kernel '{name}' does not compile for {arch}: {error}"
        ) from error
    updated = {array.aliased for array in outs if array is not None}
    for place, argument in zip(taken, specialized.adj.args):
        if place < len(ins) and place not in updated and argument.is_write:
            raise fail(
                f"it writes to '{argument.label}', which takes input {place}, whose values an engine "
                "keeps: describe an output as aliased to it, x.aliased()"
            )
    entry = f"{specialized.get_mangled_name()}_cuda_kernel_forward"
    found = [match for match in _KERNEL.finditer(source) if match["name"] == entry]
    if len(found) != 1:
        raise fail(f"Warp {package.__version__} has generated no source that is known")
    types = [p.rpartition(" ")[0].strip() for p in found[0]["parameters"].split(",\n")]
    rank = int(re.search(r"launch_bounds_t<(\d)>", types[0])[1])  # type: ignore[index]
    if rank > len(threads):
        raise fail(f"it asks for {rank} indices of its thread, but dim has {len(threads)} extents")

    symbol = f"opwright_kernel_{name}"
    arguments = []
    for place, argument, type_text in zip(taken, made, types[1:]):
        element = re.sub(r"^wp::array_t<(.*)>$", r"\1", type_text)
        arguments.append(
            type_text + argument.replace(f"TYPE{place}", element)
            if argument.startswith("{")
            else argument
        )
    # The axes of dim beyond those that the kernel asks for multiply the threads of each index.
    shape = ", ".join(f"static_cast<uint32_t>(d{axis})" for axis in range(rank))
    shared = " * ".join(["size_t(1)", *(f"d{axis}" for axis in range(rank, len(threads)))])
    bounds = f"wp::launch_bounds_t<{rank}>{{{{{shape}}}, static_cast<size_t>(size), {shared}}}"
    head = found[0].group(0)
    source = source.replace(head, head.replace('extern "C" __global__', "static __device__", 1), 1)
    source += (
        f'\nextern "C" __global__ {found[0]["attributes"]} void {symbol}('
        f"{', '.join(declared)}) {{\n  {entry}({', '.join([bounds, *arguments])});\n}}\n"
    )
    folder = Path(package.__file__).parent / "native"
    options = [f"--gpu-architecture={arch}", "--std=c++17", f"-I{folder}", "-DNDEBUG"]
    options += ["-DWP_ENABLE_MATHDX=0", "--device-as-default-execution-space", "--restrict"]
    options += ["--extra-device-vectorization", "--diag-suppress=177,550"]
    if specialized.module.options.get("fast_math"):
        options.append("--use_fast_math")
    options.append(
        f"--fmad={'true' if specialized.module.options.get('fuse_fp', True) else 'false'}"
    )
    parts: list[str | bytes] = ["warp", package.__version__, source, "\0".join(options[:2])]
    parts += [*options[3:], _cuda.compiler("aot.warp").version]
    facts, code = cached_with_facts(
        parts,
        lambda: _cuda.compile_source(
            source, f"{name}.cu", options, name, symbol, kind(arch) == "ptx", "aot.warp", "Warp"
        ),
    )
    blocks = size + block_dim - 1
    blocks = blocks // block_dim
    return Code(
        code,
        facts["name"],
        facts["target"],
        layout.parameters,
        kind=kind(arch),
        added=layout.added,
        order=layout.order,
        launch={
            "grid_x": blocks if isinstance(blocks, (int, ShapeExpr)) else ShapeExpr(blocks),
            "grid_y": 1,
            "grid_z": 1,
            "block_x": block_dim,
            "block_y": 1,
            "block_z": 1,
            "shared_mem": int(meta.get(f"{entry}_smem_bytes", 0)),
        },
    )
