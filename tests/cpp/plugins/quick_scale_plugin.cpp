// A plugin of the Quick family: y = scale * x, called, in FP32 and two layouts. Written as for
// TensorRT.

#include <NvInferRuntime.h>

#include <cstring>
#include <vector>

namespace {

using namespace nvinfer1;

class QuickScale final : public IPluginV3,
                         public IPluginV3QuickCore,
                         public IPluginV3QuickBuild,
                         public IPluginV3QuickRuntime {
 public:
  explicit QuickScale(float scale) : mScale(scale) {}

  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    switch (type) {
      case PluginCapabilityType::kCORE:
        return static_cast<IPluginV3QuickCore*>(this);
      case PluginCapabilityType::kBUILD:
        return static_cast<IPluginV3QuickBuild*>(this);
      case PluginCapabilityType::kRUNTIME:
        return static_cast<IPluginV3QuickRuntime*>(this);
    }
    return nullptr;
  }
  QuickScale* clone() noexcept override { return new QuickScale(mScale); }
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kCPP; }

  char const* getPluginName() const noexcept override { return "quick_scale"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return ""; }

  int32_t getNbOutputs() const noexcept override { return 1; }
  int32_t getOutputDataTypes(DataType* outputTypes, int32_t, DataType const* inputTypes,
                             int32_t const* inputRanks, int32_t nbInputs) const noexcept override {
    if (nbInputs != 1 || inputRanks[0] != 4) return 1;
    outputTypes[0] = inputTypes[0];
    return 0;
  }
  int32_t getOutputShapes(DimsExprs const* inputs, int32_t, DimsExprs const*, int32_t,
                          DimsExprs* outputs, int32_t, IExprBuilder&) noexcept override {
    outputs[0] = inputs[0];
    return 0;
  }
  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }
  int32_t getNbSupportedFormatCombinations(DynamicPluginTensorDesc const*, int32_t,
                                           int32_t) noexcept override {
    return 2;
  }
  int32_t getSupportedFormatCombinations(DynamicPluginTensorDesc const*, int32_t, int32_t,
                                         PluginTensorDesc* supportedCombinations,
                                         int32_t) noexcept override {
    for (int32_t i = 0; i < 4; ++i) {
      supportedCombinations[i].type = DataType::kFLOAT;
      supportedCombinations[i].format = i < 2 ? TensorFormat::kLINEAR : TensorFormat::kHWC;
    }
    return 0;
  }
  int32_t getNbTactics() noexcept override { return 2; }
  int32_t getValidTactics(int32_t* tactics, int32_t) noexcept override {
    tactics[0] = 3;
    tactics[1] = 1;
    return 0;
  }
  char const* getTimingCacheID() noexcept override { return "scale"; }

  int32_t setTactic(int32_t tactic) noexcept override {
    mTactic = tactic;
    return 0;
  }
  int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*,
                  void const* const* inputs, void* const* outputs, Dims const* inputStrides,
                  Dims const* outputStrides, int32_t, int32_t, cudaStream_t) noexcept override {
    if (mTactic != 1 && mTactic != 3) return 1;
    Dims const& n = inputDesc[0].dims;
    Dims const& from = inputStrides[0];
    Dims const& to = outputStrides[0];
    auto const* x = static_cast<float const*>(inputs[0]);
    auto* y = static_cast<float*>(outputs[0]);
    for (int64_t b = 0; b < n.d[0]; ++b)
      for (int64_t c = 0; c < n.d[1]; ++c)
        for (int64_t h = 0; h < n.d[2]; ++h)
          for (int64_t w = 0; w < n.d[3]; ++w)
            y[b * to.d[0] + c * to.d[1] + h * to.d[2] + w * to.d[3]] =
                mScale * x[b * from.d[0] + c * from.d[1] + h * from.d[2] + w * from.d[3]];
    return 0;
  }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override {
    mField = PluginField("scale", &mScale, PluginFieldType::kFLOAT32, 1);
    mFields = {1, &mField};
    return &mFields;
  }

 private:
  float mScale;
  int32_t mTactic{-1};
  PluginField mField;
  PluginFieldCollection mFields{};
};

class QuickScaleCreator final : public IPluginCreatorV3Quick {
 public:
  QuickScaleCreator() : mFields{1, &mField} {}
  IPluginV3* createPlugin(char const* name, char const*, PluginFieldCollection const* fc,
                          TensorRTPhase, QuickPluginCreationRequest request) noexcept override {
    if (std::strcmp(name, "quick_scale") != 0 || fc->nbFields != 1 ||
        request == QuickPluginCreationRequest::kSTRICT_AOT)
      return nullptr;
    return new QuickScale(*static_cast<float const*>(fc->fields[0].data));
  }
  PluginFieldCollection const* getFieldNames() noexcept override { return &mFields; }
  char const* getPluginName() const noexcept override { return "quick_scale"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return ""; }

 private:
  PluginField mField{"scale", nullptr, PluginFieldType::kFLOAT32, 1};
  PluginFieldCollection mFields;
};

REGISTER_TENSORRT_PLUGIN(QuickScaleCreator);

}  // namespace
