#pragma once

#include "plan/plan.h"

namespace opwright {

/// Declares that this process made the plan, so that the code in it, for the host or for a GPU, may
/// run without permission, and plugins need not be asked whether they are what it says. What counts
/// is everything but the weights: code that is trusted in one plan is not in another, which could
/// launch it otherwise, on other memory. Does nothing for plans without code and plugins. A
/// cryptographic hash of the plan is kept, of the last 16384 plans. Thread safe.
void trust_plan(const Plan& plan);
/// False for plans without code and plugins, which need no trust.
bool is_trusted(const Plan& plan);
/// The same for a plan that only has other weights than one that may be trusted.
void trust_as(const Plan& known, const Plan& changed);
/// How many are kept.
size_t trusted_plans();

}  // namespace opwright
