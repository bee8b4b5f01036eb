#include "operators/resize.h"

#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/rows.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

constexpr int64_t kPlanes = 8;  ///< planes per thread, which computes indices and weights once for
                                ///< all of them
constexpr int64_t kMaxUnrolled = 64;  ///< the most elements of one output for which loops are
                                      ///< unrolled

/// Axes are in memory order. Leading axes that are not resized number the planes, the others a
/// position within a plane. Trailing axes that are not resized are moved some neighbours at a time.
class ResizeWriter {
 public:
  ResizeWriter(const ResizeParams& params, const KernelArgs& args)
      : params_(params),
        args_(args),
        source_("resize", args),
        is_nearest_(params.mode == InterpolationMode::kNEAREST),
        taps_(is_nearest_                                ? 1
              : params.mode == InterpolationMode::kCUBIC ? 4
                                                         : 2) {
    std::vector<Expr> given;
    if (params.scales.empty() && args.inputs.size() > 1 && args.inputs[1].present)
      given = source_.shape_values(1);
    const PortDesc& y = args.outputs[0];
    const SymShape& x = source_.dims(0);
    const auto rank = static_cast<int>(x.size());
    for (int place = 0; place < rank; ++place) {
      const int axis = axis_in_memory(y.type.format, rank, place);
      x_.push_back(x[axis]), axes_.push_back(static_cast<size_t>(axis));
      if (y.min[axis] == y.max[axis])
        y_.emplace_back(y.max[axis]);
      else if (!params.scales.empty())
        y_.push_back(scaled_extent(x[axis], params.scales[axis]).value());
      else
        y_.push_back(!given.empty() ? given.at(axis) : x[axis]);
    }
  }

  GeneratedKernel write() {
    source_.check(Expr::select(numel(y_), min(numel(x_), Expr(1)), Expr(1)),
                  "there is nothing to interpolate between in an input without elements");
    if (is_nearest_) {
      source_.set_input_type(0, stored());
      source_.set_output_type(0, stored());
    }
    size_t kept = x_.size();
    while (kept > 0 && !may_resize(kept - 1)) --kept;
    const Expr inner = numel(std::span(x_).subspan(kept));
    std::vector<std::string> conditions;
    int width = 1;
    if (kept > 0 && inner != Expr(1))
      width = vector_width(source_, element_size(args_.outputs[0].type.dtype), std::span(&inner, 1),
                           conditions);
    ConfigWriter config;
    const std::string packs = call(width, config);
    source_.add_declarations(include("resize.cuh") + config.write());
    const Expr tasks = tasks_;
    if (width == 1) return source_.finish(packs, blocks_for(tasks, kThreads), kThreads);
    for (const std::string_view pointer : {"in0", "out0"})
      conditions.push_back(str("is_aligned<", stored(), ", ", width, ">(", pointer, ")"));
    // The unaligned loop gives each thread more to do.
    return source_.finish(str("if (", joined(conditions, " && "), ") {\n", packs, "} else {\n",
                              call(1, config), "}\n"),
                          blocks_for(tasks, kThreads), kThreads);
  }

 private:
  /// The type of stored elements.
  std::string_view stored() const {
    const DataType type = args_.outputs[0].type.dtype;
    return is_nearest_ ? carrier_type(element_size(type)) : storage_type(type);
  }
  bool has_scale(size_t place) const {
    return !params_.scales.empty() && static_cast<float>(params_.scales[axes_[place]]) != 1;
  }
  bool may_resize(size_t place) const { return x_[place] != y_[place] || has_scale(place); }

  /// Writes the call for `width` neighbours at a time, and the members of Config. Sets tasks_ to
  /// the number of the tasks.
  std::string call(int width, ConfigWriter& config) {
    size_t first = 0;
    while (first < x_.size() && !may_resize(first)) ++first;
    const Expr planes = numel(std::span(x_).first(first));
    tasks_ = ceil_div(planes, Expr(kPlanes));
    int axes = 0, resized = 0, open = 0, narrow = 0;
    int64_t taps = 1;
    std::string text;
    const auto add = [&](std::initializer_list<Expr> numbers) {
      text += str(axes++ > 0 ? ", {" : "{", source_.values(numbers), "}");
    };
    for (size_t i = first; i < x_.size();) {
      size_t end = i + 1;
      if (!may_resize(i))
        while (end < x_.size() && !may_resize(end)) ++end;
      const Expr from = numel(std::span(x_).subspan(i, end - i));
      const Expr to = numel(std::span(y_).subspan(i, end - i));
      const bool is_last = end == x_.size();
      const Expr count = is_last ? floor_div(to, Expr(width)) : to;
      tasks_ = tasks_ * count;
      Expr numerator = to, denominator = from;
      if (may_resize(i)) {
        const Fraction scale = scale_of(i);
        if (!params_.scales.empty())
          numerator = Expr(scale.numerator), denominator = Expr(scale.denominator);
        resized |= 1 << axes;
        open |= (!has_scale(i) && !(from.is_constant() && to.is_constant())) << axes;
        narrow |= is_narrow(i, scale) << axes;
        if (taps <= kMaxUnrolled) taps *= taps_;
      }
      add({from, to, is_last ? Expr(width) : numel(std::span(x_).subspan(end)), count, numerator,
           denominator});
      i = end;
    }
    if (axes == 0) add({1, 1, 0, 1, 1, 1});
    if (config.is_empty()) write_config(config, axes, resized, open, narrow, taps <= kMaxUnrolled);
    return str("const ResizeArguments<Config> all = {in0, out0, ",
               source_.values({tasks_, planes, numel(std::span(x_).subspan(first)),
                               numel(std::span(y_).subspan(first))}),
               ", {", text, "}};\nresize_planes<Config, ", width, ">(all);\n");
  }

