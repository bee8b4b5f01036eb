#pragma once

#include <cstddef>
#include <memory>

#include "opwright/allocator.h"

namespace opwright {

class Device;
class LastUse;

/// Memory of a device, 64-byte aligned (256 on a GPU) and uninitialized. It is freed when the
/// object and all who hold the memory (hold_memory) are gone, and after the work that uses it.
/// Before it goes back to an allocator, the host waits for that work.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Makes the memory at least `bytes` long, from the allocator where there is one. Memory that is
  /// too small is given up first. `last_use` covers all users that do not hold the memory; null:
  /// not known. Throws Error as Device::allocate does. Returns whether the memory is new.
  bool grow(const Device& device, size_t bytes,
            const std::shared_ptr<IGpuAllocator>& allocator = nullptr,
            const std::shared_ptr<const LastUse>& last_use = nullptr);
  void reset() { block_.reset(); }
  /// Null while there is no memory.
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

/// Keeps the DeviceMemory at the address alive as long as the returned pointer. Null where the
/// address is in no DeviceMemory. Thread safe.
std::shared_ptr<const void> hold_memory(const void* address);

}  // namespace opwright
