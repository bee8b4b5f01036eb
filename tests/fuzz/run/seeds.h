#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace opwright::fuzz {

/// An engine of a small network that was just compiled, its arena laid out by spread_arena().
struct Seed {
  std::string name;
  Plan plan;
};

/// Engines that have all that plans may have. Compiled when they are first asked for; the same in
/// every process on one machine.
const std::vector<Seed>& seeds();

/// Ends the process with a message unless the seeds cover every kind of step that a plan may have,
/// and run, with guarded memory, to the same results as without.
void check_seeds();

}  // namespace opwright::fuzz
