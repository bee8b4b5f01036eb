"""A program as users of TensorRT write it: an IPluginV2DynamicExt in an ONNX model, all memory by CuPy."""

import cupy as cp
import numpy as np
import onnx
import tensorrt as trt
from onnx import TensorProto, helper

logger = trt.Logger(trt.Logger.WARNING)

circ_pad_kernel = cp.RawKernel(
    r"""
extern "C" __global__ void circ_pad(const float* X, const int* all_pads, const int* orig_dims, float* Y,
                                    const int* Y_shape, int Y_len) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  int stride = blockDim.x * gridDim.x;
  for (int i = index; i < Y_len; i += stride) {
    int rest = i, offset = 0, scale = 1;
    for (int axis = 3; axis >= 0; --axis) {
      int at = (rest % Y_shape[axis] - all_pads[2 * axis] + orig_dims[axis]) % orig_dims[axis];
      rest /= Y_shape[axis];
      offset += at * scale;
      scale *= orig_dims[axis];
    }
    Y[i] = X[offset];
  }
}
""",
    "circ_pad",
)


def volume(d):
    return int(np.prod(d))


class CircPadPlugin(trt.IPluginV2DynamicExt):
    def __init__(self, fc=None):
        trt.IPluginV2DynamicExt.__init__(self)
        self.pads = []
        self.X_shape = []

        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_type = "CircPadPlugin"
        self.plugin_version = "1"

        if fc is not None:
            assert fc[0].name == "pads"
            self.pads = fc[0].data

    def get_output_datatype(self, index, input_types):
        return input_types[0]

    def get_output_dimensions(self, output_index, inputs, exprBuilder):
        output_dims = trt.DimsExprs(inputs[0])
        for i in range(np.size(self.pads) // 2):
            output_dims[len(output_dims) - i - 1] = exprBuilder.operation(
                trt.DimensionOperation.SUM,
                inputs[0][len(output_dims) - i - 1],
                exprBuilder.constant(self.pads[i * 2] + self.pads[i * 2 + 1]),
            )
        return output_dims

    def serialize(self):
        return np.asarray(self.pads, dtype=np.int32).tobytes()

    def configure_plugin(self, inp, out):
        X_dims = inp[0].desc.dims
        self.X_shape = np.zeros((len(X_dims),))
        for i in range(len(X_dims)):
            self.X_shape[i] = X_dims[i]

    def supports_format_combination(self, pos, in_out, num_inputs):
        assert num_inputs == 1
        assert pos < len(in_out)
        desc = in_out[pos]
        if desc.format != trt.TensorFormat.LINEAR:
            return False
        return desc.type == trt.DataType.FLOAT

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        a_mem = cp.cuda.UnownedMemory(
            inputs[0], volume(input_desc[0].dims) * cp.dtype(cp.float32).itemsize, self
        )
        c_mem = cp.cuda.UnownedMemory(
            outputs[0], volume(output_desc[0].dims) * cp.dtype(cp.float32).itemsize, self
        )
        a_ptr = cp.cuda.MemoryPointer(a_mem, 0)
        c_ptr = cp.cuda.MemoryPointer(c_mem, 0)
        a = cp.ndarray((volume(input_desc[0].dims)), dtype=cp.float32, memptr=a_ptr)
        c = cp.ndarray((volume(output_desc[0].dims)), dtype=cp.float32, memptr=c_ptr)

        N = len(self.X_shape)
        all_pads = np.zeros((N * 2,), dtype=np.int32)
        orig_dims = np.array(self.X_shape, dtype=np.int32)
        out_dims = np.array(self.X_shape, dtype=np.int32)
        for i in range(np.size(self.pads) // 2):
            out_dims[N - i - 1] += self.pads[i * 2] + self.pads[i * 2 + 1]
            all_pads[N * 2 - 2 * i - 2] = self.pads[i * 2]
            all_pads[N * 2 - 2 * i - 1] = self.pads[i * 2 + 1]

        cuda_stream = cp.cuda.ExternalStream(stream)
        with cuda_stream:
            all_pads_d = cp.asarray(all_pads)
            orig_dims_d = cp.asarray(orig_dims)
            Y_shape_d = cp.asarray(out_dims)
            blockSize = 256
            numBlocks = int((volume(out_dims) + blockSize - 1) // blockSize)
            circ_pad_kernel(
                (numBlocks,),
                (blockSize,),
                (a, all_pads_d, orig_dims_d, c, Y_shape_d, np.int32(volume(out_dims))),
            )
        return 0

    def clone(self):
        cloned_plugin = CircPadPlugin()
        cloned_plugin.__dict__.update(self.__dict__)
        return cloned_plugin


class CircPadPluginCreator(trt.IPluginCreator):
    def __init__(self):
        trt.IPluginCreator.__init__(self)
        self.name = "CircPadPlugin"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)]
        )

    def create_plugin(self, name, fc):
        return CircPadPlugin(fc)

    def deserialize_plugin(self, name, data):
        deserialized = CircPadPlugin()
        deserialized.pads = np.frombuffer(data, dtype=np.int32)
        return deserialized


def main():
    inp_shape, pads = (10, 3, 32, 32), (1, 1, 1, 1)
    plg_registry = trt.get_plugin_registry()
    plg_registry.register_creator(CircPadPluginCreator(), "")

    node = helper.make_node("CircPadPlugin", ["X"], ["Y"], name="CircPadPlugin", pads=pads)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, inp_shape)],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)])
    model.ir_version = 8
    onnx_bytes = model.SerializeToString()
    assert onnx.load_from_string(onnx_bytes) is not None

    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx_bytes):
        raise SystemExit("\n".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    config = builder.create_builder_config()
    plan = builder.build_serialized_network(network, config)
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()

    X = cp.random.normal(size=inp_shape).astype(cp.float32)
    Y = cp.zeros(tuple(engine.get_tensor_shape("Y")), dtype=cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    context.set_tensor_address("X", X.data.ptr)
    context.set_tensor_address("Y", Y.data.ptr)
    context.execute_async_v3(stream.ptr)
    stream.synchronize()

    Y_ref = np.pad(cp.asnumpy(X), [[0, 0], [0, 0], [1, 1], [1, 1]], "wrap")
    assert np.array_equal(cp.asnumpy(Y), Y_ref)
    print("Inference result correct!")


if __name__ == "__main__":
    main()
