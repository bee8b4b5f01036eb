#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "plan/plan.h"

namespace opwright {

/// The groups of steps of a run that run beside each other (plan/streams.h). What each of them
/// waits for follows from the memory that it reads and writes, whatever the plan says of streams:
/// results are those of a run in order.
class RunStreams {
 public:
  /// `may_move`: per step, whether it may be in a group, where the plan has one.
  RunStreams(const Device& device, const Plan& plan, const Schedule& schedule,
             const std::vector<bool>& may_move);

  /// The number of the first step that is not in the step's group; behind the step where it is in
  /// none.
  uint32_t end_of_group(uint32_t step) const;
  /// The application's queues, which runs use before those of the context.
  void set_queues(std::span<const Queue> queues);

  /// Whose queues are used beside that of a run.
  enum class Owner : uint8_t { kAnybody, kContext };
  /// While steps up to `last` are given to a queue and to those beside it, which are joined with it
  /// at the end of each group, also of one that an exception ends.
  class Fork {
   public:
    Fork(RunStreams& streams, Queue queue, uint32_t last, Owner owner)
        : streams_(streams), queue_(queue), last_(last), owner_(owner) {}
    ~Fork();
    Fork(const Fork&) = delete;
    Fork& operator=(const Fork&) = delete;
    /// The queue that the step is to be given to, which waits for what the step needs.
    Queue enter(uint32_t step);
    /// The step has been given to its queue.
    void leave(uint32_t step);

   private:
    void join();
    Queue queue_of(int32_t stream) const;

    RunStreams& streams_;
    const Queue queue_;
    const uint32_t last_;
    const Owner owner_;
    uint32_t group_end_ = 0;  ///< of the group that the last step was in
    uint32_t used_ = 0;       ///< a bit per stream
  };

 private:
  struct Place {
    int32_t stream = kAlone;
    uint32_t first = 0, end = 0;  ///< its group
    std::vector<uint32_t> waits = {};
    std::unique_ptr<Event> ended = {};  ///< null: nobody waits for the step alone
  };
  void add_group(const Plan& plan, const Schedule& schedule, uint32_t first, uint32_t end);

  const Device& device_;
  std::vector<Place> places_;
  std::unique_ptr<Event> begun_;  ///< what a group comes behind
  // By stream, that of the run left out.
  std::vector<std::shared_ptr<void>> own_;
  std::vector<std::unique_ptr<Event>> joins_;
  std::vector<Queue> given_;
};

}  // namespace opwright
