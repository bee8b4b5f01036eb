"""Many threads that call engines which come and go, with shapes that change all the time: each result is compared with
ONNX Runtime's, and the memory of the process is watched. Ends with status 1 where a result is wrong or memory grew.

python bench/soak.py [--threads 64] [--seconds 600]
"""

from __future__ import annotations

import argparse
import random
import threading
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import opwright

BATCHES = (1, 2, 3, 5, 8)
MODELS = 3
# Memory that the last third of the time may need beyond the second third.
SLACK_MIB = 16


def model(seed: int) -> bytes:
    """A model of two convolutions, which the build joins, and a matrix product, for any number of
    images."""
    values = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array((values.standard_normal(shape) * scale).astype("f"), name)

    channels = 16 * (seed + 1)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Conv", ["x", "b"], ["d"]),
            helper.make_node("Concat", ["c", "d"], ["joined"], axis=1),
            helper.make_node("Relu", ["joined"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("Gemm", ["f", "m"], ["y"], transB=1),
        ],
        f"soak {seed}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [
            weight("a", channels, 16, 3, 3),
            weight("b", channels, 16, 1, 1),
            weight("m", 10, 2 * channels),
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


class Soak:
    def __init__(self) -> None:
        shape = (16, 28, 28)
        self.models = [model(seed) for seed in range(MODELS)]
        values = np.random.default_rng(1)
        self.inputs = {n: values.standard_normal((n, *shape)).astype("f") for n in BATCHES}
        self.expected = []
        for each in self.models:
            peer = onnxruntime.InferenceSession(each)
            self.expected.append({n: peer.run(None, {"x": x})[0] for n, x in self.inputs.items()})
        self.shapes = {"x": tuple((n, *shape) for n in (BATCHES[0], BATCHES[1], BATCHES[-1]))}
        self.engines = [self.build(i) for i in range(MODELS)]
        self.calls, self.built = 0, 0
        self.faults: list[str] = []
        self.end = threading.Event()

    def build(self, index: int) -> opwright.Engine:
        return opwright.build(self.models[index], shapes=self.shapes)

    def call(self, seed: int) -> None:
        choice = random.Random(seed)
        done = 0
        try:
            while not self.end.is_set():
                index, batch = choice.randrange(MODELS), choice.choice(BATCHES)
                engine, x = self.engines[index], self.inputs[batch]
                result = engine(x) if done % 2 else engine.submit(x).result()
                done += 1
                error = np.abs(result - self.expected[index][batch]).max()
                if not error < 1e-4:
                    raise ValueError(f"model {index} with {batch} images differs by {error:.1e}")
        except Exception as error:  # noqa: BLE001  (any fault is a finding)
            self.faults.append(f"{type(error).__name__}: {error}")
            self.end.set()
        self.calls += done

    def renew(self) -> None:
        """Drops an engine, which other threads may be running, and builds another one in its
        place."""
        while not self.end.wait(0.5):
            self.engines[self.built % MODELS] = self.build(self.built % MODELS)
            self.built += 1

    def run(self, threads: int, seconds: float) -> int:
        workers = [threading.Thread(target=self.call, args=(i,)) for i in range(threads)]
        workers.append(threading.Thread(target=self.renew))
        for worker in workers:
            worker.start()
        start, sizes = time.monotonic(), []
        while (passed := time.monotonic() - start) < seconds and not self.end.is_set():
            self.end.wait(min(5.0, seconds / 30))
            sizes.append(resident_mib())
            print(f"\r{passed:5.0f} s, {sizes[-1]:6.0f} MiB", end="", flush=True)
        self.end.set()
        for worker in workers:
            worker.join()
        third = len(sizes) // 3
        middle, last = max(sizes[third : 2 * third], default=0), max(sizes[2 * third :], default=0)
        print(
            f"\r{threads} threads, {seconds:.0f} s: {self.calls} calls, {self.built} engines built and dropped, at most"
            f" {middle:.0f} MiB in the second third of the time and {last:.0f} in the last"
        )
        for fault in self.faults:
            print(fault)
        return 1 if self.faults or last > middle + SLACK_MIB else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    raise SystemExit(Soak().run(arguments.threads, arguments.seconds))
