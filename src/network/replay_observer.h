#pragma once

#include "network/kernel.h"

namespace opwright {

/// Second base class of a kernel that is told of each launch of a graph with its work.
class ReplayObserver {
 public:
  /// Throws Error where the graph cannot be launched.
  virtual void before_replay(Queue queue) = 0;
  virtual void after_replay(Queue queue) = 0;

 protected:
  ~ReplayObserver() = default;
};

}  // namespace opwright
