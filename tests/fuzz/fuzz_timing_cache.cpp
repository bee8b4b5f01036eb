// Reads damaged timing caches: an Error, or a cache that can be asked, joined and written again.
// The hash is made right first, as chance would not find it.

#include <xxhash.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "compile/timing_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwright;
  constexpr size_t kHash = 12, kBody = 28;  // behind magic and version, and behind the hash
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes, bytes + size);
  static const std::vector<std::byte> valid = [] {
    TimingCache cache("a device");
    cache.insert("Convolution|1x2|7|jit", 1.5f);
    cache.insert("Softmax|3|-1|", 2);
    return cache.serialize();
  }();
  if (size < kBody) file = valid;
  std::memcpy(file.data(), valid.data(), kHash);
  const XXH128_hash_t hash = XXH3_128bits(file.data() + kBody, file.size() - kBody);
  std::memcpy(file.data() + kHash, &hash.low64, 8);
  std::memcpy(file.data() + kHash + 8, &hash.high64, 8);
  try {
    const std::unique_ptr<TimingCache> cache = TimingCache::deserialize(file);
    for (const std::string& key : cache->keys()) {
      if (!cache->find(key) || !cache->query(key)) std::abort();
      cache->update(key, *cache->query(key));
    }
    TimingCache other(cache->device_identity());
    other.combine(*cache, false);
    if (TimingCache::deserialize(other.serialize())->size() != cache->size()) std::abort();
  } catch (const Error& error) {
    if (std::strlen(error.what()) == 0) std::abort();
  }
  return 0;
}
