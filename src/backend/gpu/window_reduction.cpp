#include "operators/window_reduction.h"

#include <cstdio>

#include "backend/gpu/kernels.h"
#include "backend/gpu/pooling_writer.h"
#include "backend/gpu/rows.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> candidates(const Operator&, const CandidateQuery& query) {
  return moving_candidates(
      query, [](const KernelArgs&) { return std::vector<std::string>{"a thread per window"}; });
}

std::optional<GeneratedKernel> generate_max(const Operator& op, const KernelArgs& args) {
  const IndexedMaxPoolingParams& params = static_cast<const IndexedMaxPooling&>(op).params();
  PoolingWriter writer("indexed_max_pooling", params.pooling, args);
  writer.config().flag("kIsColumnMajor", params.column_major);
  return writer.write("pool_with_indices", "in0, out0, out1");
}

std::optional<GeneratedKernel> generate_lp(const Operator& op, const KernelArgs& args) {
  const LpPoolingParams& params = static_cast<const LpPooling&>(op).params();
  PoolingWriter writer("lp_pooling", params.pooling, args);
  char p[40];
  std::snprintf(p, sizeof p, "%.17e", static_cast<double>(params.p));
  writer.config().value("double", "kP", p);
  return writer.write("pool_norms", "in0, out0");
}

const RegisteredKernels<IndexedMaxPooling> kIndexedMaxPoolingKernels({candidates, generate_max,
                                                                      nullptr});
const RegisteredKernels<LpPooling> kLpPoolingKernels({candidates, generate_lp, nullptr});

}  // namespace
}  // namespace opwright::gpu
