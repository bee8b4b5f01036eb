#include "plugin/v3_plugin.h"

#include <utility>

#include "base/error.h"
#include "plugin/callback.h"

namespace opwright {

namespace {

IPluginCapability* capability(IPluginV3& plugin, PluginCapabilityType type, const char* what,
                              const char* kind) {
  IPluginCapability* part = plugin.getCapabilityInterface(type);
  rethrow_pending_exception();
  if (part != nullptr && !is_kind(*part, kind)) {
    const char* actual = part->getInterfaceInfo().kind;
    fail("a V3 plugin's ", what, " part has the interface '", actual ? actual : "", "', expected '",
         kind, "'");
  }
  return part;
}

}  // namespace

V3Plugin::V3Plugin(std::unique_ptr<IPluginV3> object) : object_(std::move(object)) {
  core_ = static_cast<IPluginV3OneCore*>(
      capability(*object_, PluginCapabilityType::kCORE, "core", "PLUGIN_V3ONE_CORE"));
  require(core_ != nullptr, "a V3 plugin has no core part: getCapabilityInterface(kCORE) is null");
  const char* name = core_->getPluginName();
  rethrow_pending_exception();
  const char* version = core_->getPluginVersion();
  rethrow_pending_exception();
  const char* plugin_namespace = core_->getPluginNamespace();
  rethrow_pending_exception();
  require(name != nullptr && version != nullptr && plugin_namespace != nullptr,
          "a V3 plugin's name, version or namespace is null");
  identity_ = {name, version, plugin_namespace};
  build_ = static_cast<IPluginV3OneBuild*>(
      capability(*object_, PluginCapabilityType::kBUILD, "build", "PLUGIN_V3ONE_BUILD"));
  if (build_ != nullptr && build_->getInterfaceInfo().major >= 2)
    build_v2_ = static_cast<IPluginV3OneBuildV2*>(build_);
  runtime_ = static_cast<IPluginV3OneRuntime*>(
      capability(*object_, PluginCapabilityType::kRUNTIME, "runtime", "PLUGIN_V3ONE_RUNTIME"));
  require(runtime_ != nullptr, "plugin ", str(identity_),
          " has no runtime part: getCapabilityInterface(kRUNTIME) is null");
}

V3Plugin V3Plugin::clone(IPluginV3& plugin) {
  std::unique_ptr<IPluginV3> clone(plugin.clone());
  rethrow_pending_exception();
  if (clone == nullptr) {
    auto* core = static_cast<IPluginV3OneCore*>(
        capability(plugin, PluginCapabilityType::kCORE, "core", "PLUGIN_V3ONE_CORE"));
    fail("plugin '", core != nullptr ? core->getPluginName() : "without a core part",
         "': clone() returned null");
  }
  return V3Plugin(std::move(clone));
}

IPluginV3OneBuild& V3Plugin::build() const {
  require(build_ != nullptr, "plugin ", str(identity_),
          " has no build part: getCapabilityInterface(kBUILD) is null");
  return *build_;
}

void V3Plugin::check() const {
  if (has_pending_exception()) rethrow_pending_exception(str("plugin ", str(identity_), ": "));
}

void V3Plugin::check(std::string_view layer, const char* method, int status) const {
  if (has_pending_exception())
    rethrow_pending_exception(str("layer '", layer, "': plugin ", str(identity_), ": "));
  if (status != 0) reject(layer, method, "() returned ", status, " instead of 0");
}

int V3Plugin::num_outputs(std::string_view layer) const {
  const int count = build().getNbOutputs();
  check();
  if (count < 1) reject(layer, "getNbOutputs() returned ", count, "; there must be an output");
  return count;
}

int V3Plugin::aliased_input(std::string_view layer, int output, int num_inputs) const {
  if (build_v2_ == nullptr) return -1;
  const int input = build_v2_->getAliasedInput(output);
  check();
  if (input < -1 || input >= num_inputs)
    reject(layer, "getAliasedInput(", output, ") returned ", input, ", but there are ", num_inputs,
           " inputs");
  return input;
}

void V3Plugin::configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                         std::span<const DynamicPluginTensorDesc> outputs) const {
  check(layer, "configurePlugin",
        build().configurePlugin(inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                static_cast<int32_t>(outputs.size())));
}

DynamicPluginTensorDesc describe(const PortDesc& port, const PortType& type) {
  DynamicPluginTensorDesc desc{};
  const bool has_scale = type.dtype == DataType::kINT8 && port.scale > 0;
  desc.desc = {port.opt.dims(), type.dtype, type.format, has_scale ? port.scale : -1.0f};
  for (int i = 0; i < port.opt.rank(); ++i)
    if (port.min[i] != port.max[i]) desc.desc.dims.d[i] = -1;
  desc.min = port.min.dims();
  desc.max = port.max.dims();
  desc.opt = port.opt.dims();
  return desc;
}

std::vector<DynamicPluginTensorDesc> describe(std::span<const PortDesc> ports) {
  std::vector<DynamicPluginTensorDesc> descs;
  descs.reserve(ports.size());
  for (const PortDesc& port : ports) descs.push_back(describe(port, port.type));
  return descs;
}

}  // namespace opwright
