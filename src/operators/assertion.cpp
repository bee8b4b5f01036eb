#include "operators/assertion.h"

#include <algorithm>

#include "base/error.h"
#include "operators/infer.h"

namespace opwright {

void AssertionParams::require_all(std::string_view layer,
                                  std::span<const uint8_t> condition) const {
  if (std::ranges::find(condition, 0) != condition.end()) [[unlikely]]
    fail_with(ErrorCode::kFAILED_EXECUTION, "Assertion '", layer, "' failed: ", message);
}

std::vector<OutputInfo> Assertion::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"condition"}, 1);
  inference.require_type(0, inference.input(0).dtype == DataType::kBOOL, "BOOL");
  inference.require_rank(0, 0, 1);
  if (const ValuesPtr& values = inference.input(0).values)
    inference.require(std::ranges::none_of(
                          *values, [](const Expr& e) { return e.is_constant() && e == Expr(0); }),
                      "its condition is false: ", params().message);
  return {};
}

}  // namespace opwright
