#pragma once

#include "backend/library_handles.h"

namespace opwright::cuda {

/// Makes handles of cuBLAS and cuDNN, which are loaded at the first call. The handle of a library
/// that is missing or does not start is null, and a line of the log says why.
std::unique_ptr<const LibraryHandles> make_library_handles(const Device& device);

}  // namespace opwright::cuda
