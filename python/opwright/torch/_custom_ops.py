"""Operators that users define with torch.library become plugins."""

from __future__ import annotations

import functools
from typing import Any

import torch

from .. import plugin as trtp
from .._core import ITensor
from ..plugin._torch import _Operator
from ._converters import Converter
from ._triton_ops import has_kernel, register_kernel
from ._writer import Unsupported, Writer, known

_OWN = {"aten", "prim", "prims", "higher_order", "inductor", "_c10d_functional", "quantized"}


def custom_converter(target: Any) -> Converter | None:
    """The converter of an operator that is not PyTorch's own; None for PyTorch's own."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _OWN:
        return None
    return functools.partial(_add_plugin, target)


def _plugin(target: torch._ops.OpOverload, operator: _Operator) -> Any:
    """The plugin with the operator's name, or else one that calls the operator."""
    namespace, _, name = target._schema.name.partition("::")
    try:
        return getattr(getattr(trtp.op, namespace), name)
    except AttributeError:
        op = trtp.from_torch(target.name())
    if has_kernel(target):
        register_kernel(f"{namespace}::{name}", operator)
    return op


def _add_plugin(target: torch._ops.OpOverload, w: Writer, *args: Any, **options: Any) -> Any:
    arguments = target._schema.arguments
    values = {argument.name: value for argument, value in zip(arguments, args)} | options
    try:
        operator = _Operator(target, {})
        if operator.mutated:
            raise Unsupported(f"it writes to its argument '{operator.mutated[0]}'")
        op = _plugin(target, operator)
    except NotImplementedError as error:
        raise Unsupported(str(error)) from error
    tensors: list[ITensor | None] = [values.get(name) for name in operator.tensors]
    while tensors and tensors[-1] is None and operator.variable is None:
        tensors.pop()
    if operator.variable is not None:
        tensors += values[operator.variable]
    attributes = {}
    for name in operator.attributes:
        value = values.get(name, operator.defaults.get(name))
        number = known(value) if isinstance(value, torch.SymInt) else value
        if number is None:
            raise Unsupported(f"its argument '{name}' is an extent that is not known")
        attributes[name] = number
    # If the plugin has both, an engine for a GPU uses the kernel instead of the Python call.
    compiled = True if w.on_gpu and has_kernel(target) else None
    layer = w.network.add_plugin(op(*tensors, **attributes), compiled)
    outputs = tuple(layer.get_output(i) for i in range(layer.num_outputs))
    return outputs if isinstance(w.meta, (tuple, list)) else outputs[0]
