#include "backend/cuda/libraries.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "backend/cuda/driver.h"
#include "base/error.h"

namespace opwright::cuda {

std::vector<std::string> library_files(const std::vector<std::string>& names) {
  std::vector<std::string> files = names;
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

std::vector<std::string> library_files_for_driver(std::vector<std::string> names) {
  constexpr int kDriver13 = 13000;
  if (driver().version < kDriver13) std::reverse(names.begin(), names.end());
  return library_files(names);
}

void* open_library(std::span<const std::string> files, std::string& reason) {
  for (const std::string& file : files) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (reason.empty()) reason = dlerror();
  }
  return nullptr;
}

void* open_library(const char* variable, std::span<const std::string> files, std::string& reason) {
  const char* const named = std::getenv(variable);
  if (named == nullptr || *named == '\0') return open_library(files, reason);
  return open_library(std::vector<std::string>{named}, reason);
}

std::string version_text(size_t number) {
  return str(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

std::optional<LibraryTactic> LibraryTactics::find(int64_t number) const {
  const int64_t rest = number - first;
  if (rest < 0 || rest >= int64_t{2} * places) return std::nullopt;
  return LibraryTactic{static_cast<int>(rest / 2), rest % 2 != 0};
}

bool is_library_type(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
}

}  // namespace opwright::cuda
