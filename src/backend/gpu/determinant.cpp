#include <algorithm>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "base/checked.h"
#include "base/types.h"
#include "operators/indexing.h"

namespace opwright::gpu {
namespace {

/// Threads that eliminate one matrix, and matrices that are eliminated at once.
constexpr int kEliminating = 128;
constexpr int64_t kMatrices = 512;

std::vector<Candidate> determinant_candidates(const Operator&, const CandidateQuery& query) {
  if (!is_floating(query.inputs[0].type.dtype)) return {};
  return {linear_candidate(query, "a block per matrix")};
}

std::optional<GeneratedKernel> generate_determinant(const Operator&, const KernelArgs& args) {
  KernelSource source("determinant", args);
  const SymShape& x = source.dims(0);
  const Expr count = numel(std::span(x).first(x.size() - 2));
  source.check_equal(x[x.size() - 2], x.back(), "matrices must be square");
  const Shape& most = args.inputs[0].max;
  const int rank = most.rank();
  const int64_t rows = std::max<int64_t>(1, most[rank - 1]);
  const int64_t blocks = std::clamp<int64_t>(most.numel(0, rank - 2), 1, kMatrices);
  source.add_scratch("double",
                     checked_product("the memory to eliminate in",
                                     {blocks, rows, rows, static_cast<int64_t>(sizeof(double))}));
  ConfigWriter config;
  config.type("Element", storage_type(args.outputs[0].type.dtype));
  config.number("kThreads", kEliminating);
  source.add_declarations(include("determinant.cuh") + config.write());
  return source.finish(str("find_determinants<Config>({in0, out0, scratch, ", rows * rows, "ull, ",
                           source.values({count, x.back()}), "});\n"),
                       min(count, Expr(blocks)), kEliminating);
}

const RegisteredKernels<Determinant> kDeterminantKernels({determinant_candidates,
                                                          generate_determinant, nullptr});

}  // namespace
}  // namespace opwright::gpu
