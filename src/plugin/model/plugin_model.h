#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "network/operator.h"
#include "plugin/kernel/compiled_kernel.h"
#include "plugin/registry/registry.h"

namespace opwright {

class PluginModel;
class StoredPorts;

using PluginModelPtr = std::shared_ptr<const PluginModel>;

/// A plugin as the engine knows it, whatever its interface: an adapter makes it of an IPluginV2, an
/// IPluginV3 of the One or the Quick family, or a function plugin. Immutable and thread safe;
/// what is configured is a model of its own. Errors begin with layer and plugin.
class PluginModel {
 public:
  virtual ~PluginModel() = default;

  /// Under which plans store it, a literal: "PluginV3".
  virtual std::string_view kind() const = 0;
  virtual const CreatorIdentity& identity() const = 0;
  /// Layer and plugin, as messages begin: "layer 'l': plugin 'p' (version 1, namespace ''): ".
  std::string prefix(std::string_view layer) const;
  /// As Operator::make_layer(); null: one of the class that all operators have.
  virtual std::unique_ptr<Layer> make_layer() const;

  /// As those of Operation and PlannedOperator.
  virtual std::vector<OutputInfo> infer(InferContext& context) const = 0;
  virtual bool can_infer() const { return true; }
  virtual bool is_shape_input(int input) const {
    (void)input;
    return false;
  }

  /// The combinations of types and formats that the plugin has, each with its tactics; as
  /// Operator::candidates().
  virtual std::vector<Candidate> candidates(const CandidateQuery& query) const = 0;
  /// As Operator::timing_key().
  virtual std::optional<std::string> timing_key() const = 0;
  /// The attributes of a Pointwise operator that computes the same, so that what stands before and
  /// behind it can be one kernel with it; none where there is no such. `layer` is for messages.
  virtual Attributes pointwise(std::string_view layer) const {
    (void)layer;
    return {};
  }
  /// Whether a plan has a kernel that the plugin compiles, rather than the plugin.
  virtual bool is_compiled() const { return false; }
  /// The kernel for the candidate and the ports in `args`; asked where is_compiled().
  virtual KernelCode compile(const KernelArgs& args) const;
  /// The plugin for the candidate and the ports in `args`, as a plan has it; asked where it is not
  /// compiled.
  virtual PluginModelPtr configure(const KernelArgs& args) const = 0;

  /// A plugin with the same ports that computes the same another way, and how messages call it.
  struct Reference {
    PluginModelPtr model;
    std::string name;
    bool is_declared = false;  ///< whether it is there for nothing else
  };
  /// What a build compares the plugin's candidates with, on a device of that type; none: with the
  /// first of them.
  virtual std::optional<Reference> reference(DeviceType device) const {
    (void)device;
    return std::nullopt;
  }
  /// Whether a run computes the same as others of the same inputs, so that candidates can be
  /// compared.
  virtual bool is_repeatable() const { return true; }

  // What follows is asked of a configured plugin.

  /// What the adapter's loader makes it from again. `layer` is for messages.
  virtual Attributes store(std::string_view layer) const = 0;
  /// What the inspector shows beside the layer's own metadata.
  virtual std::string metadata() const { return {}; }
  /// Throws Error unless `ports`, which are those of `args`, are as the plugin says.
  virtual void check(const StoredPorts& ports, const KernelArgs& args) const = 0;
  /// The plugin in a context: a CallbackKernel, which this outlives.
  virtual std::unique_ptr<Kernel> attach(const KernelArgs& args) const = 0;
};

}  // namespace opwright
