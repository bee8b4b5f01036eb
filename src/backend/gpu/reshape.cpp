#include "backend/candidates.h"
#include "backend/gpu/copy.h"
#include "backend/gpu/kernels.h"
#include "operators/movement.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> reshape_candidates(const Operator&, const CandidateQuery& query) {
  return {linear_candidate(query, "view")};
}

const RegisteredKernels<Reshape> kReshapeKernels({reshape_candidates, nullptr, make_copy_kernel,
                                                  check_copy});

}  // namespace
}  // namespace opwright::gpu
