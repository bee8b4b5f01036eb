#pragma once

#include <span>
#include <string>

#include "plan/plan.h"

namespace opwright {

/// "2 FAST", and where one of number and name says nothing the other.
std::string tactic_text(int64_t tactic, const std::string& name);
/// Whether it is what a layer that runs as `chosen` was built with.
bool is_chosen(const TimedCandidate& candidate, const Candidate& chosen);
/// What the tuner knows of the ways to run a layer, a line for each: types, tactic, its time, that
/// of the conversions that it needs, and why it was left out. A star marks the chosen one. `notes`
/// is empty or has a text for each.
std::string tuning_table(std::span<const TimedCandidate> considered, const Candidate& chosen,
                         std::span<const std::string> notes = {});

}  // namespace opwright
