#include "base/blob.h"

#include <cstdlib>
#include <limits>

#include "base/error.h"

namespace opwright {

std::shared_ptr<void> Blob::allocate(size_t size) {
  constexpr size_t kAlignment = 64;
  if (size <= std::numeric_limits<size_t>::max() - kAlignment) {
    // Memory also for no bytes: only an absent Blob has null data.
    const size_t rounded = (size + (size == 0) + kAlignment - 1) / kAlignment * kAlignment;
    if (void* memory = std::aligned_alloc(kAlignment, rounded))
      return std::shared_ptr<void>(memory, std::free);
  }
  fail_with(ErrorCode::kFAILED_ALLOCATION, "cannot allocate ", size, " bytes of host memory");
}

Blob Blob::copy(const void* data, size_t size) {
  return make(size, [&](void* memory) {
    if (size) std::memcpy(memory, data, size);
  });
}

}  // namespace opwright
