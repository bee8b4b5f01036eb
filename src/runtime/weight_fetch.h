#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "runtime/device_weights.h"

namespace opwright {

/// Brings streamed weights to the device, for the steps of a context in one profile. While one step
/// runs, a separate queue copies the weights of the next step into the other half of the context's
/// memory.
class WeightFetch {
 public:
  /// All arguments must outlive the object. `last_use`: the last use of the memory by the context's
  /// runs.
  WeightFetch(const Device& device, const Schedule& schedule, const DeviceWeights& weights,
              const std::shared_ptr<IGpuAllocator>& allocator,
              const std::shared_ptr<const LastUse>& last_use);

  /// The bytes of memory that a context needs for a profile.
  static size_t size(const Schedule& schedule, const DeviceWeights& weights);

  /// The address of a weight for the step; null: the weight is not streamed.
  void* address(int step, const PlanTensor& tensor) const;

  /// Exists while steps [first, last) are given to a queue, or to several queues that are joined.
  class Run {
   public:
    Run(WeightFetch& fetch, Queue queue, uint32_t first, uint32_t last);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    /// Called before the step is given to the queue, and after.
    void enter(uint32_t step, Queue queue);
    void leave(uint32_t step, Queue queue);

   private:
    void start(size_t load);

    WeightFetch& fetch_;
    const Queue queue_;
    size_t next_, end_;  ///< loads: of the next step that has one; behind the last one
  };

 private:
  /// The copies for a step.
  struct Load {
    struct Copy {
      const std::byte* from = nullptr;
      size_t offset = 0, bytes = 0;
    };
    uint32_t step = 0;
    size_t size = 0;
    std::vector<Copy> copies = {};
    std::unordered_map<const void*, size_t> offsets = {};  ///< by the weight's address in the plan
  };
  /// Memory that every second load uses.
  struct Half {
    std::byte* memory = nullptr;
    std::unique_ptr<Event> ready, free;
  };
  static std::vector<Load> loads_of(const Schedule& schedule, const DeviceWeights& weights);
  static std::array<size_t, 2> half_sizes(const std::vector<Load>& loads);
  const Load* find(uint32_t step) const;

  const Device& device_;
  const std::vector<Load> loads_;  ///< in the order of their steps
  DeviceMemory memory_;
  std::array<Half, 2> halves_;
  std::shared_ptr<void> queue_;
  std::unique_ptr<Event> begun_, ended_;
};

}  // namespace opwright
