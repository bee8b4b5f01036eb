"""An all-reduce and the RMS normalization behind it in one CUDA kernel, a plugin of ranks on GPUs."""

import functools
from pathlib import Path

import cuda_kernel
import numpy as np

import opwright as trt
import opwright.plugin as trtp
from opwright import aot

SOURCE = Path(__file__).resolve().parent / "all_reduce_rms_norm.cu"
MOST_ROWS = 64
THREADS = 256


@functools.cache  # the types of the parameters are those of the call below
def kernel(arch: str) -> cuda_kernel.Kernel:
    code = aot.cuda(
        SOURCE,
        "all_reduce_rms_norm",
        inputs=[trt.float16, trt.float16],
        extra=[trtp.SymInt32(0), trtp.SymFloat32(0)]
        + [trtp.SymInt64(0) for _ in range(3)]
        + [trtp.SymInt32(0) for _ in range(3)],
        outputs=[trt.float16],
        arch=arch,
    )
    return cuda_kernel.Kernel(bytes(code), "all_reduce_rms_norm")


@trtp.register("sample::all_reduce_rms_norm")
def all_reduce_rms_norm_desc(
    x: trtp.TensorDesc, scale: trtp.TensorDesc, epsilon: float
) -> trtp.TensorDesc:
    """Of the ranks' x, FP16 [rows, columns], with an even number of columns."""
    return x.like()


@trtp.impl("sample::all_reduce_rms_norm", device="cuda")
def all_reduce_rms_norm(x, scale, epsilon, outputs, stream, comm: trtp.Comm):
    rows, columns = x.shape
    if rows > MOST_ROWS:
        raise ValueError(f"{rows} rows; there is memory for {MOST_ROWS}")
    # Two elements are a word of 8 bytes. Each half has the rows of all ranks.
    size = 2 * comm.num_ranks * MOST_ROWS * columns // 2 * 8
    memory = comm.peer_memory(f"all_reduce_rms_norm of {columns}", size)
    if memory is None:
        raise RuntimeError("the ranks' GPUs do not reach each other's memory")
    kernel(cuda_kernel.architecture())(
        rows,
        THREADS,
        columns * 4,
        stream,
        *(x.data_ptr, scale.data_ptr),
        *(np.int32(columns // 2), np.float32(epsilon)),
        *(memory.table, memory.counters, memory.stop),
        *(np.int32(comm.rank), np.int32(comm.num_ranks), np.int32(MOST_ROWS)),
        outputs[0].data_ptr,
    )


def write_fused(network, x, scale, epsilon):
    return network.add_plugin(
        trtp.op.sample.all_reduce_rms_norm(x, scale, epsilon=epsilon)
    ).get_output(0)


def write_layers(network, x, scale, epsilon, ranks):
    """The same from layers: an all-reduce, which rounds the sum to FP16, and a normalization."""
    layer = network.add_dist_collective(
        x, trt.CollectiveOperation.ALL_REDUCE, trt.ReduceOperation.SUM, -1, []
    )
    layer.num_ranks = ranks
    exact = network.add_cast(layer.get_output(0), trt.float32).get_output(0)
    product, sum_ = trt.ElementWiseOperation.PROD, trt.ElementWiseOperation.SUM
    square = network.add_elementwise(exact, exact, product).get_output(0)
    mean = network.add_reduce(square, trt.ReduceOperation.AVG, 1 << 1, True).get_output(0)
    least = network.add_constant((1, 1), np.full((1, 1), epsilon, np.float32)).get_output(0)
    above = network.add_elementwise(mean, least, sum_).get_output(0)
    root = network.add_unary(above, trt.UnaryOperation.SQRT).get_output(0)
    divided = network.add_elementwise(exact, root, trt.ElementWiseOperation.DIV).get_output(0)
    normalized = network.add_cast(divided, trt.float16).get_output(0)
    return network.add_elementwise(normalized, scale, product).get_output(0)


def build(ranks: int, scale: np.ndarray, is_fused: bool, layers: int = 1, epsilon=1e-5) -> bytes:
    """An engine file with the input x, FP16 [1 to MOST_ROWS, columns], and the output y. Each layer
    takes the result of the one before."""
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    flag = trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    network = builder.create_network(1 << int(flag))
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.GPU
    columns = len(scale)
    x = network.add_input("x", trt.float16, (-1, columns))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, columns), (1, columns), (MOST_ROWS, columns))
    config.add_optimization_profile(profile)
    for _ in range(layers):
        weights = network.add_constant((1, columns), scale.astype(np.float16).reshape(1, -1))
        if is_fused:
            x = write_fused(network, x, weights.get_output(0), epsilon)
        else:
            x = write_layers(network, x, weights.get_output(0), epsilon, ranks)
    x.name = "y"
    network.mark_output(x)
    return bytes(builder.build_serialized_network(network, config))
