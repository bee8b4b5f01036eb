#include "api/timing_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "api/host_memory.h"

namespace opwright {
namespace {

static_assert(sizeof(Hash128) == sizeof(TimingCacheKey::data));

TimingCacheKey key_of(const std::string& text) {
  const Hash128 hash = hash128(std::as_bytes(std::span(text)));
  TimingCacheKey key;
  std::memcpy(key.data, hash.data(), sizeof(key.data));
  return key;
}

Hash128 hash_of(const TimingCacheKey& key) {
  Hash128 hash;
  std::memcpy(hash.data(), key.data, sizeof(key.data));
  return hash;
}

}  // namespace

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

int64_t TimingCacheApi::queryKeys(TimingCacheKey* keyBuffer, int64_t capacity) const noexcept {
  return errors_.guard<int64_t>(-1, [&] {
    require(keyBuffer == nullptr || capacity >= 0, "queryKeys: the capacity ", capacity,
            " is negative");
    const std::vector<std::string> keys = cache_->keys();
    const auto count = static_cast<int64_t>(keys.size());
    if (keyBuffer != nullptr)
      std::transform(keys.begin(), keys.begin() + std::min(count, capacity), keyBuffer, key_of);
    return count;
  });
}

TimingCacheValue TimingCacheApi::query(TimingCacheKey const& key) const noexcept {
  const TimingCacheValue none{TimingCacheValue::kINVALID_TACTIC_HASH,
                              std::numeric_limits<float>::quiet_NaN()};
  return errors_.guard(none, [&] {
    const std::optional<std::string> text = cache_->find_key(hash_of(key));
    const std::optional<TimingCache::Entry> entry = text ? cache_->query(*text) : std::nullopt;
    if (!entry) return none;
    return TimingCacheValue{static_cast<uint64_t>(entry->tactic), entry->milliseconds};
  });
}

bool TimingCacheApi::update(TimingCacheKey const& key, TimingCacheValue const& value) noexcept {
  return errors_.guard(false, [&] {
    const std::optional<std::string> text = cache_->find_key(hash_of(key));
    return text &&
           cache_->update(*text, {static_cast<int64_t>(value.tacticHash), value.timingMSec});
  });
}

}  // namespace opwright
