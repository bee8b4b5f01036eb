#pragma once

#include <cstddef>

namespace opwright {

/// Allocates uninitialized memory, aligned to 64 bytes, for std::free(). Returns null when there is
/// none; for 0 bytes the pointer is not null. Large blocks ask for huge pages, as touching 4 KiB
/// pages for the first time can take longer than a whole run of a model.
void* allocate_aligned(size_t size) noexcept;
/// A size rounded up so that each part of a workspace begins on a cache line.
constexpr size_t aligned_size(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace opwright
