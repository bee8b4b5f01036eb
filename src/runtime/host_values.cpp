#include "runtime/host_values.h"

#include <array>
#include <cstring>

#include "base/half.h"
#include "base/types.h"

namespace opwright {
namespace {

constexpr size_t kCacheLine = 64;

}  // namespace

size_t HostValues::add(size_t bytes) {
  const size_t offset = size_;
  // Each tensor begins on a cache line, and has an address even without elements.
  size_ += (bytes / kCacheLine + 1) * kCacheLine;
  return offset;
}

void HostValues::allocate(const std::shared_ptr<IGpuAllocator>& allocator) {
  if (size_ == 0) return;
  memory_.grow(device_, size_, allocator, last_use_);
  if (device_.is_host()) {
    std::memset(memory_.data(), 0, size_);
    return;
  }
  staged_.resize(size_);
  has_changed_ = true;
}

void HostValues::write(size_t offset, DataType type, std::span<const int64_t> elements) {
  const auto size = static_cast<size_t>(bytes_of(type, 1));
  std::byte* to = (staged_.empty() ? memory_.data() : staged_.data()) + offset;
  for (const int64_t& element : elements) {
    std::array<std::byte, sizeof(int64_t)> bytes;
    convert(&element, DataType::kINT64, bytes.data(), type, 1);
    if (std::memcmp(to, bytes.data(), size) != 0) {
      std::memcpy(to, bytes.data(), size);
      has_changed_ = !staged_.empty();
    }
    to += size;
  }
}

void HostValues::upload(Queue queue) {
  device_.copy(memory_.data(), staged_.data(), size_, queue);
  has_changed_ = false;
}

}  // namespace opwright
