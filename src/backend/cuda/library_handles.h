#pragma once

#include "backend/library_handles.h"

namespace opwright::cuda {

/// Handles of cuBLAS and cuDNN, which are loaded when this is called first. What is missing, or
/// does not start, is null, and a line of the log says why.
std::unique_ptr<const LibraryHandles> make_library_handles(const Device& device);

}  // namespace opwright::cuda
