#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "backend/last_use.h"
#include "network/operator.h"
#include "opwright/allocator.h"
#include "opwright/plugin_base.h"

namespace opwright {

/// Memory of the device that a kernel runs on, for plugins that want their own. Blocks that are
/// left are freed at the end. Thread safe.
class DeviceAllocator final : public IGpuAllocator {
 public:
  /// Without a device there is no memory. `last_use` is that of blocks that are left at the end;
  /// null: not known.
  explicit DeviceAllocator(const Device* device, std::shared_ptr<const LastUse> last_use = nullptr)
      : device_(device), last_use_(std::move(last_use)) {}
  ~DeviceAllocator() override;

  /// Null when there is not enough memory, or the alignment is no power of two.
  void* allocate(uint64_t size, uint64_t alignment, AllocatorFlags flags) noexcept override;
  /// False for what allocate() did not return.
  bool deallocate(void* memory) noexcept override;

 private:
  const Device* const device_;
  const std::shared_ptr<const LastUse> last_use_;
  std::mutex mutex_;
  std::unordered_map<void*, void*> blocks_;  ///< what the device gave, by the aligned address
};

/// Throws Error that begins with `owner` when the device cannot give a plugin that much workspace.
void require_workspace(const Device* device, size_t bytes, std::string_view owner);

/// What a kernel's plugin gets in attachToContext(); outlives the plugin.
class ResourceContext final : public IPluginResourceContext {
 public:
  explicit ResourceContext(const KernelArgs& args);
  IGpuAllocator* getGpuAllocator() const noexcept override { return allocator_.get(); }
  IErrorRecorder* getErrorRecorder() const noexcept override {
    return services_ != nullptr ? services_->recorder : nullptr;
  }

 private:
  const PluginServices* const services_;
  const std::shared_ptr<IGpuAllocator> allocator_;
};

}  // namespace opwright
