#include "backend/library_handles.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace opwright {
namespace {

std::atomic<MakeLibraryHandles> make_handles{nullptr};

struct HandlesOfContexts {
  std::mutex mutex;
  std::map<std::pair<const Device*, const void*>, std::weak_ptr<const LibraryHandles>> handles;
};
/// Never destroyed, as contexts may end at the very end.
HandlesOfContexts& handles_of_contexts() {
  static auto* const all = new HandlesOfContexts;
  return *all;
}

}  // namespace

void set_library_handles(MakeLibraryHandles make) noexcept { make_handles = make; }

std::shared_ptr<const LibraryHandles> library_handles(const Device* device, const void* context) {
  const MakeLibraryHandles make = make_handles;
  if (device == nullptr || device->is_host() || make == nullptr) return nullptr;
  if (context == nullptr) return make(*device);
  HandlesOfContexts& all = handles_of_contexts();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.handles, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const LibraryHandles>& known = all.handles[{device, context}];
  std::shared_ptr<const LibraryHandles> handles = known.lock();
  if (handles == nullptr) known = handles = make(*device);
  return handles;
}

}  // namespace opwright
