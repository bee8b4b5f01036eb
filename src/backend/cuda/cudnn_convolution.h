#pragma once

#include <vector>

#include "network/operator.h"

namespace opwright::cuda {

class CudaDevice;

/// Appends the ways in which cuDNN computes the operator, where that is a convolution, the library
/// is there and the query allows it.
void add_cudnn_candidates(const Operator& op, const CandidateQuery& query,
                          std::vector<Candidate>& candidates);
/// The operator of such a candidate, null for another one. Throws Error where the library has no
/// engine for the candidate at the profile's optimum.
PlannedOperatorPtr plan_cudnn(const CudaDevice& device, const Operator& op, const KernelArgs& args);

}  // namespace opwright::cuda
