"""What an enqueue costs the host: circular padding of 10x3x32x32 by 1, FP32.

The compiled kernel in an engine, called from C++, against cuLaunchKernel on the same kernel with the same
arguments; and a Triton kernel as a Python callback of an engine against launching it from Python.

python bench/gpu_enqueue.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import gpu
import numpy as np

import opwright.plugin as trtp


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
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        print(f"Triton as a callback: {error}")
        return
    import sys

    sys.path.insert(0, str(gpu.ROOT / "samples" / "quickly_deployable_plugins"))
    import qdp_defs

    kernel = qdp_defs.circ_pad_kernel
    n, c, height, width = gpu.SMALL
    rows, columns = height + 2, width + 2
    sizes = (height, width, rows, columns, 1, 1, n * c * rows * columns)
    grid = (-(-sizes[-1] // 1024),)

    @trtp.register("bench::triton_pad")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        y = x.like()
        y.shape_expr[2] += 2
        y.shape_expr[3] += 2
        return y

    @trtp.impl("bench::triton_pad", device="cuda")
    def impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        kernel[grid](torch.from_dlpack(x), *sizes, torch.from_dlpack(outputs[0]), BLOCK_SIZE=1024)

    engine = gpu.build(lambda x: trtp.op.bench.triton_pad(x), gpu.SMALL)
    context = engine.engine.create_execution_context()
    x = torch.rand(gpu.SMALL, device="cuda")
    y = torch.empty((n, c, rows, columns), device="cuda")
    z = torch.empty_like(y)
    context.set_tensor_address("x", x.data_ptr())
    context.set_tensor_address("y", y.data_ptr())
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    handle = side.cuda_stream
    with torch.cuda.stream(side):
        ours, direct, function = gpu.host_times(
            [
                lambda: context.execute_async_v3(handle),
                lambda: kernel[grid](x, *sizes, z, BLOCK_SIZE=1024),
                lambda: impl(x, (z,), handle),
            ],
            side.synchronize,
        )
        torch.cuda.synchronize()
        if not torch.equal(y, z):
            raise SystemExit("bench/gpu_enqueue: the callback's result differs")
    print("The Triton kernel, host time per enqueue:")
    print(f"  callback of an engine    {ours * 1e6:7.2f} us")
    print(f"  kernel[grid](...)        {direct * 1e6:7.2f} us   {gpu.verdict(ours / direct, 1.1)}")
    print(
        f"  the function itself, on torch tensors {function * 1e6:.2f} us, ratio {ours / function:.3f}"
    )


def main() -> None:
    gpu.need_gpu()
    compiled()
    callback()


if __name__ == "__main__":
    main()
