#pragma once

#include "network/network.h"

namespace opwright {

/// For a tensor that is to decide shapes: declares the network inputs that its elements are
/// computed from as shape inputs (Network::make_shape_input()). Does nothing where the elements are
/// known already, and stops at tensors that are too large or of no integer type.
void make_shape_inputs(Tensor& tensor);

}  // namespace opwright
