#pragma once

#include <cstddef>

namespace opwright {

/// Uninitialized memory, aligned to 64 bytes, to be given to std::free(); null when there is none.
/// Memory for no bytes is no null pointer either. Large blocks ask for huge pages, as touching 4
/// KiB pages for the first time can take longer than a whole run of a model.
void* allocate_aligned(size_t size) noexcept;

}  // namespace opwright
