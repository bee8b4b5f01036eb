#pragma once

#include <memory>

#include "base/error.h"
#include "base/error_report.h"
#include "base/parallel.h"
#include "opwright/allocator.h"

namespace opwright {

/// The user's allocator, which lives as long as it must.
inline std::shared_ptr<IGpuAllocator> unowned(IGpuAllocator* allocator) {
  return {std::shared_ptr<void>(), allocator};
}

/// Throws Error for a DLA: NVIDIA's accelerator is not driven.
inline void require_no_dla(const char* method, int32_t core) {
  require(core == -1, method, ": there is no DLA ", core, ", as no DLA is driven; leave it at -1");
}

}  // namespace opwright
