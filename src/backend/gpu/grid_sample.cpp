#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/types.h"
#include "operators/sampling.h"

namespace opwright::gpu {
namespace {

/// Channels that a thread interpolates with the same neighbours and weights.
constexpr int kChannels = 8;

/// `kMode`, `kSampling` and `kAlign` are defined in front of it. As on the CPU, positions are
/// computed in double precision: those between two elements must not depend on how they round. For
/// the nearest element each step is rounded to FP32, as ONNX's reference, ONNX Runtime and PyTorch
/// do it.
constexpr std::string_view kAxis = R"(
// Mirrors a position at `low` and `high` until it is between them.
__device__ inline double reflect(double x, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  const double distance = fabs(x - low), turns = floor(distance / range);
  const double rest = distance - turns * range;
  return fmod(turns, 2.0) == 0 ? low + rest : high - rest;
}
__device__ inline double bounded(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

constexpr int kTaps = kMode == 0 ? 1 : kMode == 1 ? 2 : 4;
struct Taps {
  Index index[kTaps];  // -1: zero
  float weight[kTaps];
};

// The cubic convolution kernel within 1 and between 1 and 2; Keys 1981, with a = -0.75.
__device__ inline float inner(float t) { return (1.25f * t - 2.25f) * t * t + 1.0f; }
__device__ inline float outer(float t) { return ((-0.75f * t + 3.75f) * t - 6.0f) * t + 3.0f; }

__device__ inline double nearest_position(float position, double extent) {
  const double more = (float)(position + 1.0);
  if (kAlign) return (float)(more / 2 * (extent - 1));
  const double scaled = (float)(more * extent);
  return (double)(float)(scaled - 1) / 2;
}

__device__ inline Taps find_taps(float position, Index count) {
  const double extent = (double)count, low = kAlign ? 0.0 : -0.5;
  const double high = kAlign ? extent - 1 : extent - 0.5;
  double x = kMode == 0 ? nearest_position(position, extent)
             : kAlign ? (position + 1.0) / 2 * (extent - 1) : ((position + 1.0) * extent - 1) / 2;
  // What is no number, or so far away that no index reaches it, is beyond every border.
  if (!(fabs(x) < 4503599627370496.0)) x = x > 0 ? 4503599627370496.0 : -4503599627370496.0;
  if (kMode == 0) x = rint(x);
  // Of cubic interpolation each neighbour is placed by itself, as ONNX Runtime and PyTorch do.
  if (kMode != 2 && (x < low || x > high)) {
    if (kSampling == 1) x = bounded(x, 0.0, extent - 1);
    if (kSampling == 2) x = reflect(x, low, high);
  }
  const double below = kMode == 0 ? rint(x) : floor(x);
  const float t = (float)(x - below);
  const float weights[4] = {outer(1.0f + t), inner(t), inner(1.0f - t), outer(2.0f - t)};
  Taps taps;
  for (int i = 0; i < kTaps; ++i) {
    double at = below + (kMode == 2 ? i - 1 : i);
    if (at < 0 || at > extent - 1) {
      if (kSampling == 2) at = trunc(reflect(at, low, high));
      at = kSampling == 0 ? -1.0 : bounded(at, 0.0, extent - 1);
    }
    taps.index[i] = (Index)at;
    taps.weight[i] = kMode == 0 ? 1.0f : kMode == 2 ? weights[i] : i == 0 ? 1.0f - t : t;
  }
  return taps;
}
)";

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
                              params.align_corners ? "true" : "false", ";\n", kAxis));
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
