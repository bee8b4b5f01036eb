// Circular padding as an IPluginV2DynamicExt: "CircPadPlugin", version "1", with the field `pads`
// (INT32): pads[2i] and pads[2i + 1] elements go before and after axis i, counted from the last.
// The source knows nothing but TensorRT's API and runs on whichever device the engine is for.

#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "NvInfer.h"
#include "circ_pad.h"

namespace {

using namespace nvinfer1;

constexpr char const* kName = "CircPadPlugin";
constexpr char const* kVersion = "1";

/// Whether an address that enqueue() got is one of the GPU. An engine that runs on the CPU hands
/// over host addresses, also where there is a GPU.
#ifdef CIRC_PAD_CUDA
bool isOnGpu(void const* address) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    cudaGetLastError();  // No GPU, or no driver for it: nothing that a later call should find.
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}
#endif

class CircPadPlugin final : public IPluginV2DynamicExt {
 public:
  explicit CircPadPlugin(std::vector<int32_t> pads) : mPads(std::move(pads)) {}

  // What the plugin is.
  AsciiChar const* getPluginType() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  void setPluginNamespace(AsciiChar const* pluginNamespace) noexcept override {
    mNamespace = pluginNamespace;
  }
  AsciiChar const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }
  int32_t getNbOutputs() const noexcept override { return 1; }

  // What it makes of its inputs.
  DataType getOutputDataType(int32_t, DataType const* inputTypes, int32_t) const noexcept override {
    return inputTypes[0];
  }
  DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t,
                                IExprBuilder& exprBuilder) noexcept override {
    DimsExprs output = inputs[0];
    int32_t const padded = static_cast<int32_t>(mPads.size() / 2);
    if (padded > output.nbDims) {
      output.nbDims = -1;
      return output;
    }
    for (int32_t i = 0; i < padded; ++i) {
      IDimensionExpr const*& extent = output.d[output.nbDims - 1 - i];
      int64_t const added = int64_t{mPads[2 * i]} + mPads[2 * i + 1];
      extent =
          exprBuilder.operation(DimensionOperation::kSUM, *extent, *exprBuilder.constant(added));
    }
    return output;
  }
  bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t,
                                 int32_t) noexcept override {
    if (inOut[pos].format != TensorFormat::kLINEAR) return false;
    if (pos > 0) return inOut[pos].type == inOut[0].type;
    return inOut[pos].type == DataType::kFLOAT || inOut[pos].type == DataType::kHALF;
  }
  void configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                       int32_t) noexcept override {}
  size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*,
                          int32_t) const noexcept override {
    return 0;
  }

  // How it runs.
  int32_t initialize() noexcept override { return 0; }
  void terminate() noexcept override {}
  int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                  void const* const* inputs, void* const* outputs, void* /*workspace*/,
                  cudaStream_t stream) noexcept override {
    CircPadShape shape{};
    shape.rank = inputDesc[0].dims.nbDims;
    for (int32_t axis = 0; axis < shape.rank; ++axis) {
      size_t const pair = 2 * static_cast<size_t>(shape.rank - 1 - axis);
      shape.in[axis] = inputDesc[0].dims.d[axis];
      shape.out[axis] = outputDesc[0].dims.d[axis];
      shape.before[axis] = pair < mPads.size() ? mPads[pair] : 0;
    }
    bool const isEmpty = elementsOf(shape.in, shape.rank) == 0;
    if (isEmpty) return elementsOf(shape.out, shape.rank) == 0 ? 0 : -1;  // Nothing to repeat.
    size_t const elementSize = inputDesc[0].type == DataType::kFLOAT ? 4 : 2;
#ifdef CIRC_PAD_CUDA
    if (mDevice == Device::kUNKNOWN) mDevice = isOnGpu(outputs[0]) ? Device::kGPU : Device::kCPU;
    if (mDevice == Device::kGPU) {
      return circPadCuda(shape, inputs[0], outputs[0], elementSize, stream);
    }
#else
    static_cast<void>(stream);
#endif
    circPadCpu(shape, inputs[0], outputs[0], elementSize);
    return 0;
  }

  // How it is copied, stored and ended.
  IPluginV2DynamicExt* clone() const noexcept override {
    try {
      auto* copy = new CircPadPlugin(mPads);
      copy->mNamespace = mNamespace;
      return copy;
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }
  size_t getSerializationSize() const noexcept override { return mPads.size() * sizeof(int32_t); }
  void serialize(void* buffer) const noexcept override {
    if (!mPads.empty()) std::memcpy(buffer, mPads.data(), getSerializationSize());
  }
  void destroy() noexcept override { delete this; }

 private:
  // The methods of the bases with the same names as the above.
  using IPluginV2::enqueue;
  using IPluginV2::getOutputDimensions;
  using IPluginV2::getWorkspaceSize;
  using IPluginV2Ext::configurePlugin;

  std::vector<int32_t> mPads;
  std::string mNamespace;
#ifdef CIRC_PAD_CUDA
  // An engine runs on one device, so the first call finds it out.
  enum class Device{kUNKNOWN, kCPU, kGPU} mDevice = Device::kUNKNOWN;
#endif
};

class CircPadPluginCreator final : public IPluginCreator {
 public:
  CircPadPluginCreator() : mField("pads", nullptr, PluginFieldType::kINT32, 0) {
    mFields.nbFields = 1;
    mFields.fields = &mField;
  }

  AsciiChar const* getPluginName() const noexcept override { return kName; }
  AsciiChar const* getPluginVersion() const noexcept override { return kVersion; }
  PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
  void setPluginNamespace(AsciiChar const* pluginNamespace) noexcept override {
    mNamespace = pluginNamespace;
  }
  AsciiChar const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }

  IPluginV2* createPlugin(AsciiChar const*, PluginFieldCollection const* fc) noexcept override {
    for (int32_t i = 0; i < fc->nbFields; ++i) {
      PluginField const& field = fc->fields[i];
      if (std::strcmp(field.name, "pads") == 0 && field.type == PluginFieldType::kINT32 &&
          field.length >= 0 && (field.data != nullptr || field.length == 0)) {
        return make(field.data, static_cast<size_t>(field.length) * sizeof(int32_t));
      }
    }
    return nullptr;
  }
  IPluginV2* deserializePlugin(AsciiChar const*, void const* serialData,
                               size_t serialLength) noexcept override {
    return make(serialData, serialLength);
  }

 private:
  /// Null unless `pads` are pairs of numbers that are not negative, for at most kMaxRank axes.
  IPluginV2* make(void const* pads, size_t bytes) const noexcept {
    if (bytes % (2 * sizeof(int32_t)) != 0 || bytes > 2 * kMaxRank * sizeof(int32_t)) {
      return nullptr;
    }
    try {
      std::vector<int32_t> values(bytes / sizeof(int32_t));
      if (bytes > 0) std::memcpy(values.data(), pads, bytes);
      for (int32_t const value : values) {
        if (value < 0) return nullptr;
      }
      auto* plugin = new CircPadPlugin(std::move(values));
      plugin->setPluginNamespace(mNamespace.c_str());
      return plugin;
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  PluginField mField;
  PluginFieldCollection mFields;
  std::string mNamespace;
};

REGISTER_TENSORRT_PLUGIN(CircPadPluginCreator);

}  // namespace
