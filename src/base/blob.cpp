#include "base/blob.h"

#include <cstdlib>

#include "base/aligned_memory.h"
#include "base/error.h"

namespace opwright {

std::shared_ptr<void> Blob::allocate(size_t size) {
  // Even 0 bytes get memory, because only an absent Blob has null data.
  if (void* memory = allocate_aligned(size)) return std::shared_ptr<void>(memory, std::free);
  fail_with(ErrorCode::kFAILED_ALLOCATION, "cannot allocate ", size, " bytes of host memory");
}

Blob Blob::copy(const void* data, size_t size) {
  return make(size, [&](void* memory) {
    if (size) std::memcpy(memory, data, size);
  });
}

}  // namespace opwright
