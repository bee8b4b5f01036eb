#pragma once

#include "base/error.h"

namespace opwright::python {

constexpr int kNoDla = -1;  ///< in place of the number of a DLA's core

/// Throws Error for a core.
inline void check_dla_core(int core) {
  require(core == kNoDla, "DLA_core is ", core, ", but no DLA is driven; leave it at -1");
}

}  // namespace opwright::python
