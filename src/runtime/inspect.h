#pragma once

#include <string>

#include "plan/plan.h"

namespace opwright {

/// The plan as text: inputs, outputs, profiles, memory, then a line per layer with kind, types,
/// formats, chosen tactic, time.
std::string inspect_text(const Plan& plan);
/// The same as a JSON object, with all attributes and the candidates that the tuner compared; the
/// layers are those of the first profile.
std::string inspect_json(const Plan& plan);
/// One layer of the first profile as a JSON object.
std::string inspect_layer_json(const Plan& plan, int step);

}  // namespace opwright
