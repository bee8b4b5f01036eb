#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_v3.h"
#include "plugin/registry.h"

namespace opwright {

/// A V3 plugin that is owned, with its parts at hand.
class V3Plugin {
 public:
  /// Throws Error when the plugin lacks the core or runtime part or a part is of another kind.
  explicit V3Plugin(std::unique_ptr<IPluginV3> object);
  /// Throws Error when the plugin cannot be cloned.
  V3Plugin clone() const { return clone(*object_); }
  static V3Plugin clone(IPluginV3& plugin);

  IPluginV3& object() const { return *object_; }
  const CreatorIdentity& identity() const { return identity_; }
  bool has_build() const { return build_ != nullptr; }
  /// Throws Error when there is none.
  IPluginV3OneBuild& build() const;
  IPluginV3OneRuntime& runtime() const { return *runtime_; }
  int num_outputs(std::string_view layer) const;
  /// The input that the output is aliased to, or -1. Throws Error for an input that is not there.
  int aliased_input(std::string_view layer, int output, int num_inputs) const;

  /// To be called after each method that returns no status: throws what a callback left behind.
  void check() const;
  /// To be called with the status of each method: throws what a callback left behind, or Error
  /// naming layer, plugin, method and status.
  void check(std::string_view layer, const char* method, int status) const;
  /// Throws Error that starts with layer and plugin.
  template <class... Parts>
  [[noreturn]] void reject(std::string_view layer, const Parts&... parts) const {
    fail("layer '", layer, "': plugin ", str(identity_), ": ", parts...);
  }

  /// configurePlugin().
  void configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                 std::span<const DynamicPluginTensorDesc> outputs) const;

 private:
  std::unique_ptr<IPluginV3> object_;
  IPluginV3OneCore* core_ = nullptr;
  IPluginV3OneBuild* build_ = nullptr;
  IPluginV3OneBuildV2* build_v2_ = nullptr;
  IPluginV3OneRuntime* runtime_ = nullptr;
  CreatorIdentity identity_;
};

/// The port as plugins see it during a build.
DynamicPluginTensorDesc describe(const PortDesc& port, const PortType& type);
std::vector<DynamicPluginTensorDesc> describe(std::span<const PortDesc> ports);

/// Every combination of types and formats that the plugin supports, up to its limit, with each of
/// its tactics. `plugin` is configured in passing, so it must be a clone of the caller's own.
/// The last `num_shape_inputs` inputs keep the network's types.
std::vector<Candidate> v3_candidates(const V3Plugin& plugin, const CandidateQuery& query,
                                     int num_shape_inputs);

}  // namespace opwright
