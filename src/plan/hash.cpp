#include "plan/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "plan/format.h"

namespace opwright {
namespace {

Hash128 value(XXH128_hash_t hash) { return {hash.low64, hash.high64}; }

}  // namespace

Hash128 hash128(std::span<const std::byte> bytes) {
  return value(XXH3_128bits(bytes.data(), bytes.size()));
}

Hash128 hash_chunks(std::span<const Blob> pieces) {
  std::vector<uint64_t> ends;  // end of each piece within the section
  uint64_t size = 0;
  for (const Blob& piece : pieces) ends.push_back(size += piece.size());

  constexpr uint64_t kChunk = PlanHeader::kHashChunk;
  std::vector<Hash128> hashes((size + kChunk - 1) / kChunk);
  parallel_for(static_cast<int64_t>(hashes.size()), 1, [&](int64_t first, int64_t last) {
    XXH3_state_t state;
    for (int64_t chunk = first; chunk < last; ++chunk) {
      uint64_t position = chunk * kChunk;
      const uint64_t end = std::min(size, position + kChunk);
      XXH3_128bits_reset(&state);
      size_t piece = std::upper_bound(ends.begin(), ends.end(), position) - ends.begin();
      while (position < end) {
        const uint64_t start = ends[piece] - pieces[piece].size();
        const uint64_t count = std::min(end, ends[piece]) - position;
        XXH3_128bits_update(&state, pieces[piece].data() + (position - start), count);
        position += count;
        ++piece;
      }
      hashes[chunk] = value(XXH3_128bits_digest(&state));
    }
  });
  return hash128(std::as_bytes(std::span(hashes)));
}

}  // namespace opwright
