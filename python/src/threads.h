#pragma once

#include "base/parallel.h"

namespace opwright::python {

/// What the property `max_threads` gives; 0: nothing was set.
inline int shown_threads(int threads) { return threads > 0 ? threads : thread_count(); }

}  // namespace opwright::python
