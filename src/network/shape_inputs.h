#pragma once

#include <vector>

#include "network/network.h"

namespace opwright {

/// For a tensor that is to decide shapes: declares the network inputs that its elements are
/// computed from as shape inputs (Network::make_shape_input()). Does nothing where the elements are
/// known already, and stops at tensors that are too large or of no integer type. Returns those that
/// were none before.
std::vector<Tensor*> make_shape_inputs(Tensor& tensor);

/// The network inputs that the tensor is computed from, the tensor itself where it is one, in the
/// order of the network.
std::vector<Tensor*> inputs_behind(Tensor& tensor);

}  // namespace opwright
