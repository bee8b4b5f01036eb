#pragma once

#include "base/error.h"
#include "base/parallel.h"

namespace opwright::python {

/// What the property `max_threads` gives and takes; 0: nothing was set.
inline int shown_threads(int threads) { return threads > 0 ? threads : thread_count(); }
inline int checked_threads(int threads) {
  require(threads >= 1, "max_threads is ", threads, "; expected 1 or more");
  return threads;
}

}  // namespace opwright::python
