#include <cstdio>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"
#include "operators/sampling.h"

namespace opwright::gpu {
namespace {

/// As on the CPU, positions are computed in double precision.
constexpr std::string_view kBounded = R"(
__device__ inline double least(double a, double b) { return a < b ? a : b; }
__device__ inline double greater(double a, double b) { return a > b ? a : b; }
// A number that a long long holds, whatever it is.
__device__ inline double bounded(double x) {
  return x == x ? least(greater(x, -2147483648.0), 2147483648.0) : 0.0;
}
)";

/// The value at a position; `greatest` is the greatest of the weighted neighbours, which ONNX takes
/// the maximum of.
constexpr std::string_view kInterpolate = R"(
template <class T>
__device__ inline double interpolate(const T* x, Index height, Index width, double y, double at,
                                     double& greatest) {
  greatest = 0;
  if (!(y >= -1 && y <= (double)height && at >= -1 && at <= (double)width)) return 0;
  y = least(greater(y, 0.0), (double)(height - 1));
  at = least(greater(at, 0.0), (double)(width - 1));
  const Index y0 = (Index)y, x0 = (Index)at;
  const Index y1 = y0 + 1 < height ? y0 + 1 : y0, x1 = x0 + 1 < width ? x0 + 1 : x0;
  const double v = y - (double)y0, u = at - (double)x0;
  const double a = (1 - v) * (1 - u) * (double)load(x[y0 * width + x0]);
  const double b = (1 - v) * u * (double)load(x[y0 * width + x1]);
  const double c = v * (1 - u) * (double)load(x[y1 * width + x0]);
  const double d = v * u * (double)load(x[y1 * width + x1]);
  greatest = greater(greater(a, b), greater(c, d));
  return a + b + c + d;
}
)";

std::string literal(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "(%.17e)", x);
  return text;
}

/// Regions of x [N, C, H, W], a thread for each element of the output [R, C, bins...].
class RoiWriter {
 public:
  RoiWriter(std::string_view name, const KernelArgs& args, int64_t height, int64_t width,
            double scale)
      : source_(std::string(name), args),
        stored_(storage_type(args.outputs[0].type.dtype)),
        bins_{height, width} {
    const SymShape& x = source_.dims(0);
    images = source_.value(x[0]), channels = source_.value(x[1]);
    rows = source_.value(x[2]), columns = source_.value(x[3]);
    source_.add_declarations(include("indexing.cuh"));
    source_.add_declarations(kBounded);
    source_.add_declarations(str("constexpr double kScale = ", literal(scale), ";\n"));
  }

  KernelSource& source() { return source_; }
  std::string images, channels, rows, columns;

  /// The loop; the statements define `value` from `region`, `channel`, `i` and `j`.
  GeneratedKernel write(std::string_view statements) {
    const std::vector<Expr> extents = {source_.dims(1)[0], source_.dims(0)[1], bins_[0], bins_[1]};
    const Expr count = numel(extents);
    return source_.finish(
        str("for (Index at = first_index(); at < ", source_.value(count),
            "; at += index_step()) {\n",
            source_.decompose("at", std::vector<std::string>{"region", "channel", "i", "j"},
                              extents),
            statements, "out0[at] = store<", stored_, ">((float)value);\n}\n"),
        blocks_for(count, kThreads), kThreads);
  }

 private:
  KernelSource source_;
  const std::string_view stored_;
  const Expr bins_[2];
};

std::vector<Candidate> roi_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a thread per element")};
}

