#pragma once

#include <vector>

#include "network/network.h"

namespace opwright {

/// Prepares a tensor that decides shapes: declares the network inputs that its elements are
/// computed from as shape inputs (Network::make_shape_input()). Does nothing if the elements are
/// known already. Stops at tensors that are too large or have no integer type. Returns the new
/// shape inputs.
std::vector<Tensor*> make_shape_inputs(Tensor& tensor);

/// The network inputs that the tensor is computed from, in the network's order. If the tensor is an
/// input, it is one of them.
std::vector<Tensor*> inputs_behind(Tensor& tensor);

}  // namespace opwright