  void write_config(ConfigWriter& config, int axes, int resized, int open, int narrow,
                    bool is_unrolled) const {
    using Transformation = ResizeCoordinateTransformation;
    const Transformation transformation = params_.coordinate_transformation;
    const bool is_aligned = transformation == Transformation::kALIGN_CORNERS;
    config.type("Element", stored());
    config.value("ResizeMode", "kMode",
                 is_nearest_  ? "ResizeMode::kNearest"
                 : taps_ == 2 ? "ResizeMode::kLinear"
                              : "ResizeMode::kCubic");
    config.value("Coordinates", "kCoordinates",
                 is_aligned                                      ? "Coordinates::kAlignCorners"
                 : transformation == Transformation::kASYMMETRIC ? "Coordinates::kAsymmetric"
                                                                 : "Coordinates::kHalfPixel");
    const auto is_rounded = [&](ResizeRoundMode mode) { return params_.nearest_rounding == mode; };
    config.value("Rounding", "kRounding",
                 is_rounded(ResizeRoundMode::kHALF_UP)     ? "Rounding::kHalfUp"
                 : is_rounded(ResizeRoundMode::kHALF_DOWN) ? "Rounding::kHalfDown"
                 : is_rounded(ResizeRoundMode::kCEIL)      ? "Rounding::kCeil"
                                                           : "Rounding::kFloor");
    config.flag("kTakesFirst", params_.selector == ResizeSelector::kUPPER || is_aligned ||
                                   transformation == Transformation::kPYTORCH_HALF_PIXEL);
    config.number("kCubic", params_.cubic_coeff);
    config.flag("kExcludesOutside", params_.exclude_outside);
    config.number("kTaps", taps_), config.number("kAxes", axes);
    config.number("kResized", resized), config.number("kOpen", open);
    config.number("kShort", narrow);
    config.number("kPlanes", kPlanes), config.flag("kIsUnrolled", is_unrolled);
  }

  int64_t longest(const PortDesc& port, size_t place) const {
    return port.max[static_cast<int>(axes_[place])];
  }
  Fraction scale_of(size_t place) const {
    return resize_scale(params_, static_cast<int>(axes_[place]), longest(args_.inputs[0], place),
                        longest(args_.outputs[0], place));
  }
  /// Whether positions along the axis fit an int.
  bool is_narrow(size_t place, const Fraction& scale) const {
    const int64_t from = longest(args_.inputs[0], place), to = longest(args_.outputs[0], place);
    constexpr double kMost = 0x1p30;
    const auto reach = [](int64_t a, int64_t b) {
      return (2 * static_cast<double>(a) + 1) * static_cast<double>(b);
    };
    return reach(to, std::max(scale.denominator, from)) + reach(scale.numerator, 1) < kMost;
  }

  const ResizeParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  SymShape x_, y_;
  std::vector<size_t> axes_;  ///< the network's axes, by place in memory
  const bool is_nearest_;
  const int taps_;
  Expr tasks_ = 1;
};

std::vector<Candidate> resize_candidates(const Operator& op, const CandidateQuery& query) {
  const ResizeParams& params = static_cast<const Resize&>(op).params();
  std::vector<Candidate> result = moving_candidates(
      query, formats_of(query, query.inputs[0].opt.rank()), [&](const KernelArgs& args) {
        std::vector<std::string> names;
        if (params.mode == InterpolationMode::kNEAREST || is_floating(args.inputs[0].type.dtype))
          names.push_back(str(kPlanes, " planes per thread"));
        return names;
      });
  // A shape input is always LINEAR.
  for (Candidate& candidate : result)
    if (candidate.inputs.size() > 1) candidate.inputs[1].format = TensorFormat::kLINEAR;
  return result;
}

std::optional<GeneratedKernel> generate_resize(const Operator& op, const KernelArgs& args) {
  return ResizeWriter(static_cast<const Resize&>(op).params(), args).write();
}

const RegisteredKernels<Resize> kResizeKernels({resize_candidates, generate_resize, nullptr});

}  // namespace
}  // namespace opwright::gpu
