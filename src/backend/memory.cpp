#include "backend/memory.h"

#include <map>
#include <mutex>

#include "backend/device.h"
#include "base/error.h"

namespace opwright {

struct DeviceMemory::Block {
  const Device& device;
  std::byte* data;
  size_t size;
  std::shared_ptr<IGpuAllocator> allocator;  ///< null: the device
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

/// What there is, by its address.
struct Blocks {
  std::mutex mutex;
  std::map<const std::byte*, std::pair<size_t, std::weak_ptr<const void>>> by_address;
};
Blocks& blocks() {
  static auto* instance = new Blocks;  // never destroyed: memory may be freed until the end
  return *instance;
}

}  // namespace

bool DeviceMemory::grow(const Device& device, size_t bytes,
                        const std::shared_ptr<IGpuAllocator>& allocator) {
  if (bytes <= size()) return false;
  block_.reset();
  std::byte* const data = allocate(device, bytes, allocator.get());
  block_ = std::shared_ptr<const Block>(new Block{device, data, bytes, allocator},
                                        [](const Block* block) {
                                          {
                                            const std::lock_guard lock(blocks().mutex);
                                            blocks().by_address.erase(block->data);
                                          }
                                          if (block->allocator != nullptr)
                                            block->allocator->deallocate(block->data);
                                          else
                                            block->device.free(block->data);
                                          delete block;
                                        });
  const std::lock_guard lock(blocks().mutex);
  blocks().by_address[data] = {bytes, block_};
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
  const auto& [begin, block] = *--next;
  return byte < begin + block.first ? block.second.lock() : nullptr;
}

}  // namespace opwright
