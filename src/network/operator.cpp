#include "network/operator.h"

#include "base/error.h"

namespace opwright {

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

std::optional<std::string> Operator::timing_key() const {
  return str(kind(), " ", str(attributes()));
}

}  // namespace opwright
