#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "opwright/plugin_base.h"

namespace opwright {

/// Resources that plugins share by a key, with reference counts. Thread safe; no lock is held while
/// a resource's code runs.
class PluginResources {
 public:
  PluginResources() = default;
  /// Releases remaining resources.
  ~PluginResources();
  PluginResources(const PluginResources&) = delete;
  PluginResources& operator=(const PluginResources&) = delete;

  /// The resource under `key`, with one more reference. If there is none, a clone of `resource`.
  /// Throws Error when there is none and `resource` is null or cannot be cloned. Throws the
  /// exception that a language binding's clone() left behind.
  IPluginResource* acquire(const char* key, IPluginResource* resource);
  /// Drops a reference. The last one calls release() of the resource and returns its result; others
  /// return 0. Throws Error for an unknown key. Throws the exception that a language binding's
  /// release() left behind; the resource is gone then, too.
  int32_t release(const char* key);

 private:
  struct Entry {
    std::shared_ptr<const void> code;  ///< the library that implements the resource
    std::unique_ptr<IPluginResource> object;
    int references = 0;
  };
  /// The resource under the key with one more reference, or null.
  IPluginResource* find(const std::string& key);

  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace opwright
