#include "compile/timed_kernels.h"

#include <algorithm>

#include "base/types.h"

namespace opwright {

void WithSizes::enqueue(void const* const* inputs, void* const* outputs, void* workspace,
                        Queue queue) {
  for (const auto& [output, type] : sizes_)
    device_.copy(outputs[output], zero_, static_cast<size_t>(bytes_of(type, 1)), queue);
  kernel_.enqueue(inputs, outputs, workspace, queue);
}

void WithCopies::enqueue(void const* const*, void* const* outputs, void* workspace, Queue queue) {
  for (const auto& [input, copies] : copies_) inputs_[input] = copies[run_ % copies.size()];
  ++run_;
  kernel_.enqueue(inputs_.data(), outputs, workspace, queue);
}

size_t count_copies(const Device& device, uint64_t bytes) {
  constexpr size_t kMost = 64;
  size_t count = 1;
  while (count < kMost && device.cache_level(count * bytes) != CacheLevel::kMemory) ++count;
  // The extra copies push the first ones out of the caches.
  return count == 1 ? 1 : std::min(kMost, count + count / 2);
}

}  // namespace opwright
