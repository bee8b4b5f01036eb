#pragma once

#include <string>

#include "plan/plan.h"
#include "run/script.h"

namespace opwright::fuzz {

/// Changes one thing in a plan, as the script says. `log` gets a line that says what; null: nobody
/// asks.
void mutate(Plan& plan, Script& script, std::string* log);
/// Changes one attribute.
void mutate(Attributes& attributes, Script& script);

}  // namespace opwright::fuzz
