"""A model over several ranks of one host's CPU beside one engine: blocks of two products, all threads for each.

python bench/sharded.py [--ranks 2] [--layers 8] [--width 1024] [--rows 1 64]

With --gpu: a decoder of Llama's shape in FP16 (samples/decoder) over several GPUs beside one engine on one GPU, and
PyTorch's tensor parallelism in a CUDA graph.

python bench/sharded.py --gpu [--ranks 2] [--sizes 1b 8b] [--layers N] [--batches 1 8] [--prompt 512] [--context 1024]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opwright

ROUNDS, CALLS = 5, 15


def blocks(layers: int, width: int) -> onnx.ModelProto:
    """Residual blocks of FP32: `width` features become four times as many, and `width` again."""
    random = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(layers):
        for name, shape in ((f"{i}.up", (width, 4 * width)), (f"{i}.down", (4 * width, width))):
            array = random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
            weights.append(numpy_helper.from_array(array, name))
        nodes += [
            helper.make_node("MatMul", [x, f"{i}.up"], [f"wide{i}"]),
            helper.make_node("Relu", [f"wide{i}"], [f"positive{i}"]),
            helper.make_node("MatMul", [f"positive{i}", f"{i}.down"], [f"term{i}"]),
            helper.make_node("Add", [x, f"term{i}"], [f"x{i}"]),
        ]
        x = f"x{i}"
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", width]) for n in ("x", x)]
    graph = helper.make_graph(nodes, "blocks", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def median(function: Callable[[], object]) -> float:
    """Seconds per call."""
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def on_cpu(options: argparse.Namespace) -> None:
    model = blocks(options.layers or 8, options.width)
    most = max(options.rows)
    shapes = {"x": ((1, options.width), (most, options.width), (most, options.width))}
    whole = opwright.build(model, shapes=shapes, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        plan = [("*.up", "columns"), ("*.down", "rows")]
        shards = opwright.shard(model, ranks=options.ranks, plan=plan, folder=folder)
        with opwright.ShardedEngine(shards.build(shapes=shapes, device="cpu")) as ranks:
            for rows in options.rows:
                x = np.random.default_rng(1).normal(size=(rows, options.width)).astype(np.float32)
                np.testing.assert_allclose(ranks(x), whole(x), rtol=1e-3, atol=1e-3)
                best = [float("inf")] * 2
                for _ in range(ROUNDS):
                    for i, engine in enumerate((whole, ranks)):
                        best[i] = min(best[i], median(lambda: engine(x)))  # noqa: B023
                print(
                    f"{rows:4} rows: one engine {best[0] * 1e3:.2f} ms, {options.ranks} ranks "
                    f"{best[1] * 1e3:.2f} ms, ratio {best[1] / best[0]:.2f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, help="8, or with --gpu those of the model")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--gpu", action="store_true", help="a decoder on GPUs")
    parser.add_argument("--sizes", nargs="+", default=["1b", "8b"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--context", type=int, default=1024)
    options = parser.parse_args()
    if options.gpu:
        import gpu_sharded  # which needs PyTorch

        gpu_sharded.run(options)
    else:
        on_cpu(options)


if __name__ == "__main__":
    main()
