#pragma once

#include <memory>

namespace opwright {

/// A device that works in the order of several queues at once.
class QueueMaker {
 public:
  /// A queue of the caller's own, which goes with the pointer, once it has done what it was given.
  virtual std::shared_ptr<void> make_queue() const = 0;

 protected:
  ~QueueMaker() = default;
};

}  // namespace opwright