std::optional<GeneratedKernel> generate_align(const Operator& op, const KernelArgs& args) {
  const RoiAlignParams& params = static_cast<const RoiAlign&>(op).params();
  RoiWriter writer("roi_align", args, params.height, params.width, params.spatial_scale);
  KernelSource& source = writer.source();
  source.add_declarations(kInterpolate);
  source.check_equal(source.dims(2)[0], source.dims(1)[0], "an image for each region is expected");
  source.check_equal(source.dims(1)[1], Expr(4), "regions must have four numbers each");
  const std::string shift = params.half_pixel ? "0.5" : "0.0";
  // More samples than elements tell nothing more, but cost what a hostile region likes.
  const auto samples = [&](std::string_view bin) {
    if (params.sampling_ratio > 0) return std::to_string(params.sampling_ratio);
    return str("(Index)least(greater(ceil(", bin, "), 0.0), (double)((", writer.rows, " > ",
               writer.columns, " ? ", writer.rows, " : ", writer.columns, ") + 2))");
  };
  std::string text = str("const Index image = find(in2[region], ", writer.images, ");\n");
  for (int k = 0; k < 4; ++k)
    text += str("const double corner", k, " = bounded((double)load(in1[region * 4 + ", k,
                "]) * kScale - ", shift, ");\n");
  const auto size = [&](int low, int high) {
    const std::string difference = str("corner", high, " - corner", low);
    return params.half_pixel ? difference : str("greater(", difference, ", 1.0)");
  };
  text += str("const double bin_y = (", size(1, 3), ") / ", params.height, ".0, bin_x = (",
              size(0, 2), ") / ", params.width, ".0;\nconst Index rows = ", samples("bin_y"),
              ", columns = ", samples("bin_x"), ";\nconst bool is_there = image >= 0 && ",
              writer.rows, " > 0 && ", writer.columns, " > 0;\nconst auto* const plane = in0 + (",
              "is_there ? (image * ", writer.channels, " + channel) * ", writer.rows, " * ",
              writer.columns, " : 0);\n");
  text +=
      str("double sum = 0, most = 0;\nbool is_first = true;\n"
          "for (Index r = 0; is_there && r < rows; ++r)\n"
          "for (Index c = 0; c < columns; ++c) {\n"
          "const double y = corner1 + ((double)i + ((double)r + 0.5) / (double)rows) * bin_y;\n"
          "const double x = corner0 + ((double)j + ((double)c + 0.5) / (double)columns) * "
          "bin_x;\ndouble greatest;\nsum += interpolate(plane, ",
          writer.rows, ", ", writer.columns,
          ", y, x, greatest);\nmost = is_first ? greatest : greater(most, greatest);\n"
          "is_first = false;\n}\n");
  text += params.max ? "const double value = most;\n"
                     : "const double samples = (double)rows * (double)columns;\n"
                       "const double value = sum / (samples > 1 ? samples : 1.0);\n";
  return writer.write(text);
}

std::optional<GeneratedKernel> generate_pool(const Operator& op, const KernelArgs& args) {
  const RoiPoolParams& params = static_cast<const RoiPool&>(op).params();
  RoiWriter writer("roi_pool", args, params.height, params.width, params.spatial_scale);
  KernelSource& source = writer.source();
  source.check_equal(source.dims(1)[1], Expr(5), "regions must have five numbers each");
  source.add_declarations(R"(
__device__ inline Index within(double position, Index extent) {
  return (Index)least(greater(position, 0.0), (double)extent);
}
)");
  std::string text =
      str("const double image = (double)load(in1[region * 5]);\n"
          "const bool is_there = image >= 0 && image < (double)",
          writer.images, ";\n");
  for (int k = 0; k < 4; ++k)
    text += str("const double corner", k, " = round(bounded((double)load(in1[region * 5 + ", k + 1,
                "]) * kScale));\n");
  const auto range = [&](std::string_view begin, std::string_view end, std::string_view bin,
                         std::string_view k, int low, const std::string& extent, int64_t bins) {
    return str("const double ", bin, " = greater(corner", low + 2, " - corner", low,
               " + 1, 1.0) / ", bins, ".0;\nconst Index ", begin, " = within(floor((double)", k,
               " * ", bin, ") + corner", low, ", ", extent, "), ", end, " = within(ceil((double)(",
               k, " + 1) * ", bin, ") + corner", low, ", ", extent, ");\n");
  };
  text += range("left", "right", "bin_x", "j", 0, writer.columns, params.width);
  text += range("top", "bottom", "bin_y", "i", 1, writer.rows, params.height);
  text +=
      str("const auto* const plane = in0 + (is_there ? ((Index)image * ", writer.channels,
          " + channel) * ", writer.rows, " * ", writer.columns,
          " : 0);\nfloat value = 0;\nbool is_first = true;\n"
          "for (Index r = top; is_there && r < bottom; ++r)\n"
          "for (Index c = left; c < right; ++c) {\nconst float x = load(plane[r * ",
          writer.columns, " + c]);\nif (is_first || x > value) value = x;\nis_first = false;\n}\n");
  return writer.write(text);
}

const RegisteredKernels<RoiAlign> kRoiAlignKernels({roi_candidates, generate_align, nullptr});
const RegisteredKernels<RoiPool> kRoiPoolKernels({roi_candidates, generate_pool, nullptr});

}  // namespace
}  // namespace opwright::gpu
