#pragma once

#include <memory>

#include "network/operator.h"
#include "operators/pooling.h"

namespace opwright {

/// Makes a kernel of max pooling, in all formats of images. oneDNN's pooling starts with the least
/// finite number and ignores NaN.
std::unique_ptr<Kernel> make_max_pooling(const PoolingParams& params, const KernelArgs& args);

}  // namespace opwright
