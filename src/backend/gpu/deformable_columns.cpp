#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
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
  ConfigWriter config;
  config.type("Element", storage_type(args.outputs[0].type.dtype));
  config.type("Offset", storage_type(args.inputs[1].type.dtype));
  config.flag("kHasFactors", has_factors);
  config.type("Factor", has_factors ? storage_type(args.inputs[2].type.dtype) : "void");
  config.number("kChannels", kColumnChannels);
  source.add_declarations(include("deformable_columns.cuh") + config.write());
  const Expr windows = offsets[2] * offsets[3], tasks = x[0] * groups * chunks * places * windows;
  std::string axes;
  for (const int axis : {0, 1})
    axes +=
        str(", {",
            source.values({x[2 + axis], offsets[2 + axis], params.window[axis], params.stride[axis],
                           params.dilation[axis], params.pre_padding[axis]}),
            "}");
  return source.finish(
      str("write_columns<Config>({in0, in1, ", has_factors ? "in2" : "nullptr", ", out0, ",
          source.values({tasks, groups, chunks, places, windows, x[1], of_group}), axes, "});\n"),
      blocks_for(tasks, kThreads), kThreads);
}

const RegisteredKernels<DeformableColumns> kDeformableColumnsKernels({deformable_candidates,
                                                                      generate_deformable,
                                                                      nullptr});

}  // namespace
}  // namespace opwright::gpu
