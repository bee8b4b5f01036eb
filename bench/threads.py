"""Engines as they are called in practice: from any thread, by many callers, beside libraries that have threads of their
own, beside busy processes, under a CPU quota and after a fork. ONNX Runtime in turns, where it can do the same.

python bench/threads.py [thread] [callers] [callbacks] [engines] [busy] [quota] [fork] [idle] [--picture FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from timing import REST, in_turns, one_of, threads

import opwright
import opwright.plugin as trtp

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "python" / "support")]

import light_models  # noqa: E402
from chain_models import convolution_chain  # noqa: E402

CALLERS = (1, 2, 4, 8, 16, 32, 64)
SHAPE = (1, 32, 28, 28)

Run = Callable[[], object]


def convolutions(callbacks: str = "") -> bytes:
    """A model of 24 short convolutions. The plugin `callbacks`, if any, follows after a third and
    two thirds of them."""

    def follow(index: int, tensor: str) -> onnx.NodeProto | None:
        if not callbacks or index not in (8, 16):
            return None
        return helper.make_node(callbacks, [tensor], [f"c{index}"], domain="bench_threads")

    return convolution_chain(24, SHAPE, follow)


def session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options)


def pair(name: str) -> tuple[Run, Run]:
    """A call of our engine and a call of ONNX Runtime."""
    if name == "short":
        model, inputs = convolutions(), {"x": np.ones(SHAPE, np.float32)}
    else:
        light = light_models.randomized(name)
        model, inputs = light.SerializeToString(), light_models.sample_input(light)
    engine, peer = opwright.build(model), session(model)
    return lambda: engine(**inputs), lambda: peer.run(None, inputs)


def on_thread(function: Callable[[], object]) -> object:
    """Runs the function on a new thread and returns its result."""
    result: list[object] = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def calls_per_second(run: Run, callers: int, seconds: float = 1.0) -> float:
    """Calls per second of `callers` threads that call at once, measured after a rest."""
    time.sleep(REST)
    counts, begin = [0] * callers, threading.Barrier(callers + 1)
    end = [0.0]

    def work(index: int) -> None:
        run()
        begin.wait()
        while time.perf_counter() < end[0]:
            run()
            counts[index] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(callers)]
    for worker in workers:
        worker.start()
    end[0] = time.perf_counter() + 3600
    begin.wait()
    start = time.perf_counter()
    end[0] = start + seconds
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def main_and_other(runs: list[Run]) -> list[np.ndarray]:
    """Milliseconds per call of each function, on the main thread and on another thread."""
    best = [np.full(len(runs), np.inf) for _ in range(2)]
    for _ in range(4):
        best[0] = np.minimum(best[0], in_turns(runs, rounds=1))
        best[1] = np.minimum(best[1], on_thread(lambda: in_turns(runs, rounds=1)))
    return [times * 1e3 for times in best]


def thread() -> None:
    print(
        f"\n{'ms per call':22} {'main':>8} {'another':>8} {'ratio':>6} {'ONNX Runtime':>13} {'another':>8}"
    )
    for name in ("short", "squeezenet"):
        main, other = main_and_other(list(pair(name)))
        print(
            f"{name:22} {main[0]:8.3f} {other[0]:8.3f} {other[0] / main[0]:6.2f} {main[1]:13.3f} {other[1]:8.3f}",
            flush=True,
        )


def callers(picture: str | None = None) -> None:
    rates = {}
    print(
        f"\n{'calls per second':22} {'callers':>8} {'ours':>8} {'ONNX Runtime':>13} {'time, ratio':>12}"
    )
    for name in ("short", "squeezenet"):
        ours, peer = pair(name)
        for count in CALLERS:
            best = [0.0, 0.0]
            for _ in range(3):
                for i, run in enumerate((ours, peer)):
                    best[i] = max(best[i], calls_per_second(run, count, 0.7))
            rates[name, count] = best
            print(
                f"{name:22} {count:8} {best[0]:8.0f} {best[1]:13.0f} {best[1] / best[0]:12.2f}",
                flush=True,
            )
    if picture:
        draw(rates, picture)


def draw(rates: dict[tuple[str, int], list[float]], file: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, (name, title) in zip(
        axes, [("short", "24 short convolutions"), ("squeezenet", "SqueezeNet")]
    ):
        for i, (label, colour) in enumerate([("Opwright", "#2a6f97"), ("ONNX Runtime", "#c08552")]):
            axis.plot(
                CALLERS, [rates[name, c][i] for c in CALLERS], "o-", label=label, color=colour
            )
        axis.set(title=title, xscale="log", xlabel="threads that call at once", ylim=(0, None))
        axis.set_xticks(CALLERS, [str(c) for c in CALLERS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("calls per second")
    axes[0].legend(loc="lower right")
    figure.savefig(file, metadata={"Date": None})


def numba_callback() -> Callable[[np.ndarray, np.ndarray], None]:
    import numba

    @numba.njit(parallel=True)
    def scale(x: np.ndarray, y: np.ndarray) -> None:
        for i in numba.prange(x.shape[1]):
            y[0, i] = x[0, i] * np.float32(1.01)

    return scale


def torch_callback() -> Callable[[np.ndarray, np.ndarray], None]:
    import torch

    def scale(x: np.ndarray, y: np.ndarray) -> None:
        torch.mul(torch.from_numpy(x), 1.01, out=torch.from_numpy(y))

    return scale


def numpy_callback() -> Callable[[np.ndarray, np.ndarray], None]:
    matrix = np.eye(32, dtype=np.float32) * np.float32(1.01)

    def scale(x: np.ndarray, y: np.ndarray) -> None:
        np.matmul(matrix, x.reshape(32, -1), out=y.reshape(32, -1))

    return scale


def callbacks() -> None:
    """Compares an engine with two callbacks among its convolutions with the sum of its parts."""
    print(f"\n{'two callbacks, ms':22} {'engine':>8} {'parts':>8} {'ratio':>6}")
    for name, make in [
        ("numba", numba_callback),
        ("numpy", numpy_callback),
        ("torch", torch_callback),
    ]:
        try:
            scale = make()
        except ImportError as error:
            print(f"{name:22} not measured: {error}")
            continue
        whole, parts = with_callback(name, scale)
        print(f"{name:22} {whole:8.3f} {parts:8.3f} {whole / parts:6.2f}", flush=True)


def with_callback(
    name: str, scale: Callable[[np.ndarray, np.ndarray], None]
) -> tuple[float, float]:
    """Milliseconds of the engine with two callbacks, and of its parts, each measured by itself."""
    register_callback(name, scale)
    x, y = np.ones(SHAPE, np.float32), np.empty(SHAPE, np.float32)
    scale(x, y)
    whole, rest = opwright.build(convolutions(callbacks=name)), opwright.build(convolutions())
    runs: list[Run] = [lambda: whole(x), lambda: rest(x), lambda: scale(x, y)]
    times = [np.inf] * 3
    for _ in range(4):
        for i, run in enumerate(runs):
            times[i] = min(times[i], in_turns([run], rounds=1)[0])
    return times[0] * 1e3, (times[1] + 2 * times[2]) * 1e3


def register_callback(name: str, scale: Callable[[np.ndarray, np.ndarray], None]) -> None:
    @trtp.register(f"bench_threads::{name}")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(f"bench_threads::{name}")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor, ...], stream: int) -> None:
        scale(np.asarray(x), np.asarray(outputs[0]))


def engines() -> None:
    """Measures four engines that four threads call, each thread its own."""
    all_ours, all_peers = zip(*[pair("short") for _ in range(4)])

    def together(runs: tuple[Run, ...]) -> float:
        turn = iter(range(10**9))
        own = threading.local()

        def run() -> object:
            if not hasattr(own, "index"):
                own.index = next(turn) % 4
            return runs[own.index]()

        return calls_per_second(run, 4)

    best = [0.0, 0.0]
    for _ in range(3):
        best = [max(best[0], together(all_ours)), max(best[1], together(all_peers))]
    print(
        f"\nfour engines, a caller each: {best[0]:.0f} calls per second, ONNX Runtime {best[1]:.0f}"
    )


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def busy() -> None:
    print(
        f"\n{'busy processes, mean ms':26} {'others':>7} {'ours':>8} {'ONNX Runtime':>13} {'ratio':>6}"
    )
    for name in ("short", "squeezenet"):
        runs = pair(name)
        for count in (0, 1, 2, 4):
            with busy_processes(count):
                means: list[list[float]] = [[], []]
                for _ in range(5):
                    for i, run in enumerate(runs):
                        means[i].append(1 / calls_per_second(run, 1, 1.0))
            ours, peer = (statistics.median(m) * 1e3 for m in means)
            print(f"{name:26} {count:7} {ours:8.3f} {peer:13.3f} {ours / peer:6.2f}", flush=True)


@contextlib.contextmanager
def control_group(cores: float) -> Iterator[Path]:
    """A control group of version 2 or 1 with that quota. Raises OSError if none can be made."""
    root, name, period = Path("/sys/fs/cgroup"), f"opwright-bench-{os.getpid()}", 100000
    if (root / "cgroup.controllers").exists():
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text("+cpu")
        group, file, text = root / name, "cpu.max", f"{cores * period:.0f} {period}"
    elif (root / "cpu" / "cpu.cfs_quota_us").exists():
        group, file, text = root / "cpu" / name, "cpu.cfs_quota_us", f"{cores * period:.0f}"
    else:
        raise OSError("there is no controller of the CPU's time")
    group.mkdir()
    try:
        (group / file).write_text(text)
        yield group
    finally:
        for _ in range(100):  # the kernel takes a moment to notice that the group is empty
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.01)


def quota() -> None:
    """Measures calls under a quota of one and a half cores."""
    try:
        with control_group(1.5) as group:
            pid = os.fork()
            if pid == 0:
                under_quota(group)
                os._exit(0)
            os.waitpid(pid, 0)
    except OSError as error:
        print(f"\nquota: not measured, no control group can be made here ({error})")


def under_quota(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
    time.sleep(1.1)
    print(f"\nunder a quota of 1.5 cores: {opwright.max_threads()} threads", flush=True)
    for name in ("short", "squeezenet"):
        runs = pair(name)
        best = [0.0, 0.0]
        for _ in range(3):
            for i, run in enumerate(runs):
                best[i] = max(best[i], calls_per_second(run, 1))
        print(
            f"{name:22} {best[0]:8.0f} calls per second, ONNX Runtime {best[1]:8.0f}, ratio of the times"
            f" {best[1] / best[0]:5.2f}",
            flush=True,
        )


def fork() -> None:
    engine, x = opwright.build(convolutions()), np.ones(SHAPE, np.float32)
    before = in_turns([lambda: engine(x)], rounds=3)[0] * 1e3
    pid = os.fork()
    if pid == 0:
        after = in_turns([lambda: engine(x)], rounds=3)[0] * 1e3
        print(f"\nafter fork: {after:.3f} ms in the child, {before:.3f} before", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)


def idle() -> None:
    """Measures the CPU time of a process whose engine has run and now waits."""
    engine, x = opwright.build(convolutions()), np.ones(SHAPE, np.float32)
    used = []
    for _ in range(20):
        engine(x)
        begin = time.process_time()
        time.sleep(0.05)
        used.append(time.process_time() - begin)
    print(f"\nidle after a call: {statistics.median(used) * 1e3:.3f} ms of CPU time")


CASES: dict[str, Callable[[], None]] = {
    f.__name__: f for f in (thread, callers, callbacks, engines, busy, quota, fork, idle)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", type=one_of(CASES), help="all without one"
    )
    parser.add_argument("--picture", help="draws the rates of `callers` into this SVG file")
    arguments = parser.parse_args()
    print(f"threads: {threads()}, ONNX Runtime {onnxruntime.__version__}, onnx {onnx.__version__}")
    for case in arguments.cases or CASES:
        if case == "callers":
            callers(arguments.picture)
        else:
            CASES[case]()
