#pragma once

#include "bindings.h"
#include "network/network.h"

namespace opwright::python {

/// An attention as a whole, which is its layer under another class.
struct AttentionHandle {
  Layer* layer;
};

/// Binds the base classes of layers at the borders of loops, conditionals and attentions, and the
/// classes of these regions. Call it before the layers' classes are bound.
void bind_region_layers(nb::module_& m);

}  // namespace opwright::python
