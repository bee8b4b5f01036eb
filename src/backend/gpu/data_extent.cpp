#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/source.h"
#include "operators/selection.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> data_extent_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "one thread")};
}

std::optional<GeneratedKernel> generate_data_extent(const Operator& op, const KernelArgs& args) {
  KernelSource source("data_extent", args);
  const int64_t element = static_cast<const DataExtent&>(op).params().element;
  return source.finish(str("if (", element, " < ", source.value(numel(source.dims(0))),
                           ") out0[0] = in0[", element, "];\n"),
                       Expr(1), 1);
}

const RegisteredKernels<DataExtent> kDataExtentKernels({data_extent_candidates,
                                                        generate_data_extent, nullptr});

}  // namespace
}  // namespace opwright::gpu
