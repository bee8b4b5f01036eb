#pragma once

#include <memory>
#include <unordered_map>

#include "backend/last_use.h"
#include "backend/memory.h"
#include "plan/plan.h"

namespace opwright {

/// Where kernels find a plan's weights. If the device reads the host's memory, the weights stay in
/// the plan. Otherwise they lie in one block of device memory, and equal weights share their bytes.
/// Weights that do not fit into the block lie in host memory, from which the device copies them
/// (WeightFetch).
class DeviceWeights {
 public:
  /// The size of weights of `bytes` bytes, rounded up so that the memory behind them is aligned.
  static size_t aligned(size_t bytes);
  /// The bytes of weights that may be streamed: those that only steps read, in a plan that was
  /// built for streaming.
  static size_t streamable(const Plan& plan);

  /// Uploads the weights that belong on the device and returns when they are there. Throws Error
  /// when there is no memory. The plan outlives the object.
  /// \param budget bytes on the device for streamable weights; the smallest weights get them
  DeviceWeights(const Plan& plan, const Device& device,
                const std::shared_ptr<IGpuAllocator>& allocator, size_t budget);

  /// Address of a tensor of location kWeight that is not streamed; never null.
  void* address(const PlanTensor& tensor) const;
  /// The host memory from which the device copies the tensor; null for a tensor that is not
  /// streamed.
  const std::byte* streamed(const PlanTensor& tensor) const;
  /// The bytes of weights that may be streamed but lie on the device.
  size_t resident() const { return resident_; }
  /// An address for tensors without elements that have no other address.
  void* empty() const { return empty_; }
  /// Says that work which nobody can wait for (LastUse::lose) may use the weights. Otherwise no
  /// work uses them when the engine goes: contexts wait for their work before they go, and the
  /// engine goes later.
  void lose_last_use() const noexcept { last_use_->lose(); }

 private:
  void* empty_;
  std::shared_ptr<LastUse> last_use_;  ///< null on the host
  DeviceMemory memory_;
  std::unordered_map<const void*, void*> moved_;                ///< by address in the plan
  std::unique_ptr<PinnedMemory> host_;                          ///< null: no weights are streamed
  std::unordered_map<const void*, const std::byte*> streamed_;  ///< by address in the plan
  size_t resident_ = 0;
};

}  // namespace opwright
