"""`opwright serve` under load: throughput and percentiles of latency, beside plain calls of the engine.

Clients are coroutines of one other process (aiohttp, binary tensors), each of which asks, waits for the answer and asks
again. The model is a perceptron of three layers, 512 wide, over rows. "overload" has more clients than the queue holds.

python bench/serving.py
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
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


async def load(url: str, clients: int, seconds: float) -> tuple[list[float], list[float], int]:
    """Seconds of answers with 200 and with 503, and the number of all others."""
    x = np.random.default_rng(1).standard_normal((1, WIDTH)).astype(np.float32)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, WIDTH]}
    tensor["parameters"] = {"binary_data_size": x.nbytes}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    body, headers = header + x.tobytes(), {"Inference-Header-Content-Length": str(len(header))}
    good, refused, others = [], [], 0
    end = time.perf_counter() + seconds

    async def ask(session: aiohttp.ClientSession) -> None:
        nonlocal others
        while (start := time.perf_counter()) < end:
            async with session.post(url, data=body, headers=headers) as answer:
                content = await answer.read()
            took = time.perf_counter() - start
            if answer.status == 200 and len(content) > x.nbytes:
                good.append(took)
            elif answer.status == 503:
                refused.append(took)
                await asyncio.sleep(0.02)
            else:
                others += 1

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(ask(session) for _ in range(clients)))
    return good, refused, others


def cpu_seconds(process: int) -> float:
    """What it has used of processors, all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(engine: Path, clients: int, *options: str) -> str:
    command = [sys.executable, "-m", "opwright", "serve", f"net={engine}", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://\S+", server.stderr.readline())[0]
            url = f"{address}/v2/models/net/infer"
            asyncio.run(load(url, clients, 0.5))
            before = cpu_seconds(server.pid)
            good, refused, others = asyncio.run(load(url, clients, SECONDS))
            used = cpu_seconds(server.pid) - before
        finally:
            server.terminate()
    p50, p90, p99 = (1e3 * np.percentile(good, p) for p in (50, 90, 99))
    each = 1e3 * used / (len(good) + len(refused))
    slowest = f"{1e3 * np.percentile(refused, 99):.1f}" if refused else "-"
    return (
        f"| {clients} | {' '.join(options) or '-'} | {len(good) / SECONDS:.0f} | {p50:.2f} | {p90:.2f} "
        f"| {p99:.2f} | {len(refused) / SECONDS:.0f} | {slowest} | {others} | {each:.2f} |"
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
            "| clients | options | answers/s | p50 ms | p90 ms | p99 ms | 503/s | their p99 ms | else | CPU ms each |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        for clients in (1, 4, 16, 64):
            print(run(path, clients), flush=True)
        print(run(path, 64, "--max-batch", "1"), flush=True)
        print(run(path, 64, "--delay", "2"), flush=True)
        print(run(path, 64, "--max-queue", "8"), flush=True)
        print(run(path, 256, "--max-queue", "32"), flush=True)


if __name__ == "__main__":
    main()
