#include "operators/normalization.h"

#include <algorithm>
#include <cmath>

#include "operators/fused_normalization.h"
#include "operators/infer.h"
#include "operators/type_rules.h"

namespace opwright {

bool is_per_group(const NormalizationParams& params, const SymShape& x, const SymShape& factor) {
  return params.num_groups > 1 && !params.is_v2 && factor.size() == x.size() && x.size() > 1 &&
         factor[1] == Expr(params.num_groups) && factor[1] != x[1] && x[1].is_constant();
}

namespace {

constexpr int kNormalizationInputs = 3;

OutputInfo infer_normalized(const Inference& inference, const NormalizationParams& params) {
  const TensorInfo& x = inference.input(0);
  const int64_t groups = params.num_groups;
  inference.require_floating(0);
  inference.require(std::isfinite(params.epsilon) && params.epsilon >= 0,
                    "epsilon must be finite and not negative, but is ", params.epsilon);
  const std::vector<int> axes = inference.axes_of(params.axes, inference.rank(0));
  inference.require(groups >= 1, "the number of groups must be at least 1, but is ", groups);
  if (groups > 1) {
    inference.require_rank(0, 2, Dims::MAX_DIMS);
    inference.require(!(params.axes & 3),
                      "with groups, the mask must leave out the batch (axis 0) and the channels "
                      "(axis 1, which the groups split), but is ",
                      params.axes);
    const Expr& channels = x.dims[1];
    inference.require(!channels.is_constant() || channels.constant() % groups == 0,
                      "the number of groups, ", groups, ", must divide the channels of ",
                      inference.port(0), ", whose shape is ", str(x.dims));
  } else {
    inference.require(!axes.empty(), "at least one axis must be normalized over");
  }
  for (int i = 1; i < std::min(inference.count(), kNormalizationInputs); ++i) {
    if (!inference.optional(i)) continue;
    inference.require_same_type(i, 0);
    SymShape expected = x.dims;
    if (is_per_group(params, x.dims, inference.input(i).dims)) expected[1] = groups;
    inference.require_broadcasts_to(i, expected);
  }
  return make_output(x.dtype, x.dims);
}

}  // namespace

std::vector<OutputInfo> Normalization::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "scale", "bias"}, 1);
  return {infer_normalized(inference, params())};
}

std::vector<OutputInfo> FusedNormalization::infer(InferContext& context) const {
  const FusedProgram& fused = params().fused;
  const Inference inference(context, kKind, {"x", "scale", "bias"}, 1, kOwnInputs + fused.inputs());
  inference.require(inference.count() == kOwnInputs + fused.inputs(),
                    "the inputs of a fused program come behind x, the scale and the bias");
  const OutputInfo y = infer_normalized(inference, params());
  inference.require(fused.present(), "there is no fused program");
  fused.check(inference, DataType::kFLOAT, y.dims, 1);
  for (const int64_t place : fused.places)
    inference.require(place == static_cast<int64_t>(FusedPlace::kScalar) ||
                          place == static_cast<int64_t>(FusedPlace::kElement),
                      "inputs of the program are scalars, or have the shape of x");
  return {make_output(fused.result, y.dims)};
}

std::vector<OutputInfo> QuantizedNormalization::infer(InferContext& context) const {
  const Inference inference(context, kKind,
                            {"x", "scale", "bias", "scale of the quantization", "zero point"}, 5);
  OutputInfo y = infer_normalized(inference, params());
  inference.require_floating(kScale);
  const DataType type = inference.input(kZeroPoint).dtype;
  inference.require_type(kZeroPoint, is_quantized(type), "INT8, UINT8 or FP8");
  for (const int i : {kScale, kZeroPoint})
    inference.require(numel(inference.input(i).dims) == Expr(1), inference.port(i),
                      " must have one element");
  OutputInfo quantized = make_output(type, y.dims);
  if (!params().keeps_result) return {std::move(quantized)};
  return {std::move(y), std::move(quantized)};
}

std::vector<OutputInfo> GroupStatistics::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "scale"}, 1);
  infer_normalized(inference, params());
  inference.require_rank(0, 3, Dims::MAX_DIMS);
  const SymShape& x = inference.input(0).dims;
  const int64_t pixels = ((int64_t{1} << x.size()) - 1) & ~int64_t{3};
  inference.require(!params().rms && (params().axes & pixels) == pixels && !(params().axes & 1),
                    "all axes of pixels must be normalized over, and no batch");
  SymShape dims(x.size(), Expr(1));
  dims[0] = x[0], dims[1] = x[1];
  if (inference.optional(1))
    inference.require(numel(inference.input(1).dims) == x[1], inference.port(1),
                      " must have an element for each channel");
  return {make_output(DataType::kFLOAT, dims), make_output(DataType::kFLOAT, dims)};
}

std::vector<OutputInfo> Lrn::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require_floating(0);
  inference.require_rank(0, 2, Dims::MAX_DIMS);
  inference.require(params().window >= 1, "the window must be at least 1, but is ",
                    params().window);
  return {make_output(inference.input(0).dtype, inference.input(0).dims)};
}

}  // namespace opwright
