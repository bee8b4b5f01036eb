"""Collective layers between processes of one host, beside PyTorch's: one all-reduce of FP32 numbers.

python bench/collectives.py [--ranks 2 4] [--sizes 8192 65536 1048576 16777216 67108864] [--gpu]

On the CPU beside gloo; with --gpu beside NCCL, a GPU for each rank. Both use the libnccl.so.2 that PyTorch has loaded.
On GPUs small tensors go over memory that the GPUs share, without NCCL (docs/multi-gpu.md). There tensors of 1 MB or
less are also measured in a CUDA graph of 64 all-reduces, where the host's calls cost nothing.
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
GRAPH_CALLS = 64
LARGEST_IN_GRAPHS = 1 << 20
PORT = 29541


def all_reduce_of_an_engine(
    ranks: int, tensor: torch.Tensor, communicator: object
) -> Callable[[], torch.Tensor]:
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network()
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU if tensor.is_cuda else trt.DeviceType.CPU
    layer = network.add_dist_collective(
        network.add_input("x", trt.float32, tuple(tensor.shape)),
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
    y = torch.empty_like(tensor)
    context.set_tensor_address("x", tensor.data_ptr())
    context.set_tensor_address("y", y.data_ptr())

    def run() -> torch.Tensor:
        context.execute_async_v3(torch.cuda.current_stream().cuda_stream if tensor.is_cuda else 0)
        return y

    return run


def all_reduce_of_torch(tensor: torch.Tensor, copies: bool = True) -> Callable[[], torch.Tensor]:
    buffer = torch.zeros_like(tensor)

    def run() -> torch.Tensor:
        if copies:  # as the engine on the CPU, which keeps its input
            buffer.copy_(tensor)
        torch.distributed.all_reduce(buffer)
        return buffer

    return run


def median(function: Callable[[], object], calls: int, on_gpu: bool) -> float:
    """Seconds per call. All ranks make the same number of calls. On a GPU they are made one after another and waited
    for at the end, so it is their mean."""
    times = []
    if on_gpu:
        function()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls
    for _ in range(calls):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def in_a_graph(function: Callable[[], object]) -> Callable[[], object]:
    """Calls it several times, in a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    mode = "thread_local"  # PyTorch's NCCL has a thread that asks for events
    with torch.cuda.graph(graph, capture_error_mode=mode):
        for _ in range(GRAPH_CALLS):
            function()
    return graph.replay


def compare(functions: list[Callable[[], object]], calls: int, on_gpu: bool) -> list[float]:
    """Seconds per call of each, the least of all rounds."""
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            torch.distributed.barrier()
            best[i] = min(best[i], median(function, calls, on_gpu))
    return best


def report(what: str, ours: float, library: str, theirs: float) -> None:
    print(
        f"{what}: {ours * 1e6:9.1f} us, {library} {theirs * 1e6:9.1f} us, ratio {ours / theirs:.2f}",
        flush=True,
    )


def work(rank: int, ranks: int, sizes: list[int], on_gpu: bool) -> None:
    torch.set_num_threads(1)
    library = "nccl" if on_gpu else "gloo"
    if on_gpu:
        torch.cuda.set_device(rank)
        torch.cuda.set_stream(torch.cuda.Stream())
    torch.distributed.init_process_group(
        library, init_method=f"tcp://127.0.0.1:{PORT + ranks}", rank=rank, world_size=ranks
    )
    device = f"cuda:{rank}" if on_gpu else "cpu"
    communicator = trt.Communicator(f"benchmark {ranks}", rank, ranks, timeout=60, device=device)
    for size in sizes:
        x = np.random.default_rng(rank).normal(size=size // 4).astype(np.float32)
        tensor = torch.from_numpy(x)
        if on_gpu:
            tensor = tensor.cuda()
        ours = all_reduce_of_an_engine(ranks, tensor, communicator)
        theirs = all_reduce_of_torch(tensor)
        torch.testing.assert_close(ours(), theirs(), rtol=1e-5, atol=1e-5)
        if on_gpu:  # NCCL writes the engine's output itself
            theirs = all_reduce_of_torch(tensor, copies=False)
        what = f"{ranks} ranks, {size:>9} bytes"
        best = compare([ours, theirs], max(5, min(300, (32 << 20) // size)), on_gpu)
        if rank == 0:
            report(what, best[0], library, best[1])
        if not on_gpu or size > LARGEST_IN_GRAPHS:
            continue
        graphs = [in_a_graph(ours), in_a_graph(theirs)]
        best = [each / GRAPH_CALLS for each in compare(graphs, 20, on_gpu)]
        if rank == 0:
            report(f"{what}, in a graph of {GRAPH_CALLS}", best[0], library, best[1])
        graphs.clear()  # before the communicators
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    sizes = [8 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
    small = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10]
    parser.add_argument("--sizes", type=int, nargs="+", help="bytes")
    parser.add_argument("--gpu", action="store_true", help="a GPU for each rank, and NCCL")
    arguments = parser.parse_args()
    arguments.sizes = arguments.sizes or (sorted({*small, *sizes}) if arguments.gpu else sizes)
    spawn = multiprocessing.get_context("spawn")
    for ranks in arguments.ranks:
        processes = [
            spawn.Process(target=work, args=(rank, ranks, arguments.sizes, arguments.gpu))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
