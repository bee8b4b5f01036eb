#pragma once

#include <vector>

#include "network/operator.h"

namespace opwright::cuda {

class CudaDevice;

/// Appends candidates in which cuDNN computes the operator. Needs a convolution, the library and a
/// query that allows it.
void add_cudnn_candidates(const Operator& op, const CandidateQuery& query,
                          std::vector<Candidate>& candidates);
/// The planned operator of such a candidate; null for other candidates. Throws Error where the
/// library has no engine for the candidate at the profile's optimum.
PlannedOperatorPtr plan_cudnn(const CudaDevice& device, const Operator& op, const KernelArgs& args);

}  // namespace opwright::cuda
