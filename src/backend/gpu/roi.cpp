#include <algorithm>
#include <cstdio>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
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

/// Begins the Config of a kernel over regions of images.
ConfigWriter config_of(const KernelArgs& args, int64_t rows, int64_t columns, double scale) {
  ConfigWriter config;
  config.type("Element", storage_type(args.outputs[0].type.dtype));
  config.number("kRows", rows), config.number("kColumns", columns);
  config.value("double", "kScale", literal(scale));
  return config;
}

/// Writes a call of that function with a thread for each element of the output [R, C, bins...].
GeneratedKernel write(KernelSource& source, const ConfigWriter& config, std::string_view call,
                      const Expr& bins) {
  const SymShape& x = source.dims(0);
  const Expr& regions = source.dims(1)[0];
  source.add_declarations(include("roi.cuh") + config.write());
  return source.finish(str("const RoiImages all = {",
                           source.values({regions, x[0], x[1], x[2], x[3]}), "};\n", call),
                       blocks_for(regions * x[1] * bins, kThreads), kThreads);
}

std::vector<Candidate> roi_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a thread per element")};
}

std::optional<GeneratedKernel> generate_align(const Operator& op, const KernelArgs& args) {
  const RoiAlignParams& params = static_cast<const RoiAlign&>(op).params();
  KernelSource source("roi_align", args);
  source.check_equal(source.dims(2)[0], source.dims(1)[0], "an image for each region is expected");
  source.check_equal(source.dims(1)[1], Expr(4), "regions must have four numbers each");
  ConfigWriter config = config_of(args, params.height, params.width, params.spatial_scale);
  config.value("double", "kShift", params.half_pixel ? "0.5" : "0.0");
  config.flag("kIsAtLeastOne", !params.half_pixel);
  config.value("Index", "kSamples", std::max<int64_t>(0, params.sampling_ratio));
  config.flag("kTakesMost", params.max);
  return write(source, config, "align_regions<Config>(all, in0, in1, in2, out0);\n",
               params.height * params.width);
}

std::optional<GeneratedKernel> generate_pool(const Operator& op, const KernelArgs& args) {
  const RoiPoolParams& params = static_cast<const RoiPool&>(op).params();
  KernelSource source("roi_pool", args);
  source.check_equal(source.dims(1)[1], Expr(5), "regions must have five numbers each");
  return write(source, config_of(args, params.height, params.width, params.spatial_scale),
               "pool_regions<Config>(all, in0, in1, out0);\n", params.height * params.width);
}

const RegisteredKernels<RoiAlign> kRoiAlignKernels({roi_candidates, generate_align, nullptr});
const RegisteredKernels<RoiPool> kRoiPoolKernels({roi_candidates, generate_pool, nullptr});

}  // namespace
}  // namespace opwright::gpu
