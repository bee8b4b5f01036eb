#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"
#include "operators/sampling.h"

namespace opwright::gpu {
namespace {

/// Channels that a thread interpolates with the same neighbours and weights.
constexpr int kChannels = 8;

std::vector<Candidate> grid_sample_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a thread per point")};
}

std::optional<GeneratedKernel> generate_grid_sample(const Operator& op, const KernelArgs& args) {
  const GridSampleParams& params = static_cast<const GridSample&>(op).params();
  KernelSource source("grid_sample", args);
  const SymShape &x = source.dims(0), &grid = source.dims(1);
  const size_t spatial = x.size() - 2;
  const auto is_equal = [](const Expr& a, const Expr& b) {
    return Expr::make(ExprOp::kEqual, a, b);
  };
  const Expr size = numel(std::span(x).subspan(2));
  const Expr points = numel(std::span(grid).subspan(1, spatial));
  source.check(is_equal(x[0], grid[0]), "data and grid must agree in axis 0");
  source.check(is_equal(grid.back(), Expr(static_cast<int64_t>(spatial))),
               str("the last extent of the grid must be ", spatial));
  source.check(Expr(1) - is_equal(size, Expr(0)) * (Expr(1) - is_equal(points, Expr(0))),
               "there is nothing to sample");
  const int sampling = params.sample_mode == SampleMode::kFILL    ? 0
                       : params.sample_mode == SampleMode::kCLAMP ? 1
                                                                  : 2;
  source.add_declarations(str("constexpr int kMode = ", static_cast<int>(params.interpolation_mode),
                              ", kSampling = ", sampling, ";\nconstexpr bool kAlign = ",
                              params.align_corners ? "true" : "false", ";\n",
                              include("grid_sample.cuh")));
  const Expr chunks = ceil_div(x[1], Expr(kChannels)), count = x[0] * chunks * points;
  const std::string channels = source.value(x[1]);
  std::string text =
      str("for (Index at = first_index(); at < ", source.value(count), "; at += index_step()) {\n",
          source.decompose("at", std::vector<std::string>{"image", "chunk", "point"},
                           std::vector<Expr>{x[0], chunks, points}),
          "const auto* const position = in1 + (image * ", source.value(points), " + point) * ",
          spatial, ";\n");
  for (size_t i = 0; i < spatial; ++i)
    text += str("const Taps taps", i, " = find_taps(load(position[", spatial - 1 - i, "]), ",
                source.value(x[i + 2]), ");\n");
  text += str("const Index last = chunk * ", kChannels, " + ", kChannels, " < ", channels,
              " ? chunk * ", kChannels, " + ", kChannels, " : ", channels,
              ";\nfor (Index channel = chunk * ", kChannels,
              "; channel < last; ++channel) {\nconst Index plane = image * ", channels,
              " + channel;\nconst auto* const from = in0 + plane * ", source.value(size),
              ";\nfloat sum = 0;\n");
  std::string place = "0", weight = "1.0f", ends;
  for (size_t i = 0; i < spatial; ++i) {
    const std::string tap = str("taps", i), k = str("k", i);
    text += str("#pragma unroll\nfor (int ", k, " = 0; ", k, " < kTaps; ++", k, ") {\nif (", tap,
                ".index[", k, "] < 0) continue;\nconst Index place", i, " = ", place, " * ",
                source.value(x[i + 2]), " + ", tap, ".index[", k, "];\nconst float weight", i,
                " = ", weight, " * ", tap, ".weight[", k, "];\n");
    place = str("place", i), weight = str("weight", i), ends += "}\n";
  }
  text += str("sum += ", weight, " * load(from[", place, "]);\n", ends, "out0[plane * ",
              source.value(points), " + point] = store<", storage_type(args.outputs[0].type.dtype),
              ">(sum);\n}\n}\n");
  return source.finish(text, blocks_for(count, kThreads), kThreads);
}

const RegisteredKernels<GridSample> kGridSampleKernels({grid_sample_candidates,
                                                        generate_grid_sample, nullptr});

}  // namespace
}  // namespace opwright::gpu
