#include "plugin/abi/v2_plugin.h"

#include <utility>
#include <vector>

#include "plugin/abi/fixed_shape_plugin.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/plugin_library.h"

namespace opwright {

namespace {

std::string owner_of(std::string_view layer, const std::string& plugin) {
  return layer.empty() ? str("plugin ", plugin, ": ")
                       : str("layer '", layer, "': plugin ", plugin, ": ");
}

CreatorIdentity identity_of(const IPluginV2& plugin, std::string_view layer) {
  std::string owner = owner_of(layer, "of the V2 generation");
  const auto ask = [&](const char* method, const char* (IPluginV2::*get)() const) -> std::string {
    const char* const answer = call_plugin(owner, [&] { return (plugin.*get)(); });
    require(answer != nullptr, owner, method, "() returned null");
    return answer;
  };
  CreatorIdentity id;
  id.name = ask("getPluginType", &IPluginV2::getPluginType);
  owner = owner_of(layer, "'" + id.name + "'");
  id.version = ask("getPluginVersion", &IPluginV2::getPluginVersion);
  id.plugin_namespace = ask("getPluginNamespace", &IPluginV2::getPluginNamespace);
  return id;
}

/// Throws Error for unsupported plugins. Called even before clone(), because plugins of other
/// generations have fewer virtual methods.
CreatorIdentity check_supported(const IPluginV2& plugin, std::string_view layer) {
  const PluginVersion version = plugin_version(plugin);
  CreatorIdentity id = identity_of(plugin, layer);
  require(version == PluginVersion::kV2_EXT || version == PluginVersion::kV2_IOEXT ||
              version == PluginVersion::kV2_DYNAMICEXT,
          owner_of(layer, str(id)), "it implements ",
          version == PluginVersion::kV2 ? "IPluginV2" : "an unknown interface",
          "; of the V2 plugins, IPluginV2Ext, IPluginV2IOExt and IPluginV2DynamicExt are "
          "supported: derive the class from the last one, or from IPluginV3");
  return id;
}

}  // namespace

bool is_v2_creator(const IPluginCreatorInterface& creator) {
  return is_kind(creator, "PLUGIN CREATOR_V1");
}

V2Plugin::V2Plugin(IPluginV2* plugin, std::string_view layer)
    : code_(keep_code(plugin_as_given(*plugin))) {
  std::unique_ptr<IPluginV2, DestroyV2> owned(plugin);
  identity_ = check_supported(*plugin, layer);
  const PluginVersion version = plugin_version(*plugin);
  object_.reset(version == PluginVersion::kV2_DYNAMICEXT ? static_cast<IPluginV2DynamicExt*>(plugin)
                                                         : adapt_fixed_shapes(plugin, version));
  (void)owned.release();
}

V2Plugin::V2Plugin(IPluginV2* plugin, CreatorIdentity identity)
    : code_(keep_code(plugin_as_given(*plugin))),
      object_(static_cast<IPluginV2DynamicExt*>(plugin)) {
  identity_ = std::move(identity);
}

V2Plugin V2Plugin::clone(const IPluginV2& plugin) {
  const std::string owner = owner_of({}, str(check_supported(plugin, {})));
  auto clone =
      call_plugin(owner, [&] { return std::unique_ptr<IPluginV2, DestroyV2>(plugin.clone()); });
  require(clone != nullptr, owner, "clone() returned null");
  return V2Plugin(clone.release());
}

V2Plugin V2Plugin::clone(std::string_view layer) const {
  auto clone = call(layer, [&] { return std::unique_ptr<IPluginV2, DestroyV2>(object_->clone()); });
  if (clone == nullptr) reject(layer, "clone() returned null");
  check_supported(*clone, layer);
  return V2Plugin(clone.release(), identity_);
}

bool V2Plugin::is_python() const {
  const IPluginV2& plugin = *object_;
  return ((plugin.getTensorRTVersion() >> 24) & kPLUGIN_VERSION_PYTHON_BIT) != 0;
}

void V2Plugin::set_namespace(const std::string& plugin_namespace) {
  call({}, [&] { object_->setPluginNamespace(plugin_namespace.c_str()); });
  identity_.plugin_namespace = plugin_namespace;
}

int V2Plugin::num_outputs(std::string_view layer) const {
  const int count = call(layer, [&] { return object_->getNbOutputs(); });
  if (count < 1) reject(layer, "getNbOutputs() returned ", count, "; there must be an output");
  return count;
}

void V2Plugin::configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                         std::span<const DynamicPluginTensorDesc> outputs) const {
  call(layer, [&] {
    object_->configurePlugin(inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                             static_cast<int32_t>(outputs.size()));
  });
}

size_t V2Plugin::workspace_size(std::string_view layer,
                                std::span<const DynamicPluginTensorDesc> inputs,
                                std::span<const DynamicPluginTensorDesc> outputs) const {
  const auto largest = [](std::span<const DynamicPluginTensorDesc> descs) {
    std::vector<PluginTensorDesc> all;
    for (const DynamicPluginTensorDesc& desc : descs) {
      all.push_back(desc.desc);
      all.back().dims = desc.max;
    }
    return all;
  };
  const std::vector<PluginTensorDesc> in = largest(inputs), out = largest(outputs);
  return call(layer, [&] {
    return object_->getWorkspaceSize(in.data(), static_cast<int32_t>(in.size()), out.data(),
                                     static_cast<int32_t>(out.size()));
  });
}

Blob V2Plugin::serialize(std::string_view layer) const {
  const size_t size = call(layer, [&] { return object_->getSerializationSize(); });
  constexpr size_t kMostBytes = size_t{1} << 32U;  // more bytes than anybody keeps in a plugin
  if (size > kMostBytes) reject(layer, "getSerializationSize() returned ", size, " bytes");
  return Blob::make(size, [&](void* to) {
    std::memset(to, 0, size);  // a plugin that writes fewer bytes stores no old memory
    call(layer, [&] { object_->serialize(to); });
  });
}

void V2Plugin::initialize(std::string_view layer) {
  call(layer, "initialize", [&] { return object_->initialize(); });
  object_.get_deleter().is_initialized = true;
}

}  // namespace opwright
