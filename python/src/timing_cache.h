#pragma once

#include "bindings.h"

namespace opwright::python {

/// ITimingCache and what it is made of, for bind_builder.
void bind_timing_cache(nb::module_& m);

}  // namespace opwright::python
