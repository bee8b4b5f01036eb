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

/// A plugin of any interface, as the engine sees it. An adapter makes it from an IPluginV2, from an
/// IPluginV3 of the One or the Quick family, or from a function plugin. Immutable and thread safe;
/// a configured plugin is a model of its own. Errors begin with layer and plugin.
class PluginModel {
 public:
  virtual ~PluginModel() = default;

  /// The kind under which plans store the plugin, a literal: "PluginV3".
  virtual std::string_view kind() const = 0;
  virtual const CreatorIdentity& identity() const = 0;
  /// Layer and plugin for the beginning of messages: "layer 'l': plugin 'p' (version 1, namespace
  /// ''): ".
  std::string prefix(std::string_view layer) const;
  /// See Operator::make_layer(); null: a layer of the class that all operators have.
  virtual std::unique_ptr<Layer> make_layer() const;

  /// See Operation and PlannedOperator.
  virtual std::vector<OutputInfo> infer(InferContext& context) const = 0;
  virtual bool can_infer() const { return true; }
  virtual bool is_shape_input(int input) const {
    (void)input;
    return false;
  }

  /// Whether compiled code of a shared library implements it.
  virtual bool is_of_library() const { return false; }
  /// See Operation.
  virtual bool communicates() const { return false; }

  /// The combinations of types and formats that the plugin supports, each with its tactics; see
  /// Operator::candidates().
  virtual std::vector<Candidate> candidates(const CandidateQuery& query) const = 0;
  /// See Operator::timing_key().
  virtual std::optional<std::string> timing_key() const = 0;
  /// The attributes of a Pointwise operator that computes the same, so that the layers around it
  /// can join its kernel; empty if there is none. `layer` is for messages.
  virtual Attributes pointwise(std::string_view layer) const {
    (void)layer;
    return {};
  }
  /// Whether a plan stores a kernel that the plugin compiles, not the plugin.
  virtual bool is_compiled() const { return false; }
  /// The kernel for the candidate and the ports in `args`. Only called if is_compiled().
  virtual KernelCode compile(const KernelArgs& args) const;
  /// The plugin for the candidate and the ports in `args`, as a plan stores it. Only called if it
  /// is not compiled.
  virtual PluginModelPtr configure(const KernelArgs& args) const = 0;

  /// A plugin with the same ports that computes the same in another way, and its name in messages.
  struct Reference {
    PluginModelPtr model;
    std::string name;
    bool is_declared = false;  ///< whether it has no other purpose
  };
  /// The plugin that a build compares candidates with, on a device of that type. None: it compares
  /// with the first candidate.
  virtual std::optional<Reference> reference(DeviceType device) const {
    (void)device;
    return std::nullopt;
  }
  /// Whether all runs on the same inputs compute the same, so that candidates can be compared.
  virtual bool is_repeatable() const { return true; }

  // The following methods are only for a configured plugin.

  /// The attributes from which the adapter's loader makes it again. `layer` is for messages.
  virtual Attributes store(std::string_view layer) const = 0;
  /// Text that the inspector shows beside the layer's own metadata.
  virtual std::string metadata() const { return {}; }
  /// Throws Error unless `ports`, which are those of `args`, are as the plugin says.
  virtual void check(const StoredPorts& ports, const KernelArgs& args) const = 0;
  /// Makes the plugin for a context: a CallbackKernel, which the model outlives.
  virtual std::unique_ptr<Kernel> attach(const KernelArgs& args) const = 0;
};

}  // namespace opwright
