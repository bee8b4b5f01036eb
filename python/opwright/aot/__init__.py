"""Compiles kernels into engines: C++ and Numba functions for the CPU; CUDA C++ and kernels of
Triton, cuTile, CuTe DSL, Warp, TileLang, Pallas and Numba-CUDA for GPUs; and code that was compiled
elsewhere.

The functions return the ``code`` of a plugin's ``aot_impl``. Its ``name`` is the kernel's name, and
``launch`` makes the launch parameters::

    @trtp.aot_impl("example::scale")
    def scale_aot(x, factor, outputs, tactic):
        extra = trtp.SymIntExprs.from_tuple([trtp.SymInt64(x.shape_expr.numel())])
        code = aot.cpp(SOURCE, "scale", inputs=[x], extra=extra, outputs=outputs)
        return code.name, code, code.launch(), extra

Kernels have a pointer per input, the extra arguments, and a pointer per output as parameters. On
the CPU the function is called for each cell of the launch grid. It has the cell's x, y and z as
three more parameters, 64-bit integers.

`Code.save` writes a kernel to a file. `load` reads it in a build without the language or its
compiler.

`opwright.plugin.kernel` makes a whole plugin of a kernel.
"""

from __future__ import annotations

from ._arrays import aliased
from ._code import Code, CompileError
from ._cpp import cpp
from ._cuda import cuda
from ._cute import cute
from ._cutile import cutile
from ._gpu import architecture
from ._numba import numba
from ._numba_cuda import numba_cuda
from ._object import object
from ._pallas import pallas
from ._saved import load, open_extents
from ._tilelang import tilelang
from ._triton import triton
from ._warp import warp

__all__ = [
    "Code",
    "CompileError",
    "aliased",
    "architecture",
    "cpp",
    "cuda",
    "cute",
    "cutile",
    "load",
    "numba",
    "numba_cuda",
    "object",
    "open_extents",
    "pallas",
    "tilelang",
    "triton",
    "warp",
]
