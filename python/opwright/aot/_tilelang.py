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
from ._adapter import Adapter, Given
from ._arrays import ELEMENTS, SCALARS, Array
from ._code import Code, CompileError
from ._gpu import cached_with_facts
from ._nvrtc import header_folders
from ._saved import portable

# The host would have to make tensor descriptors for each shape.
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
    """Compares a buffer's shape with the tensor's, and keeps the names of its open extents."""
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


class _Kernel(Adapter):
    maker = "aot.tilelang"
    elements = ELEMENTS

    def __init__(self, kernel: Any, options: Mapping[str, Any], given: Given):
        self.tilelang = _import()
        if not isinstance(kernel, self.tilelang.tvm.tirx.PrimFunc):
            raise TypeError(
                "aot.tilelang: the kernel must be a T.prim_func, or what get_tir() of a function "
                f"that is decorated with tilelang.jit returns; {type(kernel).__name__} came"
            )
        self.name, self.function = str(kernel.attrs["global_symbol"]), kernel
        super().__init__(f"'{self.name}'", given)
        self.options = options
        self.named = {kernel.buffer_map.get(each, each).name: each for each in kernel.params}
        self.extents: dict[str, Any] = {}
        self.tensors: dict[str, int] = {}  # tensor numbers by the names of their addresses
        self.scalars: dict[str, int] = {}

    def parameters(self) -> list[str]:
        return list(self.named)

    def bind_extra(self, name: str, number: int) -> None:
        parameter = self.named[name]
        if parameter in self.function.buffer_map:
            raise self.fail(f"'{parameter.name}' is no scalar")
        scalar = SCALARS[type(self.extra[number])]
        if str(parameter.dtype) != scalar:
            raise self.fail(
                f"'{parameter.name}' is {parameter.dtype}; extra argument {number} is {scalar}"
            )
        self.scalars[parameter.name] = number

    def bind_tensor(self, name: str, number: int, array: Array | None) -> None:
        parameter = self.named[name]
        if parameter not in self.function.buffer_map:
            raise self.fail(f"'{parameter.name}' is a scalar")
        if array is None:
            raise self.fail(f"input {number} is absent, which no tensor of TileLang is")
        buffer = self.function.buffer_map[parameter]
        _bind(self.extents, buffer, array, self.fail)
        self.tensors[buffer.data.name] = number

    def compile(self) -> Code:
        made = self._lowered()
        functions = dict(made.device_mod.functions.items())
        if len(functions) != 1:
            raise self.fail(f"it has {len(functions)} kernels; an operator has one T.Kernel")
        ((symbol, function),) = functions.items()
        self._lay_out(function)
        launch = self._launch(function.attrs)
        facts, code = self._compile(str(made.kernel_source), symbol.name_hint)
        if len(facts["parameters"]) != self.layout.count:
            raise self.fail(
                f"its code takes {len(facts['parameters'])} parameters, not {self.layout.count}"
            )
        target = re.sub("^compute_", "sm_", facts["target"])
        return self.code(code, facts["name"], target, **launch)

    @property
    def _number(self) -> str:
        return self.arch.partition("_")[2]

    def _lowered(self) -> Any:
        tvm = self.tilelang.tvm
        target = tvm.target.Target({"kind": "cuda", "arch": f"sm_{self._number}"})
        config = {**_PASSES, **self.options}
        try:
            with target, tvm.transform.PassContext(opt_level=3, config=config):
                return self.tilelang.lower(self.function, target=target)
        except Exception as error:  # the compiler's passes raise many kinds
            raise CompileError(
                f"the TileLang kernel '{self.name}' does not compile for {self.arch}: {error}"
            ) from error

    def _lay_out(self, function: Any) -> None:
        """Lays out the parameters of the device function, which the compiler has decided."""
        for parameter in function.params:
            name, dtype = parameter.name, str(parameter.dtype)
            if name in self.tensors and dtype == "handle":
                self.layout.tensor(self.tensors[name])
            elif name in self.scalars:
                self.layout.extra(self.scalars[name])
            elif name in self.extents:
                self.layout.integer(self.extents[name], 64 if dtype == "int64" else 32)
            else:
                raise self.fail(
                    f"it takes '{name}', which TileLang's functions of the host would make"
                )

    def _launch(self, attributes: Any) -> dict[str, Any]:
        launch = {f"{part}_{axis}": 1 for part in ("grid", "block") for axis in "xyz"}
        for axis, extent in attributes["thread_extent"].items():
            part, _, letter = str(axis).partition(".")
            launch[f"{'grid' if part == 'blockIdx' else 'block'}_{letter}"] = _value(
                extent, self.extents, self.maker
            )
        for each in ("cluster_dims", "use_cooperative_groups"):
            if each in attributes:
                raise self.fail(f"it is launched with {each}, which engines do not")
        return {**launch, "shared_mem": int(attributes.get("dyn_shared_memory_buf", 0))}

    def _compile(self, source: str, symbol: str) -> tuple[dict[str, Any], bytes]:
        # As in TileLang itself, features of only one generation are used from compute capability
        # 9.0 on.
        is_specific = self._number in ("90", "100", "103", "120", "121") and not self.is_ptx
        compiler = _cuda.compiler(self.maker)
        options = [f"--gpu-architecture={self.arch}{'a' if is_specific else ''}", "--std=c++17"]
        options += [
            "-default-device",
            f"-D__CUDACC_VER_MAJOR__={compiler.version.partition('.')[0]}",
        ]
        environment = self.tilelang.env
        folders = [Path(environment.TILELANG_TEMPLATE_PATH), Path(environment.CUTLASS_INCLUDE_DIR)]
        flags = [*options, *(f"-I{folder}" for folder in [*folders, *header_folders()])]
        source = "#include <tl_templates/cuda/nvrtc_std.h>\n" + source
        if "std::numeric_limits" in source:  # NVRTC has only CCCL's
            source = (
                "#include <cuda/std/limits>\nnamespace std { using cuda::std::numeric_limits; }\n"
                + source
            )
        parts = ["tilelang", self.tilelang.__version__, source, *options, compiler.version]
        given = (f"{self.name}.cu", flags, self.name, symbol, self.is_ptx)
        return cached_with_facts(
            parts, lambda: _cuda.compile_source(source, *given, self.maker, "TileLang")
        )


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

    Its parameters are a ``T.Tensor`` per input, the extra arguments, and a ``T.Tensor`` per output,
    in this order. Open extents are ``T.dynamic("name")``. Extents with the same name are equal, and
    the engine passes the first tensor's. Grid, block and shared memory are the kernel's, so
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
    return _Kernel(kernel, options or {}, Given(inputs, extra, outputs, arch)).make(order)
