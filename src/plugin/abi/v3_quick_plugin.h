#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_quick.h"
#include "plugin/abi/v3_plugin_base.h"

namespace opwright {

/// What a language binding's IPluginV3QuickAOTBuild is besides, where its language's code objects
/// say which processor they need.
class KernelTarget {
 public:
  /// Of the code of the last getKernel(), as CodeObject::target; empty where the code does not say.
  virtual std::string kernel_target() const = 0;

 protected:
  ~KernelTarget() = default;
};

/// A plugin of the Quick family that is owned, with its parts at hand.
class V3QuickPlugin final : public V3PluginBase {
 public:
  /// Throws Error when the plugin lacks the core part, or the runtime part where it brings no
  /// compiled kernel, or a part is of another kind.
  explicit V3QuickPlugin(std::unique_ptr<IPluginV3> object);
  V3QuickPlugin clone() const { return V3QuickPlugin(clone_object()); }

  bool has_build() const override { return build_ != nullptr; }
  /// Throws Error when there is none.
  IPluginV3QuickBuild& build() const;
  /// The build part of a plugin that brings a compiled kernel, else null.
  IPluginV3QuickAOTBuild* aot() const { return aot_; }
  /// What the code of the last getKernel() needs; empty where that is not known.
  std::string kernel_target() const;
  /// Always where aot() is null.
  bool has_runtime() const { return runtime_ != nullptr; }
  IPluginV3QuickRuntime& runtime() const { return *runtime_; }

  /// configurePlugin().
  void configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                 std::span<const DynamicPluginTensorDesc> outputs) const;

 private:
  int32_t get_num_outputs() const override;
  int32_t get_output_types(DataType* outputs, int32_t num_outputs, const DataType* inputs,
                           const int32_t* ranks, int32_t num_inputs) const override;
  int32_t get_output_shapes(const DimsExprs* inputs, int32_t num_inputs,
                            const DimsExprs* shape_inputs, int32_t num_shape_inputs,
                            DimsExprs* outputs, int32_t num_outputs,
                            IExprBuilder& builder) const override;
  int32_t get_aliased_input(int32_t output) const override;
  int32_t get_num_tactics() const override;
  int32_t get_tactics(int32_t* tactics, int32_t count) const override;
  const char* get_timing_cache_id() const override;
  const char* get_metadata() const override;
  const PluginFieldCollection* get_fields() const override;

  IPluginV3QuickBuild* build_ = nullptr;
  IPluginV3QuickAOTBuild* aot_ = nullptr;
  IPluginV3QuickRuntime* runtime_ = nullptr;
};

/// The descriptors that getSupportedFormatCombinations() gives, one for each port of each
/// combination; inputs come first. Throws Error for types and formats that there are not.
std::vector<PluginTensorDesc> list_combinations(const V3QuickPlugin& plugin, std::string_view layer,
                                                std::span<const DynamicPluginTensorDesc> ports,
                                                int num_inputs);

/// Every combination of types and formats that the plugin lists and that can be had, with each of
/// its tactics. `plugin` is configured in passing, so it must be a clone of the caller's own.
/// The last `num_shape_inputs` inputs keep the network's types.
std::vector<Candidate> quick_candidates(const V3QuickPlugin& plugin, const CandidateQuery& query,
                                        int num_shape_inputs);

}  // namespace opwright
