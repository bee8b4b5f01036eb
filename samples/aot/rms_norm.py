"""The operator sample::rms_norm, compiled from C++, from a Numba function, from CUDA C++ or from a
Triton kernel."""

import enum
import math
from pathlib import Path
from typing import List, Tuple

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


# Types and tactics that the engine may choose from; the runner sets them, to try each alone.
types = "FP32|FP16"
tactics = [Tactic.CPP, Tactic.NUMBA]


@trtp.autotune("sample::rms_norm")
def rms_norm_autotune(
    x: trtp.TensorDesc, scale: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination(", ".join([types] * 3), "LINEAR", tactics)]


def compile(tactic, inputs, extra, outputs, **options) -> aot.Code:
    """The kernel, for these types."""
    arguments = {"inputs": inputs, "extra": extra, "outputs": outputs, **options}
    if tactic == Tactic.CPP:
        return aot.cpp(FOLDER / "rms_norm.cpp", "rms_norm", flags=["-fopenmp-simd"], **arguments)
    if tactic == Tactic.NUMBA:
        import rms_norm_numba

        return aot.numba(rms_norm_numba.rms_norm, "rms_norm", **arguments)
    if tactic == Tactic.CUDA:
        return aot.cuda(FOLDER / "rms_norm.cu", "rms_norm", **arguments)
    import rms_norm_triton

    return aot.triton(rms_norm_triton.rms_norm, {"BLOCK": 1024}, **arguments)


@trtp.aot_impl("sample::rms_norm")
def rms_norm_aot(
    x: trtp.TensorDesc,
    scale: trtp.TensorDesc,
    epsilon: float,
    outputs: Tuple[trtp.TensorDesc],
    tactic: int,
) -> Tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
    *rows, columns = x.shape_expr
    extra = trtp.SymExprs.from_tuple([trtp.SymInt64(columns), trtp.SymFloat32(epsilon)])
    code = compile(tactic, [x, scale], extra, outputs)
    block = {"block_x": 256} if tactic == Tactic.CUDA else {}
    return code.name, code, code.launch(grid_x=math.prod(rows), **block), extra
