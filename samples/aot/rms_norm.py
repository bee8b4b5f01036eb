"""The operator sample::rms_norm, compiled from C++ or from a Numba function."""

import enum
import math
from pathlib import Path
from typing import List, Tuple

import rms_norm_numba

import opwright.plugin as trtp
from opwright import aot

FOLDER = Path(__file__).resolve().parent


@trtp.register("sample::rms_norm")
def rms_norm_desc(
    x: trtp.TensorDesc, scale: trtp.TensorDesc, epsilon: float = 1e-6
) -> trtp.TensorDesc:
    return x.like()


class Tactic(enum.IntEnum):
    """What a kernel is made from."""

    CPP = 1
    NUMBA = 2


# Types and tactics that the engine may choose from; the runner sets them, to try each alone.
types = "FP32|FP16"
tactics = [Tactic.CPP, Tactic.NUMBA]


@trtp.autotune("sample::rms_norm")
def rms_norm_autotune(
    x: trtp.TensorDesc, scale: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination(", ".join([types] * 3), "LINEAR", tactics)]


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
    arguments = {"inputs": [x, scale], "extra": extra, "outputs": outputs}
    if tactic == Tactic.NUMBA:
        code = aot.numba(rms_norm_numba.rms_norm, "rms_norm", **arguments)
    else:
        source = (FOLDER / "rms_norm.cpp").read_text()
        code = aot.cpp(source, "rms_norm", flags=["-fopenmp-simd"], **arguments)
    return code.name, code, trtp.KernelLaunchParams(grid_x=math.prod(rows)), extra
