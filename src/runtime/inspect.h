#pragma once

#include <cstdint>
#include <string>

#include "opwright/runtime.h"
#include "plan/plan.h"

namespace opwright {

/// The bytes of all weights in the engine, those that several steps share once.
uint64_t weights_size(const Plan& plan);

/// The plan as text: inputs, outputs, profiles, memory, then a line per layer with kind, types,
/// formats, chosen tactic, time.
std::string inspect_text(const Plan& plan);
/// The same as a JSON object, with TensorRT's keys where it has them: "Bindings", and "Layers" (of
/// the first profile), each with "Name", "LayerType", "Inputs" and "Outputs" (each "Name",
/// "Dimensions", "Format/Datatype"), "TacticValue", "TacticName", "TimeMs", "Attributes",
/// "PackedWeights", "Candidates" (what the tuner compared), "Metadata" and "CaptureObstacle" (why
/// no graph has the layer, or empty). A port's "Tensor" is its number in "Tensors", which has the
/// place of each at the maximum shape. "Model" is what its author says of it. "RunsOn" says which
/// GPUs the code serves, where there is code for GPUs.
std::string inspect_json(const Plan& plan);
/// One layer of a profile as a line of text, or as a JSON object as above. Throws Error when there
/// is no such layer.
std::string inspect_layer_text(const Plan& plan, int step, int profile = 0);
std::string inspect_layer_json(const Plan& plan, int step, int profile = 0);

/// The same by a format of the public API.
std::string inspect(const Plan& plan, LayerInformationFormat format);
std::string inspect_layer(const Plan& plan, int step, int profile, LayerInformationFormat format);

}  // namespace opwright
