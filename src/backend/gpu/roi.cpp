#include <cstdio>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"
#include "operators/sampling.h"

namespace opwright::gpu {
namespace {

std::string literal(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "(%.17e)", x);
  return text;
}

/// Writes kernels over regions of x [N, C, H, W], with a thread for each element of the output [R,
/// C, bins...].
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
    source_.add_declarations(include("roi.cuh"));
    source_.add_declarations(str("constexpr double kScale = ", literal(scale), ";\n"));
  }

  KernelSource& source() { return source_; }
  std::string images, channels, rows, columns;

  /// Writes the loop. `statements` define `value` from `region`, `channel`, `i` and `j`.
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
  source.check_equal(source.dims(2)[0], source.dims(1)[0], "an image for each region is expected");
  source.check_equal(source.dims(1)[1], Expr(4), "regions must have four numbers each");
  const std::string shift = params.half_pixel ? "0.5" : "0.0";
  // More samples than elements add nothing, but a hostile region could use them to cost time.
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
