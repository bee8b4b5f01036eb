"""Kernels of TileLang."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._core._plugin import ShapeExpr
from .._core._plugin import max as largest
from .._core._plugin import min as smallest
from . import _cuda
from ._arrays import ELEMENTS, SCALARS, Array, Layout, arrays, left_out, places, symbols
from ._code import Code, CompileError
from ._gpu import cached_with_facts, chosen_architecture, kind
from ._nvrtc import header_folders
from ._saved import portable

# Descriptors of tensors would have to be made by the host for each shape.
_PASSES = {"tl.disable_tma_lower": True, "tl.disable_warp_specialized": True}


def _import() -> Any:
    try:
        import tilelang
    except ImportError as error:
        raise CompileError(
            "aot.tilelang needs TileLang where engines are built; it needs no GPU: python -m pip "
            f"install tilelang ({error})"
        ) from error
    return tilelang


def _value(expression: Any, extents: Mapping[str, Any], maker: str) -> Any:
    """An integer expression of TVM over extents."""
    if isinstance(expression, int):
        return expression
    node = type(expression).__name__
    if node == "IntImm":
        return int(expression.value)
    if node == "Var":
        if expression.name not in extents:
            raise CompileError(f"{maker}: no tensor has the extent '{expression.name}'")
        return extents[expression.name]
    if node == "Cast":
        return _value(expression.value, extents, maker)
    if node in ("Add", "Sub", "Mul", "FloorDiv", "Div", "Max", "Min"):
        a, b = (_value(each, extents, maker) for each in (expression.a, expression.b))
        if node == "Add":
            return a + b
        if node == "Sub":
            return a - b
        if node == "Mul":
            return a * b
        if node in ("FloorDiv", "Div"):
            return a // b
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b) if node == "Max" else min(a, b)
        made = largest if node == "Max" else smallest
        return made(a if isinstance(a, ShapeExpr) else ShapeExpr(a), b)
    if node == "Call" and "shift_right" in str(expression.op):
        a, b = (_value(each, extents, maker) for each in expression.args)
        return a // 2**b
    raise CompileError(f"{maker}: the extent {expression} is no expression of sums and products")


def _bind(extents: dict[str, Any], buffer: Any, array: Array, fail: Any) -> None:
    """Compares a buffer's shape with the tensor's, and keeps what its open extents are called."""
    if len(buffer.shape) != len(array.extents):
        raise fail(f"'{buffer.name}' has {len(buffer.shape)} axes; the tensor is {array.type_text}")
    if str(buffer.dtype) != ELEMENTS[array.dtype]:
        raise fail(f"'{buffer.name}' is of {buffer.dtype}; the tensor is {array.type_text}")
    for axis, (declared, extent) in enumerate(zip(buffer.shape, array.extents)):
        name = getattr(declared, "name", None)
        if name is None:
            wanted = int(declared)
            if isinstance(extent, int) and extent != wanted:
                raise fail(f"'{buffer.name}' has {wanted} elements on axis {axis}; {extent} came")
            if not isinstance(extent, int):
                raise fail(
                    f"'{buffer.name}' has {wanted} elements on axis {axis}, which is open here: "
                    f'declare it as T.dynamic("name")'
                )
        elif isinstance(extents.setdefault(name, extent), int) and isinstance(extent, int):
            if extents[name] != extent:
                raise fail(f"'{name}' is {extents[name]} and {extent} at once")
        elif isinstance(extent, int):
            extents[name] = extent


@portable
def tilelang(
    kernel: Any,
    *,
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    extra: Iterable[Any] = (),
    arch: str | None = None,
    options: Mapping[str, Any] | None = None,
    order: Iterable[str] | None = None,
) -> Code:
    """Compiles a kernel of TileLang for GPUs, without a GPU.

    Its parameters are a ``T.Tensor`` per input, the extra arguments, and a ``T.Tensor`` per output, in
    this order. Open extents are ``T.dynamic("name")``; those that have one name are one, and the
    engine passes the first tensor's. Grid, block and shared memory are the kernel's, so
    ``code.launch()`` has no arguments.

    TileLang makes CUDA C++ of the kernel, and NVRTC (``python -m pip install nvidia-cuda-nvrtc
    nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt``) the code. Copies use no tensor
    descriptors (TMA), since a host function would have to fill them for each shape. Results are
    cached by content in ``$OPWRIGHT_CACHE_DIR`` or ``~/.cache/opwright``.

    :param kernel: a ``T.prim_func`` with one ``T.Kernel``; for a function that is decorated with
        ``tilelang.jit``, the result of its ``get_tir``.
    :param inputs: the descriptors that ``aot_impl`` gets. A pair of a data type and extents may
        replace a descriptor, ``(x.dtype, [x.shape_expr.numel()])``: for a kernel that sees other
        extents than the network's, or outside of a build.
    :param outputs: the same for the outputs.
    :param extra: the extra arguments that ``aot_impl`` returns.
    :param arch: ``"sm_90"`` for a cubin, ``"compute_90"`` for PTX. Default: the architecture of the
        GPU that the engine is built for.
    :param options: of TileLang's passes: ``{"tl.enable_fast_math": True}``.
    :param order: for a kernel with another order of parameters: their names in the order of the
        inputs, the extra arguments and the outputs, ``["x", "n", "y"]``.
    :raises CompileError: for wrong parameters, with the compiler's messages, or for a missing
        package.
    """
    package = _import()
    tvm = package.tvm
    if not isinstance(kernel, tvm.tirx.PrimFunc):
        raise TypeError(
            "aot.tilelang: the kernel must be a T.prim_func, or what get_tir() of a function that is "
            f"decorated with tilelang.jit returns; {type(kernel).__name__} came"
        )
    arch = chosen_architecture("aot.tilelang", arch)
    number = arch.partition("_")[2]
    given = symbols(extra)
    inputs = list(inputs)
    ins = arrays("aot.tilelang", "inputs", inputs, ELEMENTS)
    outs = arrays("aot.tilelang", "outputs", outputs, ELEMENTS, inputs)
    name = str(kernel.attrs["global_symbol"])

    def fail(reason: str) -> CompileError:
        return CompileError(f"aot.tilelang: the kernel '{name}': {reason}")

    without = left_out(len(kernel.params), len(ins) + len(given), outs)
    if len(kernel.params) + len(without) != len(ins) + len(given) + len(outs):
        raise fail(
            f"it has {len(kernel.params)} parameters, but {len(ins)} inputs, {len(given)} extra "
            f"arguments and {len(outs)} outputs come, in this order"
        )
    extents: dict[str, Any] = {}
    tensors, scalars = {}, {}
    names = [kernel.buffer_map.get(each, each).name for each in kernel.params]
    for place, parameter in zip(places(names, order, fail, without), kernel.params):
        index = place - len(ins)
        is_scalar = 0 <= index < len(given)
        if is_scalar != (parameter not in kernel.buffer_map):
            raise fail(f"'{parameter.name}' is {'a' if not is_scalar else 'no'} scalar")
        if is_scalar:
            scalar = SCALARS[type(given[index])]
            if str(parameter.dtype) != scalar:
                raise fail(
                    f"'{parameter.name}' is {parameter.dtype}; extra argument {index} is {scalar}"
                )
            scalars[parameter.name] = index
            continue
        tensor = place if index < 0 else place - len(given)
        array, buffer = [*ins, *outs][tensor], kernel.buffer_map[parameter]
        if array is None:
            raise fail(f"input {tensor} is absent, which no tensor of TileLang is")
        _bind(extents, buffer, array, fail)
        tensors[buffer.data.name] = tensor

    target = tvm.target.Target({"kind": "cuda", "arch": f"sm_{number}"})
    try:
        with target, tvm.transform.PassContext(opt_level=3, config={**_PASSES, **(options or {})}):
            made = package.lower(kernel, target=target)
    except Exception as error:  # the compiler's passes raise many kinds
        raise CompileError(
            f"the TileLang kernel '{name}' does not compile for {arch}: {error}"
        ) from error
    functions = [f for f in made.device_mod.functions.values()]
    if len(functions) != 1:
        raise fail(f"it has {len(functions)} kernels; an operator has one T.Kernel")
    function = functions[0]
    attributes, symbol = function.attrs, next(iter(made.device_mod.functions)).name_hint

    layout = Layout(len(ins), given, len(outs))
    for parameter in function.params:
        if parameter.name in tensors and str(parameter.dtype) == "handle":
            layout.tensor(tensors[parameter.name])
        elif parameter.name in scalars:
            layout.extra(scalars[parameter.name])
        elif parameter.name in extents:
            layout.integer(extents[parameter.name], 64 if str(parameter.dtype) == "int64" else 32)
        else:
            raise fail(
                f"it takes '{parameter.name}', which TileLang's functions of the host would make"
            )
    launch = {"grid_x": 1, "grid_y": 1, "grid_z": 1, "block_x": 1, "block_y": 1, "block_z": 1}
    for axis, extent in attributes["thread_extent"].items():
        part, _, letter = str(axis).partition(".")
        launch[f"{'grid' if part == 'blockIdx' else 'block'}_{letter}"] = _value(
            extent, extents, "aot.tilelang"
        )
    for each in ("cluster_dims", "use_cooperative_groups"):
        if each in attributes:
            raise fail(f"it is launched with {each}, which engines do not")
    shared = int(attributes.get("dyn_shared_memory_buf", 0))

    # As TileLang itself: features of one generation alone are used from 9.0 on.
    specific = "a" if number in ("90", "100", "103", "120", "121") and kind(arch) != "ptx" else ""
    folders = [Path(package.env.TILELANG_TEMPLATE_PATH), Path(package.env.CUTLASS_INCLUDE_DIR)]
    options_given = [f"--gpu-architecture={arch}{specific}", "--std=c++17", "-default-device"]
    compiler = _cuda.compiler("aot.tilelang")
    options_given.append(f"-D__CUDACC_VER_MAJOR__={compiler.version.partition('.')[0]}")
    flags = [*options_given, *(f"-I{folder}" for folder in [*folders, *header_folders()])]
    source = "#include <tl_templates/cuda/nvrtc_std.h>\n" + str(made.kernel_source)
    if "std::numeric_limits" in source:  # NVRTC has that of CCCL alone
        limits = "#include <cuda/std/limits>\nnamespace std { using cuda::std::numeric_limits; }\n"
        source = limits + source
    parts = ["tilelang", package.__version__, source, *options_given, compiler.version]
    facts, code = cached_with_facts(
        parts,
        lambda: _cuda.compile_source(
            source,
            f"{name}.cu",
            flags,
            name,
            symbol,
            kind(arch) == "ptx",
            "aot.tilelang",
            "TileLang",
        ),
    )
    if len(facts["parameters"]) != layout.count:
        raise fail(f"its code takes {len(facts['parameters'])} parameters, not {layout.count}")
    return Code(
        code,
        facts["name"],
        re.sub("^compute_", "sm_", facts["target"]),
        layout.parameters,
        kind=kind(arch),
        added=layout.added,
        order=layout.order,
        launch={**launch, "shared_mem": shared},
    )
