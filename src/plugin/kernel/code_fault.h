#pragma once

#include <string>

#include "network/operator.h"

namespace opwright {

/// Says what the code is if it is not what it should be: a shared object for this host if `host` is
/// set, otherwise code for the device. Example: "PTX for sm_90". Empty if the code is right.
std::string code_fault(const CodeObject& object, const Device* device);

}  // namespace opwright
