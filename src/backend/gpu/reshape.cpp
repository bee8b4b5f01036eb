#include "backend/candidates.h"
#include "backend/gpu/copy.h"
#include "backend/gpu/kernels.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> reshape_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "view")};
}

}  // namespace

KernelEntry reshape_kernels() {
  return {reshape_candidates, nullptr, make_copy_kernel, check_copy};
}

}  // namespace opwright::gpu
