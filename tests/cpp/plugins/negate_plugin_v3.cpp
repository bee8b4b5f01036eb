// A V3 plugin of a library that exports its creators and takes a logger finder, instead of
// registering itself. y = -x. The field `skipped` (INT32) has the number of the last elements that
// a build's plugin does not write.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "NvInferRuntime.h"
#include "NvInferRuntimePlugin.h"

using namespace nvinfer1;

namespace {

ILoggerFinder* gLoggerFinder = nullptr;

class NegatePlugin : public IPluginV3,
                     public IPluginV3OneCore,
                     public IPluginV3OneBuildV2,
                     public IPluginV3OneRuntime {
 public:
  explicit NegatePlugin(int32_t skipped = 0) : mSkipped(skipped) {}
  NegatePlugin(NegatePlugin const& p) = default;

  IPluginCapability* getCapabilityInterface(PluginCapabilityType type) noexcept override {
    if (type == PluginCapabilityType::kBUILD) return static_cast<IPluginV3OneBuildV2*>(this);
    if (type == PluginCapabilityType::kRUNTIME) return static_cast<IPluginV3OneRuntime*>(this);
    return static_cast<IPluginV3OneCore*>(this);
  }
  IPluginV3* clone() noexcept override {
    auto clone = std::make_unique<NegatePlugin>(*this);
    return clone.release();
  }

  char const* getPluginName() const noexcept override { return "NegatePluginV3"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return "styles"; }

  int32_t getNbOutputs() const noexcept override { return 1; }
  int32_t configurePlugin(DynamicPluginTensorDesc const*, int32_t, DynamicPluginTensorDesc const*,
                          int32_t) noexcept override {
    return 0;
  }
  bool supportsFormatCombination(int32_t pos, DynamicPluginTensorDesc const* inOut, int32_t,
                                 int32_t) noexcept override {
    return inOut[pos].desc.format == PluginFormat::kLINEAR &&
           inOut[pos].desc.type == DataType::kFLOAT;
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
  int32_t getAliasedInput(int32_t) noexcept override { return -1; }

  int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* /*outputDesc*/,
                  void const* const* inputs, void* const* outputs, void* /*workspace*/,
                  cudaStream_t /*stream*/) noexcept override {
    int64_t volume = 1;
    for (int32_t i = 0; i < inputDesc[0].dims.nbDims; ++i) volume *= inputDesc[0].dims.d[i];
    for (int64_t i = 0; i < volume - mSkipped; ++i) {
      static_cast<float*>(outputs[0])[i] = -static_cast<float const*>(inputs[0])[i];
    }
    return 0;
  }
  int32_t onShapeChange(PluginTensorDesc const*, int32_t, PluginTensorDesc const*,
                        int32_t) noexcept override {
    return 0;
  }
  IPluginV3* attachToContext(IPluginResourceContext*) noexcept override { return clone(); }
  PluginFieldCollection const* getFieldsToSerialize() noexcept override { return &mFCToSerialize; }

 private:
  int32_t mSkipped = 0;
  PluginFieldCollection mFCToSerialize{};
};

class NegatePluginCreator : public IPluginCreatorV3One {
 public:
  char const* getPluginName() const noexcept override { return "NegatePluginV3"; }
  char const* getPluginVersion() const noexcept override { return "1"; }
  char const* getPluginNamespace() const noexcept override { return "styles"; }
  PluginFieldCollection const* getFieldNames() noexcept override { return &mFC; }
  IPluginV3* createPlugin(char const* name, PluginFieldCollection const* fc,
                          TensorRTPhase) noexcept override {
    int32_t skipped = 0;
    for (int32_t i = 0; fc != nullptr && i < fc->nbFields; ++i) {
      if (std::string(fc->fields[i].name) == "skipped") {
        skipped = *static_cast<int32_t const*>(fc->fields[i].data);
      }
    }
    if (gLoggerFinder != nullptr && gLoggerFinder->findLogger() != nullptr) {
      std::string const message = std::string("NegatePluginV3 for ") + name;
      gLoggerFinder->findLogger()->log(ILogger::Severity::kINFO, message.c_str());
    }
    return new NegatePlugin(skipped);
  }

 private:
  PluginFieldCollection mFC{};
};

}  // namespace

extern "C" TENSORRTAPI void setLoggerFinder(nvinfer1::ILoggerFinder* finder) {
  gLoggerFinder = finder;
}

extern "C" TENSORRTAPI nvinfer1::IPluginCreatorInterface* const* getCreators(int32_t& nbCreators) {
  static NegatePluginCreator creator;
  static IPluginCreatorInterface* const kPLUGIN_CREATOR_LIST[] = {&creator};
  nbCreators = 1;
  return kPLUGIN_CREATOR_LIST;
}
