#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "opwright/runtime.h"
#include "plan/plan.h"

namespace opwright {

/// The bytes of all weights in the engine. Weights that several steps share count once.
uint64_t weights_size(const Plan& plan);

/// Each extent of an input or output: "8", "n", "2 * n".
std::vector<std::string> extent_texts(const Plan& plan, const PlanPort& port);
/// The plan as text: inputs, outputs, profiles and memory, then a line per layer with its kind,
/// types, formats, chosen tactic and time.
std::string inspect_text(const Plan& plan);
/// The same as a JSON object, with TensorRT's keys where TensorRT has them: "Bindings", and
/// "Layers" (of the first profile). Each layer has "Name", "LayerType", "Inputs" and "Outputs"
/// (each with "Name", "Dimensions", "Format/Datatype"), "TacticValue", "TacticName", "TimeMs",
/// "Attributes", "PackedWeights", "Candidates" (those that the tuner compared), "Metadata" and
/// "CaptureObstacle" (why no graph has the layer, or empty). A port's "Tensor" is its number in
/// "Tensors", which has the place of each tensor at the maximum shape. "Model" is the author's
/// description of the model. "RunsOn" says which GPUs the code serves, where there is code for
/// GPUs.
std::string inspect_json(const Plan& plan);
/// One layer of a profile as a line of text, or as a JSON object as above. Throws Error when there
/// is no such layer.
std::string inspect_layer_text(const Plan& plan, int step, int profile = 0);
std::string inspect_layer_json(const Plan& plan, int step, int profile = 0);

/// The same in a format of the public API.
std::string inspect(const Plan& plan, LayerInformationFormat format);
std::string inspect_layer(const Plan& plan, int step, int profile, LayerInformationFormat format);

}  // namespace opwright
