#include "plugin/abi/v3_plugin.h"

#include <utility>

#include "base/error.h"

namespace opwright {

V3Plugin::V3Plugin(std::unique_ptr<IPluginV3> object) : V3PluginBase(std::move(object)) {
  identify(*static_cast<IPluginV3OneCore*>(core({"PLUGIN_V3ONE_CORE"})));
  build_ = static_cast<IPluginV3OneBuild*>(
      part(PluginCapabilityType::kBUILD, "build", {"PLUGIN_V3ONE_BUILD"}));
  if (build_ != nullptr && build_->getInterfaceInfo().major >= 2)
    build_v2_ = static_cast<IPluginV3OneBuildV2*>(build_);
  runtime_ = static_cast<IPluginV3OneRuntime*>(
      part(PluginCapabilityType::kRUNTIME, "runtime", {"PLUGIN_V3ONE_RUNTIME"}));
  require(runtime_ != nullptr, "plugin ", str(identity()),
          " has no runtime part: getCapabilityInterface(kRUNTIME) is null");
}

IPluginV3OneBuild& V3Plugin::build() const {
  require(build_ != nullptr, "plugin ", str(identity()),
          " has no build part: getCapabilityInterface(kBUILD) is null");
  return *build_;
}

void V3Plugin::configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                         std::span<const DynamicPluginTensorDesc> outputs) const {
  call(layer, "configurePlugin", [&] {
    return build().configurePlugin(inputs.data(), static_cast<int32_t>(inputs.size()),
                                   outputs.data(), static_cast<int32_t>(outputs.size()));
  });
}

int32_t V3Plugin::get_num_outputs() const { return build().getNbOutputs(); }

int32_t V3Plugin::get_output_types(DataType* outputs, int32_t num_outputs, const DataType* inputs,
                                   const int32_t*, int32_t num_inputs) const {
  return build().getOutputDataTypes(outputs, num_outputs, inputs, num_inputs);
}

int32_t V3Plugin::get_output_shapes(const DimsExprs* inputs, int32_t num_inputs,
                                    const DimsExprs* shape_inputs, int32_t num_shape_inputs,
                                    DimsExprs* outputs, int32_t num_outputs,
                                    IExprBuilder& builder) const {
  return build().getOutputShapes(inputs, num_inputs, shape_inputs, num_shape_inputs, outputs,
                                 num_outputs, builder);
}

int32_t V3Plugin::get_aliased_input(int32_t output) const {
  return build_v2_ != nullptr ? build_v2_->getAliasedInput(output) : -1;
}

int32_t V3Plugin::get_num_tactics() const { return build().getNbTactics(); }

int32_t V3Plugin::get_tactics(int32_t* tactics, int32_t count) const {
  return build().getValidTactics(tactics, count);
}

const char* V3Plugin::get_timing_cache_id() const { return build().getTimingCacheID(); }

const char* V3Plugin::get_metadata() const { return build().getMetadataString(); }

const PluginFieldCollection* V3Plugin::get_fields() const {
  return runtime().getFieldsToSerialize();
}

}  // namespace opwright
