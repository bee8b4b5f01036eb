#pragma once

#include "backend/device.h"

namespace opwright {

/// Device::cache_level() of this processor.
CacheLevel cpu_cache_level(uint64_t bytes);

/// Milliseconds that set_cpu_scene() takes where tensors are small.
double cpu_scene_milliseconds(const CacheScene::Levels& levels);

/// Brings the caches of the cores that loops run on into the scene's state. Constants and results
/// are as far away as in an engine of that size. The end of the operands that fits the inner caches
/// is near, as the step before has written it. The contents of the memory do not change.
void set_cpu_scene(const CacheScene& scene);

}  // namespace opwright
