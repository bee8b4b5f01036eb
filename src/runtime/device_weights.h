#pragma once

#include <memory>
#include <unordered_map>

#include "backend/last_use.h"
#include "backend/memory.h"
#include "plan/plan.h"

namespace opwright {

/// Where kernels find a plan's weights: in the plan itself where the device reads the host's
/// memory, else in one block of device memory, which equal weights share. Those that the block has
/// no room for lie in memory of the host that the device copies from (WeightFetch).
class DeviceWeights {
 public:
  /// The bytes that weights have room in, as memory that may begin behind them is aligned.
  static size_t aligned(size_t bytes);
  /// The bytes that the weights take which may be streamed: those that steps alone read, of a plan
  /// that was built for it.
  static size_t streamable(const Plan& plan);

  /// Uploads them where they must be, and returns when they are there; throws Error when there is
  /// no memory. The plan outlives the object. \param budget of bytes, for those that may be
  /// streamed: the smallest ones get them
  DeviceWeights(const Plan& plan, const Device& device,
                const std::shared_ptr<IGpuAllocator>& allocator, size_t budget);

  /// Of a tensor of location kWeight that is not streamed; never null.
  void* address(const PlanTensor& tensor) const;
  /// Where the device copies the tensor from; null for one that is not streamed.
  const std::byte* streamed(const PlanTensor& tensor) const;
  /// The bytes of those that may be streamed and lie on the device.
  size_t resident() const { return resident_; }
  /// An address for tensors without elements that have no other.
  void* empty() const { return empty_; }
  /// Contexts wait for their work before they go, and the engine goes later, so that its memory is
  /// not used by then; but for work that nobody can wait for (LastUse::lose).
  void lose_last_use() const noexcept { last_use_->lose(); }

 private:
  void* empty_;
  std::shared_ptr<LastUse> last_use_;  ///< null on the host
  DeviceMemory memory_;
  std::unordered_map<const void*, void*> moved_;                ///< by their address in the plan
  std::unique_ptr<PinnedMemory> host_;                          ///< null: nothing is streamed
  std::unordered_map<const void*, const std::byte*> streamed_;  ///< by their address in the plan
  size_t resident_ = 0;
};

}  // namespace opwright
