#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace opwright {

/// An engine file as bits 1 << SerializationFlag say. Throws Error for flags that ask for what is
/// not here.
std::vector<Blob> serialize_with(const Plan& plan, uint32_t flags);

}  // namespace opwright
