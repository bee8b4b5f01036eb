#pragma once

#include <span>
#include <string>

#include "plan/plan.h"

namespace opwright {

/// "2 FAST": number and name of a tactic. Number 0 is left out where there is a name.
std::string tactic_text(int64_t tactic, const std::string& name);
/// Whether a layer that runs as `chosen` was built with this candidate.
bool is_chosen(const TimedCandidate& candidate, const Candidate& chosen);
/// The tuner's records of a layer's candidates, a line for each: types, tactic, time, time of the
/// conversions it needs, and why it was dropped. A star marks the chosen candidate. `notes` is
/// empty or has a text for each.
std::string tuning_table(std::span<const TimedCandidate> considered, const Candidate& chosen,
                         std::span<const std::string> notes = {});

}  // namespace opwright
