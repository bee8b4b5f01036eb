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

/// Where on an axis an output element lies and what it is made of, in FP32 and step by step as
/// ONNX's reference has it, as on the CPU: where an exact coordinate lies on the border between two
/// elements, another way of rounding would choose the other one.
constexpr std::string_view kResizeTaps = R"(
// The element at a coordinate, 0 where that is none. What lies far outside stays outside.
__device__ inline Index element_at(float x) {
  return x == x ? (Index)fminf(fmaxf(x, -1073741824.0f), 1073741824.0f) : (Index)0;
}
__device__ inline Index within(Index at, Index extent) {
  return at < 0 ? 0 : at < extent ? at : extent - 1;
}
__device__ inline Index nearest(float rounded, Index extent) {
  return within(element_at(rounded), extent);
}
// An axis that keeps its extent: so that the weights of neighbours that are one element add up to
// 1 without a product of 0 and infinity.
template <int taps>
__device__ inline void keep(Index i, Index (&index)[taps], float (&weight)[taps]) {
#pragma unroll
  for (int k = 0; k < taps; ++k) index[k] = i, weight[k] = 1.0f / taps;
}
__device__ inline void linear(float x, Index extent, Index (&index)[2], float (&weight)[2]) {
  x = fminf(fmaxf(x, 0.0f), (float)(extent - 1));
  index[0] = within(element_at(x), extent);
  index[1] = index[0] + 1 < extent ? index[0] + 1 : extent - 1;
  weight[1] = x - (float)index[0];
  weight[0] = 1.0f - weight[1];
}
// R. Keys, "Cubic convolution interpolation for digital image processing" (IEEE Transactions on
// Acoustics, Speech, and Signal Processing 29, 1981).
__device__ inline float cubic_weight(float distance, float a) {
  const float t = fabsf(distance);
  if (t <= 1.0f) return ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f;
  if (t < 2.0f) return ((a * t - 5.0f * a) * t + 8.0f * a) * t - 4.0f * a;
  return 0.0f;
}
template <bool excludes_outside>
__device__ inline void cubic(float x, float a, Index extent, Index (&index)[4],
                             float (&weight)[4]) {
  const float base = floorf(x);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const Index at = element_at(base) + (k - 1);
    weight[k] = cubic_weight(x - base - (float)(k - 1), a);
    if (excludes_outside && (at < 0 || at >= extent)) weight[k] = 0.0f;
    index[k] = within(at, extent);
    sum += weight[k];
  }
  if (excludes_outside)
#pragma unroll
    for (int k = 0; k < 4; ++k) weight[k] /= sum;
}
)";

constexpr int64_t kPlanes = 8;  ///< of a thread, which computes indices and weights once for all
constexpr int64_t kMaxUnrolled = 64;  ///< elements that an output is made of

/// Leading axes that are not resized number planes, the others a position within one.
class ResizeWriter {
 public:
  ResizeWriter(const ResizeParams& params, const KernelArgs& args)
      : params_(params),
        args_(args),
        source_("resize", args),
        x_(source_.dims(0)),
        is_nearest_(params.mode == InterpolationMode::kNEAREST),
        taps_(is_nearest_                                ? 1
              : params.mode == InterpolationMode::kCUBIC ? 4
                                                         : 2) {
    std::vector<Expr> given;
    if (params.scales.empty() && args.inputs.size() > 1 && args.inputs[1].present)
      given = source_.shape_values(1);
    for (size_t i = 0; i < x_.size(); ++i) {
      const PortDesc& y = args.outputs[0];
      const int axis = static_cast<int>(i);
      if (y.min[axis] == y.max[axis])
        y_.emplace_back(y.max[axis]);
      else if (!params.scales.empty())
        y_.push_back(scaled_extent(x_[i], params.scales[i]).value());
      else
        y_.push_back(!given.empty() ? given.at(i) : x_[i]);
    }
  }

