"""Kernels that are compiled into engines, from what people have.

What :func:`cpp` and :func:`numba` return is the ``code`` of a plugin's ``aot_impl``, and its
``name`` the kernel's name::

    @trtp.aot_impl("example::scale")
    def scale_aot(x, factor, outputs, tactic):
        extra = trtp.SymIntExprs.from_tuple([trtp.SymInt64(x.shape_expr.numel())])
        code = aot.cpp(SOURCE, "scale", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, trtp.KernelLaunchParams(), extra

The user's function is called for each cell of the launch grid with a pointer per input, the extra
arguments, a pointer per output, and the cell's x, y and z as 64-bit integers.
"""

from __future__ import annotations

from ._code import Code, CompileError
from ._cpp import cpp
from ._numba import numba

__all__ = ["Code", "CompileError", "cpp", "numba"]
