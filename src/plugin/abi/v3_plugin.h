#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "network/operator.h"
#include "opwright/plugin_v3.h"
#include "plugin/abi/v3_plugin_base.h"

namespace opwright {

/// A plugin of the One family that is owned, with its parts at hand.
class V3Plugin final : public V3PluginBase {
 public:
  /// Throws Error when the plugin lacks the core or runtime part or a part is of another kind.
  explicit V3Plugin(std::unique_ptr<IPluginV3> object);
  V3Plugin clone() const { return V3Plugin(clone_object()); }

  bool has_build() const override { return build_ != nullptr; }
  /// Throws Error when there is none.
  IPluginV3OneBuild& build() const;
  IPluginV3OneRuntime& runtime() const { return *runtime_; }

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

  IPluginV3OneBuild* build_ = nullptr;
  IPluginV3OneBuildV2* build_v2_ = nullptr;
  IPluginV3OneRuntime* runtime_ = nullptr;
};

/// Every combination of types and formats that the plugin supports, up to its limit, with each of
/// its tactics. `plugin` is configured in passing, so it must be a clone of the caller's own.
/// The last `num_shape_inputs` inputs keep the network's types.
std::vector<Candidate> v3_candidates(const V3Plugin& plugin, const CandidateQuery& query,
                                     int num_shape_inputs);

}  // namespace opwright
