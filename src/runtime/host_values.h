#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"

namespace opwright {

/// Small tensors that the host computes and kernels read. They lie in the device's memory, with a
/// copy on the host where the device does not read the host's memory.
class HostValues {
 public:
  /// `last_use`: the last use of the memory by kernels; null: not known.
  HostValues(const Device& device, std::shared_ptr<const LastUse> last_use)
      : device_(device), last_use_(std::move(last_use)) {}

  /// Adds room for a tensor and returns its offset. All calls come before allocate().
  size_t add(size_t bytes);
  /// Throws Error when there is no memory.
  void allocate(const std::shared_ptr<IGpuAllocator>& allocator);
  /// The address where kernels find the tensor.
  void* address(size_t offset) const { return memory_.data() + offset; }
  /// Sets a tensor's elements. `type` is a type that values tensors have.
  void write(size_t offset, DataType type, std::span<const int64_t> elements);

  /// Whether elements changed since the last upload, and the device needs them.
  bool has_changed() const { return has_changed_; }
  /// Uploads the elements in the order of the queue.
  void upload(Queue queue);

 private:
  const Device& device_;
  const std::shared_ptr<const LastUse> last_use_;
  size_t size_ = 0;
  DeviceMemory memory_;
  std::vector<std::byte> staged_;  ///< empty where the host writes to `memory_`
  bool has_changed_ = false;
};

}  // namespace opwright
