"""A program as users of TensorRT write it: an IPluginV3 whose kernel cuda-python compiles, pinned host memory,
device memory and a stream by cuda-python."""

import ctypes

import numpy as np
import tensorrt as trt

try:
    from cuda.bindings import driver as cuda
    from cuda.bindings import nvrtc
    from cuda.bindings import runtime as cudart
except ImportError:
    from cuda import cuda, cudart, nvrtc


def check_cuda_err(err):
    if isinstance(err, cuda.CUresult) and err != cuda.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"Cuda Error: {err}")
    if isinstance(err, cudart.cudaError_t) and err != cudart.cudaError_t.cudaSuccess:
        raise RuntimeError(f"Cuda Runtime Error: {err}")
    if isinstance(err, nvrtc.nvrtcResult) and err != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"Nvrtc Error: {err}")


def cuda_call(call):
    err, res = call[0], call[1:]
    check_cuda_err(err)
    return res[0] if len(res) == 1 else res


class HostDeviceMem:
    """Pair of host and device memory, where the host memory is wrapped in a numpy array."""

    def __init__(self, size, dtype):
        nbytes = size * np.dtype(dtype).itemsize
        host_mem = cuda_call(cudart.cudaMallocHost(nbytes))
        pointer_type = ctypes.POINTER(np.ctypeslib.as_ctypes_type(np.dtype(dtype)))
        self.host = np.ctypeslib.as_array(ctypes.cast(host_mem, pointer_type), (size,))
        self.device = cuda_call(cudart.cudaMalloc(nbytes))
        self.nbytes = nbytes


SOURCE = r"""
extern "C" __global__ void scale_and_shift(const float* x, float* y, float scale, float shift, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * scale + shift;
}
"""


def compile_kernel():
    device = cuda_call(cuda.cuCtxGetDevice())
    attribute = cuda.CUdevice_attribute
    major = cuda_call(
        cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    )
    minor = cuda_call(
        cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    )
    prog = cuda_call(nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"scale.cu", 0, [], []))
    opts = [f"--gpu-architecture=compute_{major}{minor}".encode()]
    cuda_call(nvrtc.nvrtcCompileProgram(prog, len(opts), opts))
    size = cuda_call(nvrtc.nvrtcGetPTXSize(prog))
    ptx = b" " * size
    cuda_call(nvrtc.nvrtcGetPTX(prog, ptx))
    module = cuda_call(cuda.cuModuleLoadData(np.char.array(ptx).ctypes.data))
    return cuda_call(cuda.cuModuleGetFunction(module, b"scale_and_shift"))


class ScalePlugin(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    def __init__(self, fc=None, phase=None):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.scale, self.shift = 1.0, 0.0
        self.num_outputs = 1
        self.plugin_namespace = ""
        self.plugin_name = "ScalePlugin"
        self.plugin_version = "1"
        self.kernel = None
        if fc is not None:
            for f in fc:
                setattr(self, f.name, float(f.data[0]))

    def get_capability_interface(self, type):
        return self

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
        return [trt.DimsExprs(inputs[0])]

    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection(
            [
                trt.PluginField(
                    "scale", np.array([self.scale], dtype=np.float32), trt.PluginFieldType.FLOAT32
                ),
                trt.PluginField(
                    "shift", np.array([self.shift], dtype=np.float32), trt.PluginFieldType.FLOAT32
                ),
            ]
        )

    def configure_plugin(self, inp, out):
        pass

    def on_shape_change(self, inp, out):
        self.size = int(np.prod(list(inp[0].dims)))

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == trt.DataType.FLOAT

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        if self.kernel is None:
            self.kernel = compile_kernel()
        d_x = np.array([inputs[0]], dtype=np.uint64)
        d_y = np.array([outputs[0]], dtype=np.uint64)
        scale = np.array([self.scale], dtype=np.float32)
        shift = np.array([self.shift], dtype=np.float32)
        n = np.array([self.size], dtype=np.int32)
        args = np.array([arg.ctypes.data for arg in (d_x, d_y, scale, shift, n)], dtype=np.uint64)
        blocks = (self.size + 255) // 256
        cuda_call(
            cuda.cuLaunchKernel(
                self.kernel, blocks, 1, 1, 256, 1, 1, 0, stream, args.ctypes.data, 0
            )
        )

    def attach_to_context(self, context):
        return self.clone()

    def set_tactic(self, tactic):
        pass

    def clone(self):
        cloned_plugin = ScalePlugin()
        cloned_plugin.__dict__.update(self.__dict__)
        return cloned_plugin


class ScalePluginCreator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name = "ScalePlugin"
        self.plugin_namespace = ""
        self.plugin_version = "1"
        self.field_names = trt.PluginFieldCollection(
            [
                trt.PluginField("scale", np.array([]), trt.PluginFieldType.FLOAT32),
                trt.PluginField("shift", np.array([]), trt.PluginFieldType.FLOAT32),
            ]
        )

    def create_plugin(self, name, fc, phase):
        return ScalePlugin(fc, phase)


def main():
    logger = trt.Logger(trt.Logger.WARNING)
    cuda_call(cudart.cudaFree(0))
    registry = trt.get_plugin_registry()
    registry.register_creator(ScalePluginCreator(), "")
    creator = registry.get_creator("ScalePlugin", "1", "")

    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = network.add_input("x", trt.float32, (-1, 100))
    fields = trt.PluginFieldCollection(
        [
            trt.PluginField(
                "scale", np.array([2.0], dtype=np.float32), trt.PluginFieldType.FLOAT32
            ),
            trt.PluginField(
                "shift", np.array([0.5], dtype=np.float32), trt.PluginFieldType.FLOAT32
            ),
        ]
    )
    plugin = creator.create_plugin("scale", fields, trt.TensorRTPhase.BUILD)
    layer = network.add_plugin_v3([x], [], plugin)
    relu = network.add_activation(layer.get_output(0), trt.ActivationType.RELU)
    relu.get_output(0).name = "y"
    network.mark_output(relu.get_output(0))
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 100), (8, 100), (64, 100))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)

    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    stream = cuda_call(cudart.cudaStreamCreate())
    h2d = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
    d2h = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    for rows in (8, 64, 1):
        inp, out = HostDeviceMem(rows * 100, np.float32), HostDeviceMem(rows * 100, np.float32)
        inp.host[:] = np.random.randn(rows * 100).astype(np.float32)
        context.set_input_shape("x", (rows, 100))
        context.set_tensor_address("x", int(inp.device))
        context.set_tensor_address("y", int(out.device))
        cuda_call(cudart.cudaMemcpyAsync(inp.device, inp.host.ctypes.data, inp.nbytes, h2d, stream))
        assert context.execute_async_v3(stream_handle=int(stream))
        cuda_call(cudart.cudaMemcpyAsync(out.host.ctypes.data, out.device, out.nbytes, d2h, stream))
        cuda_call(cudart.cudaStreamSynchronize(stream))
        np.testing.assert_allclose(out.host, np.maximum(inp.host * 2 + 0.5, 0), rtol=1e-6)
    cuda_call(cudart.cudaStreamDestroy(stream))
    print("Inference result correct!")


if __name__ == "__main__":
    main()
