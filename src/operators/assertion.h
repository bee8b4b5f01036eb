#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "operators/builtin.h"

namespace opwright {

struct AssertionParams {
  std::string message;
  bool holds = false;  ///< whether it was known to hold when the network was compiled
  template <class V>
  void visit(V& v) {
    v("message", message), v.internal("holds", holds);
  }
  /// Throws Error with the message, naming the layer, where an element of the condition is 0.
  void require_all(std::string_view layer, std::span<const uint8_t> condition) const;
};
/// Makes a run fail, with the message, where an element of its input (BOOL, of rank 0 or 1) is
/// false. Has no output. An input that is already known to be false is an error.
class Assertion final : public BuiltinOperator<Assertion, AssertionParams> {
 public:
  static constexpr std::string_view kKind = "Assertion";
  static constexpr LayerClass<class IAssertionLayer> kLayer{
      LayerType::kASSERTION, "IAssertionLayer", "Makes a run fail where its input is false."};
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override { return 0; }
  bool is_pure() const override { return params().holds; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
