#include "plugin/abi/v3_quick_plugin.h"

#include <utility>

#include "base/error.h"

namespace opwright {

V3QuickPlugin::V3QuickPlugin(std::unique_ptr<IPluginV3> object) : V3PluginBase(std::move(object)) {
  constexpr std::string_view kAot = "PLUGIN_V3QUICKAOT_BUILD";
  identify(*static_cast<IPluginV3QuickCore*>(core({"PLUGIN_V3QUICK_CORE"})));
  build_ = static_cast<IPluginV3QuickBuild*>(
      part(PluginCapabilityType::kBUILD, "build", {"PLUGIN_V3QUICK_BUILD", kAot}));
  if (build_ != nullptr && is_kind(*build_, kAot))
    aot_ = static_cast<IPluginV3QuickAOTBuild*>(build_);
  runtime_ = static_cast<IPluginV3QuickRuntime*>(
      part(PluginCapabilityType::kRUNTIME, "runtime", {"PLUGIN_V3QUICK_RUNTIME"}));
  // A compiled kernel needs nothing of its plugin at run time.
  require(runtime_ != nullptr || aot_ != nullptr, "plugin ", str(identity()),
          " has no runtime part: getCapabilityInterface(kRUNTIME) is null, and its build part is "
          "no IPluginV3QuickAOTBuild, which would bring a compiled kernel");
}

IPluginV3QuickBuild& V3QuickPlugin::build() const {
  require(build_ != nullptr, "plugin ", str(identity()),
          " has no build part: getCapabilityInterface(kBUILD) is null");
  return *build_;
}

std::string V3QuickPlugin::kernel_target() const {
  // Other libraries may be compiled without the type information that a cast needs.
  if (aot_->getAPILanguage() != APILanguage::kPYTHON) return {};
  const auto* target = dynamic_cast<const KernelTarget*>(aot_);
  return target != nullptr ? target->kernel_target() : std::string();
}

void V3QuickPlugin::configure(std::string_view layer,
                              std::span<const DynamicPluginTensorDesc> inputs,
                              std::span<const DynamicPluginTensorDesc> outputs) const {
  call(layer, "configurePlugin", [&] {
    return build().configurePlugin(inputs.data(), static_cast<int32_t>(inputs.size()),
                                   outputs.data(), static_cast<int32_t>(outputs.size()));
  });
}

int32_t V3QuickPlugin::get_num_outputs() const { return build().getNbOutputs(); }

int32_t V3QuickPlugin::get_output_types(DataType* outputs, int32_t num_outputs,
                                        const DataType* inputs, const int32_t* ranks,
                                        int32_t num_inputs) const {
  return build().getOutputDataTypes(outputs, num_outputs, inputs, ranks, num_inputs);
}

int32_t V3QuickPlugin::get_output_shapes(const DimsExprs* inputs, int32_t num_inputs,
                                         const DimsExprs* shape_inputs, int32_t num_shape_inputs,
                                         DimsExprs* outputs, int32_t num_outputs,
                                         IExprBuilder& builder) const {
  return build().getOutputShapes(inputs, num_inputs, shape_inputs, num_shape_inputs, outputs,
                                 num_outputs, builder);
}

int32_t V3QuickPlugin::get_aliased_input(int32_t output) const {
  return build().getAliasedInput(output);
}

int32_t V3QuickPlugin::get_num_tactics() const { return build().getNbTactics(); }

int32_t V3QuickPlugin::get_tactics(int32_t* tactics, int32_t count) const {
  return build().getValidTactics(tactics, count);
}

const char* V3QuickPlugin::get_timing_cache_id() const { return build().getTimingCacheID(); }

const char* V3QuickPlugin::get_metadata() const { return build().getMetadataString(); }

const PluginFieldCollection* V3QuickPlugin::get_fields() const {
  static constexpr PluginFieldCollection kNone{};
  return runtime_ != nullptr ? runtime_->getFieldsToSerialize() : &kNone;
}

}  // namespace opwright
