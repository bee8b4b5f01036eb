#include "runtime/api_inspector.h"

#include "runtime/inspect.h"

namespace opwright {

bool InspectorApi::setExecutionContext(IExecutionContext const* context) noexcept {
  context_ = context;
  return true;
}

char const* InspectorApi::getLayerInformation(int32_t layerIndex,
                                              LayerInformationFormat format) const noexcept {
  return errors_.guard<char const*>(nullptr, [&] {
    const int profile = context_ == nullptr ? 0 : context_->getOptimizationProfile();
    text_ = format == LayerInformationFormat::kJSON
                ? inspect_layer_json(engine_->plan(), layerIndex, profile)
                : inspect_layer_text(engine_->plan(), layerIndex, profile);
    return text_.c_str();
  });
}

char const* InspectorApi::getEngineInformation(LayerInformationFormat format) const noexcept {
  return errors_.guard<char const*>(nullptr, [&] {
    text_ = format == LayerInformationFormat::kJSON ? inspect_json(engine_->plan())
                                                    : inspect_text(engine_->plan());
    return text_.c_str();
  });
}

}  // namespace opwright
