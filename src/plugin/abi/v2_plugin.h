#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/blob.h"
#include "opwright/plugin_v2.h"
#include "plugin/registry/called_plugin.h"

namespace opwright {

/// Whether the creator is an IPluginCreator, which makes V2 plugins.
bool is_v2_creator(const IPluginCreatorInterface& creator);

/// Terminates and destroys a V2 plugin.
struct DestroyV2 {
  void operator()(IPluginV2* plugin) const {
    if (is_initialized) call_plugin_quietly([&] { plugin->terminate(); });
    call_plugin_quietly([&] { plugin->destroy(); });
  }
  bool is_initialized = false;
};

/// An owned V2 plugin, which destroy() ends. Plugins for fixed shapes are adapted.
class V2Plugin : public CalledPlugin {
 public:
  /// Takes the plugin over. Throws Error for an unsupported kind, and when type, version or
  /// namespace is null. The message names the layer if there is one.
  explicit V2Plugin(IPluginV2* plugin, std::string_view layer = {});
  /// Throws Error when plugins of this kind are not supported, or the plugin cannot be cloned.
  static V2Plugin clone(const IPluginV2& plugin);
  /// Throws Error when the plugin cannot be cloned.
  V2Plugin clone(std::string_view layer = {}) const;

  IPluginV2DynamicExt& object() const { return *object_; }
  /// Whether Python implements it.
  bool is_python() const;
  /// Whether compiled code of a shared library implements it.
  bool is_of_library() const { return code_ != nullptr && !is_python(); }
  /// Tells the plugin its namespace.
  void set_namespace(const std::string& plugin_namespace);

  int num_outputs(std::string_view layer) const;
  /// Calls configurePlugin().
  void configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                 std::span<const DynamicPluginTensorDesc> outputs) const;
  /// Calls getWorkspaceSize() for the largest shapes of the descriptors.
  size_t workspace_size(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                        std::span<const DynamicPluginTensorDesc> outputs) const;
  Blob serialize(std::string_view layer) const;
  /// Calls initialize(); terminate() follows at the end. Throws Error when it fails.
  void initialize(std::string_view layer);

 private:
  V2Plugin(IPluginV2* plugin, CreatorIdentity identity);

  std::shared_ptr<const void> code_;  ///< the library that implements the plugin
  std::unique_ptr<IPluginV2DynamicExt, DestroyV2> object_;
};

}  // namespace opwright
