"""Compiles sample::rms_norm from each kind of source.

A kernel becomes part of an engine, which runs in this process and then in the native program, without
Python and with an empty environment; both results are compared with NumPy's. Where there is no GPU, or
an architecture is named, a kernel for GPUs is only compiled. The exit status is 0 where all is right,
otherwise 1.
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
}
# What the program may need to find the driver; all else it does without.
KEPT = ("LD_LIBRARY_PATH", "OPWRIGHT_CUDA_DRIVER")


def expected(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    x, scale = x.astype(np.float64), scale.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale


def build(tactic: Tactic, precision: str) -> trt.Engine:
    """An engine for any number of rows of any length up to 4096; of Pallas for 64 rows of 768."""
    rms_norm.types, rms_norm.tactics = precision.upper(), [tactic]
    network = trt.Builder(trt.Logger()).create_network()
    network.name = "rms_norm"
    rows, columns = (64, 768) if tactic == Tactic.PALLAS else (-1, -1)
    x = network.add_input("x", TYPES[precision], (rows, columns))
    scale = network.add_input("scale", TYPES[precision], (columns,))
    layer = network.add_plugin(trtp.op.sample.rms_norm(x, scale, epsilon=EPSILON))
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    shapes = {"x": ((1, 1), (64, 768), (1024, 4096)), "scale": ((1,), (768,), (4096,))}
    if tactic == Tactic.PALLAS:
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
    for shape in [(64, 768)] if tactic == Tactic.PALLAS else [(64, 768), (3, 77)]:
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


def is_installed(tactic: Tactic) -> bool:
    try:
        return tactic not in PACKAGES or importlib.util.find_spec(PACKAGES[tactic]) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def compile_for_gpu(tactic: Tactic, precision: str, arch: str, folder: Path) -> None:
    # Without an engine extents are numbers.
    x = (TYPES[precision], [64, 768])
    code, _ = rms_norm.compile(tactic, [x], EPSILON, [x], arch=arch)
    file = folder / f"rms_norm_{tactic.name.lower()}_{precision}.{code.kind}"
    file.write_bytes(code)
    print(f"compiled: {tactic.name.lower()}, {precision}, {code.kind} for {code.target}")


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
    args = parser.parse_args()
    for source in args.source:
        if source not in names:
            parser.error(f"'{source}' is none of {', '.join(names)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.artifacts_dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        right = []
        for source in args.source or names:
            tactic = Tactic[source.upper()]
            if not args.source and not is_installed(tactic):
                print(f"left out: {source}, which needs {PACKAGES[tactic]}")
                continue
            for precision in TYPES:
                if tactic in FOR_GPU and (args.arch or not has_gpu()):
                    compile_for_gpu(tactic, precision, args.arch or "sm_90", folder)
                else:
                    right.append(check(tactic, precision, folder))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
