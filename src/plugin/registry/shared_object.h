#pragma once

#include <string>
#include <vector>

#include "base/blob.h"

namespace opwright {

/// Why the bytes are not a complete shared object for this host whose memory is never writable and
/// executable at once; empty when they are. The system's loader does not check: it kills the
/// process when a file is shorter than its headers say, and makes stacks executable.
std::string shared_object_fault(const Blob& bytes);

/// The names of the libraries that the shared object needs (DT_NEEDED). None for bytes with a
/// fault.
std::vector<std::string> needed_libraries(const Blob& bytes);

}  // namespace opwright
