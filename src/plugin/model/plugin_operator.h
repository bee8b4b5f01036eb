#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "network/operator.h"
#include "plugin/model/plugin_model.h"

namespace opwright {

/// The operator of a plugin of any kind.
class PluginOperator final : public Operator {
 public:
  explicit PluginOperator(PluginModelPtr model) : model_(std::move(model)) {}
  const PluginModel* plugin() const override { return model_.get(); }

  std::string_view kind() const override { return model_->kind(); }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    return model_->infer(context);
  }
  bool is_shape_input(int input) const override { return model_->is_shape_input(input); }
  bool communicates() const override { return model_->communicates(); }
  std::vector<Candidate> candidates(const CandidateQuery& query) const override {
    return model_->candidates(query);
  }
  std::optional<std::string> timing_key() const override { return model_->timing_key(); }
  bool is_pure() const override { return false; }
  std::unique_ptr<Layer> make_layer() const override;
  PlannedOperatorPtr plan(const KernelArgs& args) const override;

 private:
  PlannedOperatorPtr compiled(const KernelArgs& args) const;

  const PluginModelPtr model_;
  // Each kernel is compiled once, so that the plan stores the kernel that was timed.
  mutable std::mutex mutex_;
  mutable std::map<std::string, PlannedOperatorPtr> compiled_;
};

/// A plugin of any kind in a plan. The plan stores its kind and the attributes that make it again.
class PlannedPlugin final : public PlannedOperator {
 public:
  /// `model` is configured; `layer` is for messages.
  PlannedPlugin(PluginModelPtr model, std::string_view layer)
      : model_(std::move(model)), layer_(layer) {}

  std::string_view kind() const override { return model_->kind(); }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    return model_->infer(context);
  }
  bool can_infer() const override { return model_->can_infer(); }
  bool is_shape_input(int input) const override { return model_->is_shape_input(input); }
  bool communicates() const override { return model_->communicates(); }
  void check(const KernelArgs& args) const override;
  std::unique_ptr<Kernel> make_kernel(const KernelArgs& args) const override {
    return model_->attach(args);
  }
  Attributes attributes() const override { return model_->store(layer_); }
  std::vector<PluginRequirement> requirements() const override;
  std::string metadata() const override { return model_->metadata(); }

 private:
  const PluginModelPtr model_;
  const std::string layer_;
};

/// The model of a plugin's operator as the adapter's class `Model`; null for any other operator.
template <class Model>
const Model* model_of(const Operator& op) {
  return dynamic_cast<const Model*>(op.plugin());
}

}  // namespace opwright
