#include "base/aligned_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <limits>

namespace opwright {

void* allocate_aligned(size_t size) noexcept {
  constexpr size_t kHugePage = size_t{1} << 21;
  const bool is_large = size >= kHugePage;
  const size_t alignment = is_large ? kHugePage : 64;
  if (size > std::numeric_limits<size_t>::max() - alignment) return nullptr;
  const size_t rounded = aligned_size(size + (size == 0));
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, rounded) != 0) return nullptr;
  // Huge pages are only advice; the memory is usable without.
  if (is_large) (void)madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

}  // namespace opwright
