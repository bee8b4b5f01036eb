#include "plugin/abi/resource_context.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "base/error.h"

namespace opwright {

namespace {

constexpr uint64_t kDeviceAlignment = 64;  // the alignment of Device::allocate()

std::shared_ptr<IGpuAllocator> allocator_for(const KernelArgs& args) {
  if (args.services == nullptr) return std::make_shared<DeviceAllocator>(args.device);
  if (args.services->allocator != nullptr) return args.services->allocator;
  return std::make_shared<DeviceAllocator>(args.device, args.services->last_use);
}

}  // namespace

DeviceAllocator::~DeviceAllocator() {
  Event* const event = last_use_ == nullptr ? nullptr : last_use_->event();
  for (const auto& [memory, block] : blocks_)
    event != nullptr ? device_->free_after(block, *event) : device_->free(block);
}

void* DeviceAllocator::allocate(uint64_t size, uint64_t alignment, AllocatorFlags) noexcept {
  if (device_ == nullptr || size == 0 || std::popcount(alignment) > 1) return nullptr;
  alignment = std::max(alignment, kDeviceAlignment);
  const uint64_t padding = alignment - kDeviceAlignment;
  if (size > UINT64_MAX - padding) return nullptr;
  void* block = nullptr;
  try {
    block = device_->allocate(size + padding);
    const auto address = reinterpret_cast<uintptr_t>(block);
    void* const memory = reinterpret_cast<void*>((address + alignment - 1) & ~(alignment - 1));
    const std::lock_guard lock(mutex_);
    blocks_.emplace(memory, block);
    return memory;
  } catch (const std::exception&) {
    if (block != nullptr) device_->free(block);
    return nullptr;
  }
}

bool DeviceAllocator::deallocate(void* memory) noexcept {
  if (memory == nullptr) return true;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return false;
  device_->free(found->second);
  blocks_.erase(found);
  return true;
}

void require_workspace(const Device* device, size_t bytes, std::string_view owner) {
  if (device == nullptr || bytes == 0) return;
  try {
    device->free(device->allocate(bytes));
  } catch (const Error&) {
    fail_with(ErrorCode::kFAILED_ALLOCATION, owner, "getWorkspaceSize() returned ", bytes,
              " bytes, which the device cannot provide; it must be what suffices for the largest "
              "shapes of the profile");
  }
}

ResourceContext::ResourceContext(const KernelArgs& args,
                                 std::shared_ptr<KernelCommunicator> communicator)
    : services_(args.services),
      allocator_(allocator_for(args)),
      communicator_(std::move(communicator)) {}

}  // namespace opwright
