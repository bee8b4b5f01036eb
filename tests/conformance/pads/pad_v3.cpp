// Circular padding as an IPluginV3 for the CPU, with two tactics, a timing cache ID and, on
// request, an error.
#include "pad.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace {

using nvinfer1::DataType;
using nvinfer1::DimsExprs;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginTensorDesc;
using nvinfer1::TensorRTPhase;

constexpr char kNAME[] = "AcceptancePadV3Cpp";
constexpr char kVERSION[] = "1";
constexpr std::int32_t kSLOW{1};
constexpr std::int32_t kFAST{2};

class PadV3 final : public nvinfer1::IPluginV3,
                    public nvinfer1::IPluginV3OneCore,
                    public nvinfer1::IPluginV3OneBuild,
                    public nvinfer1::IPluginV3OneRuntime {
 public:
  PadV3(std::vector<std::int32_t> pads, std::vector<std::int32_t> fail, TensorRTPhase phase)
      : mPads(std::move(pads)), mFail(std::move(fail)), mPhase(phase) {}

  // IPluginV3

  nvinfer1::IPluginCapability* getCapabilityInterface(
      nvinfer1::PluginCapabilityType type) noexcept override {
    switch (type) {
      case nvinfer1::PluginCapabilityType::kCORE:
        return static_cast<nvinfer1::IPluginV3OneCore*>(this);
      case nvinfer1::PluginCapabilityType::kBUILD:
        return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
      case nvinfer1::PluginCapabilityType::kRUNTIME:
        return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
  }

  nvinfer1::IPluginV3* clone() noexcept override { return new PadV3(*this); }

  // IPluginV3OneCore

  char const* getPluginName() const noexcept override { return kNAME; }

  char const* getPluginVersion() const noexcept override { return kVERSION; }

  char const* getPluginNamespace() const noexcept override { return ""; }

  // IPluginV3OneBuild

  std::int32_t getNbOutputs() const noexcept override { return 1; }

  std::int32_t getOutputDataTypes(DataType* outputTypes, std::int32_t, DataType const* inputTypes,
                                  std::int32_t) const noexcept override {
    outputTypes[0] = inputTypes[0];
    return 0;
  }

  std::int32_t getOutputShapes(DimsExprs const* inputs, std::int32_t, DimsExprs const*,
                               std::int32_t, DimsExprs* outputs, std::int32_t,
                               nvinfer1::IExprBuilder& builder) noexcept override {
    outputs[0] = acceptance::paddedShape(inputs[0], mPads, builder);
    return 0;
  }

  bool supportsFormatCombination(std::int32_t pos, DynamicPluginTensorDesc const* inOut,
                                 std::int32_t, std::int32_t) noexcept override {
    DataType const type = inOut[pos].desc.type;
    bool const typeIsRight =
        pos == 0 ? type == DataType::kFLOAT || type == DataType::kHALF : type == inOut[0].desc.type;
    return typeIsRight && inOut[pos].desc.format == nvinfer1::TensorFormat::kLINEAR;
  }

  std::int32_t configurePlugin(DynamicPluginTensorDesc const*, std::int32_t,
                               DynamicPluginTensorDesc const*, std::int32_t) noexcept override {
    return 0;
  }

  std::int32_t getNbTactics() noexcept override { return 2; }

  std::int32_t getValidTactics(std::int32_t* tactics, std::int32_t nbTactics) noexcept override {
    if (nbTactics != 2) {
      return -1;
    }
    tactics[0] = kSLOW;
    tactics[1] = kFAST;
    return 0;
  }

  char const* getTimingCacheID() noexcept override { return ""; }

  // IPluginV3OneRuntime

  std::int32_t setTactic(std::int32_t tactic) noexcept override {
    mTactic = tactic;
    return 0;
  }

  std::int32_t onShapeChange(PluginTensorDesc const*, std::int32_t, PluginTensorDesc const*,
                             std::int32_t) noexcept override {
    return 0;
  }

  std::int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                       void const* const* inputs, void* const* outputs, void*,
                       cudaStream_t) noexcept override {
    if (mPhase == TensorRTPhase::kRUNTIME && !mFail.empty() && mFail[0] != 0) {
      return mFail[0];
    }
    if (mTactic != kSLOW && mTactic != kFAST) {
      return -1;
    }
    if (mTactic == kSLOW) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    acceptance::circularPad(inputs[0], inputDesc[0].dims, outputs[0], outputDesc[0].dims, mPads,
                            acceptance::sizeOf(inputDesc[0].type));
    return 0;
  }

  nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext*) noexcept override {
    return clone();
  }

  PluginFieldCollection const* getFieldsToSerialize() noexcept override {
    auto const int32 = nvinfer1::PluginFieldType::kINT32;
    mFields.clear();
    mFields.emplace_back("pads", mPads.data(), int32, static_cast<std::int32_t>(mPads.size()));
    mFields.emplace_back("fail", mFail.data(), int32, static_cast<std::int32_t>(mFail.size()));
    mCollection.nbFields = static_cast<std::int32_t>(mFields.size());
    mCollection.fields = mFields.data();
    return &mCollection;
  }

 private:
  std::vector<std::int32_t> mPads;
  std::vector<std::int32_t> mFail;
  TensorRTPhase mPhase;
  std::int32_t mTactic{0};
  std::vector<PluginField> mFields;
  PluginFieldCollection mCollection{};
};

class PadV3Creator final : public nvinfer1::IPluginCreatorV3One {
 public:
  PadV3Creator()
      : mFields{PluginField("pads", nullptr, nvinfer1::PluginFieldType::kINT32, 0),
                PluginField("fail", nullptr, nvinfer1::PluginFieldType::kINT32, 1)} {
    mCollection.nbFields = static_cast<std::int32_t>(mFields.size());
    mCollection.fields = mFields.data();
  }

  char const* getPluginName() const noexcept override { return kNAME; }

  char const* getPluginVersion() const noexcept override { return kVERSION; }

  char const* getPluginNamespace() const noexcept override { return ""; }

  PluginFieldCollection const* getFieldNames() noexcept override { return &mCollection; }

  nvinfer1::IPluginV3* createPlugin(char const*, PluginFieldCollection const* fields,
                                    TensorRTPhase phase) noexcept override {
    return new PadV3(acceptance::int32Field(*fields, "pads"),
                     acceptance::int32Field(*fields, "fail"), phase);
  }

 private:
  std::vector<PluginField> mFields;
  PluginFieldCollection mCollection{};
};

REGISTER_TENSORRT_PLUGIN(PadV3Creator);

}  // namespace
