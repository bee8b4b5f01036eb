#pragma once

#include <cstdint>
#include <string>

#include "backend/gpu/source.h"

namespace opwright::gpu {

/// Statements in a loop over tasks, each of which as many blocks as it has parts work for: what the
/// block has stored becomes visible to others, and unless it is the last of its task's blocks to
/// come here, the loop continues. The last one sees what all of them have stored. `task` is the
/// task's number below `tasks`; `parts` is at most 15. Adds the counters, which are 0 before and
/// after each run.
std::string continue_unless_last_part(KernelSource& source, int64_t tasks, int parts);

}  // namespace opwright::gpu
