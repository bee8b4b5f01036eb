"""Simulates the schedule of opwright.ray.build on 1 to 1,000 workers with recorded times.

Measures on this machine the candidates of a model of 200 distinct convolutions one by one, a
worker's pass over the network, and the build from the full timing cache. Then simulates the
schedule of opwright.ray.build. "at best" is a bound for every schedule: an equal share for each
worker, or a pass and the slowest candidate. `--cluster N` also builds on N workers of Ray on this
machine, which is meaningful only if it has enough cores.

python bench/ray_tuning.py [--cluster N]
"""

from __future__ import annotations

import argparse
import heapq
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opwright import _api
from opwright.ray._build import untimed
from opwright.ray._schedule import Schedule

LAYERS = 200
# Assumed time of a message to a Ray worker on another machine and its answer, for the simulation.
MESSAGE_SECONDS = 0.002
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 250, 500, 1000)


def model(layers: int) -> onnx.ModelProto:
    """A model of convolutions, each of another shape, over 28 x 28."""
    random = np.random.default_rng(0)
    nodes, initializers, name = [], [], "x"
    channels = [16 + i for i in range(layers + 1)]
    for i, (a, b) in enumerate(zip(channels, channels[1:])):
        weights = random.standard_normal((b, a, 3, 3)).astype(np.float32) / np.float32(3 * a**0.5)
        initializers.append(numpy_helper.from_array(weights, f"w{i}"))
        nodes.append(
            helper.make_node("Conv", [name, f"w{i}"], [f"y{i}"], pads=[1] * 4, name=f"c{i}")
        )
        name = f"y{i}"
    ports = [
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, c, 28, 28])]
        for each, c in (("x", channels[0]), (name, channels[-1]))
    ]
    graph = helper.make_graph(nodes, "convolutions", ports[0], ports[1], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def simulate(
    order: list[tuple[str, str]], seconds: dict[str, float], workers: int, pass_seconds: float
) -> float:
    """Seconds until the last worker has returned its times."""
    schedule = Schedule(order, workers)
    free = [0.0] * workers
    last = head = 0.0
    while portion := schedule.take():
        # The building machine sends and receives one message after the other.
        start = max(heapq.heappop(free), head)
        head = start + MESSAGE_SECONDS / 10
        end = start + MESSAGE_SECONDS + pass_seconds + sum(seconds[key] for key in portion)
        last = max(last, end)
        heapq.heappush(free, end)
    return last


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", type=int, default=0, metavar="N")
    options = parser.parse_args()
    data = model(LAYERS).SerializeToString()
    start = time.perf_counter()
    builder, network, config = _api.definition(data, device="cpu")
    parse = time.perf_counter() - start
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, False)
    start = time.perf_counter()
    order = untimed(builder, network, config)
    pass_seconds = time.perf_counter() - start

    marks: list[tuple[str, float]] = []

    def note(layer: str, key: str) -> bool:
        marks.append((key, time.perf_counter()))
        return True

    builder._time_candidates(network, config, note)
    marks.append(("", time.perf_counter()))
    seconds = {key: after - at for (key, at), (_, after) in zip(marks, marks[1:])}
    start = time.perf_counter()
    builder.build_engine_with_config(network, config)
    rest = time.perf_counter() - start
    assert set(seconds) == {key for _, key in order}

    total = sum(seconds.values())
    fixed = parse + pass_seconds + rest
    layers = len({layer for layer, _ in order})
    print(
        f"{len(order)} candidates in {layers} groups, {total:.2f} s; the slowest {max(seconds.values()):.3f} s"
    )
    print(
        f"parsing {parse:.3f} s, a pass {pass_seconds:.3f} s, the build from the cache {rest:.3f} s"
    )
    print("\n| workers | timing s | times as fast | at best s | whole build s | times as fast |")
    print("|---|---|---|---|---|---|")
    for workers in WORKERS:
        took = simulate(order, seconds, workers, pass_seconds)
        bound = pass_seconds + max(total / workers, *seconds.values())
        whole = fixed + took
        print(
            f"| {workers} | {took:.2f} | {total / took:.1f} | {bound:.2f} | {whole:.2f} "
            f"| {(fixed + total - pass_seconds) / whole:.1f} |"
        )
    if options.cluster:
        import ray

        import opwright.ray

        ray.init(num_cpus=options.cluster, include_dashboard=False, log_to_driver=False)
        for workers in (1, options.cluster):
            start = time.perf_counter()
            opwright.ray.build(data, device="cpu", workers=workers, worker_options={"num_cpus": 1})
            print(f"\non {workers} workers of this machine: {time.perf_counter() - start:.2f} s")
        start = time.perf_counter()
        opwright.build(data, device="cpu")
        print(f"opwright.build: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
