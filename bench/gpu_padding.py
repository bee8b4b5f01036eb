"""Circular padding on the device: 32x64x224x224 by 3 (and 10x3x32x32 by 1), FP32 and FP16, times by events.

The kernel of samples/aot that the tuner chooses is compared with a copy of the output's bytes
within the device. Beside it are each of the tuner's tactics, and kernels that users write: Triton,
PyTorch's F.pad, CuPy.

python bench/gpu_padding.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import gpu
import numpy as np

import opwright as trt
import opwright.plugin as trtp


def triton_pad(x, y, pad) -> Callable[[], object]:
    """The samples' Triton kernel, which makes a division for each axis and element."""
    sys.path.insert(0, str(gpu.ROOT / "samples" / "quickly_deployable_plugins"))
    import qdp_defs

    sizes = (*x.shape[-2:], *y.shape[-2:], pad, pad, y.numel())
    grid = (-(-y.numel() // 1024),)
    return lambda: qdp_defs.circ_pad_kernel[grid](x, *sizes, y, BLOCK_SIZE=1024)


def cupy_pad(x, y, pad) -> Callable[[], object]:
    """The samples' CUDA kernel in CuPy's RawKernel, which makes a division for each axis and
    element."""
    import cupy

    sys.path.insert(0, str(gpu.ROOT / "samples" / "python_plugin"))
    from circ_pad_cuda import BLOCK, SOURCE, options

    kernel = cupy.RawKernel(SOURCE, "circ_pad", options=options(x.element_size()))
    numbers = [np.int32(n) for n in (*x.shape, *y.shape, 0, 0, pad, pad)]
    arguments = (cupy.asarray(x), cupy.asarray(y), *numbers)
    grid = (-(-y.numel() // BLOCK),)
    stream = cupy.cuda.ExternalStream(stream_of_torch())

    def run() -> None:
        with stream:
            kernel(grid, (BLOCK,), arguments)

    return run


def stream_of_torch() -> int:
    import torch

    return torch.cuda.current_stream().cuda_stream


def compare(shape: tuple[int, ...], pad: int, dtype: trt.DataType) -> None:
    import torch

    torch_type = {trt.float32: torch.float32, trt.float16: torch.float16}[dtype]
    x = torch.rand(shape, device="cuda", dtype=torch_type)
    expected = torch.nn.functional.pad(x, (pad,) * 4, mode="circular")
    y, other = torch.empty_like(expected), torch.rand_like(expected)
    engine = gpu.build(lambda t: trtp.op.sample.circ_pad_rows(t, pads=gpu.pads(pad)), shape, dtype)
    context = engine.engine.create_execution_context()
    context.set_tensor_address("x", x.data_ptr())
    context.set_tensor_address("y", y.data_ptr())
    stream = stream_of_torch()
    functions: dict[str, Callable[[], object]] = {
        "copy of the output's bytes": lambda: y.copy_(other),
        "compiled kernel, engine": lambda: context.execute_async_v3(stream),
        "Triton": triton_pad(x, y, pad),
        "torch F.pad": lambda: torch.nn.functional.pad(x, (pad,) * 4, mode="circular"),
    }
    try:
        functions["CuPy RawKernel"] = cupy_pad(x, y, pad)
    except ImportError as error:
        print(f"CuPy: {error}")
    for name in list(functions)[1:]:
        y.fill_(-1)
        functions[name]()
        torch.cuda.synchronize()
        if name != "torch F.pad" and not torch.equal(y, expected):
            raise SystemExit(f"bench/gpu_padding: the result of {name} is wrong")
    seconds = gpu.device_times(list(functions.values()))
    copy = seconds[0]
    print(f"Circular padding of {'x'.join(map(str, shape))} by {pad}, {dtype.name}:")
    for name, time in zip(functions, seconds):
        print(f"  {name:28} {time * 1e6:9.2f} us   {copy / time:5.2f} of the copy's speed")
    if shape == gpu.LARGE:
        print(f"  {gpu.verdict(copy / seconds[1], 0.95, at_most=False)}")
    for layer in engine.layers:
        for option in layer["Candidates"]:
            constants = gpu.circ_pad.TACTICS[int(option["TacticValue"]) - 1]
            chosen = "->" if option["Chosen"] else "  "
            print(
                f"    {chosen} tactic {option['TacticValue']} {constants}: {option['TimeMs'] * 1e3:.1f} us"
            )


def main() -> None:
    gpu.need_gpu()
    for shape, pad in ((gpu.LARGE, 3), (gpu.SMALL, 1)):
        for dtype in (trt.float32, trt.float16):
            compare(shape, pad, dtype)


if __name__ == "__main__":
    main()
