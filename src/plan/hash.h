#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/blob.h"

namespace opwright {

/// XXH3 with 128 bits, low half first.
using Hash128 = std::array<uint64_t, 2>;

Hash128 hash128(std::span<const std::byte> bytes);

/// The hash of a section that is given in pieces. It covers the hashes of the section's chunks of
/// PlanHeader::kHashChunk bytes, in order, so that threads can share the work.
Hash128 hash_chunks(std::span<const Blob> pieces);

}  // namespace opwright
