"""Time and memory of building: the standard's node tests, models of many nodes, one of large weights.

    python bench/build_time.py

Goals: a node test builds in milliseconds, 5,000 nodes in seconds, and no build takes more memory
than twice the model and its largest kernel's scratch memory, beyond the memory that the process had
before.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def graph_of(nodes, shape, weights=()) -> bytes:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", FLOAT, shape)], [value("y", FLOAT, None)], list(weights)
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString()


def chain(count: int, operators: list[str]) -> bytes:
    """A chain in which each operator takes the result of the previous one."""
    names = ["x", *(f"t{i}" for i in range(count - 1)), "y"]
    nodes = [
        helper.make_node(operators[i % len(operators)], [names[i]], [names[i + 1]], f"n{i}")
        for i in range(count)
    ]
    return graph_of(nodes, [4, 64])


def layers(count: int) -> bytes:
    """A transformer-like model: products, normalization, reshapes by computed shapes, residual
    additions."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.normal(0, 0.1, (64, 64)),
        "scale": np.ones(64),
        "bias": np.zeros(64),
    }
    tensors = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([0, 0, 4, 16], np.int64), "split"))
    nodes, at = [], "x"
    while len(nodes) < count - 1:
        i = len(nodes)
        add = lambda op, inputs, suffix, **a: nodes.append(  # noqa: E731
            helper.make_node(op, inputs, [f"{suffix}{i}"], f"{op}{i}{suffix}", **a)  # noqa: B023
        )
        add("LayerNormalization", [at, "scale", "bias"], "n")
        add("MatMul", [f"n{i}", "w"], "m")
        add("Reshape", [f"m{i}", "split"], "h")
        add("Transpose", [f"h{i}"], "t", perm=[0, 2, 1, 3])
        add("Transpose", [f"t{i}"], "u", perm=[0, 2, 1, 3])
        add("Shape", [at], "s")
        add("Reshape", [f"u{i}", f"s{i}"], "j")
        add("Tanh", [f"j{i}"], "a")
        add("Add", [f"a{i}", at], "r")
        at = f"r{i}"
    nodes.append(helper.make_node("Identity", [at], ["y"]))
    return graph_of(nodes, [2, 16, 64], tensors)


def convolutions(count: int, channels: int) -> bytes:
    random = np.random.default_rng(0)
    tensors, nodes, at = [], [], "x"
    for i in range(count):
        kernel = random.normal(0, 0.05, (channels, channels, 3, 3)).astype(np.float32)
        tensors.append(numpy_helper.from_array(kernel, f"w{i}"))
        nodes.append(helper.make_node("Conv", [at, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        at = f"r{i}" if i < count - 1 else "y"
        nodes.append(helper.make_node("Relu", [f"c{i}"], [at]))
    return graph_of(nodes, [1, channels, 14, 14], tensors)


def products(megabytes: int) -> bytes:
    """Two layers of a language model's size."""
    size = int((megabytes * (1 << 20) / 8) ** 0.5)
    random = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(random.standard_normal((size, size), np.float32), f"w{i}")
        for i in range(2)
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("MatMul", ["h", "w1"], ["y"]),
    ]
    return graph_of(nodes, [1, size], tensors)


CASES = {
    "1 node": lambda: chain(1, ["Relu"]),
    "5,000 element-wise": lambda: chain(5000, ["Relu", "Sin", "Neg", "Exp", "Tanh"]),
    "5,000 softmax and transposes": lambda: chain(5000, ["Softmax", "Transpose"]),
    "5,000 of a transformer": lambda: layers(5000),
    "20 convolutions of 256": lambda: convolutions(20, 256),
    "128 MB of products": lambda: products(128),
    "512 MB of products": lambda: products(512),
}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def current() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def measure(name: str) -> dict[str, float]:
    """Measures a build, in a process of its own."""
    import opwright

    opwright.build(chain(1, ["Relu"]))  # loads everything that is loaded once
    model = CASES[name]()
    # The memory of making the model must not hide that of building it.
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = current()
    start = time.perf_counter()
    engine = opwright.build(model)
    seconds = time.perf_counter() - start
    grown = peak() - before
    return {
        "seconds": seconds,
        "grown": grown / 1e6,
        "model": len(model) / 1e6,
        "steps": len(engine.layers),
    }


def node_tests() -> None:
    """Prints the milliseconds of each of the standard's node tests that builds."""
    from onnx.backend.test.loader import load_model_tests

    import opwright
    from opwright import onnx_backend

    times = {}
    for case in load_model_tests(kind="node"):
        path = f"{case.model_dir}/model.onnx" if case.model_dir else None
        model = onnx.load(path) if path else case.model
        if not onnx_backend.is_compatible(model):
            continue
        data = model.SerializeToString()
        start = time.perf_counter()
        try:
            opwright.build(data)
        except opwright.Error:
            continue
        times[case.name] = (time.perf_counter() - start) * 1e3
    slow = sorted(times, key=times.get, reverse=True)[:8]
    values = sorted(times.values())
    print(
        f"{len(values)} node tests: median {statistics.median(values):.1f} ms, 95 % within"
        f" {values[len(values) * 95 // 100]:.1f} ms, the slowest:"
    )
    for name in slow:
        print(f"  {times[name]:8.1f} ms  {name}")


def main() -> None:
    print(
        f"{'model':30} {'MB':>7} {'steps':>6} {'seconds':>8} {'MB grown':>9} {'of the model':>12}"
    )
    for name in CASES:
        output = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, check=True
        ).stdout
        made = json.loads(output.splitlines()[-1])
        share = f"{made['grown'] / made['model']:.2f}" if made["model"] > 10 else ""
        print(
            f"{name:30} {made['model']:7.1f} {made['steps']:6} {made['seconds']:8.2f}"
            f" {made['grown']:9.1f} {share:>12}",
            flush=True,
        )
    node_tests()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
