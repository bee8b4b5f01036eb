"""Shared code of the benchmarks on a GPU: circular padding as an engine, the program in C++, times
by events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "samples" / "aot"))
import circ_pad  # noqa: E402  (the sample's operator)

SMALL, LARGE = (10, 3, 32, 32), (32, 64, 224, 224)
TACTIC = {"WARPS": 4, "BYTES": 16, "EARLY": 0}  # for comparing a kernel with itself
# y = x + 1, for chains, since it keeps the shape.
ADD_ONE = """
__device__ void add_one(const float* x, int64_t n, float* y) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
"""


def need_gpu() -> None:
    """Ends the program if there is no GPU."""
    config = trt.Builder(trt.Logger()).create_builder_config()
    if config.default_device_type != trt.DeviceType.GPU:
        print("no GPU")
        sys.exit(0)


def architecture() -> str:
    """The GPU's architecture, such as "sm_90", for which kernels are compiled in a build."""
    targets: list[str] = []

    @trtp.register("bench::architecture")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl("bench::architecture", device="cuda")
    def compile(
        x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc], tactic: int
    ) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
        code = add_one_code(None)
        targets.append(code.target)
        extra = trtp.SymExprs.from_tuple([trtp.SymInt64(1)])
        return code.name, code, code.launch(block_x=256), extra

    build(lambda x: trtp.op.bench.architecture(x), (1,), timing=False)
    return targets[0]


def add_one_code(arch: str | None) -> aot.Code:
    types: dict[str, Any] = {"inputs": [trt.float32], "outputs": [trt.float32]}
    return aot.cuda(ADD_ONE, "add_one", extra=[trtp.SymInt64(1)], arch=arch, **types)


