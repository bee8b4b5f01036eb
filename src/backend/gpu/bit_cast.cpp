#include "operators/bit_cast.h"

#include "backend/candidates.h"
#include "backend/gpu/copy.h"
#include "backend/gpu/kernels.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

std::vector<Candidate> bit_cast_candidates(const Operator&, const CandidateQuery& query) {
  if (!are_bit_castable(query.inputs[0].type.dtype, query.outputs[0].type.dtype)) return {};
  return {linear_candidate(query, "copy")};
}

const RegisteredKernels<BitCast> kBitCastKernels({bit_cast_candidates, nullptr, make_copy_kernel,
                                                  check_bit_copy});

}  // namespace
}  // namespace opwright::gpu
