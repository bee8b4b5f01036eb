#pragma once

#include <cstddef>

namespace opwright {

/// Allocates uninitialized memory, aligned to 64 bytes, for std::free(). Returns null when there is
/// none; for 0 bytes the pointer is not null. Large blocks ask for huge pages, as touching 4 KiB
/// pages for the first time can take longer than a whole run of a model.
void* allocate_aligned(size_t size) noexcept;

}  // namespace opwright
