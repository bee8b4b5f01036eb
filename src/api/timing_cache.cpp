#include "api/timing_cache.h"

#include "runtime/api_host_memory.h"

namespace opwright {

IHostMemory* TimingCacheApi::serialize() const noexcept {
  return errors_.guard<IHostMemory*>(nullptr,
                                     [&] { return new HostMemoryApi(cache_->serialize()); });
}

bool TimingCacheApi::combine(ITimingCache const& inputCache, bool ignoreMismatch) noexcept {
  return errors_.run([&] {
    cache_->combine(*static_cast<const TimingCacheApi&>(inputCache).cache_, ignoreMismatch);
  });
}

bool TimingCacheApi::reset() noexcept {
  cache_->clear();
  return true;
}

}  // namespace opwright
