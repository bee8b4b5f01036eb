#pragma once

#include "network/network.h"

namespace opwright {

/// TensorRT's type of the layer. kPLUGIN for a function plugin, kSHAPE for the arithmetic of
/// extents that a parser added.
LayerType layer_type(const Layer& layer);

}  // namespace opwright
