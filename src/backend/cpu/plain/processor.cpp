#include "backend/cpu/processor.h"

namespace opwright {

/// No features: products are computed in FP32, those of bytes by integer loops.
CpuFeatures processor_features() { return {}; }

std::string_view instruction_set() {
#if defined(__ARM_NEON)
  return "neon";
#else
  return "baseline";
#endif
}

std::string product_library() { return "plain kernels"; }

}  // namespace opwright
