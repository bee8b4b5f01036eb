#pragma once

#include <filesystem>

namespace opwright {

/// Where this library lies, and what is installed beside it.
std::filesystem::path library_folder();

}  // namespace opwright
