#pragma once

#include "bindings.h"
#include "network/network.h"

namespace opwright::python {

/// An attention as a whole: its layer, by another class.
struct AttentionHandle {
  Layer* layer;
};

/// The classes that layers at the borders of loops, conditionals and attentions have in common, and
/// those of what they border on. Before the layers' own.
void bind_region_layers(nb::module_& m);

}  // namespace opwright::python
