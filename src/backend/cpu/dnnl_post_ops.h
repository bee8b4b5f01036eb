#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "operators/activation.h"

namespace opwright {

/// Appends the activation as oneDNN's element-wise operations; false, with nothing appended, when
/// they cannot express it.
bool append_activation(dnnl::post_ops& post_ops, const FusedActivation& activation);

}  // namespace opwright
