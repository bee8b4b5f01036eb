#pragma once

#include "operators/builtin.h"

namespace opwright {

struct OneHotParams {
  int64_t axis = -1;  ///< of the output; negative ones count from the end
  template <class V>
  void visit(V& v) {
    v("axis", axis);
  }
};
/// Inputs: indices (INT32 or INT64, negative ones count from the end), the two values off and on,
/// and the depth, one integer. The output has a further axis of the depth's extent: it is on where
/// the place on this axis equals the index, and off elsewhere.
class OneHot final : public BuiltinOperator<OneHot, OneHotParams> {
 public:
  static constexpr std::string_view kKind = "OneHot";
  static constexpr LayerClass<class IOneHotLayer> kLayer{
      LayerType::kONE_HOT, "IOneHotLayer", "One of two values along a new axis, as indices say."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 2; }
};

struct ReverseSequenceParams {
  int64_t batch_axis = 1, sequence_axis = 0;
  template <class V>
  void visit(V& v) {
    v("batch_axis", batch_axis), v("sequence_axis", sequence_axis);
  }
};
/// Inputs: x and, for each element of the batch axis, the number of elements of the sequence axis
/// that are reversed. The elements behind these stay.
class ReverseSequence final : public BuiltinOperator<ReverseSequence, ReverseSequenceParams> {
 public:
  static constexpr std::string_view kKind = "ReverseSequence";
  static constexpr LayerClass<class IReverseSequenceLayer> kLayer{
      LayerType::kREVERSE_SEQUENCE, "IReverseSequenceLayer",
      "Each sequence of a batch in the opposite order, up to its length."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Determinants of the matrices in the last two axes.
class Determinant final : public BuiltinOperator<Determinant, NoParams> {
 public:
  static constexpr std::string_view kKind = "Determinant";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
