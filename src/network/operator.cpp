#include "network/operator.h"

#include "base/error.h"

namespace opwright {

std::string str(PortType type) {
  std::string text(name(type.dtype));
  if (type.format != TensorFormat::kLINEAR) text += ":" + std::string(name(type.format));
  return text;
}

std::string str(const Candidate& candidate) {
  std::string text;
  for (size_t i = 0; i < candidate.inputs.size(); ++i)
    text += (i > 0 ? ", " : "") + str(candidate.inputs[i]);
  text += text.empty() ? "-> " : " -> ";
  for (size_t i = 0; i < candidate.outputs.size(); ++i)
    text += (i > 0 ? ", " : "") + str(candidate.outputs[i]);
  return text;
}

void InferContext::require_inputs(std::string_view kind, int least, int most) const {
  const int count = static_cast<int>(inputs.size());
  if (count < least || count > most) {
    const std::string expected = least == most ? str(least) : str(least, " to ", most);
    fail(kind, " '", layer, "': takes ", expected, most == 1 ? " input" : " inputs", ", not ",
         count);
  }
  for (int i = 0; i < least; ++i)
    require(inputs[i] != nullptr, kind, " '", layer, "': input ", i, " is absent, but is needed");
}

OperatorPtr Operator::without_shape_inputs(std::span<const TensorInfo* const>) const {
  return nullptr;
}

std::vector<Tensor*> Operator::compose(Network&, std::span<Tensor* const>,
                                       const std::string& layer) const {
  fail(kind(), " '", layer, "' is not composed of other layers");
}

std::optional<std::string> Operator::timing_key() const {
  return str(kind(), " ", str(attributes()));
}

}  // namespace opwright
