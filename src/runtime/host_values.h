#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"

namespace opwright {

/// Small tensors that the host computes and kernels read: in memory of the device, with a copy on
/// the host where the device does not read that.
class HostValues {
 public:
  /// `last_use` is that of the kernels; null: not known.
  HostValues(const Device& device, std::shared_ptr<const LastUse> last_use)
      : device_(device), last_use_(std::move(last_use)) {}

  /// Room for a tensor; its offset. All of them are added before allocate().
  size_t add(size_t bytes);
  /// Throws Error when there is no memory.
  void allocate(const std::shared_ptr<IGpuAllocator>& allocator);
  /// Where kernels find it.
  void* address(size_t offset) const { return memory_.data() + offset; }
  /// Sets the elements of a tensor of a type that values have.
  void write(size_t offset, DataType type, std::span<const int64_t> elements);

  /// Whether something was written since the last upload and must be uploaded.
  bool has_changed() const { return has_changed_; }
  /// Uploads in the order of the queue.
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
