"""Compiles the kernel of an operator of torch.library.triton_op into an engine."""

from __future__ import annotations

import itertools
import linecache
import operator as operators
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from .. import aot
from .. import plugin as trtp
from ..aot import CompileError
from ..plugin._torch import _function, _Operator
from ..plugin._torch_shapes import _EXAMPLES, _TO_TORCH, _Extents

_ALLOCATES = {torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.new_empty}
_OPTIONS = ("num_warps", "num_stages")
_numbers = itertools.count()


def has_kernel(target: torch._ops.OpOverload) -> bool:
    """Whether torch.library.triton_op defined the operator with a single kernel."""
    try:
        from torch._library.triton import get_triton_kernels_for_op
    except ImportError:
        return False
    return len(get_triton_kernels_for_op(target._schema.name)) == 1


class _Launch:
    """The single launch of an operator, which PyTorch traces without running it."""

    def __init__(self, name: str, graph: Graph):
        from torch._higher_order_ops.triton_kernel_wrap import (
            kernel_side_table,
            triton_kernel_wrapper_functional,
        )

        self._name = name
        launches = [n for n in graph.nodes if n.target is triton_kernel_wrapper_functional]
        if len(launches) != 1:
            self.fail(f"it launches {len(launches)} kernels; expected one")
        (launch,) = launches
        for node in graph.nodes:
            is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
            packet = getattr(node.target, "overloadpacket", None)
            if node.op == "call_function" and is_tensor:
                if packet not in _ALLOCATES and node.target is not operators.getitem:
                    self.fail(f"it computes {node.target} beside its kernel")
        self.kernel = kernel_side_table.get_kernel(launch.kwargs["kernel_idx"])
        constants = kernel_side_table.get_constant_args(launch.kwargs["constant_args_idx"])
        self.arguments: dict[str, Any] = {**launch.kwargs["kwargs"], **constants}
        self.options = {key: self.arguments.pop(key) for key in _OPTIONS if key in self.arguments}
        self.grid = (*launch.kwargs["grid"][0], 1, 1)[:3]
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        (output,) = [node for node in graph.nodes if node.op == "output"]
        results = output.args[0] if isinstance(output.args[0], (list, tuple)) else output.args
        self.outputs: list[str] = []
        """The parameters through which the results are written."""
        for result in results:
            if result.target is not operators.getitem or result.args[0] is not launch:
                self.fail("it returns something that its kernel does not write")
            self.outputs.append(result.args[1])
            if self.arguments[result.args[1]] in self.inputs:
                self.fail(f"its kernel writes to an input, '{result.args[1]}'")

    def fail(self, reason: str) -> None:
        raise CompileError(
            f"the operator '{self._name}' cannot be compiled into an engine: {reason}"
        )


def _reordered(kernel: Any, calls: Mapping[str, str], parameters: Sequence[str]) -> Any:
    """A kernel with `parameters` that calls the given one. `calls` has the value of each
    parameter."""
    import triton

    name = f"opwright_{kernel.fn.__name__}"
    passed = ", ".join(f"{theirs}={ours}" for theirs, ours in calls.items())
    text = f"def {name}({', '.join(parameters)}):\n    kernel({passed})\n"
    place = f"<opwright.torch {next(_numbers)}>"
    # Triton reads the source of the function that it compiles.
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    namespace = {"kernel": kernel, "__name__": kernel.fn.__module__}
    exec(compile(text, place, "exec"), namespace)
    return triton.jit(namespace[name])


def compile_kernel(
    operator: _Operator,
    name: str,
    inputs: Sequence[Any],
    attributes: Sequence[Any],
    outputs: Sequence[Any],
    arch: str | None = None,
) -> tuple[str, Any, Any, Any]:
    """The result of an ``aot_impl`` for these descriptors."""
    extents = _Extents(_EXAMPLES[0], True)
    with FakeTensorMode(shape_env=extents.env):
        fakes = [
            torch.empty(
                [extents.to_torch(extent) for extent in desc.shape_expr],
                dtype=_TO_TORCH[desc.dtype],
                device="cuda",
            )
            for desc in inputs
        ]

        def run(*tensors: torch.Tensor) -> Any:
            made = operator(operator.values(list(tensors), attributes))
            return made[0] if len(made) == 1 else tuple(made)

        traced = make_fx(dispatch_functionalize(run, FunctionalTensorMode()))(*fakes)
    launch = _Launch(name, traced.graph)
    kernel = launch.kernel
    constexprs: dict[str, Any] = {}
    calls: dict[str, str] = {}
    extra: list[Any] = []
    extra_names: list[str] = []
    for parameter in getattr(kernel, "params", ()):
        key = parameter.name
        if key not in launch.arguments:
            continue
        value = launch.arguments[key]
        value = value.meta["val"] if isinstance(value, Node) and _is_number(value) else value
        if key in launch.outputs:
            calls[key] = f"y{launch.outputs.index(key)}"
        elif isinstance(value, Node):
            if value not in launch.inputs:
                launch.fail(f"its kernel needs scratch memory, '{key}'")
            calls[key] = f"x{launch.inputs.index(value)}"
        elif parameter.is_constexpr:
            constexprs[key] = value
            calls[key] = key
        else:
            calls[key] = f"n{len(extra)}"
            extra_names.append(calls[key])
            extra.append(
                trtp.SymFloat32(value)
                if isinstance(value, float)
                else trtp.SymInt64(extents.from_torch(value))
            )
    names = [f"x{i}" for i in range(len(inputs))] + extra_names
    names += [f"y{i}" for i in range(len(outputs))]
    # Constexprs are annotated, since Triton does not recognize one that is not a number.
    wrapped = _reordered(kernel, calls, [*names, *(f"{key}: 'tl.constexpr'" for key in constexprs)])
    arguments = trtp.SymExprs.from_tuple(extra)
    code = aot.triton(
        wrapped,
        constexprs,
        inputs=inputs,
        outputs=outputs,
        extra=arguments,
        arch=arch,
        **launch.options,
    )
    grid = [
        extents.from_torch(n.meta["val"]) if isinstance(n, Node) else int(n) for n in launch.grid
    ]
    launched = code.launch(grid_x=grid[0], grid_y=grid[1], grid_z=grid[2])
    return code.name, code, launched, arguments


def _is_number(node: Node) -> bool:
    return not isinstance(node.meta.get("val"), torch.Tensor)


def register_kernel(plugin_id: str, operator: _Operator) -> None:
    """Gives the plugin of an operator its ``aot_impl`` for GPUs."""
    count = len(operator.tensors)

    def body(*positional: Any, **keywords: Any) -> Any:
        *values, outputs, _tactic = (*positional, *keywords.values())
        made = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return compile_kernel(operator, plugin_id, values[:count], values[count:], list(made))

    hints: dict[str, Any] = {tensor: trtp.TensorDesc for tensor in operator.tensors}
    hints |= operator.attributes
    hints |= {"outputs": Tuple[(trtp.TensorDesc,) * operator.returned], "tactic": int}
    function: Callable[..., Any] = _function(body, "aot", __name__, hints, {}, None)
    trtp.aot_impl(plugin_id, device="cuda")(function)
