#pragma once

#include "operators/builtin.h"

namespace opwright {

/// The extents of the input as a one-dimensional INT64 tensor.
class ShapeOf final : public BuiltinOperator<ShapeOf, NoParams> {
 public:
  static constexpr std::string_view kKind = "Shape";
  static constexpr LayerClass<class IShapeLayer> kLayer{LayerType::kSHAPE, "IShapeLayer",
                                                        "The extents of a tensor as INT64."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

template <>
inline constexpr auto kEnumeration<FillOperation> = enumeration<FillOperation>(
    "FillOperation", "What a tensor is filled with.",
    {
        {"LINSPACE", FillOperation::kLINSPACE, "alpha, alpha + beta, ..."},
        {"RANDOM_UNIFORM", FillOperation::kRANDOM_UNIFORM,
         "Evenly distributed between alpha and beta."},
        {"RANDOM_NORMAL", FillOperation::kRANDOM_NORMAL,
         "Normally distributed: mean alpha, standard deviation beta."},
    });

struct FillParams {
  FillOperation operation = FillOperation::kLINSPACE;
  Ints shape;
  DataType to_type = DataType::kFLOAT;
  double alpha = 0;  ///< LINSPACE: the start; RANDOM_UNIFORM: the minimum; RANDOM_NORMAL: the mean
  double beta = 0;   ///< LINSPACE: the step of the last axis (0 gives a constant); RANDOM_UNIFORM:
                     ///< the maximum; RANDOM_NORMAL: the deviation
  int64_t seed = 0;
  template <class V>
  void visit(V& v) {
    v("operation", operation), v("shape", shape), v("to_type", to_type), v("alpha", alpha),
        v("beta", beta), v.internal("seed", seed);
  }
};
/// Optional inputs: 0 is a shape tensor that replaces `shape`; 1 and 2 are scalars that replace
/// alpha and beta (beta may be a vector with a step per axis as in TensorRT). LINSPACE: element [i,
/// j, ...] = alpha + i * beta[0] + j * beta[1] + ...
class Fill final : public BuiltinOperator<Fill, FillParams> {
 public:
  static constexpr std::string_view kKind = "Fill";
  static constexpr LayerClass<class IFillLayer> kLayer{
      LayerType::kFILL, "IFillLayer", "A tensor of evenly spaced or random values."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 0; }
};

}  // namespace opwright
