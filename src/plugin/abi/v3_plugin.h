#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "network/operator.h"
#include "opwright/plugin_quick.h"
#include "opwright/plugin_v3.h"
#include "plugin/registry/called_plugin.h"
#include "plugin/registry/fields.h"

namespace opwright {

class ExprBuilder;
class StoredPorts;

/// Whether the plugin's core part says that it is of the Quick family.
bool is_quick(IPluginV3& plugin);
/// Throws Error when the plugin cannot be cloned.
std::unique_ptr<IPluginV3> clone_of(IPluginV3& plugin);

/// The numbers of a V3 layer's inputs that are tensors, which come first, and of shape tensors.
struct V3Inputs {
  int tensors = 0, shapes = 0;
};

/// Second base class of a binding's IPluginV3QuickAOTBuild. It is for languages whose code objects
/// say which processor they need.
class KernelTarget {
 public:
  /// The target of the last getKernel() result, as CodeObject::target; empty where the code does
  /// not say.
  virtual std::string kernel_target() const = 0;

 protected:
  ~KernelTarget() = default;
};

/// The parts of a plugin of the One family. It always has a runtime part. The build part is null in
/// plugins that were made only to run.
struct V3OneParts {
  IPluginV3OneBuild* build = nullptr;
  IPluginV3OneRuntime* runtime = nullptr;
};

/// The parts of a plugin of the Quick family. It has a runtime part if `aot` is null.
struct V3QuickParts {
  IPluginV3QuickBuild* build = nullptr;
  IPluginV3QuickAOTBuild* aot = nullptr;  ///< `build` if it provides a compiled kernel
  IPluginV3QuickRuntime* runtime = nullptr;
};

/// An owned IPluginV3 of the One or the Quick family, with its parts, and the methods that both
/// families have.
class V3Plugin : public CalledPlugin {
 public:
  /// Throws Error when the plugin lacks a part that its family needs, or a part has another kind.
  explicit V3Plugin(std::unique_ptr<IPluginV3> object);
  /// Throws Error when the plugin cannot be cloned.
  V3Plugin clone() const;

  IPluginV3& object() const { return *object_; }
  /// Whether compiled code of a shared library implements it.
  bool is_of_library() const {
    return code_ != nullptr && object_->getAPILanguage() == APILanguage::kCPP;
  }
  bool is_quick() const { return std::holds_alternative<V3QuickParts>(parts_); }
  const V3OneParts& one() const { return std::get<V3OneParts>(parts_); }
  const V3QuickParts& quick() const { return std::get<V3QuickParts>(parts_); }
  bool has_build() const;
  void require_build() const;
  /// Whether the plugin, or its runtime part, says that it exchanges data with other ranks.
  bool communicates() const;
  /// Whether the plugin provides a compiled kernel.
  bool is_compiled() const { return is_quick() && quick().aot != nullptr; }

  /// Calls `ask` with the build part, an IPluginV3OneBuild or IPluginV3QuickBuild, and returns its
  /// result; see CalledPlugin::call(). Throws Error if there is no build part. The methods below
  /// do, too, except check_ports() and fields().
  template <class Ask>
  auto ask_build(std::string_view layer, Ask&& ask) const {
    return std::visit(
        [&](const auto& parts) {
          if (parts.build == nullptr) require_build();
          return call(layer, [&] { return ask(*parts.build); });
        },
        parts_);
  }
  /// The same for a method that returns a status. Throws Error for a status other than 0.
  template <class Ask>
  void ask_build(std::string_view layer, const char* method, Ask&& ask) const {
    if (const int status = ask_build(layer, std::forward<Ask>(ask)); status != 0)
      fail_call(layer, method, status);
  }
  /// Calls configurePlugin().
  void configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                 std::span<const DynamicPluginTensorDesc> outputs) const;
  int num_outputs(std::string_view layer) const;
  /// The input that the output is aliased to, or -1. Throws Error for an input that does not exist.
  int aliased_input(std::string_view layer, int output, int num_inputs) const;
  /// Types and shapes of the outputs. `builder` makes the expressions that the plugin gets.
  std::vector<OutputInfo> infer(InferContext& context, ExprBuilder& builder, V3Inputs inputs) const;
  /// Throws Error if the ports in a plan differ from those that the plugin says: number of ports,
  /// shape inputs, and aliases. Without a build part only the inputs are checked.
  void check_ports(const StoredPorts& ports, const KernelArgs& args, V3Inputs inputs) const;
  /// Whether the plugin may stand for Python functions whose `autotune` is missing, which an engine
  /// does not need. Such a plugin is of the Quick family.
  bool may_lack_autotune() const {
    return is_quick() && object_->getAPILanguage() == APILanguage::kPYTHON;
  }
  /// The tactics for the last configuration; 0 if there are none.
  std::vector<int32_t> tactics(std::string_view layer) const;
  /// Calls getTimingCacheID(); null where the plugin gives none.
  const char* timing_cache_id() const;
  /// Calls getMetadataString(); empty where the plugin gives none.
  std::string metadata() const;
  /// Calls getFieldsToSerialize(); empty for a plugin without a runtime part.
  FieldValues fields() const;
  /// The descriptors that getSupportedFormatCombinations() of a plugin of the Quick family returns:
  /// one for each port of each combination, inputs first. Throws Error for unknown types and
  /// formats.
  std::vector<PluginTensorDesc> list_combinations(std::string_view layer,
                                                  std::span<const DynamicPluginTensorDesc> ports,
                                                  int num_inputs) const;

 private:
  /// The plugin's part of this type, or null. Throws Error when it has neither kind.
  IPluginCapability* part(PluginCapabilityType type, const char* what, std::string_view kind,
                          std::string_view other = {}) const;
  template <class Core>
  void identify(std::string_view kind);
  V3OneParts one_parts() const;
  V3QuickParts quick_parts() const;
  std::vector<DataType> infer_types(const InferContext& context, int num_inputs,
                                    int num_outputs) const;
  std::vector<SymShape> infer_shapes(const InferContext& context, ExprBuilder& builder,
                                     V3Inputs inputs, int num_outputs) const;

  std::shared_ptr<const void> code_;  ///< the library that implements the plugin
  std::unique_ptr<IPluginV3> object_;
  std::variant<V3OneParts, V3QuickParts> parts_;
};

}  // namespace opwright
