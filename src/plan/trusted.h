#pragma once

#include "plan/plan.h"

namespace opwright {

/// Declares that this process made the plan. Its code, for the host or for a GPU, may then run
/// without permission, and plugins need not be asked whether they are what the plan says.
/// Everything except the weights counts: code that is trusted in one plan is not in another, which
/// could launch it in another way, on other memory. Does nothing for plans without code and
/// plugins. Keeps cryptographic hashes of the last 16384 plans. Thread safe.
void trust_plan(const Plan& plan);
/// Whether the plan is trusted. False for plans without code and plugins, which need no trust.
bool is_trusted(const Plan& plan);
/// Trusts `changed` if `known` is trusted; the plans may differ only in their weights.
void trust_as(const Plan& known, const Plan& changed);
/// The number of plans that are remembered.
size_t trusted_plans();

}  // namespace opwright
