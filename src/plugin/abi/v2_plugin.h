#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/blob.h"
#include "opwright/plugin_v2.h"
#include "plugin/registry/called_plugin.h"

namespace opwright {

/// Whether the creator makes V2 plugins: an IPluginCreator.
bool is_v2_creator(const IPluginCreatorInterface& creator);

/// A V2 plugin that is owned: destroy() ends it. One of the kinds for fixed shapes is adapted.
class V2Plugin : public CalledPlugin {
 public:
  /// Takes the plugin over. Throws Error, that names the layer where there is one, for a kind that
  /// does not run, and when type, version or namespace is null.
  explicit V2Plugin(IPluginV2* plugin, std::string_view layer = {});
  /// Throws Error when the plugin is of a kind that does not run, or cannot be cloned.
  static V2Plugin clone(const IPluginV2& plugin);
  /// Throws Error when the plugin cannot be cloned.
  V2Plugin clone(std::string_view layer = {}) const;

  IPluginV2DynamicExt& object() const { return *object_; }
  /// Whether Python implements it.
  bool is_python() const;
  /// Tells the plugin its namespace.
  void set_namespace(const std::string& plugin_namespace);

  int num_outputs(std::string_view layer) const;
  /// configurePlugin().
  void configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                 std::span<const DynamicPluginTensorDesc> outputs) const;
  /// getWorkspaceSize() for the largest shapes of the descriptors.
  size_t workspace_size(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                        std::span<const DynamicPluginTensorDesc> outputs) const;
  Blob serialize(std::string_view layer) const;

 private:
  struct Destroy {
    void operator()(IPluginV2* plugin) const {
      call_plugin_quietly([&] { plugin->destroy(); });
    }
  };

  V2Plugin(IPluginV2* plugin, CreatorIdentity identity);

  std::shared_ptr<const void> code_;  ///< the library that implements the plugin
  std::unique_ptr<IPluginV2DynamicExt, Destroy> object_;
};

/// A V2 plugin between initialize() and terminate().
class InitializedV2Plugin {
 public:
  /// Throws Error when initialize() fails.
  InitializedV2Plugin(V2Plugin plugin, std::string_view layer);
  ~InitializedV2Plugin() {
    call_plugin_quietly([&] { plugin_.object().terminate(); });
  }
  InitializedV2Plugin(const InitializedV2Plugin&) = delete;
  InitializedV2Plugin& operator=(const InitializedV2Plugin&) = delete;

  const V2Plugin& operator*() const { return plugin_; }
  const V2Plugin* operator->() const { return &plugin_; }

 private:
  const V2Plugin plugin_;
};

}  // namespace opwright
