"""An all-reduce and an RMS normalization in one kernel over peer memory, beside the two layers.

python run.py [--ranks 2] [--rows 1] [--columns 4096] [--time]

A process and a GPU for each rank. Needs PyTorch. Compares the results with NumPy's. With --time, each way is measured
in a CUDA graph of 64 of them, each on the result of the one before.
"""

import argparse
import multiprocessing
import sys
import uuid

import all_reduce_rms_norm as sample
import numpy as np
import torch

import opwright as trt

LAYERS = 64
ROUNDS = 20


def values(rank: int, rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=(rows, columns)).astype(np.float16)


def expected(ranks: int, rows: int, columns: int, scale: np.ndarray) -> np.ndarray:
    total = sum(values(rank, rows, columns).astype(np.float64) for rank in range(ranks))
    return total / np.sqrt(np.mean(total * total, 1, keepdims=True) + 1e-5) * scale


class Context:
    def __init__(self, plan: bytes, x: torch.Tensor, communicator: trt.Communicator):
        runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
        self.context = runtime.deserialize_cuda_engine(plan).create_execution_context()
        self.context.set_communicator(communicator)
        self.y = torch.empty_like(x)
        self.context.set_input_shape("x", tuple(x.shape))
        self.context.set_tensor_address("x", x.data_ptr())
        self.context.set_tensor_address("y", self.y.data_ptr())

    def run(self) -> None:
        self.context.execute_async_v3(torch.cuda.current_stream().cuda_stream)


def microseconds(context: Context, barrier) -> float:
    """Of one of the layers, the best of several launches of a graph."""
    context.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        context.run()
    best = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        barrier.wait()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3 / LAYERS)
    return best


def work(rank: int, arguments: argparse.Namespace, name: str, barrier, results) -> None:
    ranks, rows, columns = arguments.ranks, arguments.rows, arguments.columns
    torch.cuda.set_device(rank)
    torch.cuda.set_stream(torch.cuda.Stream())
    communicator = trt.Communicator(name, rank, ranks, device=f"cuda:{rank}")
    scale = np.linspace(0.5, 1.5, columns).astype(np.float16)
    x = torch.from_numpy(values(rank, rows, columns)).cuda()
    found = []
    for is_fused in (False, True):
        context = Context(sample.build(ranks, scale, is_fused), x, communicator)
        context.run()
        y = context.y.cpu().numpy()
        communicator.check()
        found.append(float(np.abs(y - expected(ranks, rows, columns, scale)).max()))
        if arguments.time:
            plan = sample.build(ranks, scale, is_fused, LAYERS)
            found.append(microseconds(Context(plan, x, communicator), barrier))
    results.put(found)
    barrier.wait()  # all still have their communicators


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--time", action="store_true")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    results, barrier = spawn.Queue(), spawn.Barrier(arguments.ranks)
    name = uuid.uuid4().hex
    processes = [
        spawn.Process(target=work, args=(rank, arguments, name, barrier, results))
        for rank in range(arguments.ranks)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    step, is_right = len(found[0]) // 2, True
    for i, what in enumerate(("two layers", "one kernel")):
        error = max(each[step * i] for each in found)
        is_right &= error < 0.01
        text = f"{'passed' if error < 0.01 else 'FAILED'}: {what}, largest error {error:.2g}"
        if arguments.time:
            text += f", {max(each[step * i + 1] for each in found):.2f} us in a graph of {LAYERS}"
        print(text)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
