#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/error.h"
#include "base/types.h"
#include "operators/sampling.h"

namespace opwright::gpu {
namespace {

/// Channels per thread: position and weights are computed once for all of them.
constexpr int64_t kColumnChannels = 8;

std::vector<Candidate> deformable_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, str(kColumnChannels, " channels per thread"))};
}

/// Neighbouring threads have neighbouring columns of windows. Positions are computed in double
/// precision, as on the CPU.
std::optional<GeneratedKernel> generate_deformable(const Operator& op, const KernelArgs& args) {
  const DeformableColumnsParams& params = static_cast<const DeformableColumns&>(op).params();
  KernelSource source("deformable_columns", args);
  const bool has_factors = args.inputs.size() > 2 && args.inputs[2].present;
  const SymShape &x = source.dims(0), &offsets = source.dims(1);
  const int64_t places = params.window[0] * params.window[1], groups = params.offset_groups;
  const Expr of_group = floor_div(x[1], Expr(groups));
  const Expr chunks = ceil_div(of_group, Expr(kColumnChannels));
  const auto equal = [](const Expr& a, const Expr& b) { return Expr::make(ExprOp::kEqual, a, b); };
  Expr fits = equal(of_group * groups, x[1]) * equal(offsets[0], x[0]) *
              equal(offsets[1], Expr(groups * places * 2));
  if (has_factors) {
    const SymShape& factors = source.dims(2);
    fits = fits * equal(factors[0], x[0]) * equal(factors[1], Expr(groups * places)) *
           equal(factors[2], offsets[2]) * equal(factors[3], offsets[3]);
  }
  source.check(fits, "offsets and factors must fit the image and its groups");
  const SymShape extents = {x[0], groups, chunks, places, offsets[2], offsets[3]};
  const Expr count = numel(extents);
  const std::string channels = source.value(x[1]), per_group = source.value(of_group);
  const std::string height = source.value(x[2]), width = source.value(x[3]);
  const std::string size = source.value(offsets[2] * offsets[3]);
  const std::string_view stored = storage_type(args.outputs[0].type.dtype);
  const std::vector<std::string> names = {"image", "group", "chunk", "window", "row", "column"};
  const auto begin = [&](std::string_view at, int axis, std::string_view window) {
    return str("(double)((long long)", at, " * ", params.stride[axis], "LL - ",
               params.pre_padding[axis], "LL + ", window, " * ", params.dilation[axis], "LL)");
  };
  return source.finish(
      str("for (Index task = first_index(); task < ", source.value(count),
          "; task += index_step()) {\n", source.decompose("task", names, extents),
          "const Index moved = (image * ", groups, " + group) * ", places, " + window;\n",
          "const Index at = row * ", source.value(offsets[3]), " + column;\n",
          "const double y = ", begin("row", 0, str("window / ", params.window[1])),
          " + (double)load(in1[moved * 2 * ", size, " + at]);\n",
          "const double x = ", begin("column", 1, str("window % ", params.window[1])),
          " + (double)load(in1[(moved * 2 + 1) * ", size, " + at]);\n",
          // Outside of the image all weights are zero.
          "const bool is_inside = y > -1.0 && y < (double)", height, " && x > -1.0 && x < (double)",
          width, ";\nconst double floor_y = is_inside ? floor(y) : 0.0, ",
          "floor_x = is_inside ? floor(x) : 0.0;\n",
          "const Index top = (Index)floor_y, left = (Index)floor_x;\n",
          "const float v = (float)(y - floor_y), u = (float)(x - floor_x);\n",
          "const bool has_top = is_inside && top >= 0, has_bottom = is_inside && top + 1 < ",
          height, ";\nconst bool has_left = left >= 0, has_right = left + 1 < ", width, ";\n",
          has_factors ? str("const float factor = load(in2[moved * ", size, " + at]);\n")
                      : std::string(),
          "const Index first = group * ", per_group, " + chunk * ", kColumnChannels,
          ";\nconst Index last = (group + 1) * ", per_group, ";\nconst Index corner = top * ",
          width, " + left;\n", "#pragma unroll\nfor (int k = 0; k < ", kColumnChannels,
          "; ++k) {\nconst Index channel = first + k;\nif (channel >= last) break;\n",
          "const auto* const plane = in0 + (image * ", channels, " + channel) * (", height, " * ",
          width, ");\n",
          "const float a = has_top && has_left ? load(plane[corner]) : 0.0f;\n"
          "const float b = has_top && has_right ? load(plane[corner + 1]) : 0.0f;\n",
          "const float c = has_bottom && has_left ? load(plane[corner + ", width,
          "]) : 0.0f;\nconst float d = has_bottom && has_right ? load(plane[corner + ", width,
          " + 1]) : 0.0f;\n",
          "float value = is_inside ? (1.0f - v) * ((1.0f - u) * a + u * b) + "
          "v * ((1.0f - u) * c + u * d) : 0.0f;\n",
          has_factors ? "value *= factor;\n" : "", "out0[((image * ", channels, " + channel) * ",
          places, " + window) * ", size, " + at] = store<", stored, ">(value);\n}\n}\n"),
      blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<DeformableColumns> kDeformableColumnsKernels({deformable_candidates,
                                                                      generate_deformable,
                                                                      nullptr});

}  // namespace
}  // namespace opwright::gpu
