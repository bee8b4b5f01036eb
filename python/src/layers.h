#pragma once

#include "bindings.h"
#include "network/network.h"
#include "operators/properties.h"

namespace opwright::python {

/// Converts Python weights. None and Weights without values give an array without elements.
WeightsArray to_weights(nb::handle weights, std::string_view what);
/// The layer as an object of its class, which keeps the network alive.
nb::object layer_object(Layer& layer, nb::handle network);

}  // namespace opwright::python
