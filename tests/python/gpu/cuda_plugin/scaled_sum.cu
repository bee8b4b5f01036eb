// A plugin as users of TensorRT write it, kernel and class in one file for nvcc: y = a x + sum of x, FP32 and FP16. The
// sum goes through the workspace, and two tactics compute it. Includes nothing but CUDA's and TensorRT's headers.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "NvInfer.h"
#include "NvInferPlugin.h"

using namespace nvinfer1;

namespace {

constexpr int32_t kBLOCK_SUM = 1;
constexpr int32_t kATOMIC_SUM = 2;

template <typename T>
__global__ void blockSum(T const* x, int64_t n, float* sum) {
  __shared__ float parts[256];
  float part = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) part += static_cast<float>(x[i]);
  parts[threadIdx.x] = part;
  for (int32_t step = 128; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
  }
  if (threadIdx.x == 0) *sum = parts[0];
}

template <typename T>
__global__ void atomicSum(T const* x, int64_t n, float* sum) {
  float part = 0;
  int64_t const stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += stride)
    part += static_cast<float>(x[i]);
  atomicAdd(sum, part);
}

template <typename T>
__global__ void scaleAndAdd(T const* x, int64_t n, float a, float const* sum, T* y) {
  int64_t const i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(a * static_cast<float>(x[i]) + *sum);
}

template <typename T>
cudaError_t run(void const* x, int64_t n, float a, void* y, void* workspace, int32_t tactic,
                cudaStream_t stream) {
  auto const* in = static_cast<T const*>(x);
  auto* sum = static_cast<float*>(workspace);
  if (n == 0) return cudaSuccess;
  if (tactic == kBLOCK_SUM) {
    blockSum<<<1, 256, 0, stream>>>(in, n, sum);
  } else if (tactic == kATOMIC_SUM) {
    cudaMemsetAsync(sum, 0, sizeof(float), stream);
    atomicSum<<<64, 256, 0, stream>>>(in, n, sum);
  }
  int64_t const blocks = (n + 255) / 256;
  scaleAndAdd<<<blocks, 256, 0, stream>>>(in, n, a, sum, static_cast<T*>(y));
  return cudaGetLastError();
}

class ScaledSumPlugin : public IPluginV3,
                        public IPluginV3OneCore,
                        public IPluginV3OneBuild,
                        public IPluginV3OneRuntime {
 public:
  explicit ScaledSumPlugin(float a) : mA(a) { initFieldsToSerialize(); }
  ScaledSumPlugin(ScaledSumPlugin const& p) : mA(p.mA), mTactic(p.mTactic) { initFieldsToSerialize(); }

  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    if (type == PluginCapabilityType::kBUILD) return static_cast<IPluginV3OneBuild*>(this);
    if (type == PluginCapabilityType::kRUNTIME) return static_cast<IPluginV3OneRuntime*>(this);
    return static_cast<IPluginV3OneCore*>(this);
  }
  IPluginV3* clone() noexcept override { return new ScaledSumPlugin(*this); }

  AsciiChar const* getPluginName() const noexcept override { return "ScaledSum"; }
  AsciiChar const* getPluginVersion() const noexcept override { return "1"; }
  AsciiChar const* getPluginNamespace() const noexcept override { return ""; }

  int32_t getNbOutputs() const noexcept override { return 1; }
  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }
  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t,
                                 int32_t) noexcept override {
    auto const& desc = inOut[pos].desc;
    if (desc.format != PluginFormat::kLINEAR) return false;
    if (pos > 0) return desc.type == inOut[0].desc.type;
    return desc.type == DataType::kFLOAT || desc.type == DataType::kHALF;
  }
  int32_t getOutputDataTypes(DataType* outputTypes, int32_t, DataType const* inputTypes,
                             int32_t) const noexcept override {
    outputTypes[0] = inputTypes[0];
    return 0;
  }
  int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t,
                          DimsExprs* outputs, int32_t, IExprBuilder&) noexcept override {
    outputs[0] = inputs[0];
    return 0;
  }
  size_t getWorkspaceSize(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) const noexcept override {
    return sizeof(float);
  }
  int32_t getNbTactics() noexcept override { return 2; }
  int32_t getValidTactics(int32_t* tactics, int32_t nbTactics) noexcept override {
    for (int32_t i = 0; i < nbTactics; ++i) tactics[i] = i + 1;
    return 0;
  }

  int32_t setTactic(int32_t tactic) noexcept override {
    mTactic = tactic;
    return 0;
  }
  int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*,
                        int32_t) noexcept override {
    return 0;
  }
  int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*,
                  void const* const* inputs, void* const* outputs, void* workspace,
                  cudaStream_t stream) noexcept override {
    int64_t n = 1;
    for (int32_t i = 0; i < inputDesc[0].dims.nbDims; ++i) n *= inputDesc[0].dims.d[i];
    auto const run_ = inputDesc[0].type == DataType::kFLOAT ? run<float> : run<__half>;
    return run_(inputs[0], n, mA, outputs[0], workspace, mTactic, stream) == cudaSuccess ? 0 : -1;
  }
  IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override { return &mFCToSerialize; }

 private:
  void initFieldsToSerialize() {
    mDataToSerialize.clear();
    mDataToSerialize.emplace_back(PluginField("a", &mA, PluginFieldType::kFLOAT32, 1));
    mFCToSerialize.nbFields = static_cast<int32_t>(mDataToSerialize.size());
    mFCToSerialize.fields = mDataToSerialize.data();
  }

  float mA;
  int32_t mTactic = kBLOCK_SUM;
  std::vector<PluginField> mDataToSerialize;
  PluginFieldCollection mFCToSerialize;
};

class ScaledSumPluginCreator : public IPluginCreatorV3One {
 public:
  ScaledSumPluginCreator() {
    mPluginAttributes.emplace_back(PluginField("a", nullptr, PluginFieldType::kFLOAT32, 1));
    mFC.nbFields = static_cast<int32_t>(mPluginAttributes.size());
    mFC.fields = mPluginAttributes.data();
  }
  AsciiChar const* getPluginName() const noexcept override { return "ScaledSum"; }
  AsciiChar const* getPluginVersion() const noexcept override { return "1"; }
  AsciiChar const* getPluginNamespace() const noexcept override { return ""; }
  PluginFieldCollection const* getFieldNames() noexcept override { return &mFC; }
  IPluginV3* createPlugin(AsciiChar const*, PluginFieldCollection const* fc,
                          TensorRTPhase) noexcept override {
    float a = 1;
    for (int32_t i = 0; i < fc->nbFields; ++i) {
      if (std::strcmp(fc->fields[i].name, "a") == 0) a = *static_cast<float const*>(fc->fields[i].data);
    }
    return new ScaledSumPlugin(a);
  }

 private:
  std::vector<PluginField> mPluginAttributes;
  PluginFieldCollection mFC;
};

REGISTER_TENSORRT_PLUGIN(ScaledSumPluginCreator);

}  // namespace
