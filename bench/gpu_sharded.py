"""What `python bench/sharded.py --gpu` runs: a decoder of Llama's shape on one GPU and on several ranks.

The peer is PyTorch's tensor parallelism: the same cut, all_reduce and all_gather of torch.distributed, in a CUDA graph.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from gpu_decoder import Ours, Peer, decoder, random_weights

import opwright as trt

ROUNDS, RUNS = 5, (5, 30)  # of a prefill, and of a step
PORT = 29551


def milliseconds(call: Callable[[], object], runs: int) -> float:
    """Of a call among many, between two events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    for _ in range(runs):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / runs


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """The call in a CUDA graph. All ranks capture it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        call()
    return graph.replay


class Case:
    """The model of a size and a batch on this rank. Rank 0 also has the whole model's engine."""

    def __init__(
        self,
        options: argparse.Namespace,
        rank: int,
        size: decoder.Size,
        weights: dict[str, torch.Tensor],
        batch: int,
        communicator: trt.Communicator,
    ):
        self.options, self.rank, self.size, self.batch = options, rank, size, batch
        self.room = -(-(options.context + 64) // 64) * 64
        part = decoder.part_of(weights, rank, options.ranks)
        part = {name: tensor.contiguous() for name, tensor in part.items()}
        self.ours = Ours(self.build(part, options.ranks), batch, options.prompt, communicator)
        self.alone = None
        if rank == 0:
            self.alone = Ours(self.build(weights, 1), batch, options.prompt)
        self.peer = Peer(size, part, batch, self.room, options.ranks)
        generator = torch.Generator().manual_seed(1)
        shape = (batch, options.prompt)
        self.prompt = torch.randint(size.vocabulary, shape, generator=generator).cuda()
        self.places = torch.arange(options.prompt, device="cuda")
        self.position = torch.tensor([options.context - 1], device="cuda")
        distributed.barrier()

    def build(self, weights: dict[str, torch.Tensor], ranks: int) -> bytes:
        begin = time.monotonic()
        plan = decoder.build(
            self.size,
            {name: tensor.cpu().numpy() for name, tensor in weights.items()},
            batch=self.batch,
            room=self.room,
            prompt=self.options.prompt,
            device=trt.DeviceType.GPU,
            timing_cache=f"{self.options.folder}/times.{self.rank}",
            ranks=ranks,
        )
        if self.rank == 0:
            print(f"  built for {ranks} in {time.monotonic() - begin:.1f} s", flush=True)
        return plan

    def start(self, position: int) -> None:
        for engine in filter(None, (self.ours, self.alone)):
            engine.tensors["tokens"].copy_(self.prompt)
            engine.tensors["position"].fill_(position)

    def equal_steps(self, steps: int = 8) -> tuple[int, int]:
        """In how many steps the one engine, and PyTorch, choose the ranks' tokens, with which all go on."""
        self.start(0)
        logits = self.peer(self.prompt, self.places)
        equal = [0, 0]
        for step in range(steps):
            for engine in filter(None, (self.ours, self.alone)):
                engine.run(0 if step == 0 else 1)
            chosen = self.ours.tensors["next"]
            if self.alone is not None:
                equal[0] += int((chosen == self.alone.tensors["next"]).all())
            equal[1] += int((chosen.flatten() == logits.argmax(-1)).all())
            position = self.options.prompt + step
            logits = self.peer(chosen.long(), torch.tensor([position], device="cuda"))
            for engine in filter(None, (self.ours, self.alone)):
                engine.tensors["tokens"].flatten()[: self.batch].copy_(chosen.flatten())
                engine.tensors["position"].fill_(position)
        return equal[0], equal[1]

    def calls(self) -> dict[str, list[Callable[[], object] | None]]:
        """A prefill and a step of each; None: that is another rank's."""
        token = self.prompt[:, :1].contiguous()
        ours: list[Callable[[], object]] = [lambda: self.ours.run(0), lambda: self.ours.run(1)]
        theirs: list[Callable[[], object]] = [
            lambda: self.peer(self.prompt, self.places).argmax(-1),
            lambda: self.peer(token, self.position).argmax(-1),
        ]
        alone = self.alone
        return {
            "one GPU": [None, None]
            if alone is None
            else [lambda: alone.run(0), lambda: alone.run(1)],
            "ranks": [*ours],
            "ranks, CUDA graph": [captured(each) for each in ours],
            "PyTorch, CUDA graph": [captured(each) for each in theirs],
        }

    def times(self) -> dict[str, list[float]]:
        """Milliseconds: the least of the rounds' medians."""
        calls = self.calls()
        best = {name: [float("inf")] * 2 for name in calls}
        for _ in range(ROUNDS):
            for name, pair in calls.items():
                for i, call in enumerate(pair):
                    self.start((0, self.options.context - 1)[i])
                    torch.cuda.synchronize()
                    distributed.barrier()
                    if call is not None:
                        found = statistics.median(milliseconds(call, RUNS[i]) for _ in range(3))
                        best[name][i] = min(best[name][i], found)
        return best


def work(rank: int, options: argparse.Namespace) -> None:
    torch.cuda.set_device(rank)
    torch.cuda.init()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT))
    distributed.init_process_group(
        "nccl", rank=rank, world_size=options.ranks, device_id=torch.device("cuda", rank)
    )
    communicator = trt.Communicator(options.name, rank, options.ranks, 120, f"cuda:{rank}")
    for name in options.sizes:
        size = decoder.SIZES[name]
        if options.layers:
            size = dataclasses.replace(size, layers=options.layers)
        weights = random_weights(size)
        gigabytes = sum(tensor.nbytes for tensor in weights.values()) / 1e9
        for batch in options.batches:
            if rank == 0:
                print(
                    f"{name}, {size.layers} layers, {gigabytes:.2f} GB, batch {batch}", flush=True
                )
            with torch.inference_mode():
                case = Case(options, rank, size, weights, batch, communicator)
                equal = case.equal_steps()
                times = case.times()
            if rank == 0:
                print(f"  equal tokens in 8 steps: one GPU {equal[0]}, PyTorch {equal[1]}")
                peer = times["PyTorch, CUDA graph"]
                for who, (prefill, step) in times.items():
                    print(
                        f"  {who}: prefill {prefill:.3f} ms, step {step:.4f} ms; of PyTorch's "
                        f"{prefill / peer[0]:.2f} and {step / peer[1]:.2f}",
                        flush=True,
                    )
            del case
            torch.cuda.empty_cache()
        del weights
    distributed.barrier()
    distributed.destroy_process_group()


def run(options: argparse.Namespace) -> None:
    options.name = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as options.folder:
        multiprocessing.spawn(work, (options,), options.ranks)
