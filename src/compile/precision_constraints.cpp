// Applies the types that a weakly typed network wants its layers to compute with and to store.

#include <algorithm>

#include "base/error.h"
#include "base/types.h"
#include "compile/tuner.h"
#include "compile/tuning_report.h"

namespace opwright {

void Tuner::constrain(const GraphNode& node, const NodePorts& ports,
                      std::vector<Candidate>& candidates) const {
  const auto computed_in = [&](const Candidate& candidate) -> std::optional<DataType> {
    for (size_t i = 0; i < ports.inputs.size(); ++i)
      if (ports.inputs[i].present && is_floating(ports.inputs[i].type.dtype))
        return candidate.inputs[i].dtype;
    for (size_t i = 0; i < ports.outputs.size(); ++i)
      if (is_floating(ports.outputs[i].type.dtype)) return candidate.outputs[i].dtype;
    return std::nullopt;
  };
  const auto fits = [&](const Candidate& candidate) {
    if (node.precision && computed_in(candidate).value_or(*node.precision) != *node.precision)
      return false;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const std::optional<DataType>& stored = node.outputs[i]->stored_type;
      if (stored && candidate.outputs[i].dtype != *stored) return false;
    }
    return true;
  };
  if (std::ranges::any_of(candidates, fits)) {
    std::erase_if(candidates, [&](const Candidate& candidate) { return !fits(candidate); });
    return;
  }
  std::string wanted = node.precision ? str("to be computed in ", name(*node.precision)) : "";
  for (const GraphValue* output : node.outputs)
    if (output->stored_type)
      wanted += str(wanted.empty() ? "" : " and ", "to store '", output->name, "' as ",
                    name(*output->stored_type));
  std::vector<std::string> types;
  for (const Candidate& candidate : candidates)
    if (std::string text = str(candidate); std::ranges::find(types, text) == types.end())
      types.push_back(std::move(text));
  std::string offered;
  for (const std::string& text : types) offered += (offered.empty() ? "" : "; ") + text;
  const std::string problem =
      str("Layer '", node.name, "' (", kind_of(*node.op), ") is asked ", wanted,
          ", but the device has no kernel for that with the BuilderFlags that are set, only for ",
          offered);
  if (config_.constraints() == PrecisionConstraints::kOBEY)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, problem,
              "; set the flag of the type, reset the layer's types, or set "
              "PREFER_PRECISION_CONSTRAINTS in place of OBEY_PRECISION_CONSTRAINTS");
  config_.log.warning(problem);
}

}  // namespace opwright
