// Resize and Upsample.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "onnx/importer.h"
#include "operators/movement.h"
#include "operators/rationals.h"
#include "operators/resize.h"

namespace opwright::onnx {
namespace {

/// A Resize of one axis for which the layer has no mode, as weights of the input's elements for
/// each output element.
struct ResampledAxis {
  int axis = 0;
  int64_t from = 0, to = 0;
  std::vector<float> weights;  ///< [to, from]; rows of elements from outside are 0
  std::vector<float> outside;  ///< [to]: the share of elements from outside, which is added
  Ints nearest;                ///< [to]: the only input element, if nothing is interpolated
};

/// The rule for resampling an axis. The names are those of ONNX's attributes.
struct ResampleRule {
  std::string mode, transformation, nearest_mode;
  bool antialias = false, exclude_outside = false;
  double cubic_coeff = -0.75, extrapolation_value = 0;
  double roi_start = 0, roi_end = 1;
  Fraction scale{1, 1};
};

double coordinate(const ResampleRule& rule, int64_t from, int64_t to, int64_t i) {
  const auto x = static_cast<double>(i), extent = static_cast<double>(from);
  // Only divisions round, so places on an element, or in the middle between two, stay exact.
  const auto p = static_cast<double>(rule.scale.numerator);
  const auto q = static_cast<double>(rule.scale.denominator);
  const double length = p * extent / q;  // of the output, before it is rounded down
  if (rule.transformation == "align_corners")
    return length == 1 ? 0 : x * (extent - 1) * q / (p * extent - q);
  if (rule.transformation == "asymmetric") return x * q / p;
  if (rule.transformation == "tf_crop_and_resize") {
    const double region = (rule.roi_end - rule.roi_start) * (extent - 1);
    return rule.roi_start * (extent - 1) + (length == 1 ? region / 2 : x * region / (length - 1));
  }
  if (rule.transformation == "pytorch_half_pixel" && length == 1) return -0.5;
  double numerator = (2 * x + 1) * q - p;
  if (rule.transformation == "half_pixel_symmetric")
    numerator += p * extent - static_cast<double>(to) * q;
  return numerator / (2 * p);
}

double kernel(const ResampleRule& rule, double distance) {
  const double t = std::abs(distance), a = rule.cubic_coeff;
  if (rule.mode != "cubic") return std::clamp(1 - t, 0.0, 1.0);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

int64_t nearest_of(const std::string& nearest_mode, double x) {
  if (nearest_mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (nearest_mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (nearest_mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(x + 0.5));
  return static_cast<int64_t>(std::ceil(x - 0.5));
}

ResampledAxis resampled(const ResampleRule& rule, int axis, int64_t from, int64_t to) {
  ResampledAxis result{axis, from, to, {}, std::vector<float>(static_cast<size_t>(to)), {}};
  const bool is_nearest = rule.mode == "nearest";
  if (!is_nearest) result.weights.resize(static_cast<size_t>(from * to));
  // Antialiasing widens the kernel to as many elements as become one.
  const double scale =
      static_cast<double>(rule.scale.numerator) / static_cast<double>(rule.scale.denominator);
  const double shrink = rule.antialias ? std::min(scale, 1.0) : 1.0;
  const double radius = (rule.mode == "cubic" ? 2 : 1) / shrink;
  for (int64_t i = 0; i < to; ++i) {
    const double x = coordinate(rule, from, to, i);
    const bool is_outside =
        rule.transformation == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(from - 1));
    if (is_outside)
      result.outside[static_cast<size_t>(i)] = static_cast<float>(rule.extrapolation_value);
    if (is_nearest) {
      result.nearest.push_back(
          is_outside ? from : std::clamp<int64_t>(nearest_of(rule.nearest_mode, x), 0, from - 1));
      continue;
    }
    if (is_outside) continue;
    float* const row = &result.weights[static_cast<size_t>(i * from)];
    double sum = 0;
    std::vector<std::pair<int64_t, double>> taps;
    for (auto k = static_cast<int64_t>(std::floor(x - radius)) + 1;
         static_cast<double>(k) < x + radius; ++k) {
      const bool counts = !rule.exclude_outside || (k >= 0 && k < from);
      const double weight = counts ? kernel(rule, (static_cast<double>(k) - x) * shrink) : 0;
      taps.emplace_back(std::clamp<int64_t>(k, 0, from - 1), weight);
      sum += weight;
    }
    if (!rule.antialias && !rule.exclude_outside) sum = 1;
    for (const auto& [k, weight] : taps) row[k] += static_cast<float>(weight / sum);
  }
  return result;
}

/// x with one axis resampled: by a product with a matrix or, for the nearest element, by picking.
Tensor* apply(NodeImporter& node, Tensor* x, const ResampledAxis& axis) {
  const auto constant = [&](DataType type, const Shape& shape, const void* data, size_t bytes) {
    Tensor* made = node.network().add_constant(type, shape, Blob::copy(data, bytes));
    node.network().weight_names().fix(*made->producer());
    return made;
  };
  const bool has_outside =
      std::any_of(axis.outside.begin(), axis.outside.end(), [](float value) { return value != 0; });
  SymShape row(static_cast<size_t>(x->rank() - axis.axis), Expr(1));
  row[0] = axis.to;
  const auto outside = [&](DataType type) {
    return node.reshape(node.constant_of(Shape{axis.to}, axis.outside, type), row);
  };
  if (axis.weights.empty()) {
    Ints inside = axis.nearest;
    std::vector<uint8_t> is_outside;
    for (int64_t& i : inside) {
      is_outside.push_back(i == axis.from);
      if (i == axis.from) i = 0;
    }
    GatherParams params;
    params.axis = axis.axis;
    Tensor* y =
        node.add<Gather>(params, {x, constant(DataType::kINT64, Shape{axis.to}, inside.data(),
                                              inside.size() * sizeof(int64_t))});
    if (std::none_of(is_outside.begin(), is_outside.end(), [](uint8_t is) { return is != 0; }))
      return y;
    Tensor* mask = constant(DataType::kBOOL, Shape{axis.to}, is_outside.data(), is_outside.size());
    return node.select(node.reshape(mask, row), outside(x->dtype()), y);
  }
  Ints to_end, back;
  for (int i = 0; i < x->rank(); ++i)
    if (i != axis.axis) to_end.push_back(i);
  to_end.push_back(axis.axis);
  back.resize(to_end.size());
  for (size_t i = 0; i < to_end.size(); ++i)
    back[static_cast<size_t>(to_end[i])] = static_cast<int64_t>(i);
  const bool is_last = axis.axis == x->rank() - 1;
  Tensor* weights = node.constant_of(Shape{axis.to, axis.from}, axis.weights, x->dtype());
  // The product needs rows.
  Tensor* rows = is_last ? x : node.transpose(x, to_end);
  const bool is_vector = x->rank() == 1;
  if (is_vector) rows = node.unsqueeze(rows, {0});
  Tensor* y =
      node.multiply_matrices(rows, weights, MatrixOperation::kNONE, MatrixOperation::kTRANSPOSE);
  if (is_vector) y = node.squeeze(y, {0});
  if (!is_last) y = node.transpose(y, back);
  return has_outside ? node.elementwise(ElementWiseOperation::kSUM, y, outside(x->dtype())) : y;
}

/// The extents and scales for which a Resize asks, by axis of the input.
struct Wanted {
  std::vector<Expr> extents;
  Floats scales;  ///< empty if extents are given
  /// The scale of all axes, if extents keep their proportions.
  std::optional<Fraction> kept;
};

/// Requires constant extents: a computation here, unlike the layer's, cannot follow shapes.
void require_fixed(NodeImporter& node, Tensor* x, const Expr& extent, const Expr& size,
                   const std::string& what) {
  constexpr auto kDynamic = onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC;
  if (!extent.is_constant())
    node.error_needs(kDynamic, x, "the input",
                     str("needs constant extents for ", what, ", but one is ", extent.str()));
  if (extent.constant() < 1) node.error("the input has no elements; ", what, " needs one");
  if (size.is_constant()) return;
  Tensor* sizes = node.optional_input(3);
  node.error_needs(kDynamic, sizes != nullptr ? sizes : node.input(2), "sizes or scales",
                   str("must be constant for ", what));
}

/// Sizes with a policy: the image keeps its proportions and fits the sizes, or covers them.
void keep_aspect_ratio(NodeImporter& node, const std::string& policy, Tensor* x, const Ints& axes,
                       Wanted& wanted) {
  if (policy != "not_larger" && policy != "not_smaller")
    node.error("keep_aspect_ratio_policy is '", policy,
               "'; expected stretch, not_larger or not_smaller");
  const auto quotient = [](const Fraction& fraction) {
    return static_cast<double>(fraction.numerator) / static_cast<double>(fraction.denominator);
  };
  std::optional<Fraction>& kept = wanted.kept;
  for (const int64_t axis : axes) {
    const Expr &extent = x->dims()[static_cast<size_t>(axis)],
               &size = wanted.extents[static_cast<size_t>(axis)];
    require_fixed(node, x, extent, size, str("keep_aspect_ratio_policy '", policy, "'"));
    const Fraction own{size.constant(), extent.constant()};
    if (!kept || (policy == "not_larger" ? quotient(own) < quotient(*kept)
                                         : quotient(own) > quotient(*kept)))
      kept = own;
  }
  for (const int64_t axis : axes) {
    // Rounds half up.
    const Expr twice = Expr(2) * x->dims()[static_cast<size_t>(axis)] * Expr(kept->numerator);
    wanted.extents[static_cast<size_t>(axis)] =
        floor_div(twice + Expr(kept->denominator), Expr(2) * Expr(kept->denominator));
  }
  wanted.scales.assign(static_cast<size_t>(x->rank()), 1);
  if (kept)
    for (const int64_t axis : axes) wanted.scales[static_cast<size_t>(axis)] = quotient(*kept);
}

void resize_coordinates(NodeImporter& node, ResizeParams& params) {
  const std::string mode = node.get_text("coordinate_transformation_mode",
                                         node.opset() < 11 ? "asymmetric" : "half_pixel");
  using Transform = ResizeCoordinateTransformation;
  if (mode == "half_pixel")
    params.coordinate_transformation = Transform::kHALF_PIXEL;
  else if (mode == "pytorch_half_pixel")
    params.coordinate_transformation = Transform::kPYTORCH_HALF_PIXEL;
  else if (mode == "align_corners")
    params.coordinate_transformation = Transform::kALIGN_CORNERS;
  else if (mode == "asymmetric")
    params.coordinate_transformation = Transform::kASYMMETRIC;
  else if (mode != "half_pixel_symmetric" && mode != "tf_crop_and_resize")
    node.error("coordinate_transformation_mode '", mode, "' is not known");
  const std::string rounding =
      node.get_text("nearest_mode", node.opset() < 11 ? "floor" : "round_prefer_floor");
  if (rounding == "round_prefer_floor")
    params.nearest_rounding = ResizeRoundMode::kHALF_DOWN;
  else if (rounding == "round_prefer_ceil")
    params.nearest_rounding = ResizeRoundMode::kHALF_UP;
  else if (rounding == "floor")
    params.nearest_rounding = ResizeRoundMode::kFLOOR;
  else if (rounding == "ceil")
    params.nearest_rounding = ResizeRoundMode::kCEIL;
  else
    node.error("nearest_mode is '", rounding,
               "'; expected round_prefer_floor, round_prefer_ceil, floor or ceil");
}

/// Extents from scales that data decides.
void scale_by_data(NodeImporter& node, Tensor* scales, const Ints& axes, Wanted& wanted) {
  const std::vector<Tensor*> factors = node.elements_of(scales, DataType::kFLOAT);
  if (factors.size() != axes.size())
    node.error("scales has ", factors.size(), " values; expected ", axes.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    Expr& extent = wanted.extents[static_cast<size_t>(axes[i])];
    if (const auto known = node.known_number(scales, static_cast<int64_t>(i))) {
      if (const std::optional<Rational> factor = rational_of(*known)) {
        extent = floor(*factor * Rational{extent, 1});
        continue;
      }
    }
    Tensor* length = node.elementwise(ElementWiseOperation::kPROD,
                                      node.scalar_of(extent, DataType::kFLOAT), factors[i]);
    length = node.unary(UnaryOperation::kFLOOR, length);
    extent = node.extent(node.cast(length, DataType::kINT64), "scales", {}, scales);
  }
}

Wanted wanted_of(NodeImporter& node, Tensor* x, const Ints& axes) {
  const bool old = node.opset() < 11;  // Upsample and Resize 10 have the inputs x and scales
  Tensor* scales = node.opset() < 9 ? nullptr : node.optional_input(old ? 1 : 2);
  Tensor* sizes = old ? nullptr : node.optional_input(3);
  Wanted wanted;
  wanted.extents.assign(x->dims().begin(), x->dims().end());
  Floats factors;
  std::vector<Rational> computed;
  if (node.opset() < 9) {
    const AttributeProto* given = node.attribute("scales", AttributeProto::Type::kFloats);
    if (given) factors.assign(given->floats.begin(), given->floats.end());
  } else if (scales != nullptr && scales->dims() != SymShape{0}) {
    // Scales that follow shapes give extents, which the layer gets instead.
    if (!node.is_known(scales)) {
      scale_by_data(node, scales, axes, wanted);
      return wanted;
    }
    if (node.known_elements(scales).empty()) computed = node.rationals(scales, "scales");
    if (std::ranges::all_of(computed, [](const Rational& r) { return r.is_constant(); }))
      factors = node.constant_floats(scales, "scales");
  }
  const auto require_count = [&](std::string_view what, size_t count) {
    if (count != axes.size()) node.error(what, " has ", count, " values; expected ", axes.size());
  };
  if (!factors.empty()) {
    require_count("scales", factors.size());
    wanted.scales.assign(static_cast<size_t>(x->rank()), 1);
    for (size_t i = 0; i < axes.size(); ++i)
      wanted.scales[static_cast<size_t>(axes[i])] = factors[i];
  } else if (!computed.empty()) {
    require_count("scales", computed.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      Expr& extent = wanted.extents[static_cast<size_t>(axes[i])];
      extent = floor(computed[i] * Rational{extent, 1});
    }
  } else if (sizes != nullptr) {
    const std::vector<Expr> given = node.extents(sizes, "sizes");
    require_count("sizes", given.size());
    for (size_t i = 0; i < axes.size(); ++i)
      wanted.extents[static_cast<size_t>(axes[i])] = given[i];
    const std::string policy = node.get_text("keep_aspect_ratio_policy", "stretch");
    if (policy != "stretch") keep_aspect_ratio(node, policy, x, axes, wanted);
  } else {
    node.error("neither scales nor sizes are given");
  }
  return wanted;
}

/// Weights are no integers, so integers are interpolated in FP32.
bool is_rounded(const ResampleRule& rule, DataType type) {
  return rule.mode != "nearest" && is_integer(type);
}

/// Resamples axis by axis where the layer has no mode. Needs constant extents.
void resample(NodeImporter& node, const Ints& axes, const Wanted& wanted, ResampleRule rule) {
  Tensor* x = node.input(0);
  Floats roi;
  if (rule.transformation == "tf_crop_and_resize") {
    Tensor* given = node.input(1);
    roi = node.constant_floats(given, "roi");
    if (roi.size() != 2 * axes.size())
      node.error("roi has ", roi.size(), " values; expected ", 2 * axes.size());
  }
  const bool rounds = is_rounded(rule, x->dtype());
  Tensor* y = rounds ? node.cast(x, DataType::kFLOAT) : x;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    const Expr extent = x->dims()[axis];
    require_fixed(node, x, extent, wanted.extents[axis],
                  rule.antialias
                      ? "antialias=1"
                      : str("coordinate_transformation_mode '", rule.transformation, "'"));
    const int64_t from = extent.constant();
    if (!roi.empty()) rule.roi_start = roi[i], rule.roi_end = roi[i + axes.size()];
    const double region = rule.roi_end - rule.roi_start;
    double length = static_cast<double>(wanted.extents[axis].constant());
    rule.scale = {wanted.extents[axis].constant(), from};
    if (wanted.kept) {
      rule.scale = *wanted.kept;
    } else if (!wanted.scales.empty()) {
      const double scale = wanted.scales[axis];
      const std::optional<Fraction> fraction =
          std::isfinite(scale) && scale > 0 ? simplest_fraction(scale) : std::nullopt;
      if (!fraction)
        node.error("the scale of axis ", axis, " is ", scale,
                   "; expected a fraction of 31-bit integers above 0");
      rule.scale = *fraction;
      // Scales and regions pass through single precision.
      length = std::floor(
          static_cast<double>(static_cast<float>(static_cast<double>(from) * region * scale)));
    }
    constexpr double kMost = 0x1p31;
    if (!(length >= 0 && length * static_cast<double>(from) < kMost))
      node.error("axis ", axis, " would have ", length, " elements");
    const auto to = static_cast<int64_t>(length);
    if (from == to && rule.scale.numerator == rule.scale.denominator && region == 1) continue;
    y = apply(node, y, resampled(rule, static_cast<int>(axis), from, to));
  }
  node.set_output(0, rounds ? node.round_to(y, x->dtype()) : y);
}

void resize(NodeImporter& node) {
  Tensor* x = node.input(0);
  const int rank = x->rank();
  ResampleRule rule;
  rule.mode = node.get_text("mode", "nearest");
  if (rule.mode == "bilinear") rule.mode = "linear";
  ResizeParams params;
  if (rule.mode == "nearest")
    params.mode = InterpolationMode::kNEAREST;
  else if (rule.mode == "linear")
    params.mode = InterpolationMode::kLINEAR;
  else if (rule.mode == "cubic")
    params.mode = InterpolationMode::kCUBIC;
  else
    node.error("mode is '", rule.mode, "'; expected nearest, linear or cubic");
  resize_coordinates(node, params);
  params.cubic_coeff = node.get_float("cubic_coeff_a", -0.75f);
  params.exclude_outside = node.get_int("exclude_outside", 0) != 0;
  rule.transformation = node.get_text("coordinate_transformation_mode", "half_pixel");
  rule.nearest_mode = node.get_text("nearest_mode", "round_prefer_floor");
  rule.antialias = node.get_int("antialias", 0) != 0;
  rule.exclude_outside = params.exclude_outside;
  rule.cubic_coeff = params.cubic_coeff;
  rule.extrapolation_value = node.get_float("extrapolation_value", 0);

  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (node.attribute("axes", AttributeProto::Type::kInts))
    axes = node.axes(node.get_ints("axes"), rank);
  Wanted wanted = wanted_of(node, x, axes);
  // With a policy all axes have one scale, which is not the quotient of their rounded extents.
  const bool keeps_aspect_ratio = !wanted.scales.empty() && node.opset() >= 11 &&
                                  node.optional_input(3) != nullptr &&
                                  node.get_text("keep_aspect_ratio_policy", "stretch") != "stretch";
  if (rule.antialias || keeps_aspect_ratio || rule.transformation == "half_pixel_symmetric" ||
      rule.transformation == "tf_crop_and_resize")
    return resample(node, axes, wanted, rule);
  std::vector<Tensor*> inputs = {x};
  if (!wanted.scales.empty()) {
    params.scales = wanted.scales;
  } else if (is_constant(wanted.extents)) {
    for (const Expr& extent : wanted.extents) params.shape.push_back(extent.constant());
  } else {
    inputs.push_back(node.network().add_values(std::move(wanted.extents)));
  }
  node.set_output(0, node.add<Resize>(params, inputs));
}

}  // namespace

void add_resize(NodeTable& table) {
  table["Resize"] = resize;
  table["Upsample"] = resize;
}

}  // namespace opwright::onnx
