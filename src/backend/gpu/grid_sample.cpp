#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
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

std::string_view name_of(InterpolationMode mode) {
  switch (mode) {
    case InterpolationMode::kNEAREST:
      return "Interpolation::kNearest";
    case InterpolationMode::kLINEAR:
      return "Interpolation::kLinear";
    case InterpolationMode::kCUBIC:
      return "Interpolation::kCubic";
  }
  return {};
}

std::string_view name_of(SampleMode mode) {
  return mode == SampleMode::kFILL    ? "Outside::kZeros"
         : mode == SampleMode::kCLAMP ? "Outside::kNearest"
                                      : "Outside::kReflection";
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
  ConfigWriter config;
  config.type("Element", storage_type(args.outputs[0].type.dtype));
  config.type("Position", storage_type(args.inputs[1].type.dtype));
  config.number("kAxes", spatial), config.number("kChannels", kChannels);
  config.value("Interpolation", "kInterpolation", name_of(params.interpolation_mode));
  config.value("Outside", "kOutside", name_of(params.sample_mode));
  config.flag("kAligns", params.align_corners);
  source.add_declarations(include("grid_sample.cuh") + config.write());
  const Expr chunks = ceil_div(x[1], Expr(kChannels)), tasks = x[0] * chunks * points;
  return source.finish(str("sample_grid<Config>({in0, in1, out0, ",
                           source.values({tasks, x[1], chunks, points, size}), ", {",
                           source.values(std::span(x).subspan(2)), "}});\n"),
                       blocks_for(tasks, kThreads), kThreads);
}

const RegisteredKernels<GridSample> kGridSampleKernels({grid_sample_candidates,
                                                        generate_grid_sample, nullptr});

}  // namespace
}  // namespace opwright::gpu
