#pragma once

#include <memory>
#include <unordered_map>

#include "backend/last_use.h"
#include "backend/memory.h"
#include "plan/plan.h"

namespace opwright {

/// Where kernels find a plan's weights: in the plan itself where the device reads the host's
/// memory, else in one block of device memory, which equal weights share.
class DeviceWeights {
 public:
  /// Uploads them where they must be, and returns when they are there; throws Error when there is
  /// no memory. The plan outlives the object.
  DeviceWeights(const Plan& plan, const Device& device,
                const std::shared_ptr<IGpuAllocator>& allocator);

  /// Of a tensor of location kWeight; never null.
  void* address(const PlanTensor& tensor) const;
  /// An address for tensors without elements that have no other.
  void* empty() const { return empty_; }
  /// Contexts wait for their work before they go, and the engine goes later, so that its memory is
  /// not used by then; but for work that nobody can wait for (LastUse::lose).
  void lose_last_use() const noexcept { last_use_->lose(); }

 private:
  void* empty_;
  std::shared_ptr<LastUse> last_use_;  ///< null on the host
  DeviceMemory memory_;
  std::unordered_map<const void*, void*> moved_;  ///< by their address in the plan
};

}  // namespace opwright
