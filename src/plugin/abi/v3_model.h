#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_v3.h"
#include "plugin/abi/v3_plugin.h"
#include "plugin/model/plugin_model.h"

namespace opwright {

struct OperatorLoadContext;

/// Common base of the models of both families of IPluginV3, One and Quick: kind "PluginV3".
class V3Model : public PluginModel {
 public:
  V3Model(V3Plugin plugin, V3Inputs inputs, size_t workspace_size)
      : plugin_(std::move(plugin)),
        communicates_(!plugin_.is_compiled() && plugin_.communicates()),
        inputs_(inputs),
        workspace_size_(workspace_size) {}
  IPluginV3& object() const { return plugin_.object(); }

  std::string_view kind() const final { return "PluginV3"; }
  const CreatorIdentity& identity() const final { return plugin_.identity(); }
  std::unique_ptr<Layer> make_layer() const final;
  std::vector<OutputInfo> infer(InferContext& context) const final;
  bool can_infer() const final { return plugin_.has_build(); }
  bool is_shape_input(int input) const final { return input >= inputs_.tensors; }
  bool is_of_library() const final { return plugin_.is_of_library(); }
  bool communicates() const final { return communicates_; }
  std::vector<Candidate> candidates(const CandidateQuery& query) const final;
  std::optional<std::string> timing_key() const final;
  Attributes store(std::string_view layer) const final;
  std::string metadata() const final { return plugin_.metadata(); }
  void check(const StoredPorts& ports, const KernelArgs& args) const final;

 protected:
  const V3Plugin& plugin() const { return plugin_; }
  V3Inputs inputs() const { return inputs_; }
  size_t workspace_size() const { return workspace_size_; }
  /// The ports of the plugin's tensors, inputs first, without its shape inputs.
  std::vector<DynamicPluginTensorDesc> describe_all(std::span<const PortDesc> inputs,
                                                    std::span<const PortDesc> outputs) const;
  /// A clone of the plugin that is configured for the ports in `args`.
  V3Plugin configured(const KernelArgs& args) const;
  /// Pairs of an input and an output that shares its memory, as `clone` says.
  std::vector<std::pair<int, int>> aliases(const V3Plugin& clone,
                                           const CandidateQuery& query) const;

 private:
  /// The beginning of timing keys.
  virtual const char* family() const = 0;
  /// The combinations of types and formats that `clone` supports.
  virtual std::vector<Candidate> combinations(const V3Plugin& clone,
                                              const CandidateQuery& query) const = 0;
  /// Throws Error unless `clone` supports, or may support, the types and formats in a plan. Returns
  /// whether it lists them, so that it can be asked for its tactics.
  virtual bool check_combination(const V3Plugin& clone, const StoredPorts& ports,
                                 const KernelArgs& args) const = 0;
  /// The bytes of workspace that a configured plugin needs.
  virtual size_t wanted_workspace(const V3Plugin& configured, const KernelArgs& args) const = 0;

  const V3Plugin plugin_;
  const bool communicates_;
  const V3Inputs inputs_;
  const size_t workspace_size_;  ///< of a configured plugin
};

/// The model of a plugin of the One or the Quick family. A plugin of the Quick family with an
/// IPluginV3QuickAOTBuild is compiled.
PluginModelPtr make_v3_one(V3Plugin plugin, V3Inputs inputs, size_t workspace_size);
PluginModelPtr make_v3_quick(V3Plugin plugin, V3Inputs inputs);

/// The operator of an IPluginV3: kind "PluginV3". It keeps a clone of the plugin. Its inputs are
/// `num_inputs` tensors, then `num_shape_inputs` shape tensors, whose values the plugin gets as
/// expressions. Throws Error when the plugin lacks a part that a build needs, or cannot be cloned.
OperatorPtr make_plugin_v3_operator(IPluginV3& plugin, int num_inputs, int num_shape_inputs);
/// The same, but owns the plugin itself.
OperatorPtr adopt_plugin_v3(std::unique_ptr<IPluginV3> plugin, int num_inputs,
                            int num_shape_inputs);
/// The plugin of an operator of kind "PluginV3", for inspection by the user; null for other
/// operators.
IPluginV3* plugin_of(const Operator& op);

/// Makes a configured plugin again from its stored form in a plan.
PluginModelPtr load_plugin_v3(const Attributes& attributes, const OperatorLoadContext& context);

}  // namespace opwright
