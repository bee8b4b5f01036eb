"""The operator sample::rms_norm, compiled from C++, from a Numba function, from CUDA C++, or from a
kernel of Triton, Numba-CUDA, cuTile, CuTe DSL, Warp, TileLang or Pallas; or taken from files where such
kernels were saved."""

import enum
import functools
import math
from pathlib import Path
from typing import List, Tuple

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

FOLDER = Path(__file__).resolve().parent


@trtp.register("sample::rms_norm")
def rms_norm_desc(
    x: trtp.TensorDesc, scale: trtp.TensorDesc, epsilon: float = 1e-6
) -> trtp.TensorDesc:
    return x.like()


class Tactic(enum.IntEnum):
    """What a kernel is made from. The first two are for the CPU, the others for a GPU."""

    CPP = 1
    NUMBA = 2
    CUDA = 3
    TRITON = 4
    CUTILE = 5
    CUTE = 6
    WARP = 7
    TILELANG = 8
    PALLAS = 9
    NUMBA_CUDA = 10


# Those whose kernels have arrays with their extents for parameters.
OF_ARRAYS = (Tactic.CUTILE, Tactic.CUTE, Tactic.WARP, Tactic.TILELANG, Tactic.PALLAS)


# Those whose kernels say themselves how large the grid is.
OF_GRIDS = (Tactic.WARP, Tactic.TILELANG, Tactic.PALLAS)

NAMES = {trt.float32: "fp32", trt.float16: "fp16"}

# Where kernels for GPUs were saved, which then no compiler is needed for; the runner sets it.
kernels = None


# Types and tactics that the engine may choose from; the runner sets them, to try each by itself.
types = "FP32|FP16"
tactics = [Tactic.CPP, Tactic.NUMBA]


@trtp.autotune("sample::rms_norm")
def rms_norm_autotune(
    x: trtp.TensorDesc, scale: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination(", ".join([types] * 3), "LINEAR", tactics)]


def compile(tactic, inputs, epsilon, outputs, **options):
    """The kernel, and the extra arguments that it takes. Tensors are descriptors, or pairs of a data
    type and extents; `epsilon` is a number."""
    x = inputs[0]
    dtype, extents = (x.dtype, x.shape_expr) if isinstance(x, trtp.TensorDesc) else x
    *rows, columns = extents
    rows = math.prod(rows)
    if kernels is not None and tactic not in (Tactic.CPP, Tactic.NUMBA):
        return _load(tactic, dtype, rows, columns, epsilon)
    if tactic in OF_ARRAYS:
        return _compile_arrays(tactic, dtype, rows, columns, epsilon, options)
    extra = trtp.SymExprs.from_tuple([trtp.SymInt64(columns), trtp.SymFloat32(epsilon)])
    arguments = {"inputs": [dtype, dtype], "extra": extra, "outputs": [dtype], **options}
    if tactic == Tactic.CPP:
        flags = ["-fopenmp-simd"]
        code = aot.cpp(FOLDER / "rms_norm.cpp", "rms_norm", flags=flags, **arguments)
    elif tactic == Tactic.NUMBA:
        import rms_norm_numba

        code = aot.numba(rms_norm_numba.rms_norm, "rms_norm", **arguments)
    elif tactic == Tactic.CUDA:
        code = aot.cuda(FOLDER / "rms_norm.cu", "rms_norm", **arguments)
    elif tactic == Tactic.NUMBA_CUDA:
        import rms_norm_numba_cuda

        code = aot.numba_cuda(rms_norm_numba_cuda.rms_norm, "rms_norm", **arguments)
    else:
        import rms_norm_triton

        code = aot.triton(rms_norm_triton.rms_norm, {"BLOCK": 1024}, **arguments)
    return code, extra


def file_of(tactic, dtype, rows=None, columns=None):
    """The name of a saved kernel. Pallas has one for each shape."""
    extents = f"_{rows}x{columns}" if tactic == Tactic.PALLAS else ""
    return f"rms_norm_{Tactic(tactic).name.lower()}_{NAMES[dtype]}{extents}.kernel"


def _load(tactic, dtype, rows, columns, epsilon):
    matrix = (dtype, [rows, columns])
    extra = [trtp.SymFloat32(epsilon)]
    if tactic == Tactic.PALLAS:
        extra = []
    elif tactic not in OF_ARRAYS:
        extra = [trtp.SymInt64(columns), *extra]
    extra = trtp.SymExprs.from_tuple(extra)
    file = Path(kernels) / file_of(tactic, dtype, rows, columns)
    tensors = {"inputs": [matrix, (dtype, [columns])], "outputs": [matrix]}
    return aot.load(file, extra=extra, **tensors), extra


def _compile_arrays(tactic, dtype, rows, columns, epsilon, options):
    matrix = (dtype, [rows, columns])
    arguments = {"inputs": [matrix, (dtype, [columns])], "outputs": [matrix], **options}
    extra = trtp.SymExprs.from_tuple([trtp.SymFloat32(epsilon)])
    if tactic == Tactic.PALLAS:
        import rms_norm_pallas

        function = functools.partial(rms_norm_pallas.rms_norm, epsilon=epsilon)
        return aot.pallas(function, **arguments), trtp.SymExprs.from_tuple([])
    arguments["extra"] = extra
    if tactic == Tactic.CUTILE:
        import rms_norm_cutile

        return aot.cutile(rms_norm_cutile.rms_norm, {"BLOCK": 1024}, **arguments), extra
    if tactic == Tactic.CUTE:
        import rms_norm_cute

        block = rms_norm_cute.THREADS
        return aot.cute(rms_norm_cute.rms_norm, block=block, **arguments), extra
    if tactic == Tactic.WARP:
        import rms_norm_warp

        return aot.warp(rms_norm_warp.rms_norm, [rows, 256], **arguments), extra
    import rms_norm_tilelang

    name = {trt.float32: "float32", trt.float16: "float16"}[dtype]
    return aot.tilelang(rms_norm_tilelang.rms_norm(name), **arguments), extra


@trtp.aot_impl("sample::rms_norm")
def rms_norm_aot(
    x: trtp.TensorDesc,
    scale: trtp.TensorDesc,
    epsilon: float,
    outputs: Tuple[trtp.TensorDesc],
    tactic: int,
) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    code, extra = compile(tactic, [x, scale], epsilon, outputs)
    if tactic in OF_GRIDS:
        return code.name, code, code.launch(), extra
    block = {"block_x": 256} if tactic in (Tactic.CUDA, Tactic.NUMBA_CUDA) else {}
    return code.name, code, code.launch(grid_x=math.prod(list(x.shape_expr)[:-1]), **block), extra
