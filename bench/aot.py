"""Compiled operators: the cost of a call, circular padding, cold start, and builds with a warm
cache.

Four comparisons, each with its peer in the same run: the enqueue of a compiled kernel against the same
function called through a pointer; circular padding by the demo's C++ and Numba kernels against copying the
bytes of the output with as many threads; the program `opwright run` on the demo's engine, from process
start to result, against Python with ONNX Runtime; and the first build of the demo against the second,
with the compiler's runs counted.

python bench/aot.py [call] [padding] [start] [build]
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import plugin_call
from timing import chosen_names, in_turns, slope, threads

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "samples" / "demo"
sys.path.insert(0, str(DEMO))
import circ_pad  # noqa: E402  (the demo's operator)

# Source that calls a kernel through a pointer `times` times.
CALLER = """
#include <cstdint>
using Kernel = void(void** args, int64_t x, int64_t y, int64_t z);
void call(const int64_t* pointers, int64_t*, int64_t times, int64_t, int64_t) {
  Kernel* volatile kernel = reinterpret_cast<Kernel*>(pointers[0]);
  for (int64_t i = 0; i < times; ++i) kernel(reinterpret_cast<void**>(pointers[1]), 0, 0, 0);
}
"""


def load_kernel(code: aot.Code, folder: Path):
    """The function of a shared object as a ctypes function."""
    path = folder / f"{code.name}.so"
    path.write_bytes(code)
    function = getattr(ctypes.CDLL(str(path)), code.name)
    function.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 3]
    function.restype = None
    return function


def addresses(*values: int):
    """An array of pointers."""
    return (ctypes.c_int64 * len(values))(*values)


def call() -> None:
    """A chain of compiled identity kernels against the kernel called through a pointer."""
    times = 1 << 16
    data = np.zeros(2 * plugin_call.SIZE, np.float32)
    pointers = addresses(data.ctypes.data, data.ctypes.data + data.nbytes // 2)
    args = addresses(*(ctypes.addressof(pointers) + 8 * i for i in range(2)))
    with tempfile.TemporaryDirectory() as folder:
        # The identity's code does not depend on the descriptors beyond their types.
        identity = aot.cpp(
            plugin_call.IDENTITY_SOURCE, "identity", inputs=[trt.float32], outputs=[trt.float32]
        )
        caller = aot.cpp(CALLER, "call", inputs=[trt.int64], outputs=[trt.int64])
        kernel = load_kernel(identity, Path(folder))
        loop = load_kernel(caller, Path(folder))
        target = ctypes.cast(kernel, ctypes.c_void_p).value or 0
        table = addresses(target, ctypes.addressof(args))
        loop_pointers = addresses(ctypes.addressof(table), 0)
        loop_args = addresses(*(ctypes.addressof(loop_pointers) + 8 * i for i in range(2)))
        chains = plugin_call.engine_runs(plugin_call.function_layer(aot=True))
        *chained, direct = in_turns(
            [*chains, lambda: loop(ctypes.addressof(loop_args), times, 0, 0)], seconds=0.1
        )
    direct /= times
    cost = slope(plugin_call.LENGTHS, [t / plugin_call.REPEATS for t in chained])
    print("A compiled identity kernel on 16 floats, per call:")
    print(f"  in an engine              {cost * 1e6:7.4f} us")
    print(f"  through a pointer         {direct * 1e6:7.4f} us   ratio {cost / direct:.2f}")
    print(f"  beyond it                 {(cost - direct) * 1e6:7.4f} us   (goal: under 0.10)")


TACTICS = {"C++": circ_pad.Tactic.NUMPY, "Numba": circ_pad.Tactic.NUMBA}


def define(name: str, chosen: int) -> str:
    """The demo's operator with only one of its compiled kernels."""
    plugin = f"bench::circ_pad_{name}"
    trtp.register(plugin)(circ_pad.circ_pad_desc)

    @trtp.aot_impl(plugin)
    def aot_impl(
        inp0: trtp.TensorDesc,
        pads: npt.NDArray[np.int32],
        outputs: tuple[trtp.TensorDesc],
        tactic: int,
    ) -> tuple[str, bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
        return circ_pad.circ_pad_aot(inp0, pads, outputs, chosen)

    return plugin.partition("::")[2]


def padding_context(plugin: str, shape, pad: int, dtype: trt.DataType) -> trt.IExecutionContext:
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = network.add_input("x", dtype, shape)
    pads = np.full(4, pad, np.int32)
    layer = network.add_plugin(getattr(trt.plugin.op.bench, plugin)(x, pads=pads), aot=True)
    y = layer.get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.build(network).engine.create_execution_context()


def copier(target: np.ndarray) -> Callable[[], object]:
    """A function that copies as many bytes into the array with as many threads as a kernel may use.
    It copies into the kernels' own array, because some memory (in huge pages) is faster."""
    source, size, count = np.ones_like(target), target.nbytes, threads()
    pool = ThreadPoolExecutor(count)
    bounds = [size * i // count for i in range(count + 1)]

    def copy_part(index: int) -> None:
        begin, end = bounds[index], bounds[index + 1]
        ctypes.memmove(target.ctypes.data + begin, source.ctypes.data + begin, end - begin)

    if size < 1 << 20:  # with threads it would take longer
        return lambda: ctypes.memmove(target.ctypes.data, source.ctypes.data, size)
    return lambda: list(pool.map(copy_part, range(count)))


def torch_pad(source: np.ndarray, pad: int) -> Callable[[], object] | None:
    try:
        import torch
    except ImportError:
        return None
    x = torch.from_numpy(source)
    return lambda: torch.nn.functional.pad(x, (pad,) * 4, mode="circular")


def compare_padding(plugins: dict[str, str], shape, pad: int, dtype: trt.DataType) -> None:
    source = np.random.default_rng(0).random(shape, np.float32).astype(trt.nptype(dtype))
    widths = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
    result = np.empty((*shape[:2], shape[2] + 2 * pad, shape[3] + 2 * pad), source.dtype)
    functions: dict[str, Callable[[], object] | None] = {
        "copy of the output's bytes": copier(result)
    }
    for name, plugin in plugins.items():
        context = padding_context(plugin, shape, pad, dtype)
        context.set_tensor_address("x", source.ctypes.data)
        context.set_tensor_address("y", result.ctypes.data)
        result[...] = 0
        context.execute_async_v3(0)
        if not np.array_equal(result[::7], np.pad(source[::7], widths, mode="wrap")):
            raise SystemExit(f"bench/aot: the {name} kernel's result differs from numpy.pad")
        functions[f"{name} kernel"] = partial(context.execute_async_v3, 0)
    functions['numpy.pad(mode="wrap")'] = lambda: np.pad(source, widths, mode="wrap")
    functions['torch F.pad(mode="circular")'] = torch_pad(source, pad)
    present = {name: function for name, function in functions.items() if function is not None}
    seconds = in_turns(list(present.values()), seconds=0.1)
    print(f"Circular padding of {'x'.join(map(str, shape))} by {pad}, {dtype.name}:")
    for name, time in zip(present, seconds):
        print(f"  {name:30} {time * 1e3:9.4f} ms   {seconds[0] / time:5.2f} of the copy's speed")


def padding() -> None:
    plugins = {name: define(f"tactic_{int(tactic)}", tactic) for name, tactic in TACTICS.items()}
    for shape, pad in (((10, 3, 32, 32), 1), ((32, 64, 224, 224), 3)):
        for dtype in (trt.float32, trt.float16):
            compare_padding(plugins, shape, pad, dtype)


def program() -> str:
    """The native program: $OPWRIGHT_PROGRAM, else the one beside the interpreter, else that of the
    build folder."""
    candidates = [
        Path(os.environ.get("OPWRIGHT_PROGRAM", sys.executable)).with_name("opwright"),
        ROOT / "build" / "dev" / "cli" / "opwright",
    ]
    for path in candidates:
        if path.is_file():
            return str(path)
    raise SystemExit("bench/aot: the program 'opwright' is not built: run 'make setup'")


PEER = """
import sys
import numpy, onnxruntime
model, photo, out = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
names = [output.name for output in session.get_outputs()]
for name, result in zip(names, session.run(names, {"x": numpy.load(photo)})):
    numpy.save(f"{out}/{name}.npy", result)
"""


def start() -> None:
    """Compares the demo's engine in the native program with its model in Python with ONNX
    Runtime."""
    import demo
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        onnx.save(demo.plugin_model(), str(path / "plugin.onnx"))
        onnx.save(demo.standard_model(), str(path / "standard.onnx"))
        trt.build(str(path / "plugin.onnx"), prefer_aot=True).save(str(path / "demo.engine"))
        shape = (1, 3, demo.SIZE, demo.SIZE)
        np.save(path / "x.npy", np.random.default_rng(0).random(shape, np.float32))
        ours = [program(), "run", f"{path}/demo.engine", "--allow-host-code"]
        ours += ["--input", f"x={path}/x.npy"]
        for name in ("responses", "padded"):
            ours += ["--output", f"{name}={path}/{name}.npy"]
        theirs = [sys.executable, "-c", PEER, f"{path}/standard.onnx", f"{path}/x.npy", folder]

        def process(command: list[str]) -> Callable[[], object]:
            return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        seconds = in_turns([process(ours), process(theirs)], rounds=7, seconds=0.5)
    print("The demo, from process start to the result's files:")
    print(f"  opwright run              {seconds[0] * 1e3:7.1f} ms   (goal: under 30)")
    print(f"  Python, ONNX Runtime      {seconds[1] * 1e3:7.1f} ms", end="   ")
    print(f"{seconds[1] / seconds[0]:.1f} times opwright's")


BUILD = """
import sys, time
import circ_pad, demo, onnx, opwright
onnx.save(demo.plugin_model(), sys.argv[1])
start = time.perf_counter()
opwright.build(sys.argv[1], prefer_aot=True)
print(time.perf_counter() - start)
"""
# A compiler that writes a line to a log for each run that compiles or links.
COUNTING = """#!/bin/sh
[ "$1" = --version ] || echo run >> "$OPWRIGHT_BENCH_LOG"
exec c++ "$@"
"""


def build() -> None:
    """Builds the demo's engine twice, in two processes that share the folder of compiled code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "cxx").write_text(COUNTING)
        (path / "cxx").chmod(0o755)
        log = path / "log"
        environment = {
            **os.environ,
            "CXX": str(path / "cxx"),
            "OPWRIGHT_BENCH_LOG": str(log),
            "OPWRIGHT_CACHE_DIR": str(path / "cache"),
            "PYTHONPATH": os.pathsep.join([str(DEMO), os.environ.get("PYTHONPATH", "")]),
        }
        print("Building the demo with its operator compiled:")
        for which in ("first", "second"):
            log.write_text("")
            command = [sys.executable, "-c", BUILD, str(path / "demo.onnx")]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
            runs = len(log.read_text().splitlines())
            milliseconds = float(done.stdout.split()[-1]) * 1e3
            print(f"  the {which:6} time {milliseconds:10.0f} ms   {runs} runs of the compiler")


def main() -> None:
    parts = {"call": call, "padding": padding, "start": start, "build": build}
    names = chosen_names(__doc__, parts)
    print(f"threads: {threads()}")
    for name in names:
        parts[name]()


if __name__ == "__main__":
    main()
