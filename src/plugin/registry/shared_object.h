#pragma once

#include <string>

#include "base/blob.h"

namespace opwright {

/// Why the bytes are not a shared object for this host that is whole, and whose memory is never
/// writable and executable at once; empty when they are. The system's loader does not ask: it kills
/// the process when a file is shorter than its headers say, and makes stacks executable.
std::string shared_object_fault(const Blob& bytes);

}  // namespace opwright
