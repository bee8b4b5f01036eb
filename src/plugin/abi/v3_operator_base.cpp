#include "plugin/abi/v3_operator_base.h"

#include "base/error.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/abi/plugin_layers.h"
#include "plugin/kernel/stored_ports.h"

namespace opwright {

namespace {

std::vector<OutputInfo> infer_v3(const V3PluginBase& plugin, InferContext& context,
                                 V3Inputs inputs) {
  ExprBuilder builder(context, plugin.num_outputs(context.layer));
  return plugin.infer(context, builder, inputs.tensors, inputs.shapes);
}

}  // namespace

std::unique_ptr<Layer> PluginV3Base::make_layer() const {
  return std::make_unique<PluginV3Layer>();
}

std::vector<OutputInfo> PluginV3Base::infer(InferContext& context) const {
  return infer_v3(plugin(), context, inputs_);
}

std::optional<std::string> PluginV3Base::timing_key_of(std::string_view family) const {
  const char* id = plugin().timing_cache_id();
  if (id == nullptr) return std::nullopt;
  return str(family, ' ', str(plugin().identity()), ' ', id);
}

std::vector<OutputInfo> PlannedV3Base::infer(InferContext& context) const {
  return infer_v3(plugin(), context, inputs_);
}

/// Of a plugin whose object for the runtime has no build part only the ports are known.
void PlannedV3Base::check_ports(const StoredPorts& ports, const KernelArgs& args) const {
  plugin().check_ports(ports, args, inputs_.tensors, inputs_.shapes);
  if (plugin().has_build()) check_configuration(ports, args);
}

}  // namespace opwright
