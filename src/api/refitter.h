#pragma once

#include "runtime/refitter.h"

namespace opwright {

/// The Refitter of an object of the public API.
Refitter& refitter_of(IRefitter& refitter);

}  // namespace opwright
