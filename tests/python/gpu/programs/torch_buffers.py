"""A program as users of TensorRT write it: a function plugin, buffers by torch."""

from typing import List, Tuple

import numpy as np
import numpy.typing as npt
import tensorrt as trt
import tensorrt.plugin as trtp
import torch

TRT_LOGGER = trt.Logger(trt.Logger.INFO)


@trtp.register("example::circ_pad_plugin")
def circ_pad_plugin_desc(inp0: trtp.TensorDesc, pads: npt.NDArray[np.int32]) -> trtp.TensorDesc:
    ndim = inp0.ndim
    out_desc = inp0.like()

    for i in range(np.size(pads) // 2):
        out_desc.shape_expr[ndim - i - 1] += int(pads[i * 2] + pads[i * 2 + 1])

    return out_desc


@trtp.autotune("example::circ_pad_plugin")
def circ_pad_plugin_autotune(
    inp0: trtp.TensorDesc, pads: npt.NDArray[np.int32], outputs: Tuple[trtp.TensorDesc]
) -> List[trtp.AutoTuneCombination]:
    return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR")]


@trtp.impl("example::circ_pad_plugin")
def circ_pad_plugin_impl(
    inp0: trtp.Tensor, pads: npt.NDArray[np.int32], outputs: Tuple[trtp.Tensor], stream: int
) -> None:
    inp_t = torch.as_tensor(inp0, device="cuda")
    out_t = torch.as_tensor(outputs[0], device="cuda")

    out = torch.nn.functional.pad(inp_t, pads.tolist(), mode="circular")
    out_t.copy_(out)


def build_engine(shape, pads):
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = network.add_input(name="x", dtype=trt.DataType.FLOAT, shape=shape)
    layer = network.add_plugin(trtp.op.example.circ_pad_plugin(x, pads=pads))
    y = layer.get_output(0)
    y.name = "y"
    network.mark_output(tensor=y)
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
    return builder.build_serialized_network(network, config)


def main():
    shape, pads = (10, 3, 32, 32), np.array([1, 1, 1, 1], dtype=np.int32)
    runtime = trt.Runtime(TRT_LOGGER)
    engine = runtime.deserialize_cuda_engine(build_engine(shape, pads))
    context = engine.create_execution_context()

    torch.manual_seed(0)
    tensors = {"x": torch.randn(shape, device="cuda")}
    for i in range(engine.num_io_tensors):
        name = engine.get_tensor_name(i)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT:
            tensors[name] = torch.empty(tuple(context.get_tensor_shape(name)), device="cuda")
        context.set_tensor_address(name, tensors[name].data_ptr())

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        context.execute_async_v3(stream.cuda_stream)
    stream.synchronize()

    expected = torch.nn.functional.pad(tensors["x"], pads.tolist(), mode="circular")
    assert torch.equal(tensors["y"], expected)
    print("Inference result correct!")


if __name__ == "__main__":
    main()
