#include "backend/cuda/libraries.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace opwright::cuda {

std::vector<std::string> library_files(std::span<const std::string> names) {
  std::vector<std::string> files(names.begin(), names.end());
  const char* path = std::getenv("OPWRIGHT_CUDA_PATH");
  std::string_view folders = path != nullptr ? path : "";
  while (!folders.empty()) {
    const std::string_view folder = folders.substr(0, folders.find(':'));
    folders.remove_prefix(std::min(folder.size() + 1, folders.size()));
    if (folder.empty()) continue;
    for (const std::string& name : names) files.push_back(str(folder, "/", name));
  }
  for (const std::string& name : names) files.push_back("/usr/local/cuda/lib64/" + name);
  return files;
}

void* open_library(std::span<const std::string> files, std::string& reason) {
  for (const std::string& file : files) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (reason.empty()) reason = dlerror();
  }
  return nullptr;
}

}  // namespace opwright::cuda
