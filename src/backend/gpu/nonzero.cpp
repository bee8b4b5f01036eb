#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "operators/selection.h"

namespace opwright::gpu {
namespace {

constexpr int kCounting = 1024;  ///< threads of the block

std::vector<Candidate> nonzero_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "one block")};
}

std::optional<GeneratedKernel> generate_nonzero(const Operator&, const KernelArgs& args) {
  KernelSource source("nonzero", args);
  const SymShape& x = source.dims(0);
  ConfigWriter config;
  config.type("Element", storage_type(args.inputs[0].type.dtype));
  config.type("Number", storage_type(args.outputs[0].type.dtype));
  config.number("kAxes", x.size()), config.number("kThreads", kCounting);
  source.add_declarations(include("nonzero.cuh") + config.write());
  return source.finish(str("find_nonzero<Config>({in0, out0, out1, ", source.value(numel(x)), ", {",
                           source.values(x), "}});\n"),
                       Expr(1), kCounting);
}

const RegisteredKernels<NonZero> kNonZeroKernels({nonzero_candidates, generate_nonzero, nullptr});

}  // namespace
}  // namespace opwright::gpu
