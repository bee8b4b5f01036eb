"""The host's cost of an enqueue: circular padding of 10x3x32x32 by 1, FP32.

The compiled kernel in an engine, called from C++, against cuLaunchKernel on the same kernel with the same
arguments; and a Triton kernel as a Python callback of an engine against launching it from Python.

python bench/gpu_enqueue.py
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gpu
import numpy as np

import opwright.plugin as trtp

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def circ_pad(
        x: "*fp32",  # noqa: F722
        height,
        width,
        rows,
        columns,
        top,
        left,
        n,
        y: "*fp32",  # noqa: F722
        BLOCK_SIZE: tl.constexpr,
    ):
        # Pointers with stated types may be passed as addresses, so no torch tensor is made.
        i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        source_row = (i // columns % rows + height - top) % height
        source_column = (i % columns + width - left) % width
        source = (i // (rows * columns) * height + source_row) * width + source_column
        tl.store(y + i, tl.load(x + source, mask=i < n), mask=i < n)


def compiled() -> None:
    spec = gpu.small_spec()
    print("Circular padding 10x3x32x32 by 1, FP32, compiled kernel, host time per enqueue:")
    with tempfile.TemporaryDirectory() as folder:
        for graphs in (True, False):
            engine = gpu.build(
                lambda x: trtp.op.bench.circ_pad(x, pads=gpu.pads(1)), gpu.SMALL, graphs=graphs
            )
            x = np.random.default_rng(0).random(gpu.SMALL, np.float32)
            expected = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], mode="wrap")
            if not np.array_equal(engine(x), expected):
                raise SystemExit("bench/gpu_enqueue: the result differs from numpy.pad")
            t = gpu.run_program("launch", Path(folder), engine, spec)
            us = {name: seconds * 1e6 for name, seconds in t.items()}
            name = "engine" if graphs else "engine, cuda_graphs off"
            print(
                f"  {name:24} {us['engine_host']:7.3f} us, with the device's work {us['engine']:.3f}"
            )
            print(
                f"  {'cuLaunchKernel':24} {us['by_hand_host']:7.3f} us, with the device's work "
                f"{us['by_hand']:.3f}"
            )
            print(f"  {gpu.verdict(us['engine_host'] / us['by_hand_host'], 1.1)}")


def callback() -> None:
    if triton is None:
        print("Triton as a callback: torch or Triton is not installed")
        return
    n, c, height, width = gpu.SMALL
    rows, columns = height + 2, width + 2
    sizes = (height, width, rows, columns, 1, 1, n * c * rows * columns)
    grid = (-(-sizes[-1] // 1024),)

    def from_tensors(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        x, y = torch.from_dlpack(x), torch.from_dlpack(outputs[0])
        circ_pad[grid](x, *sizes, y, BLOCK_SIZE=1024)

    def from_torch(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        circ_pad[grid](x.torch(), *sizes, outputs[0].torch(), BLOCK_SIZE=1024)

    def from_capsules(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        x, y = torch.from_dlpack(x.__dlpack__()), torch.from_dlpack(outputs[0].__dlpack__())
        circ_pad[grid](x, *sizes, y, BLOCK_SIZE=1024)

    def from_addresses(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        circ_pad[grid](x.data_ptr, *sizes, outputs[0].data_ptr, BLOCK_SIZE=1024)

    def padded(x: trtp.TensorDesc) -> trtp.TensorDesc:
        y = x.like()
        y.shape_expr[2] += 2
        y.shape_expr[3] += 2
        return y

    x = torch.rand(gpu.SMALL, device="cuda")
    y = torch.empty((n, c, rows, columns), device="cuda")
    side = torch.cuda.Stream()
    handle = side.cuda_stream
    functions: dict[str, Callable[[], object]] = {}
    results = []
    for impl in (from_addresses, from_torch, from_capsules, from_tensors):
        name = impl.__name__
        trtp.register(f"bench::triton_{name}")(padded)
        trtp.impl(f"bench::triton_{name}", device="cuda")(impl)
        engine = gpu.build(getattr(trtp.op.bench, f"triton_{name}"), gpu.SMALL)
        context = engine.engine.create_execution_context()
        results.append(torch.empty_like(y))
        context.set_tensor_address("x", x.data_ptr())
        context.set_tensor_address("y", results[-1].data_ptr())
        functions[f"callback, {name.replace('_', ' ')}"] = partial(context.execute_async_v3, handle)
    functions["kernel[grid](...) on torch tensors"] = lambda: circ_pad[grid](
        x, *sizes, y, BLOCK_SIZE=1024
    )
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        seconds = gpu.host_times(list(functions.values()), side.synchronize)
    torch.cuda.synchronize()
    if not all(torch.equal(result, y) for result in results):
        raise SystemExit("bench/gpu_enqueue: a callback's result differs")
    print("The Triton kernel, host time per enqueue:")
    for name, time in zip(functions, seconds):
        print(f"  {name:36} {time * 1e6:7.2f} us   ratio {time / seconds[-1]:.3f}")
    print(f"  the first: {gpu.verdict(seconds[0] / seconds[-1], 1.1)}")
    print(f"  the second: {gpu.verdict(seconds[1] / seconds[-1], 1.3)}")


def main() -> None:
    gpu.need_gpu()
    compiled()
    callback()


if __name__ == "__main__":
    main()
