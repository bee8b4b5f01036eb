#pragma once

#include "backend/gpu/kernels.h"
#include "operators/dist_collective.h"

namespace opwright::gpu {

/// The kernel that reduces the ranks' parts of a tensor. Its input has them one behind the other,
/// with the shape [ranks, elements], and its output has one element for each of a part.
GeneratedKernel generate_rank_reduction(const DistCollectiveParams& params, const KernelArgs& args);

}  // namespace opwright::gpu
