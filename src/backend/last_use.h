#pragma once

#include <atomic>
#include <memory>

#include "backend/device.h"

namespace opwright {

/// Until when the work of one owner, a context, uses memory. Who frees the memory waits for that.
/// Costs a run nothing: an event is recorded when somebody asks, which only the default stream
/// bears, since it is always there. An application may destroy its streams before, and a driver
/// crashes when it is asked about one that is gone; then all work of the device is waited for.
class LastUse {
 public:
  /// There was no work so far.
  explicit LastUse(const Device& device);
  ~LastUse();
  LastUse(const LastUse&) = delete;
  LastUse& operator=(const LastUse&) = delete;

  /// The owner gives work to this queue, too.
  void add(Queue queue) noexcept {
    has_work_ = true;
    is_on_default_ &= queue == nullptr;
  }
  /// Work may be done at times that nobody tells: in a graph that the caller has captured.
  void lose() noexcept { is_lost_.store(true, std::memory_order_relaxed); }
  /// The last work was given: returns once all of it is done or has failed; where its end is not
  /// known, once all that the device was given is. False: nothing can be waited for now.
  bool finish() noexcept;
  /// What comes after the work, recorded now; null: not known.
  Event* event() const noexcept;

 private:
  const Device& device_;
  std::unique_ptr<Event> event_;  ///< reached while it was never recorded
  bool has_work_ = false;
  bool is_on_default_ = true;  ///< all of it is on the default stream
  std::atomic<bool> is_lost_ = false;
};

}  // namespace opwright