@trtp.kernel(
    "bench::add_one",
    ADD_ONE,
    grid=lambda x: trtp.cdiv(x.shape_expr.numel(), 256),
    block=256,
    extra=lambda x: [x.shape_expr.numel()],
)
def add_one(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


@trtp.kernel(
    "bench::circ_pad",
    circ_pad.FOLDER / "circ_pad.cu",
    grid=lambda outputs, WARPS: trtp.cdiv(circ_pad.lines(outputs), WARPS),
    block=lambda WARPS: 32 * WARPS,
    extra=lambda x, pads, outputs: [
        trtp.SymInt32(circ_pad.lines(outputs)),
        *circ_pad.sizes(x, pads, outputs),
    ],
    constants=TACTIC,
)
def one_circ_pad(x: trtp.TensorDesc, pads: np.typing.NDArray[np.int32]) -> trtp.TensorDesc:
    return circ_pad.circ_pad(x, pads)


def build(
    make: Callable[[Any], Any],
    shape: Sequence[int],
    dtype: trt.DataType = trt.float32,
    *,
    graphs: bool = True,
    length: int = 1,
    timing: bool = True,
    aot: bool | None = None,
) -> trt.Engine:
    """An engine x -> y of a chain of plugin calls, each made by `make(tensor)`."""
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    tensor = network.add_input("x", dtype, shape)
    for _ in range(length):
        tensor = network.add_plugin(make(tensor), aot=aot).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    config.timing = timing
    if not graphs:
        config.cuda_graphs = False
    return trt.Engine(builder.build_engine_with_config(network, config))


def pads(pad: int) -> np.ndarray:
    return np.full(4, pad, np.int32)


def small_spec(pad: int = 1) -> tuple[str, aot.Code]:
    """The C++ program's specification of circular padding of the small shape, launched by hand."""
    n, c, height, width = SMALL
    rows, columns = height + 2 * pad, width + 2 * pad
    lines = n * c * rows
    types: dict[str, Any] = {"inputs": [trt.float32], "outputs": [trt.float32]}
    extra = [trtp.SymInt32(1)] * 7
    flags = [f"-D{name}={value}" for name, value in TACTIC.items()]
    code = aot.cuda(
        circ_pad.FOLDER / "circ_pad.cu",
        "circ_pad",
        extra=extra,
        arch=architecture(),
        flags=flags,
        **types,
    )
    grid = -(-lines // TACTIC["WARPS"])
    numbers = (lines, height, width, rows, columns, pad, pad)
    sizes = 4 * n * c * height * width, 4 * lines * columns
    spec = f"{code.name} {grid} 1 1 {32 * TACTIC['WARPS']} 1 1 1 {sizes[0]} {sizes[1]} in "
    return spec + " ".join(f"i32 {number}" for number in numbers) + " out\n", code


def chain_spec(length: int) -> tuple[str, aot.Code]:
    """The C++ program's specification of a chain of kernels that add 1."""
    count = int(np.prod(SMALL))
    code = add_one_code(architecture())
    size = 4 * count
    spec = f"{code.name} {-(-count // 256)} 1 1 256 1 1 {length} {size} {size} in i64 {count} out\n"
    return spec, code


def program(folder: Path) -> Path:
    """gpu_launch.cpp, compiled with the system's compiler against the installed package."""
    package = Path(trt.__file__).resolve().parent
    include, library = package / "include", package / "lib"
    if not include.is_dir():  # the package lies in the build folder
        include, library = ROOT / "include", ROOT / "build" / "dev" / "src"
    made = folder / "gpu_launch"
    command = ["g++", "-std=c++17", "-O2", f"-I{include}", str(ROOT / "bench" / "gpu_launch.cpp")]
    command += ["-o", str(made), f"-L{library}", "-lopwright", "-ldl", f"-Wl,-rpath,{library}"]
    subprocess.run(command, check=True)
    return made


def run_program(
    mode: str, folder: Path, engine: trt.Engine, spec: tuple[str, aot.Code]
) -> dict[str, float]:
    """Runs the C++ program on this engine and returns its measurements."""
    made = folder / "gpu_launch"
    if not made.exists():
        program(folder)
    engine.save(folder / "engine")
    (folder / "cubin").write_bytes(spec[1])
    (folder / "spec").write_text(spec[0])
    command = [made, mode, *(folder / name for name in ("engine", "cubin", "spec"))]
    environment = {**os.environ, "OPWRIGHT_CACHE_DIR": str(folder / "cache")}
    command.append(str(time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
    done = subprocess.run(
        list(map(str, command)), check=True, stdout=subprocess.PIPE, env=environment
    )
    return json.loads(done.stdout)


def verdict(ratio: float, goal: float, at_most: bool = True) -> str:
    met = ratio <= goal if at_most else ratio >= goal
    sign = "at most" if at_most else "at least"
    return f"ratio {ratio:.3f}   (goal: {sign} {goal:g}: {'met' if met else 'MISSED'})"


def device_times(
    functions: Sequence[Callable[[], object]], rounds: int = 7, runs: int = 15
) -> list[float]:
    """Device seconds per call, by torch's events, in turns. The smallest of the rounds' medians
    counts."""
    import torch

    best = [float("inf")] * len(functions)
    for function in functions:
        for _ in range(6):
            function()
    torch.cuda.synchronize()
    for _ in range(rounds):
        for index, function in enumerate(functions):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(runs + 1)]
            events[0].record()
            for event in events[1:]:
                function()
                event.record()
            torch.cuda.synchronize()
            times = sorted(a.elapsed_time(b) for a, b in zip(events, events[1:]))
            best[index] = min(best[index], times[len(times) // 2] * 1e-3)
    return best


def host_times(
    functions: Sequence[Callable[[], object]],
    wait: Callable[[], object],
    rounds: int = 15,
    calls: int = 200,
) -> list[float]:
    """Host seconds per call, in turns. The smallest of the rounds' medians of batches counts. After
    each batch `wait` empties the stream."""
    best = [float("inf")] * len(functions)
    for function in functions:
        for _ in range(20):
            function()
    for _ in range(rounds):
        for index, function in enumerate(functions):
            times = []
            for _ in range(5):
                wait()
                start = time.perf_counter()
                for _ in range(calls):
                    function()
                times.append((time.perf_counter() - start) / calls)
            wait()
            best[index] = min(best[index], sorted(times)[2])
    return best
