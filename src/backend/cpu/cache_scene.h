#pragma once

#include "backend/device.h"

namespace opwright {

/// Device::cache_level() of this processor.
CacheLevel cpu_cache_level(uint64_t bytes);

/// Brings the caches of the cores that loops run on into the scene's state: constants and results
/// are as far away as an engine of that size has them, and of the operands the end that the inner
/// caches hold is near, as the step before has written it. Contents stay as they are. Takes some
/// ten to a hundred microseconds, and longer for large tensors.
void set_cpu_scene(const CacheScene& scene);

}  // namespace opwright
