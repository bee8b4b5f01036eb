"""What `verify=True` costs a build for a GPU, and whether a kernel that faults is left out of it.

    python bench/gpu_verify.py [--blocks N] [--size PIXELS]

First a plugin with two tactics, the first of which stores a float4 at an address that is not a multiple of 16: the
build has to leave it out, and the process has to keep its GPU. Then a residual network in FP16 is built with and
without `verify`, in turns, after one build that leaves the compiled kernels in a cache of this run. No timing cache is
used, so that each build runs all its candidates; goal: at most twice the time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

TWICE = """
extern "C" __global__ void right(const float* x, long long n, float* y) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void misaligned(const float* x, long long n, float* y) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (4 * i + 4 < n) *(float4*)(y + 4 * i + 1) = make_float4(x[0], x[1], x[2], x[3]);
}
"""


class Log(trt.ILogger):
    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.warnings: list[str] = []
        self.details: list[str] = []

    def log(self, severity: trt.ILogger.Severity, message: str) -> None:
        (self.warnings if severity <= trt.ILogger.Severity.WARNING else self.details).append(
            message
        )


def register_twice() -> None:
    @trtp.register("bench::twice")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune("bench::twice")
    def tune(x, outputs):
        return [trtp.AutoTuneCombination("FP32, FP32", "LINEAR", [1, 2])]

    @trtp.aot_impl("bench::twice", device="cuda")
    def compiled(x, outputs, tactic):
        n = x.shape_expr.numel()
        extra = [trtp.SymInt64(n)]
        name = {1: "misaligned", 2: "right"}[tactic]
        code = aot.cuda(TWICE, name, inputs=[x], extra=extra, outputs=outputs)
        launch = code.launch(grid_x=trtp.cdiv(n, 256), block_x=256)
        return code.name, code, launch, trtp.SymExprs.from_tuple(extra)


def check_fault() -> None:
    register_twice()
    log = Log()
    network = trt.Builder(log).create_network()
    x = network.add_input("x", trt.float32, (1000,))
    layer = network.add_plugin(trtp.op.bench.twice(x), aot=True)
    layer.name = "twice"
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    began = time.perf_counter()
    engine = trt.build(network, verify=True, device="cuda", logger=log)
    seconds = time.perf_counter() - began
    values = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(engine(values), 2 * values)
    faults = [text for text in log.warnings if "is left out" in text]
    for text in log.warnings:
        print(f"warning: {text}")
    assert len(faults) == 1 and "CUDA_ERROR_MISALIGNED_ADDRESS" in faults[0], faults
    print(f"the tactic that faults was left out in {seconds:.2f} s, and the GPU is alive\n")


def residual_network(blocks: int, size: int) -> bytes:
    """A network of stages with `blocks` residual blocks each, of 64 to 512 channels. ResNet-18 has
    two blocks per stage."""
    random = np.random.default_rng(0)
    nodes, weights = [], []

    def convolution(x: str, name: str, inputs: int, outputs: int, kernel: int, stride: int) -> str:
        scale = 1 / np.sqrt(inputs * kernel * kernel)
        shapes = {"w": (outputs, inputs, kernel, kernel), "b": (outputs,)}
        for part, shape in shapes.items():
            values = (random.normal(size=shape) * scale).astype(np.float16)
            weights.append(numpy_helper.from_array(values, f"{name}.{part}"))
        nodes.append(
            helper.make_node("Conv", [x, f"{name}.w", f"{name}.b"], [name], name,
                             pads=[kernel // 2] * 4, strides=[stride] * 2)
        )  # fmt: skip
        return name

    def add(operator: str, inputs: list[str], name: str, **attributes) -> str:
        nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    at = add("Relu", [convolution("x", "stem", 3, 64, 7, 2)], "stem.relu")
    at = add("MaxPool", [at], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage in range(4):
        for block in range(blocks):
            name = f"s{stage}.b{block}"
            outputs, stride = 64 << stage, 2 if stage > 0 and block == 0 else 1
            inner = convolution(at, f"{name}.c1", channels, outputs, 3, stride)
            inner = convolution(
                add("Relu", [inner], f"{name}.r1"), f"{name}.c2", outputs, outputs, 3, 1
            )
            if stride > 1:
                at = convolution(at, f"{name}.c3", channels, outputs, 1, stride)
            at = add("Relu", [add("Add", [inner, at], f"{name}.sum")], f"{name}.r2")
            channels = outputs
    at = add("Flatten", [add("GlobalAveragePool", [at], "average")], "flat")
    values = (random.normal(size=(512, 1000)) / 23).astype(np.float16)
    weights.append(numpy_helper.from_array(values, "fc.w"))
    nodes.append(helper.make_node("MatMul", [at, "fc.w"], ["y"], "fc"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "residual",
        [value("x", TensorProto.FLOAT16, [1, 3, size, size])],
        [value("y", TensorProto.FLOAT16, [1, 1000])],
        weights,
    )
    opset = [helper.make_opsetid("", 20)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def build(model: bytes, verify: bool) -> float:
    log = Log()
    began = time.perf_counter()
    trt.build(model, verify=verify, device="cuda", logger=log)
    seconds = time.perf_counter() - began
    for text in log.warnings:
        print(f"warning: {text}")
    if verify:
        elsewhere = [text for text in log.details if "in another process first" in text]
        print("\n".join([*elsewhere[:10], f"{len(elsewhere)} candidates could not run elsewhere"]))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=1, help="residual blocks of a stage (1)")
    parser.add_argument("--size", type=int, default=224, help="pixels (224)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPWRIGHT_CACHE_DIR"] = folder
        check_fault()
        model = residual_network(arguments.blocks, arguments.size)
        print(f"first build, which compiles the kernels: {build(model, False):.2f} s")
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(2):
            for verify, all_seconds in seconds.items():
                all_seconds.append(build(model, verify))
    default, verified = min(seconds[False]), min(seconds[True])
    print(
        f"default: {default:.2f} s; verify=True: {verified:.2f} s, {verified / default:.2f} times"
    )


if __name__ == "__main__":
    main()
