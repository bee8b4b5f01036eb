#pragma once

#include <memory>
#include <string>

#include "opwright/runtime.h"
#include "runtime/api_border.h"
#include "runtime/engine.h"

namespace opwright {

class InspectorApi final : public IEngineInspector {
 public:
  InspectorApi(std::shared_ptr<const Engine> engine, IErrorRecorder* recorder)
      : engine_(std::move(engine)), errors_(engine_->log(), recorder) {}

  bool setExecutionContext(IExecutionContext const* context) noexcept override;
  IExecutionContext const* getExecutionContext() const noexcept override { return context_; }
  char const* getLayerInformation(int32_t layerIndex,
                                  LayerInformationFormat format) const noexcept override;
  char const* getEngineInformation(LayerInformationFormat format) const noexcept override;
  void setErrorRecorder(IErrorRecorder* recorder) noexcept override {
    errors_.set_recorder(recorder);
  }
  IErrorRecorder* getErrorRecorder() const noexcept override { return errors_.recorder(); }

 private:
  std::shared_ptr<const Engine> engine_;
  ErrorReport errors_;
  IExecutionContext const* context_ = nullptr;
  mutable std::string text_;  ///< what was returned last
};

}  // namespace opwright
