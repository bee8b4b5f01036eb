#pragma once

#include <vector>

#include "network/operator.h"

namespace opwright::cuda {

class CudaDevice;

/// Appends candidates in which cuBLASLt computes the operator. Needs a matrix product, the library
/// and a query that allows it.
void add_cublaslt_candidates(const Operator& op, const CandidateQuery& query,
                             std::vector<Candidate>& candidates);
/// The planned operator of such a candidate; null for other candidates. Throws Error where the
/// library has no algorithm for the candidate at the profile's optimum.
PlannedOperatorPtr plan_cublaslt(const CudaDevice& device, const Operator& op,
                                 const KernelArgs& args);

}  // namespace opwright::cuda