  GeneratedKernel write() {
    source_.check(Expr::select(numel(y_), min(numel(x_), Expr(1)), Expr(1)),
                  "there is nothing to interpolate between in an input without elements");
    size_t first = 0;
    while (first < x_.size() && !may_resize(first)) ++first;
    const Expr planes = numel(std::span(x_).first(first));
    const Expr chunks = ceil_div(planes, Expr(kPlanes));
    // The axes from the first resized one on, neighbours that keep their extent as one.
    SymShape extents = {chunks};
    std::vector<std::string> names = {"chunk"};
    std::string tables;
    std::vector<Axis> axes;
    for (size_t i = first; i < x_.size();) {
      size_t end = i + 1;
      if (!may_resize(i))
        while (end < x_.size() && !may_resize(end)) ++end;
      const Expr from = numel(std::span(x_).subspan(i, end - i));
      const Expr to = numel(std::span(y_).subspan(i, end - i));
      Axis axis{static_cast<int>(axes.size()), may_resize(i),
                source_.value(numel(std::span(x_).subspan(end)))};
      names.push_back(str("c", axis.number)), extents.push_back(to);
      if (axis.is_resized) tables += table(axis.number, i, from, to);
      axes.push_back(axis);
      i = end;
    }
    const Expr count = numel(extents);
    const std::string image = source_.value(numel(std::span(x_).subspan(first)));
    const std::string result = source_.value(numel(std::span(y_).subspan(first)));
    std::string position = "0";
    for (size_t i = 1; i < names.size(); ++i)
      position = str("(", position, " * ", source_.value(extents[i]), " + ", names[i], ")");
    std::string text = str(
        "for (Index task = first_index(); task < ", source_.value(count),
        "; task += index_step()) {\n", source_.decompose("task", names, extents), tables,
        "const Index position = ", position, ", planes = ", source_.value(planes), ";\n",
        "#pragma unroll 4\nfor (int p = 0; p < ", kPlanes, "; ++p) {\nconst Index plane = chunk * ",
        kPlanes, " + p;\nif (plane >= planes) break;\nconst auto* const from = in0 + plane * ",
        image, ";\n");
    text += is_nearest_ ? nearest(axes) : blend(axes);
    text += str("out0[plane * ", result, " + position] = ",
                is_nearest_ ? std::string("value")
                            : str("store<", storage_type(args_.outputs[0].type.dtype), ">(value)"),
                ";\n}\n}\n");
    source_.add_declarations(kResizeTaps);
    if (is_nearest_) {
      const std::string_view carrier = carrier_type(element_size(args_.outputs[0].type.dtype));
      source_.set_input_type(0, carrier);
      source_.set_output_type(0, carrier);
    }
    return source_.finish(text, blocks_for(count, kThreads), kThreads);
  }

 private:
  struct Axis {
    int number;
    bool is_resized;
    std::string stride;
  };

  bool has_scale(size_t axis) const {
    return !params_.scales.empty() && static_cast<float>(params_.scales[axis]) != 1;
  }
  bool may_resize(size_t axis) const { return x_[axis] != y_[axis] || has_scale(axis); }

