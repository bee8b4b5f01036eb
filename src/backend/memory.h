#pragma once

#include <cstddef>
#include <memory>

#include "opwright/allocator.h"

namespace opwright {

class Device;
class LastUse;

/// Memory of a device, 64-byte aligned (256 on a GPU) and uninitialized. It is freed with the
/// object, but for those who hold it (hold_memory), after the last of them; and after work that
/// uses it, for which an allocator's memory is waited for.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// At least `bytes`, from the allocator where there is one; what was there before is given up
  /// where it is too small. `last_use` is that of all who use it and do not hold it; null: not
  /// known. Throws Error as Device::allocate does. Returns whether the memory is new.
  bool grow(const Device& device, size_t bytes,
            const std::shared_ptr<IGpuAllocator>& allocator = nullptr,
            const std::shared_ptr<const LastUse>& last_use = nullptr);
  void reset() { block_.reset(); }
  /// Null while there is none.
  std::byte* data() const;
  size_t size() const;

 private:
  struct Block;
  std::shared_ptr<const Block> block_;
};

/// Memory of the host that the device copies from and to without waiting.
class PinnedMemory {
 public:
  PinnedMemory(const Device& device, size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  const Device& device_;
  std::byte* const data_;
};

/// Keeps the DeviceMemory that the address lies in for as long as the pointer is there; null for
/// memory that is no DeviceMemory. Thread safe.
std::shared_ptr<const void> hold_memory(const void* address);

}  // namespace opwright
