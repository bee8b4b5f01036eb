"""Compiles sample::rms_norm from each kind of source.

A kernel becomes part of an engine, which runs in this process and then in the native program, without
Python and with an empty environment; both results are compared with NumPy's. Where there is no GPU, or
an architecture is named, a kernel for GPUs is only compiled, and saved with --kernels; on the machine
with the GPU --kernels takes it from there. The exit status is 0 where all is right, otherwise 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import rms_norm
from rms_norm import Tactic

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

TYPES = {"fp32": trt.float32, "fp16": trt.float16}
TOLERANCE = {"fp32": 1e-6, "fp16": 1e-3}  # of results up to 1: some roundings of their types
EPSILON = 1e-5
FOR_GPU = [tactic for tactic in Tactic if tactic not in (Tactic.CPP, Tactic.NUMBA)]
# What each is made with, beside NumPy and Opwright.
PACKAGES = {
    Tactic.NUMBA: "numba",
    Tactic.TRITON: "triton",
    Tactic.CUTILE: "cuda.tile",
    Tactic.CUTE: "cutlass.cute",
    Tactic.WARP: "warp",
    Tactic.TILELANG: "tilelang",
    Tactic.PALLAS: "jax",
    Tactic.NUMBA_CUDA: "numba_cuda",
}
# The shape of Pallas, whose kernels have fixed extents.
FIXED = (64, 768)
# What the program may need to find the driver; all else it does without.
KEPT = ("LD_LIBRARY_PATH", "OPWRIGHT_CUDA_DRIVER")


def expected(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    x, scale = x.astype(np.float64), scale.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale


def build(tactic: Tactic, precision: str, fixed: tuple[int, int] | None = None) -> trt.Engine:
    """An engine for any number of rows of any length up to 4096, or only for these."""
    rms_norm.types, rms_norm.tactics = precision.upper(), [tactic]
    network = trt.Builder(trt.Logger()).create_network()
    network.name = "rms_norm"
    if fixed is None and tactic == Tactic.PALLAS:
        fixed = FIXED
    rows, columns = fixed or (-1, -1)
    x = network.add_input("x", TYPES[precision], (rows, columns))
    scale = network.add_input("scale", TYPES[precision], (columns,))
    layer = network.add_plugin(trtp.op.sample.rms_norm(x, scale, epsilon=EPSILON))
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    shapes = {"x": ((1, 1), (64, 768), (4096, 4096)), "scale": ((1,), (768,), (4096,))}
    if fixed is not None:
        shapes = None
    device = trt.DeviceType.GPU if tactic in FOR_GPU else trt.DeviceType.CPU
    return trt.build(network, shapes=shapes, device=device)


def has_gpu() -> bool:
    config = trt.Builder(trt.Logger()).create_builder_config()
    return config.default_device_type == trt.DeviceType.GPU


def run_program(file: Path, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """What the native program makes of the engine file. It finds no Python: it is given no PATH."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = os.environ.get("OPWRIGHT_PROGRAM") or shutil.which("opwright", path=search)
    if program is None:
        raise SystemExit("The program 'opwright' is not installed beside this Python: make setup")
    folder = file.parent
    np.save(folder / "x.npy", x)
    np.save(folder / "scale.npy", scale)
    command = [program, "run", file, "--allow-host-code", "--output", f"y={folder / 'y.npy'}"]
    for name in ("x", "scale"):
        command += ["--input", f"{name}={folder / name}.npy"]
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return np.load(folder / "y.npy")


def check(tactic: Tactic, precision: str, folder: Path) -> bool:
    engine = build(tactic, precision)
    file = folder / f"rms_norm_{tactic.name.lower()}_{precision}.engine"
    engine.save(file)
    errors = []
    rng = np.random.default_rng(0)
    for shape in [FIXED] if tactic == Tactic.PALLAS else [(64, 768), (3, 77)]:
        x, scale = (
            rng.uniform(-1, 1, s).astype(np.dtype(precision.replace("fp", "float")))
            for s in (shape, shape[-1:])
        )
        scale *= x.dtype.type(0.25)
        right = expected(x, scale)
        for y in (engine(x=x, scale=scale), run_program(file, x, scale)):
            errors.append(float(np.abs(y - right).max()) if y.shape == right.shape else np.inf)
    passed = max(errors) <= TOLERANCE[precision]
    print(
        f"{'passed' if passed else 'FAILED'}: {tactic.name.lower()}, {precision}, largest error "
        f"{max(errors):.1g}, in the native program too"
    )
    return passed


def lacks(tactic: Tactic, precision: str) -> str:
    """What is not there for this kernel; empty where all is."""
    if rms_norm.kernels is not None and tactic in FOR_GPU:
        file = rms_norm.kernels / rms_norm.file_of(tactic, TYPES[precision], *FIXED)
        return "" if file.is_file() else str(file)
    try:
        found = tactic not in PACKAGES or importlib.util.find_spec(PACKAGES[tactic]) is not None
    except ModuleNotFoundError:  # of the package that it is in
        found = False
    return "" if found else PACKAGES[tactic]


def compile_for_gpu(
    tactic: Tactic,
    precision: str,
    arch: str,
    shape: tuple[int, int] | None = None,
) -> aot.Code:
    """The kernel for any rows of any length, where it may be; or only for these."""
    if tactic == Tactic.PALLAS:
        shape = shape or FIXED
    if tactic == Tactic.NUMBA_CUDA:
        arch = arch.replace("sm_", "compute_")  # Numba makes PTX
    x = (TYPES[precision], list(shape or aot.open_extents("rows", "columns")))
    return rms_norm.compile(tactic, [x], EPSILON, [x], arch=arch)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [tactic.name.lower() for tactic in Tactic]
    parser.add_argument("source", nargs="*", help=f"{', '.join(names)}; without one, all")
    parser.add_argument(
        "--arch",
        help="the GPU that kernels for GPUs are compiled for, without being run "
        "(sm_90 where there is no GPU)",
    )
    parser.add_argument("--artifacts_dir", type=Path, help="where to keep engines and kernels")
    parser.add_argument(
        "--kernels",
        type=Path,
        help="with --arch: where to save the kernels for GPUs; without: where they are taken from",
    )
    parser.add_argument("--shape", default="64x768", help="of Pallas, whose extents are fixed")
    args = parser.parse_args()
    for source in args.source:
        if source not in names:
            parser.error(f"'{source}' is none of {', '.join(names)}")
    global FIXED
    FIXED = tuple(map(int, args.shape.split("x")))
    only_compile = bool(args.arch) or not has_gpu()
    if args.kernels is not None and not only_compile:
        rms_norm.kernels = args.kernels
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.artifacts_dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        right = []
        for source in args.source or names:
            tactic = Tactic[source.upper()]
            for precision in TYPES:
                lacking = lacks(tactic, precision)
                if not args.source and lacking:
                    print(f"left out: {source}, {precision}, which needs {lacking}")
                elif tactic in FOR_GPU and only_compile:
                    code = compile_for_gpu(tactic, precision, args.arch or "sm_90")
                    name = f"rms_norm_{source}_{precision}"
                    (folder / f"{name}.{code.kind}").write_bytes(code)
                    if args.kernels is not None:
                        args.kernels.mkdir(parents=True, exist_ok=True)
                        file = rms_norm.file_of(tactic, TYPES[precision], *FIXED)
                        code.save(args.kernels / file)
                    print(f"compiled: {source}, {precision}, {code.kind} for {code.target}")
                else:
                    right.append(check(tactic, precision, folder))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
