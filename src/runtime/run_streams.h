#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "plan/plan.h"

namespace opwright {

/// The groups of a run's steps that run concurrently (plan/stream_groups.h). The memory that a step
/// reads and writes decides which steps it waits for, whatever the plan says of streams. So results
/// are those of a run in order.
class RunStreams {
 public:
  /// `may_move`: per step, whether it may join a group that the plan has.
  RunStreams(const Device& device, const Plan& plan, const Schedule& schedule,
             const std::vector<bool>& may_move);

  /// The number of the first step behind the step's group. For a step without a group: the next
  /// step.
  uint32_t end_of_group(uint32_t step) const;
  /// The application's queues, which runs use before those of the context.
  void set_queues(std::span<const Queue> queues);

  /// The owner of the queues that are used beside that of a run.
  enum class Owner : uint8_t { kAnybody, kContext };
  /// Exists while steps up to `last` are given to a queue and to those beside it. At the end of
  /// each group those queues are joined with the first, also when an exception ends the group.
  class Fork {
   public:
    Fork(RunStreams& streams, Queue queue, uint32_t last, Owner owner)
        : streams_(streams), queue_(queue), last_(last), owner_(owner) {}
    ~Fork();
    Fork(const Fork&) = delete;
    Fork& operator=(const Fork&) = delete;
    /// The queue for the step. The queue waits for the steps that this step depends on.
    Queue enter(uint32_t step);
    /// Called when the step has been given to its queue.
    void leave(uint32_t step);

   private:
    void join();
    Queue queue_of(int32_t stream) const;

    RunStreams& streams_;
    const Queue queue_;
    const uint32_t last_;
    const Owner owner_;
    uint32_t group_end_ = 0;  ///< end of the last step's group
    uint32_t used_ = 0;       ///< a bit per stream
  };

 private:
  struct Place {
    int32_t stream = kAlone;
    uint32_t first = 0, end = 0;  ///< the step's group
    std::vector<uint32_t> waits = {};
    std::unique_ptr<Event> ended = {};  ///< null: no other step waits for this one
  };
  void add_group(const Plan& plan, const Schedule& schedule, uint32_t first, uint32_t end);

  const Device& device_;
  std::vector<Place> places_;
  std::unique_ptr<Event> begun_;  ///< the point that a group's queues wait for first
  // By stream, without the run's own stream.
  std::vector<std::shared_ptr<void>> own_;
  std::vector<std::unique_ptr<Event>> joins_;
  std::vector<Queue> given_;
};

}  // namespace opwright
