#pragma once

#include "plan/plan.h"

namespace opwright::fuzz {

/// Gives the tensors that steps write the shapes, and where those differ in kind the types, that
/// their operators make of the inputs, so that a changed attribute or input is not just refused for
/// the shapes behind it. What operators refuse stays as it is.
void follow(Plan& plan);

}  // namespace opwright::fuzz
