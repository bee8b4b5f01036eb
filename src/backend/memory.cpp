#include "backend/memory.h"

#include <map>
#include <mutex>

#include "backend/device.h"
#include "backend/last_use.h"
#include "base/error.h"
#include "base/library.h"

namespace opwright {

struct DeviceMemory::Block {
  const Device& device;
  std::byte* data;
  size_t size;
  std::shared_ptr<IGpuAllocator> allocator;  ///< null: from the device
  std::shared_ptr<const LastUse> last_use;   ///< null: the last use is not known
  ~Block();
};

namespace {

std::byte* allocate(const Device& device, size_t bytes, IGpuAllocator* allocator) {
  if (allocator == nullptr) return static_cast<std::byte*>(device.allocate(bytes));
  const uint64_t alignment = device.is_host() ? 64 : 256;
  void* memory = allocator->allocate(bytes, alignment, 0);
  if (memory == nullptr)
    fail_with(ErrorCode::kFAILED_ALLOCATION, "the application's allocator gave no memory for ",
              bytes, " bytes");
  if (reinterpret_cast<uintptr_t>(memory) % alignment != 0) {
    allocator->deallocate(memory);
    fail_with(ErrorCode::kFAILED_ALLOCATION, "the application's allocator gave the address ",
              memory, " for ", bytes, " bytes, which is not aligned to ", alignment,
              " bytes as it was asked to be");
  }
  return static_cast<std::byte*>(memory);
}

/// A block of device memory; the map's key is its address.
struct Known {
  size_t bytes = 0;
  std::weak_ptr<const void> block;
  bool was_held = false;  ///< others may have given work to the device that uses the block
};
struct Blocks {
  LibraryLock mutex;
  std::map<const std::byte*, Known> by_address;
};
Blocks& blocks() { return Library::part<Blocks>(); }

}  // namespace

DeviceMemory::Block::~Block() {
  bool was_held = false;
  {
    const std::lock_guard lock(blocks().mutex);
    const auto known = blocks().by_address.find(data);
    was_held = known->second.was_held;
    blocks().by_address.erase(known);
  }
  Event* const event = was_held || last_use == nullptr ? nullptr : last_use->event();
  if (allocator != nullptr) {
    // The allocator's next user may write to the memory in any order.
    device.wait_for(event);
    allocator->deallocate(data);
  } else if (event != nullptr) {
    device.free_after(data, *event);
  } else {
    device.free(data);
  }
}

bool DeviceMemory::grow(const Device& device, size_t bytes,
                        const std::shared_ptr<IGpuAllocator>& allocator,
                        const std::shared_ptr<const LastUse>& last_use) {
  if (bytes <= size()) return false;
  block_.reset();
  std::byte* const data = allocate(device, bytes, allocator.get());
  const std::lock_guard lock(blocks().mutex);
  Known& known = blocks().by_address[data];
  block_.reset(new Block{device, data, bytes, allocator, last_use});
  known = {bytes, block_, false};
  return true;
}

std::byte* DeviceMemory::data() const { return block_ == nullptr ? nullptr : block_->data; }

size_t DeviceMemory::size() const { return block_ == nullptr ? 0 : block_->size; }

PinnedMemory::PinnedMemory(const Device& device, size_t bytes)
    : device_(device), data_(static_cast<std::byte*>(device.allocate_host(bytes))) {}

PinnedMemory::~PinnedMemory() { device_.free_host(data_); }

std::shared_ptr<const void> hold_memory(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(blocks().mutex);
  auto next = blocks().by_address.upper_bound(byte);
  if (next == blocks().by_address.begin()) return nullptr;
  auto& [begin, known] = *--next;
  if (byte >= begin + known.bytes) return nullptr;
  std::shared_ptr<const void> block = known.block.lock();
  known.was_held |= block != nullptr;
  return block;
}

}  // namespace opwright
