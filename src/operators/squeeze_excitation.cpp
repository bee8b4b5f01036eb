#include "operators/squeeze_excitation.h"

#include "base/types.h"
#include "operators/infer.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

void check_function(const Inference& inference, const DenseFunction& function,
                    std::span<const Expr> shape) {
  const FusedActivation& activation = function.activation;
  inference.require(!activation.present() || activation.type == FusedActivation::kSwish ||
                        activation.type == FusedActivation::kHardSwish ||
                        accepts(static_cast<ActivationType>(activation.type), DataType::kFLOAT),
                    "unknown activation type ", activation.type);
  function.fused.check(inference, inference.input(0).dtype, shape, 1);
  inference.require(!function.fused.present() || is_floating(function.fused.result),
                    "the result of a program must be floating");
}

void check_matrix(const Inference& inference, int input, const Expr& columns,
                  std::string_view meaning) {
  inference.require_same_type(input, 0);
  inference.require_rank(input, 2, Dims::MAX_DIMS);
  inference.require_extent(input, 1, columns, meaning);
  for (int axis = 2; axis < inference.rank(input); ++axis)
    inference.require_extent(input, axis, Expr(1), "that of a matrix");
}

void check_bias(const Inference& inference, int input, const Expr& rows) {
  if (!inference.optional(input)) return;
  inference.require_same_type_or_fp32(input, 0);
  inference.require(!conflict(numel(inference.input(input).dims), rows), inference.port(input),
                    " must have an element for each row of its matrix");
}

}  // namespace

std::vector<OutputInfo> SqueezeExcitation::infer(InferContext& context) const {
  const Inference inference(context, kKind,
                            {"x", "reduce", "bias of reduce", "expand", "bias of expand"}, 4);
  inference.require_floating(0);
  inference.require_rank(0, 3, Dims::MAX_DIMS);
  for (const int matrix : {kReduce, kExpand})
    inference.require(inference.optional(matrix) != nullptr, inference.port(matrix),
                      " must be there");
  const SymShape& x = inference.input(0).dims;
  check_matrix(inference, kReduce, x[1], "channels of x");
  const SymShape &reduce = inference.input(kReduce).dims, &expand = inference.input(kExpand).dims;
  check_matrix(inference, kExpand, reduce[0], "rows of the first matrix");
  inference.require_extent(kExpand, 0, x[1], "channels of x");
  check_bias(inference, kReduceBias, reduce[0]);
  check_bias(inference, kExpandBias, expand[0]);
  for (const DenseFunction& function : {params().hidden, params().gate})
    check_function(inference, function, x);
  SymShape dims = x;
  for (size_t i = 2; i < dims.size() && !params().multiplies; ++i) dims[i] = Expr(1);
  return {make_output(inference.input(0).dtype, std::move(dims))};
}

}  // namespace opwright
