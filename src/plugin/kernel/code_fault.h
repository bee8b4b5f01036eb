#pragma once

#include <string>

#include "network/operator.h"

namespace opwright {

/// What the code is instead of what it should be: a shared object for this host where `host` is
/// set, code for the device otherwise ("PTX for sm_90"). Empty where it is that.
std::string code_fault(const CodeObject& object, const Device* device);

}  // namespace opwright
