#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugin/abi/v3_plugin_base.h"
#include "plugin/model/plugin_operator.h"

namespace opwright {

/// How many inputs of a V3 plugin's layer are tensors, the first ones, and how many shape tensors.
struct V3Inputs {
  int tensors = 0, shapes = 0;
};

/// What the operators of both families of V3 plugins, One and Quick, have in common: kind
/// "PluginV3".
class PluginV3Base : public PluginOperator {
 public:
  explicit PluginV3Base(V3Inputs inputs) : inputs_(inputs) {}
  IPluginV3& object() const { return plugin().object(); }

  const std::string& plugin_name() const final { return plugin().identity().name; }
  std::string_view kind() const final { return "PluginV3"; }
  bool is_shape_input(int input) const final { return input >= inputs_.tensors; }
  std::unique_ptr<Layer> make_layer() const final;
  std::vector<OutputInfo> infer(InferContext& context) const final;

 protected:
  const V3Inputs& inputs() const { return inputs_; }
  virtual const V3PluginBase& plugin() const = 0;
  /// timing_key() of a plugin that gives an ID, beginning with `family`.
  std::optional<std::string> timing_key_of(std::string_view family) const;

 private:
  const V3Inputs inputs_;
};

/// The same of what plans have.
class PlannedV3Base : public PlannedPlugin {
 public:
  PlannedV3Base(CreatorIdentity identity, V3Inputs inputs)
      : PlannedPlugin("PluginV3", std::move(identity)), inputs_(inputs) {}

  bool is_shape_input(int input) const final { return input >= inputs_.tensors; }
  std::vector<OutputInfo> infer(InferContext& context) const final;
  bool can_infer() const final { return plugin().has_build(); }
  std::string metadata() const final { return plugin().metadata(); }

 protected:
  const V3Inputs& inputs() const { return inputs_; }
  virtual const V3PluginBase& plugin() const = 0;
  /// Throws Error where the types, formats, tactic or workspace that a plan stores are not as the
  /// plugin says. Not asked of a plugin without a build part.
  virtual void check_configuration(const StoredPorts& ports, const KernelArgs& args) const = 0;

 private:
  void check_ports(const StoredPorts& ports, const KernelArgs& args) const final;

  const V3Inputs inputs_;
};

}  // namespace opwright
