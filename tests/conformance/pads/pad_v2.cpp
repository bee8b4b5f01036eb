// Circular padding as an IPluginV2DynamicExt for the CPU.
#include "pad.h"

#include <string>
#include <utility>

namespace {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::DimsExprs;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginTensorDesc;

constexpr char kNAME[] = "AcceptancePadV2Cpp";
constexpr char kVERSION[] = "1";

class PadV2 final : public nvinfer1::IPluginV2DynamicExt {
 public:
  explicit PadV2(std::vector<std::int32_t> pads) : mPads(std::move(pads)) {}

  char const* getPluginType() const noexcept override { return kNAME; }

  char const* getPluginVersion() const noexcept override { return kVERSION; }

  char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }

  void setPluginNamespace(char const* pluginNamespace) noexcept override {
    mNamespace = pluginNamespace;
  }

  std::int32_t getNbOutputs() const noexcept override { return 1; }

  DataType getOutputDataType(std::int32_t, DataType const* inputTypes,
                             std::int32_t) const noexcept override {
    return inputTypes[0];
  }

  DimsExprs getOutputDimensions(std::int32_t, DimsExprs const* inputs, std::int32_t,
                                nvinfer1::IExprBuilder& builder) noexcept override {
    return acceptance::paddedShape(inputs[0], mPads, builder);
  }

  bool supportsFormatCombination(std::int32_t pos, PluginTensorDesc const* inOut, std::int32_t,
                                 std::int32_t) noexcept override {
    bool const typeIsRight =
        pos == 0 ? inOut[0].type == DataType::kFLOAT || inOut[0].type == DataType::kHALF
                 : inOut[pos].type == inOut[0].type;
    return typeIsRight && inOut[pos].format == nvinfer1::TensorFormat::kLINEAR;
  }

  void configurePlugin(DynamicPluginTensorDesc const*, std::int32_t, DynamicPluginTensorDesc const*,
                       std::int32_t) noexcept override {}

  std::size_t getWorkspaceSize(PluginTensorDesc const*, std::int32_t, PluginTensorDesc const*,
                               std::int32_t) const noexcept override {
    return 0;
  }

  std::int32_t initialize() noexcept override { return 0; }

  void terminate() noexcept override {}

  std::int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                       void const* const* inputs, void* const* outputs, void*,
                       cudaStream_t) noexcept override {
    acceptance::circularPad(inputs[0], inputDesc[0].dims, outputs[0], outputDesc[0].dims, mPads,
                            acceptance::sizeOf(inputDesc[0].type));
    return 0;
  }

  std::size_t getSerializationSize() const noexcept override {
    return mPads.size() * sizeof(std::int32_t);
  }

  void serialize(void* buffer) const noexcept override {
    if (!mPads.empty()) {
      std::memcpy(buffer, mPads.data(), getSerializationSize());
    }
  }

  nvinfer1::IPluginV2DynamicExt* clone() const noexcept override {
    auto* copy = new PadV2(mPads);
    copy->setPluginNamespace(mNamespace.c_str());
    return copy;
  }

  void destroy() noexcept override { delete this; }

 private:
  std::vector<std::int32_t> mPads;
  std::string mNamespace;
};

class PadV2Creator final : public nvinfer1::IPluginCreator {
 public:
  PadV2Creator() : mFields{PluginField("pads", nullptr, nvinfer1::PluginFieldType::kINT32, 0)} {
    mCollection.nbFields = static_cast<std::int32_t>(mFields.size());
    mCollection.fields = mFields.data();
  }

  char const* getPluginName() const noexcept override { return kNAME; }

  char const* getPluginVersion() const noexcept override { return kVERSION; }

  char const* getPluginNamespace() const noexcept override { return mNamespace.c_str(); }

  void setPluginNamespace(char const* pluginNamespace) noexcept override {
    mNamespace = pluginNamespace;
  }

  PluginFieldCollection const* getFieldNames() noexcept override { return &mCollection; }

  nvinfer1::IPluginV2* createPlugin(char const*,
                                    PluginFieldCollection const* fields) noexcept override {
    auto* plugin = new PadV2(acceptance::int32Field(*fields, "pads"));
    plugin->setPluginNamespace(mNamespace.c_str());
    return plugin;
  }

  nvinfer1::IPluginV2* deserializePlugin(char const*, void const* serialData,
                                         std::size_t serialLength) noexcept override {
    std::vector<std::int32_t> pads(serialLength / sizeof(std::int32_t));
    if (!pads.empty()) {
      std::memcpy(pads.data(), serialData, pads.size() * sizeof(std::int32_t));
    }
    auto* plugin = new PadV2(std::move(pads));
    plugin->setPluginNamespace(mNamespace.c_str());
    return plugin;
  }

 private:
  std::vector<PluginField> mFields;
  PluginFieldCollection mCollection{};
  std::string mNamespace;
};

REGISTER_TENSORRT_PLUGIN(PadV2Creator);

}  // namespace
