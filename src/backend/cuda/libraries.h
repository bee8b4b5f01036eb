#pragma once

#include <span>
#include <string>
#include <vector>

namespace opwright::cuda {

/// Where NVIDIA's libraries of these names may lie, the best place first: where the loader finds
/// them, in a folder of OPWRIGHT_CUDA_PATH (separated by colons), in the CUDA toolkit.
std::vector<std::string> library_files(std::span<const std::string> names);

/// The first of the files that can be opened; it is never closed. Null where there is none; then
/// `reason` says why the first one cannot.
void* open_library(std::span<const std::string> files, std::string& reason);

}  // namespace opwright::cuda
