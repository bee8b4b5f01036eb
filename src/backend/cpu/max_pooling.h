#pragma once

#include <memory>

#include "network/operator.h"
#include "operators/pooling.h"

namespace opwright {

/// Pools by the maximum, in all formats of images. oneDNN's pooling begins with the least finite
/// number and passes over NaN.
std::unique_ptr<Kernel> make_max_pooling(const PoolingParams& params, const KernelArgs& args);

}  // namespace opwright
