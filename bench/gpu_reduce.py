"""Sums of many elements to few on the device, FP32 and FP16, times by events: 64 Mi elements to a scalar, and others.

The kernel that the tuner chooses against reading at the rate of a copy within the device, and against torch.sum;
beside it each of the tuner's tactics.

python bench/gpu_reduce.py
"""

from __future__ import annotations

import gpu

import opwright as trt

# Shapes, and the axis to sum.
CASES = [((1 << 26,), 0), ((8, 1 << 23), 1), ((1 << 20, 64), 0), ((1 << 20,), 0)]


def build(shape: tuple[int, ...], axis: int, dtype: trt.DataType) -> trt.Engine:
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = network.add_input("x", dtype, shape)
    y = network.add_reduce(x, trt.ReduceOperation.SUM, 1 << axis, False).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return trt.build(network, device=trt.DeviceType.GPU)


def compare(shape: tuple[int, ...], axis: int, dtype: trt.DataType) -> None:
    import torch

    torch_type = {trt.float32: torch.float32, trt.float16: torch.float16}[dtype]
    x = torch.rand(shape, device="cuda", dtype=torch_type) / 1024  # so that FP16 holds the sum
    expected = x.sum(dim=axis, dtype=torch.float64)
    y, other = torch.empty_like(expected, dtype=torch_type), torch.empty_like(x)
    engine = build(shape, axis, dtype)
    context = engine.engine.create_execution_context()
    context.set_tensor_address("x", x.data_ptr())
    context.set_tensor_address("y", y.data_ptr())
    stream = torch.cuda.current_stream().cuda_stream
    first = None
    for _ in range(20):
        y.fill_(-1)
        context.execute_async_v3(stream)
        torch.testing.assert_close(
            y.double(), expected, rtol=1e-3 if y.itemsize == 2 else 1e-6, atol=0
        )
        first = y.clone() if first is None else first
        if not torch.equal(y, first):
            raise SystemExit("bench/gpu_reduce: the sum differs from run to run")
    copy, ours, theirs = gpu.device_times(
        [
            lambda: other.copy_(x),
            lambda: context.execute_async_v3(stream),
            lambda: torch.sum(x, dim=axis, out=y),
        ]
    )
    print(f"Sum of {'x'.join(map(str, shape))} over axis {axis}, {dtype.name}:")
    for name, time in (("half of a copy", copy / 2), ("engine", ours), ("torch.sum", theirs)):
        print(f"  {name:16} {time * 1e6:9.2f} us   {copy / 2 / time:5.2f} of the copy's rate")
    for option in engine.layers[0]["Candidates"]:
        sign = "->" if option["Chosen"] else "  "
        print(f"    {sign} {option['TacticName']}: {option['TimeMs'] * 1e3:.1f} us")


def main() -> None:
    gpu.need_gpu()
    for shape, axis in CASES:
        for dtype in (trt.float32, trt.float16):
            compare(shape, axis, dtype)


if __name__ == "__main__":
    main()
