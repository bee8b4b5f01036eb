"""Collective layers between processes of one host, beside PyTorch's gloo: one all-reduce of FP32 numbers on the CPU.

python bench/collectives.py [--ranks 2 4] [--sizes 8192 65536 1048576 16777216 67108864]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed

import opwright as trt

ROUNDS = 5
PORT = 29541


def all_reduce_of_an_engine(
    ranks: int, x: np.ndarray, communicator: object
) -> Callable[[], object]:
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network()
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.CPU
    layer = network.add_dist_collective(
        network.add_input("x", trt.float32, x.shape),
        trt.CollectiveOperation.ALL_REDUCE,
        trt.ReduceOperation.SUM,
        -1,
        [],
    )
    layer.num_ranks = ranks
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    engine = trt.Runtime(logger).deserialize_cuda_engine(
        builder.build_serialized_network(network, config)
    )
    context = engine.create_execution_context()
    context.set_communicator(communicator)
    y = np.empty_like(x)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)

    def run() -> np.ndarray:
        context.execute_async_v3(0)
        return y

    return run


def all_reduce_of_gloo(x: np.ndarray) -> Callable[[], np.ndarray]:
    tensor = torch.from_numpy(x.copy())
    buffer = torch.empty_like(tensor)

    def run() -> np.ndarray:
        buffer.copy_(tensor)  # as the engine, which keeps its input
        torch.distributed.all_reduce(buffer)
        return buffer.numpy()

    return run


def median(function: Callable[[], object], calls: int) -> float:
    """Seconds per call. All ranks make the same number of calls."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def work(rank: int, ranks: int, sizes: list[int]) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{PORT + ranks}", rank=rank, world_size=ranks
    )
    communicator = trt.Communicator(f"benchmark {ranks}", rank, ranks, timeout=60)
    for size in sizes:
        x = np.random.default_rng(rank).normal(size=size // 4).astype(np.float32)
        ours = all_reduce_of_an_engine(ranks, x, communicator)
        theirs = all_reduce_of_gloo(x)
        np.testing.assert_allclose(ours(), theirs(), rtol=1e-5, atol=1e-5)
        calls = max(5, min(300, (32 << 20) // size))
        best = [float("inf")] * 2
        for _ in range(ROUNDS):
            for i, function in enumerate((ours, theirs)):
                torch.distributed.barrier()
                best[i] = min(best[i], median(function, calls))
        if rank == 0:
            print(
                f"{ranks} ranks, {size:>9} bytes: {best[0] * 1e6:9.1f} us, gloo "
                f"{best[1] * 1e6:9.1f} us, ratio {best[0] / best[1]:.2f}",
                flush=True,
            )
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    sizes = [8 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes, help="bytes")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    for ranks in arguments.ranks:
        processes = [
            spawn.Process(target=work, args=(rank, ranks, arguments.sizes)) for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
