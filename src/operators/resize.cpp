#include "operators/resize.h"

#include <cmath>

#include "base/types.h"
#include "operators/composed.h"
#include "operators/infer.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Multiplies an extent by a scale. Throws Error for a scale that no extent can be multiplied by.
Expr scaled(const Inference& inference, int axis, const Expr& extent, double scale) {
  inference.require(std::isfinite(scale) && scale > 0, "scales must be finite and above 0, but is ",
                    scale, " on axis ", axis);
  const std::optional<Expr> result = scaled_extent(extent, scale);
  inference.require(result.has_value(), "the scale ", scale, " on axis ", axis,
                    " is not a fraction of 31-bit integers; give the output shape instead");
  return *result;
}

bool is_known(const ResizeParams& params) {
  return params.mode >= InterpolationMode::kNEAREST && params.mode <= InterpolationMode::kCUBIC &&
         params.coordinate_transformation >= ResizeCoordinateTransformation::kALIGN_CORNERS &&
         params.coordinate_transformation <= ResizeCoordinateTransformation::kPYTORCH_HALF_PIXEL &&
         params.nearest_rounding >= ResizeRoundMode::kHALF_UP &&
         params.nearest_rounding <= ResizeRoundMode::kCEIL;
}

}  // namespace

/// Searches the convergents of the continued fraction.
std::optional<Fraction> simplest_fraction(double scale) {
  constexpr double kLimit = 0x1p31;
  int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
  double rest = scale;
  for (;;) {
    const double whole = std::floor(rest);
    if (!(whole < kLimit)) return std::nullopt;
    const auto step = static_cast<int64_t>(whole);
    if (static_cast<double>(step) * static_cast<double>(p1) + static_cast<double>(p0) >= kLimit ||
        static_cast<double>(step) * static_cast<double>(q1) + static_cast<double>(q0) >= kLimit)
      return std::nullopt;
    const int64_t p2 = step * p1 + p0, q2 = step * q1 + q0;
    p0 = p1, q0 = q1, p1 = p2, q1 = q2;
    const double value = static_cast<double>(p1) / static_cast<double>(q1);
    if (static_cast<float>(value) == static_cast<float>(scale)) return Fraction{p1, q1};
    rest = 1 / (rest - whole);
  }
}

Fraction resize_scale(const ResizeParams& params, int axis, int64_t from, int64_t to) {
  const Fraction quotient{to, from};
  // Inference refuses scales that are no fractions.
  return params.scales.empty()
             ? quotient
             : simplest_fraction(params.scales[static_cast<size_t>(axis)]).value_or(quotient);
}

std::optional<Expr> scaled_extent(const Expr& extent, double scale) {
  const std::optional<Fraction> fraction = simplest_fraction(scale);
  if (!fraction || fraction->numerator <= 0) return std::nullopt;
  return floor_div(extent * Expr(fraction->numerator), Expr(fraction->denominator));
}

std::vector<OutputInfo> Resize::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "output shape"}, 1);
  const ResizeParams& params = this->params();
  const TensorInfo& x = inference.input(0);
  inference.require(is_known(params), "unknown mode, coordinate transformation or rounding");
  inference.require_rank(0, 1, Dims::MAX_DIMS);
  inference.require(std::isfinite(params.cubic_coeff),
                    "the cubic coefficient must be finite, but is ", params.cubic_coeff);
  if (params.mode != InterpolationMode::kNEAREST && !is_integer(x.dtype))
    inference.require_floating(0);
  const size_t rank = x.dims.size();
  SymShape shape;
  if (!params.scales.empty()) {
    inference.require(params.scales.size() == rank, "there must be a scale for each of the ", rank,
                      " axes, but there are ", params.scales.size());
    for (size_t i = 0; i < rank; ++i)
      shape.push_back(scaled(inference, static_cast<int>(i), x.dims[i], params.scales[i]));
  } else {
    shape = {params.shape.begin(), params.shape.end()};
    if (inference.optional(1)) shape = inference.shape_values(1);
    if (shape.empty()) shape = x.dims;
    inference.require(shape.size() == rank, "the output shape must have ", rank,
                      " extents like the input, but is ", str(shape));
  }
  require_valid_shape(inference.who(), shape);
  for (size_t i = 0; i < rank; ++i)
    inference.require(x.dims[i] != Expr(0) || !conflict(shape[i], Expr(0)), "axis ", i,
                      " has no elements to interpolate from");
  return {make_output(x.dtype, std::move(shape))};
}

bool Resize::is_composed(std::span<Tensor* const> inputs) const {
  return params().mode != InterpolationMode::kNEAREST && is_integer(inputs[0]->dtype());
}

std::vector<Tensor*> Resize::compose(Network& network, std::span<Tensor* const> inputs,
                                     const std::string& name) const {
  ComposedWriter writer(network, *this, name, inputs, 1, 2);
  std::vector<Tensor*> given(inputs.begin(), inputs.end());
  given[0] = writer.cast(given[0], DataType::kFLOAT);
  return {writer.round_to(writer.add<Resize>(params(), given), inputs[0]->dtype())};
}

}  // namespace opwright
