#pragma once

#include <memory>
#include <string>

#include "api/border.h"
#include "opwright/runtime.h"
#include "runtime/engine.h"
#include "runtime/inspect.h"

namespace opwright {

class InspectorApi final : public IEngineInspector {
 public:
  InspectorApi(std::shared_ptr<const Engine> engine, IErrorRecorder* recorder)
      : engine_(std::move(engine)), errors_(engine_->log(), recorder) {}

  bool setExecutionContext(IExecutionContext const* context) noexcept override {
    context_ = context;
    return true;
  }
  IExecutionContext const* getExecutionContext() const noexcept override { return context_; }
  char const* getLayerInformation(int32_t layer,
                                  LayerInformationFormat format) const noexcept override {
    return told([&] {
      const int profile = context_ == nullptr ? 0 : context_->getOptimizationProfile();
      return inspect_layer(engine_->plan(), layer, profile, format);
    });
  }
  char const* getEngineInformation(LayerInformationFormat format) const noexcept override {
    return told([&] { return inspect(engine_->plan(), format); });
  }
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }

 private:
  template <class Tell>
  char const* told(Tell&& tell) const noexcept {
    return errors_.guard<char const*>(nullptr, [&] {
      text_ = tell();
      return text_.c_str();
    });
  }

  std::shared_ptr<const Engine> engine_;
  ErrorReport errors_;
  IExecutionContext const* context_ = nullptr;
  mutable std::string text_;  ///< the text that was returned last
};

}  // namespace opwright
