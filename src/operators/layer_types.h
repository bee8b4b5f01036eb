#pragma once

#include "network/network.h"

namespace opwright {

/// What TensorRT calls the layer. kPLUGIN for a function plugin, kSHAPE for
/// what a parser computed of extents.
LayerType layer_type(const Layer& layer);

}  // namespace opwright
