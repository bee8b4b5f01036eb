#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace opwright {

/// XXH3 (64 bits) of the bytes, for keys and to detect damage, not against an adversary. The result
/// is the same on every platform.
uint64_t hash_bytes(std::span<const std::byte> bytes);

}  // namespace opwright
