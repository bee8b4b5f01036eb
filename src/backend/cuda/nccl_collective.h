#pragma once

#include "network/operator.h"

namespace opwright::cuda {

class CudaDevice;

/// The planned operator of a collective operation, which NCCL runs; null for other operators.
PlannedOperatorPtr plan_nccl(const CudaDevice& device, const Operator& op, const KernelArgs& args);

}  // namespace opwright::cuda
