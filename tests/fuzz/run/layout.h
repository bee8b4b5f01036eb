#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace opwright::fuzz {

/// Lays the arena of a valid schedule out anew: what shares memory on purpose (a step's output in
/// the memory of its input) stays together, everything else gets pages of its own, at whose end it
/// lies, and an unused page behind them. Scratch memory ends at the end of a page, too.
void spread_arena(Schedule& schedule);

/// Offsets that an arena's tensors and the scratch memory behind it take.
std::vector<std::pair<size_t, size_t>> used_ranges(const Schedule& schedule);

/// Makes a plan consistent again after one part of it was changed: what several places say of a
/// tensor becomes what the tensor says, sizes of weights and places in the arena follow shapes and
/// types. What cannot be mended stays. `before` is the plan before the change: its
/// views of network inputs and outputs keep shapes of their own. So do tensors that only now lie in
/// that memory.
void mend(Plan& plan, const Plan& before);

}  // namespace opwright::fuzz
