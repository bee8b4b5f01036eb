"""Function plugins, named as in ``tensorrt.plugin``::

import opwright.plugin as trtp

@trtp.register("example::scale")
def scale_desc(x: trtp.TensorDesc, factor: float) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("example::scale")
def scale_impl(x, factor, outputs, stream):
    np.multiply(x, np.float32(factor), out=np.asarray(outputs[0]))

layer = network.add_plugin(trtp.op.example.scale(tensor, factor=2.0))
"""

from __future__ import annotations

from .._core._plugin import (
    AutoTuneCombination,
    Comm,
    KernelLaunchParams,
    PeerMemory,
    Shape,
    ShapeExpr,
    ShapeExprs,
    ShapeInput,
    SizeTensorDesc,
    SymExprs,
    SymFloat32,
    SymFloat64,
    SymInt8,
    SymInt16,
    SymInt32,
    SymInt64,
    SymIntExpr,
    SymIntExprs,
    SymPointer,
    Tensor,
    TensorDesc,
    cdiv,
    from_shape_expr,
    max,
    min,
    size_tensor,
)
from . import elements
from ._decorators import aot_impl, autotune, impl, pointwise_impl, reference, register
from ._kernel import kernel
from ._op import op
from ._signature import SignatureError
from ._torch import from_torch

SizeTensorShapeExpr = ShapeExpr
"""The extent in a size tensor, from `SizeTensorDesc.expr()`."""

__all__ = [
    "AutoTuneCombination",
    "Comm",
    "KernelLaunchParams",
    "PeerMemory",
    "Shape",
    "ShapeExpr",
    "ShapeExprs",
    "ShapeInput",
    "SignatureError",
    "SizeTensorDesc",
    "SizeTensorShapeExpr",
    "SymExprs",
    "SymFloat32",
    "SymFloat64",
    "SymInt8",
    "SymInt16",
    "SymInt32",
    "SymInt64",
    "SymIntExpr",
    "SymIntExprs",
    "SymPointer",
    "Tensor",
    "TensorDesc",
    "aot_impl",
    "autotune",
    "cdiv",
    "elements",
    "from_shape_expr",
    "from_torch",
    "impl",
    "kernel",
    "max",
    "min",
    "op",
    "pointwise_impl",
    "reference",
    "register",
    "size_tensor",
]
