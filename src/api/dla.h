#pragma once

#include "base/error.h"

namespace opwright {

/// Stands for the number of a DLA's core: NVIDIA's accelerator is not driven.
inline constexpr int kNoDla = -1;

/// Throws Error for the number of a core.
inline void require_no_dla(int core) {
  require(core == kNoDla, "there is no DLA ", core, ", as no DLA is driven; leave it at -1");
}

}  // namespace opwright
