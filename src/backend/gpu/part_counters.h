#pragma once

#include <cstdint>
#include <string>

#include "backend/gpu/source.h"

namespace opwright::gpu {

/// Adds counters of `bits` bits for `tasks` tasks and includes part_counters.cuh. The elements of
/// the code's array of counters are "counter0, counter1, ...".
std::string add_part_counters(KernelSource& source, int64_t tasks, int bits = 4);

}  // namespace opwright::gpu
