#include "plugin/registry/plugin_resources.h"

#include "base/error.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/plugin_library.h"

namespace opwright {

PluginResources::~PluginResources() {
  for (const auto& [key, entry] : entries_)
    call_plugin_quietly([&resource = *entry.object] { resource.release(); });
}

IPluginResource* PluginResources::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  ++found->second.references;
  return found->second.object.get();
}

IPluginResource* PluginResources::acquire(const char* key, IPluginResource* resource) {
  require(key != nullptr, "the key of a plugin resource is null");
  if (IPluginResource* shared = find(key)) return shared;
  require(resource != nullptr, "there is no plugin resource under the key '", key,
          "' yet, and none is given");
  Entry made;
  made.code = keep_code(*resource);
  call_plugin("", [&] { made.object.reset(resource->clone()); });
  require(made.object != nullptr, "clone() of the plugin resource for the key '", key,
          "' returned null; it must return a resource, which the registry keeps");
  if (made.object.get() == resource) {
    (void)made.object.release();
    fail("clone() of the plugin resource for the key '", key,
         "' returned the resource itself; it must return a new one, which the registry keeps");
  }
  made.references = 1;
  {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = entries_.try_emplace(key);
    if (is_new) {
      entry->second = std::move(made);
      return entry->second.object.get();
    }
    ++entry->second.references;
    resource = entry->second.object.get();
  }
  // Another thread has made the resource first.
  call_plugin("", [&] { made.object->release(); });
  return resource;
}

int32_t PluginResources::release(const char* key) {
  require(key != nullptr, "the key of a plugin resource is null");
  Entry last;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    require(found != entries_.end(), "there is no plugin resource under the key '", key,
            "'; it was never acquired, or released as often as it was acquired");
    if (--found->second.references > 0) return 0;
    last = std::move(found->second);
    entries_.erase(found);
  }
  return call_plugin("", [&] {
    const int32_t status = last.object->release();
    last.object.reset();
    return status;
  });
}

}  // namespace opwright
