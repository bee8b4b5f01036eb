#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "opwright/plugin_base.h"

namespace opwright {

/// Resources that plugins share by a key, counted by reference. Thread safe; no lock is held while
/// code of resources runs.
class PluginResources {
 public:
  PluginResources() = default;
  /// Releases what is left.
  ~PluginResources();
  PluginResources(const PluginResources&) = delete;
  PluginResources& operator=(const PluginResources&) = delete;

  /// The resource under `key`, with one more reference; where there is none, a clone of `resource`.
  /// Throws Error when there is none and `resource` is null or cannot be cloned, and what the
  /// clone() of a language binding left behind.
  IPluginResource* acquire(const char* key, IPluginResource* resource);
  /// Gives up a reference. Returns what release() of the resource returned, which is called with
  /// the last one, else 0. Throws Error for an unknown key, and what the release() of a language
  /// binding left behind; the resource is gone then as well.
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
