#include "backend/library_handles.h"

#include <map>
#include <mutex>
#include <utility>

#include "backend/backend.h"
#include "base/library.h"

namespace opwright {
namespace {

struct HandlesOfContexts {
  LibraryLock mutex{LockOrder::kLibraryHandles};
  std::map<std::pair<const Device*, const void*>, std::weak_ptr<const LibraryHandles>> handles;
};
}  // namespace

std::shared_ptr<const LibraryHandles> library_handles(const Device* device, const void* context) {
  if (device == nullptr || device->is_host()) return nullptr;
  const auto make = [&] { return device->backend().make_library_handles(*device); };
  if (context == nullptr) return make();
  auto& all = Library::part<HandlesOfContexts>();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.handles, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const LibraryHandles>& known = all.handles[{device, context}];
  std::shared_ptr<const LibraryHandles> handles = known.lock();
  if (handles == nullptr) known = handles = make();
  return handles;
}

}  // namespace opwright
