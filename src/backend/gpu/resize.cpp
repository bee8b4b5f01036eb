#include "operators/resize.h"

#include <algorithm>

#include "backend/candidates.h"
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
    source_.add_declarations(include("resize.cuh"));
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
    std::string text;
    Expr many(1);
    if (width > 1) {
      conditions.push_back(str("is_aligned<", stored(), ", ", width, ">(in0)"));
      conditions.push_back(str("is_aligned<", stored(), ", ", width, ">(out0)"));
      for (const std::string& each : conditions) text += (text.empty() ? "if (" : " && ") + each;
      text += ") {\n" + loop(width) + "return;\n}\n";
      many = count_;
    }
    const std::string single = loop(1);
    // The unaligned loop gives each thread more to do.
    const Expr count = width > 1 ? many : count_;
    return source_.finish(text + single, blocks_for(count, kThreads), kThreads);
  }

 private:
  struct Axis {
    int number;
    bool is_resized;
    std::string stride;
  };

  /// The type of stored elements.
  std::string_view stored() const {
    const DataType type = args_.outputs[0].type.dtype;
    return is_nearest_ ? carrier_type(element_size(type)) : storage_type(type);
  }

  /// Writes the loop over the outputs, `width` neighbours at a time, and sets count_ to the number
  /// of its rounds.
  std::string loop(int width) {
    size_t first = 0;
    while (first < x_.size() && !may_resize(first)) ++first;
    const Expr planes = numel(std::span(x_).first(first));
    SymShape extents = {ceil_div(planes, Expr(kPlanes))};
    std::vector<std::string> names = {"chunk"};
    std::string tables, position = "0";
    std::vector<Axis> axes;
    for (size_t i = first; i < x_.size();) {
      size_t end = i + 1;
      if (!may_resize(i))
        while (end < x_.size() && !may_resize(end)) ++end;
      const Expr from = numel(std::span(x_).subspan(i, end - i));
      const Expr to = numel(std::span(y_).subspan(i, end - i));
      const bool is_last = end == x_.size();
      const Expr pitch = is_last ? Expr(width) : numel(std::span(x_).subspan(end));
      const Axis axis{static_cast<int>(axes.size()), may_resize(i), source_.value(pitch)};
      names.push_back(str("c", axis.number));
      extents.push_back(is_last ? floor_div(to, Expr(width)) : to);
      position = str("(", position, " * ", source_.value(to), " + ", names.back(),
                     is_last && width > 1 ? str(" * ", width) : std::string(), ")");
      if (axis.is_resized) tables += table(axis.number, i, from, to);
      axes.push_back(axis);
      i = end;
    }
    count_ = numel(extents);
    const std::string pack = str("Pack<", stored(), ", ", width, ">");
    std::string text =
        str("for (Index task = first_index(); task < ", source_.value(count_),
            "; task += index_step()) {\n", source_.decompose("task", names, extents), tables,
            "const Index position = ", position, ", planes = ", source_.value(planes),
            ";\n#pragma unroll 4\nfor (int p = 0; p < ", kPlanes,
            "; ++p) {\nconst Index plane = chunk * ", kPlanes,
            " + p;\nif (plane >= planes) break;\nconst ", stored(), "* const from = in0 + plane * ",
            source_.value(numel(std::span(x_).subspan(first))), ";\n");
    text += is_nearest_ ? nearest(axes, pack) : blend(axes, pack, width);
    return str(text, "*(", pack, "*)(out0 + (plane * ",
               source_.value(numel(std::span(y_).subspan(first))),
               " + position)) = result;\n}\n}\n");
  }

  bool has_scale(size_t place) const {
    return !params_.scales.empty() && static_cast<float>(params_.scales[axes_[place]]) != 1;
  }
  bool may_resize(size_t place) const { return x_[place] != y_[place] || has_scale(place); }

  /// Statements that define `at`, the coordinate of output element i in the input.
  std::string place(size_t axis, const std::string& i, const Expr& from, const Expr& to) {
    using Transformation = ResizeCoordinateTransformation;
    const Transformation transformation = params_.coordinate_transformation;
    const auto longest = [&](const PortDesc& port) {
      return port.max[static_cast<int>(axes_[axis])];
    };
    const int64_t most_from = longest(args_.inputs[0]), most_to = longest(args_.outputs[0]);
    const Fraction scale = resize_scale(params_, static_cast<int>(axes_[axis]), most_from, most_to);
    constexpr double kMost = 0x1p30;
    const auto reach = [](int64_t a, int64_t b) {
      return (2 * static_cast<double>(a) + 1) * static_cast<double>(b);
    };
    const bool is_short =
        reach(most_to, std::max(scale.denominator, most_from)) + reach(scale.numerator, 1) < kMost;
    const std::string_view type = is_short ? "int" : "long long";
    const auto number = [&](const Expr& value) {
      return str("(", type, ")", source_.value(value));
    };
    const bool has_scales = !params_.scales.empty();
    const std::string numerator = number(has_scales ? Expr(scale.numerator) : to);
    const std::string denominator = number(has_scales ? Expr(scale.denominator) : from);
    std::string at =
        str("(2 * (", type, ")", i, " + 1) * ", denominator, " - ", numerator, ", 2 * ", numerator);
    if (transformation == Transformation::kALIGN_CORNERS)
      at = str("(", type, ")", i, " * (", number(from), " - 1), ", number(to), " - 1");
    if (transformation == Transformation::kASYMMETRIC)
      at = str("(", type, ")", i, " * ", denominator, ", ", numerator);
    at = str("place<", type, ">(", at, ")");
    const bool is_first_if_single = params_.selector == ResizeSelector::kUPPER ||
                                    transformation == Transformation::kALIGN_CORNERS ||
                                    transformation == Transformation::kPYTORCH_HALF_PIXEL;
    const std::string first = str("Place<", type, ">{0, 0, 1}");
    if (is_first_if_single)
      at = to == Expr(1) ? first : str(source_.value(to), " == 1 ? ", first, " : ", at);
    return str("const Place<", type, "> at = ", at, ";\n");
  }

  /// Statements that define the indices and weights of an axis.
  std::string table(int number, size_t axis, const Expr& from, const Expr& to) {
    const std::string i = str("c", number), index = str("index", number),
                      weight = str("weight", number);
    const std::string in = source_.value(from);
    std::string text =
        is_nearest_ ? str("Index ", index, ";\n")
                    : str("Index ", index, "[", taps_, "];\nfloat ", weight, "[", taps_, "];\n");
    const bool may_keep = !has_scale(axis) && !(from.is_constant() && to.is_constant());
    if (may_keep)
      text += str("if (", in, " == ", source_.value(to), ") {\n",
                  is_nearest_ ? str(index, " = ", i, ";\n")
                              : str("keep(", i, ", ", index, ", ", weight, ");\n"),
                  "} else ");
    text += "{\n" + place(axis, i, from, to);
    if (is_nearest_) {
      std::string_view rounded = "at.whole";
      if (params_.nearest_rounding == ResizeRoundMode::kHALF_UP)
        rounded = "at.whole + (2 * at.rest >= at.parts)";
      if (params_.nearest_rounding == ResizeRoundMode::kHALF_DOWN)
        rounded = "at.whole + (2 * at.rest > at.parts)";
      if (params_.nearest_rounding == ResizeRoundMode::kCEIL) rounded = "at.whole + (at.rest > 0)";
      text += str(index, " = within(", rounded, ", ", in, ");\n");
    } else if (taps_ == 2) {
      text += str("linear(at, ", in, ", ", index, ", ", weight, ");\n");
    } else {
      text += str("cubic<", params_.exclude_outside ? "true" : "false", ">(at, ",
                  float_literal(params_.cubic_coeff), ", ", in, ", ", index, ", ", weight, ");\n");
    }
    return text + "}\n";
  }

  static std::string nearest(const std::vector<Axis>& axes, const std::string& pack) {
    std::string at = "0";
    for (const Axis& axis : axes)
      at += str(" + ", axis.is_resized ? "index" : "c", axis.number, " * ", axis.stride);
    return str("const ", pack, " result = *(const ", pack, "*)(from + (", at, "));\n");
  }

  /// Blends along the innermost axis first, in the same order as one pass per axis.
  std::string blend(const std::vector<Axis>& axes, const std::string& pack, int width) const {
    int64_t elements = 1;
    for (const Axis& axis : axes)
      if (axis.is_resized && elements <= kMaxUnrolled) elements *= taps_;
    const std::string_view unrolled = elements <= kMaxUnrolled ? "#pragma unroll\n" : "";
    const std::string all = str("#pragma unroll\nfor (int q = 0; q < ", width, "; ++q) ");
    std::string before = str("float value[", width, "] = {};\n");
    std::string after, at = "0", sum = "value";
    for (const Axis& axis : axes) {
      if (!axis.is_resized) {
        at += str(" + c", axis.number, " * ", axis.stride);
        continue;
      }
      const std::string inner = str("sum", axis.number), k = str("k", axis.number);
      before += str(unrolled, "for (int ", k, " = 0; ", k, " < ", taps_, "; ++", k, ") {\nfloat ",
                    inner, "[", width, "] = {};\n");
      after =
          str(all, sum, "[q] += weight", axis.number, "[", k, "] * ", inner, "[q];\n}\n", after);
      at += str(" + index", axis.number, "[", k, "] * ", axis.stride);
      sum = inner;
    }
    return str(before, "const ", pack, " pack = *(const ", pack, "*)(from + (", at, "));\n", all,
               sum, "[q] = load(pack.at[q]);\n", after, pack, " result;\n", all,
               "result.at[q] = store<", stored(), ">(value[q]);\n");
  }

  const ResizeParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  SymShape x_, y_;
  std::vector<size_t> axes_;  ///< the network's axes, by place in memory
  const bool is_nearest_;
  const int taps_;
  Expr count_ = 1;
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
