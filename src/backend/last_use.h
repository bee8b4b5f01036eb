#pragma once

#include <atomic>
#include <memory>

#include "backend/device.h"

namespace opwright {

/// Until when the work of one owner, a context, uses memory. Who frees the memory waits for that,
/// and not for what others gave to the device. Costs a run nothing: an event is recorded when
/// somebody asks, behind all that the owner's queue was given.
class LastUse {
 public:
  /// There was no work so far.
  explicit LastUse(const Device& device);
  ~LastUse();
  LastUse(const LastUse&) = delete;
  LastUse& operator=(const LastUse&) = delete;

  /// From now on the owner's work goes to this queue, after what it gave to another.
  /// `is_captured`: whether the caller captures that.
  void move_to(Queue queue, bool is_captured);
  /// Work may be done at times that nobody tells: in a graph that the caller has captured.
  void lose() noexcept { is_lost_.store(true, std::memory_order_relaxed); }
  /// The last work was given: returns once all of it is done or has failed; where its end is not
  /// known, once all that the device was given is.
  void finish() noexcept;
  /// What comes after the work, recorded now; null: not known, as the queue is gone or is being
  /// captured.
  Event* event() const noexcept;

 private:
  const Device& device_;
  std::unique_ptr<Event> event_;  ///< reached while it was never recorded
  bool has_work_ = false;
  Queue queue_ = nullptr;
  uint64_t queue_id_ = 0;
  std::atomic<bool> is_lost_ = false;
};

}  // namespace opwright
