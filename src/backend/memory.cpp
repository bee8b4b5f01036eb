#include "backend/memory.h"

#include <map>
#include <mutex>

#include "backend/device.h"

namespace opwright {

struct DeviceMemory::Block {
  const Device& device;
  std::byte* data;
  size_t size;
};

namespace {

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

bool DeviceMemory::grow(const Device& device, size_t bytes) {
  if (bytes <= size()) return false;
  block_.reset();
  auto* data = static_cast<std::byte*>(device.allocate(bytes));
  block_ = std::shared_ptr<const Block>(new Block{device, data, bytes}, [](const Block* block) {
    {
      const std::lock_guard lock(blocks().mutex);
      blocks().by_address.erase(block->data);
    }
    block->device.free(block->data);
    delete block;
  });
  const std::lock_guard lock(blocks().mutex);
  blocks().by_address[data] = {bytes, block_};
  return true;
}

std::byte* DeviceMemory::data() const { return block_ == nullptr ? nullptr : block_->data; }

size_t DeviceMemory::size() const { return block_ == nullptr ? 0 : block_->size; }

std::shared_ptr<const void> hold_memory(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(blocks().mutex);
  auto next = blocks().by_address.upper_bound(byte);
  if (next == blocks().by_address.begin()) return nullptr;
  const auto& [begin, block] = *--next;
  return byte < begin + block.first ? block.second.lock() : nullptr;
}

}  // namespace opwright
