#pragma once

#include <memory>

#include "api/border.h"
#include "compile/timing_cache.h"
#include "opwright/builder.h"

namespace opwright {

/// The public face of a TimingCache.
class TimingCacheApi final : public ITimingCache {
 public:
  TimingCacheApi(std::shared_ptr<TimingCache> cache, Log log)
      : cache_(std::move(cache)), errors_(log) {}

  const std::shared_ptr<TimingCache>& cache() const { return cache_; }

  IHostMemory* serialize() const noexcept override;
  bool combine(ITimingCache const& inputCache, bool ignoreMismatch) noexcept override;
  bool reset() noexcept override;
  int64_t queryKeys(TimingCacheKey* keyBuffer, int64_t capacity) const noexcept override;
  TimingCacheValue query(TimingCacheKey const& key) const noexcept override;
  bool update(TimingCacheKey const& key, TimingCacheValue const& value) noexcept override;

 private:
  std::shared_ptr<TimingCache> cache_;
  ErrorReport errors_;
};

}  // namespace opwright
