#pragma once

#include <filesystem>

namespace opwright {

/// The folder of this library and of the files installed beside it.
std::filesystem::path library_folder();

}  // namespace opwright
