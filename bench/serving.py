"""`opwright serve` under load: throughput and percentiles of latency, beside plain calls of the engine.

Clients are connections of one other process. Each sends a request with binary tensors, waits for
the answer and repeats that, after 20 ms if it was refused. Clients write and read raw bytes, so
that times are the server's. The model is a perceptron of three layers, 512 wide, over rows.

python bench/serving.py
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import timing
from onnx import TensorProto, helper, numpy_helper

import opwright

WIDTH = 512
SECONDS = 4.0


def model() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, name, initializers = [], "x", []
    for i in range(3):
        weights = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 23
        initializers.append(numpy_helper.from_array(weights, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{i}"], [f"p{i}"]))
        nodes.append(helper.make_node("Relu", [f"p{i}"], [f"y{i}"]))
        name = f"y{i}"
    ports = [
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["rows", WIDTH])]
        for each in ("x", name)
    ]
    graph = helper.make_graph(nodes, "perceptron", ports[0], ports[1], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


class Client(asyncio.Protocol):
    """A connection that sends a request, reads the answer and repeats that."""

    def __init__(self, request: bytes, end: float, answers: Answers):
        self._request, self._end, self._answers = request, end, answers
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._received, self._start = b"", time.perf_counter()
        if self._start >= self._end:
            self.done.set_result(None)
            self._transport.close()
        else:
            self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < int(re.search(rb"(?i)content-length: *(\d+)", head)[1]):
            return
        status, took = head[9:12], time.perf_counter() - self._start
        if status == b"503":
            self._answers.refused.append(took)
            asyncio.get_running_loop().call_later(0.02, self._ask)
            return
        if status == b"200" and len(body) > 4 * WIDTH:
            self._answers.good.append(took)
        else:
            self._answers.others += 1
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self._answers.others += 1
            self.done.set_result(None)


@dataclasses.dataclass
class Answers:
    """Seconds of answers with 200 and with 503, and the number of all others."""

    good: list[float] = dataclasses.field(default_factory=list)
    refused: list[float] = dataclasses.field(default_factory=list)
    others: int = 0


async def load(host: str, port: int, clients: int, seconds: float) -> Answers:
    x = np.random.default_rng(1).standard_normal((1, WIDTH)).astype(np.float32)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, WIDTH]}
    tensor["parameters"] = {"binary_data_size": x.nbytes}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = [
        "POST /v2/models/net/infer HTTP/1.1",
        f"Host: {host}:{port}",
        f"Content-Length: {len(header) + x.nbytes}",
        f"Inference-Header-Content-Length: {len(header)}",
    ]
    request = "\r\n".join([*lines, "", ""]).encode() + header + x.tobytes()
    answers = Answers()
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + seconds
    protocols = [
        (await loop.create_connection(lambda: Client(request, end, answers), host, port))[1]
        for _ in range(clients)
    ]
    await asyncio.gather(*(protocol.done for protocol in protocols))
    return answers


def cpu_seconds(process: int) -> float:
    """The CPU seconds of a process and all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(engine: Path, clients: int, *options: str) -> str:
    command = [sys.executable, "-m", "opwright", "serve", f"net={engine}", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            host, port = re.search(r"http://(\S+):(\d+)", server.stderr.readline()).groups()
            asyncio.run(load(host, int(port), clients, 0.5))
            before = cpu_seconds(server.pid)
            answers = asyncio.run(load(host, int(port), clients, SECONDS))
            used = cpu_seconds(server.pid) - before
        finally:
            server.terminate()
    good, refused = answers.good, answers.refused
    p50, p90, p99 = (1e3 * np.percentile(good, p) for p in (50, 90, 99))
    each = 1e3 * used / (len(good) + len(refused))
    late = [f"{1e3 * np.percentile(refused, p):.2f}" if refused else "-" for p in (50, 99)]
    return (
        f"| {clients} | {' '.join(options) or '-'} | {len(good) / SECONDS:.0f} | {p50:.2f} | {p90:.2f} "
        f"| {p99:.2f} | {len(refused) / SECONDS:.0f} | {' | '.join(late)} | {answers.others} | {each:.3f} |"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.engine"
        shape = ((1, WIDTH), (16, WIDTH), (32, WIDTH))
        engine = opwright.build(model(), shapes={"x": shape})
        engine.save(path)
        calls = [functools.partial(engine, np.ones((n, WIDTH), np.float32)) for n in (1, 16, 32)]
        for rows, seconds in zip((1, 16, 32), timing.in_turns(calls)):
            print(f"engine call, {rows} rows: {seconds * 1e6:.0f} us, {rows / seconds:.0f} rows/s")
        print()
        print(
            "| clients | options | answers/s | p50 ms | p90 ms | p99 ms "
            "| 503/s | their p50 | their p99 | else | CPU ms each |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        for clients in (1, 4, 16, 64):
            print(run(path, clients), flush=True)
        print(run(path, 64, "--max-batch", "1"), flush=True)
        print(run(path, 64, "--delay", "2"), flush=True)
        print(run(path, 64, "--max-queue", "8"), flush=True)
        print(run(path, 256, "--max-queue", "32"), flush=True)


if __name__ == "__main__":
    main()
