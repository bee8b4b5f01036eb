// A plugin for the CPU that copies its input: what a call costs beyond that is the engine's.

#include <cstdint>
#include <cstring>
#include <new>

#include "NvInfer.h"

namespace {

using nvinfer1::DataType;
using nvinfer1::DimsExprs;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginCapabilityType;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginTensorDesc;

constexpr char const* kName = "identity_plugin";
constexpr char const* kVersion = "1";
constexpr char const* kNamespace = "";

bool is_float(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
}

class IdentityPlugin final : public nvinfer1::IPluginV3,
                             public nvinfer1::IPluginV3OneCore,
                             public nvinfer1::IPluginV3OneBuild,
                             public nvinfer1::IPluginV3OneRuntime {
 public:
  // IPluginV3
  nvinfer1::IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    switch (type) {
      case PluginCapabilityType::kCORE:
        return static_cast<nvinfer1::IPluginV3OneCore*>(this);
      case PluginCapabilityType::kBUILD:
        return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
      case PluginCapabilityType::kRUNTIME:
        return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
  }
  IdentityPlugin* clone() noexcept override { return new (std::nothrow) IdentityPlugin(*this); }

  // IPluginV3OneCore
  char const* getPluginName() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  char const* getPluginNamespace() const noexcept override { return kNamespace; }

  // IPluginV3OneBuild
  int32_t getNbOutputs() const noexcept override { return 1; }
  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }
  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* in_out, int32_t,
                                 int32_t) noexcept override {
    PluginTensorDesc const& desc = in_out[pos].desc;
    return desc.format == nvinfer1::TensorFormat::kLINEAR &&
           (pos == 0 ? is_float(desc.type) : desc.type == in_out[0].desc.type);
  }
  int32_t getOutputDataTypes(DataType* output_types, int32_t, DataType const* input_types,
                             int32_t) const noexcept override {
    output_types[0] = input_types[0];
    return 0;
  }
  int32_t getOutputShapes(DimsExprs const* inputs, int32_t nb_inputs, DimsExprs const*, int32_t,
                          DimsExprs* outputs, int32_t nb_outputs,
                          nvinfer1::IExprBuilder&) noexcept override {
    if (nb_inputs != 1 || nb_outputs != 1) return -1;
    outputs[0] = inputs[0];
    return 0;
  }
  char const* getTimingCacheID() noexcept override { return ""; }

  // IPluginV3OneRuntime
  int32_t onShapeChange(PluginTensorDesc const* in, int32_t, PluginTensorDesc const*,
                        int32_t) noexcept override {
    bytes_ = in[0].type == DataType::kFLOAT ? 4 : 2;
    for (int32_t i = 0; i < in[0].dims.nbDims; ++i) bytes_ *= static_cast<size_t>(in[0].dims.d[i]);
    return 0;
  }
  int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs,
                  void* const* outputs, void*, cudaStream_t) noexcept override {
    std::memcpy(outputs[0], inputs[0], bytes_);
    return 0;
  }
  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override {
    return clone();
  }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override { return &fields_; }

 private:
  size_t bytes_ = 0;
  PluginFieldCollection fields_;
};

class IdentityPluginCreator final : public nvinfer1::IPluginCreatorV3One {
 public:
  nvinfer1::IPluginV3* createPlugin(char const*, PluginFieldCollection const*,
                                    nvinfer1::TensorRTPhase) noexcept override {
    return new (std::nothrow) IdentityPlugin;
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &fields_; }
  char const* getPluginName() const noexcept override { return kName; }
  char const* getPluginVersion() const noexcept override { return kVersion; }
  char const* getPluginNamespace() const noexcept override { return kNamespace; }

 private:
  PluginFieldCollection fields_;
};

REGISTER_TENSORRT_PLUGIN(IdentityPluginCreator);

}  // namespace
