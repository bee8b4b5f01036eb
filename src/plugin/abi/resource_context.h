#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "backend/last_use.h"
#include "network/operator.h"
#include "opwright/allocator.h"
#include "opwright/plugin_base.h"
#include "plugin/kernel/kernel_communicator.h"

namespace opwright {

/// Memory of a kernel's device for plugins that allocate memory themselves. The destructor frees
/// remaining blocks. Thread safe.
class DeviceAllocator final : public IGpuAllocator {
 public:
  /// Without a device there is no memory. `last_use`: last use of blocks that remain at the end;
  /// null: not known.
  explicit DeviceAllocator(const Device* device, std::shared_ptr<const LastUse> last_use = nullptr)
      : device_(device), last_use_(std::move(last_use)) {}
  ~DeviceAllocator() override;

  /// Null when there is not enough memory, or the alignment is not a power of two.
  void* allocate(uint64_t size, uint64_t alignment, AllocatorFlags flags) noexcept override;
  /// False for an address that allocate() did not return.
  bool deallocate(void* memory) noexcept override;

 private:
  const Device* const device_;
  const std::shared_ptr<const LastUse> last_use_;
  std::mutex mutex_;
  std::unordered_map<void*, void*> blocks_;  ///< the device's block, by the aligned address
};

/// Throws Error when the device cannot give a plugin `bytes` of workspace. The message begins with
/// `owner`.
void require_workspace(const Device* device, size_t bytes, std::string_view owner);

/// The context that a kernel's plugin gets in attachToContext(). It outlives the plugin.
class ResourceContext final : public IPluginResourceContext {
 public:
  ResourceContext(const KernelArgs& args, std::shared_ptr<KernelCommunicator> communicator);
  IGpuAllocator* getGpuAllocator() const noexcept override { return allocator_.get(); }
  IErrorRecorder* getErrorRecorder() const noexcept override {
    return services_ != nullptr ? services_->recorder : nullptr;
  }

  /// The communicator of the execution context.
  const std::shared_ptr<KernelCommunicator>& communicator() const { return communicator_; }
  /// Keeps why the plugin did not get the communicator, for the error of a call that fails.
  void note_refusal(std::string reason) const { refusal_ = std::move(reason); }
  /// The reason, which is then forgotten.
  std::string take_refusal() const { return std::exchange(refusal_, {}); }

 private:
  const PluginServices* const services_;
  const std::shared_ptr<IGpuAllocator> allocator_;
  const std::shared_ptr<KernelCommunicator> communicator_;
  mutable std::string refusal_;
};

}  // namespace opwright
