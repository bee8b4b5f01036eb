#pragma once

#include <atomic>
#include <memory>

#include "backend/device.h"

namespace opwright {

/// Tells when the work of one owner, a context, last uses memory. Whoever frees the memory waits
/// for that. It costs a run nothing: an event is recorded when somebody asks. The event is recorded
/// on the default stream, which is always there. An application may destroy its own streams
/// earlier, and a driver crashes when it is asked about a destroyed stream. So if work ran on
/// another stream, all work of the device is waited for.
class LastUse {
 public:
  /// Starts without any work.
  explicit LastUse(const Device& device);
  ~LastUse();
  LastUse(const LastUse&) = delete;
  LastUse& operator=(const LastUse&) = delete;

  /// Notes that the owner gives work to this queue.
  void add(Queue queue) noexcept {
    has_work_ = true;
    is_on_default_ &= queue == nullptr;
  }
  /// Notes that work may run at unknown times: in a graph that the caller has captured.
  void lose() noexcept { is_lost_.store(true, std::memory_order_relaxed); }
  /// Called after the owner's last work. Returns once all of it is done or has failed; where its
  /// end is not known, once all work of the device is. False: nothing can be waited for now.
  bool finish() noexcept;
  /// An event after the owner's work, recorded now; null: the end of the work is not known.
  Event* event() const noexcept;

 private:
  const Device& device_;
  std::unique_ptr<Event> event_;  ///< counts as reached as long as it was never recorded
  bool has_work_ = false;
  bool is_on_default_ = true;  ///< all work is on the default stream
  std::atomic<bool> is_lost_ = false;
};

}  // namespace opwright