  /// Statements that define `x`, the coordinate of output element i.
  std::string coordinate(size_t axis, const std::string& i, const std::string& from,
                         const std::string& to) {
    using Transformation = ResizeCoordinateTransformation;
    const std::string scale = params_.scales.empty()
                                  ? str("((float)", to, " / (float)", from, ")")
                                  : float_literal(static_cast<float>(params_.scales[axis]));
    std::string x = str("((float)", i, " + 0.5f) / ", scale, " - 0.5f");
    const bool is_first_if_single =
        params_.selector == ResizeSelector::kUPPER ||
        params_.coordinate_transformation == Transformation::kALIGN_CORNERS ||
        params_.coordinate_transformation == Transformation::kPYTORCH_HALF_PIXEL;
    if (params_.coordinate_transformation == Transformation::kALIGN_CORNERS)
      x = str("(float)", i, " * (float)(", from, " - 1) / (float)(", to, " - 1)");
    if (params_.coordinate_transformation == Transformation::kASYMMETRIC)
      x = str("(float)", i, " / ", scale);
    return str("const float x = ", is_first_if_single ? str(to, " == 1 ? 0.0f : ") : std::string(),
               x, ";\n");
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
    text += "{\n" + coordinate(axis, i, in, source_.value(to));
    if (is_nearest_) {
      std::string_view rounded = "floorf(x)";
      if (params_.nearest_rounding == ResizeRoundMode::kHALF_UP) rounded = "floorf(x + 0.5f)";
      if (params_.nearest_rounding == ResizeRoundMode::kHALF_DOWN) rounded = "ceilf(x - 0.5f)";
      if (params_.nearest_rounding == ResizeRoundMode::kCEIL) rounded = "ceilf(x)";
      text += str(index, " = nearest(", rounded, ", ", in, ");\n");
    } else if (taps_ == 2) {
      text += str("linear(x, ", in, ", ", index, ", ", weight, ");\n");
    } else {
      text += str("cubic<", params_.exclude_outside ? "true" : "false", ">(x, ",
                  float_literal(params_.cubic_coeff), ", ", in, ", ", index, ", ", weight, ");\n");
    }
    return text + "}\n";
  }

  static std::string nearest(const std::vector<Axis>& axes) {
    std::string at = "0";
    for (const Axis& axis : axes)
      at += str(" + ", axis.is_resized ? "index" : "c", axis.number, " * ", axis.stride);
    return str("const auto value = from[", at, "];\n");
  }

  /// Along the innermost axis first, as it is done axis by axis.
  std::string blend(const std::vector<Axis>& axes) const {
    int64_t elements = 1;
    for (const Axis& axis : axes)
      if (axis.is_resized && elements <= kMaxUnrolled) elements *= taps_;
    const std::string_view unrolled = elements <= kMaxUnrolled ? "#pragma unroll\n" : "";
    std::string before, after, at = "0", sum = "value";
    before = "float value = 0.0f;\n";
    for (const Axis& axis : axes) {
      if (!axis.is_resized) {
        at += str(" + c", axis.number, " * ", axis.stride);
        continue;
      }
      const std::string inner = str("sum", axis.number);
      before += str(unrolled, "for (int k", axis.number, " = 0; k", axis.number, " < ", taps_,
                    "; ++k", axis.number, ") {\nfloat ", inner, " = 0.0f;\n");
      after =
          str(sum, " += weight", axis.number, "[k", axis.number, "] * ", inner, ";\n}\n", after);
      at += str(" + index", axis.number, "[k", axis.number, "] * ", axis.stride);
      sum = inner;
    }
    return str(before, sum, " = load(from[", at, "]);\n", after);
  }

  const ResizeParams& params_;
  const KernelArgs& args_;
  KernelSource source_;
  const SymShape& x_;
  SymShape y_;
  const bool is_nearest_;
  const int taps_;
};

std::vector<Candidate> resize_candidates(const Operator& op, const CandidateQuery& query) {
  const ResizeParams& params = static_cast<const Resize&>(op).params();
  return moving_candidates(query, [&](const KernelArgs& args) {
    std::vector<std::string> names;
    if (params.mode == InterpolationMode::kNEAREST || is_floating(args.inputs[0].type.dtype))
      names.push_back(str(kPlanes, " planes per thread"));
    return names;
  });
}

std::optional<GeneratedKernel> generate_resize(const Operator& op, const KernelArgs& args) {
  return ResizeWriter(static_cast<const Resize&>(op).params(), args).write();
}

const RegisteredKernels<Resize> kResizeKernels({resize_candidates, generate_resize, nullptr});

}  // namespace
}  // namespace opwright::gpu
