#include "threads/foreign_openmp.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace opwright::threads {
namespace {

/// omp_pause_resource_all() of OpenMP 5.0, and its argument.
using PauseAll = int (*)(int kind);
constexpr int kPauseSoft = 1;

bool is_openmp(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libgomp") || name.starts_with("libomp.") ||
         name.starts_with("libomp-") || name.starts_with("libiomp5");
}

/// The number of libraries that were ever loaded.
uint64_t loaded_count() {
  uint64_t count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<uint64_t*>(result) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        if (is_openmp(info->dlpi_name))
          static_cast<std::vector<std::string>*>(result)->emplace_back(info->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

/// The pause functions of OpenMP libraries. The libraries stay loaded.
class Libraries {
 public:
  void pause() {
    update();
    const size_t count = count_.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; ++i) known_[i](kPauseSoft);
  }

 private:
  void update() {
    const uint64_t loaded = loaded_count();
    if (loaded == seen_.load(std::memory_order_relaxed)) return;
    // A fork may have left the lock held for ever.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    for (const std::string& path : loaded_libraries()) add(path);
    seen_.store(loaded, std::memory_order_relaxed);
  }

  void add(const std::string& path) {
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    const auto pause = reinterpret_cast<PauseAll>(dlsym(library, "omp_pause_resource_all"));
    const size_t count = count_.load(std::memory_order_relaxed);
    const auto end = known_.begin() + count;
    if (pause == nullptr || count == known_.size() ||
        std::find(known_.begin(), end, pause) != end) {
      dlclose(library);
      return;
    }
    known_[count] = pause;
    count_.store(count + 1, std::memory_order_release);
  }

  std::mutex mutex_;
  std::atomic<uint64_t> seen_ = 0;
  std::array<PauseAll, 8> known_{};
  std::atomic<size_t> count_ = 0;
};

}  // namespace

void pause_foreign_openmp() {
  static auto& libraries = *new Libraries;  // used until the process ends
  libraries.pause();
}

}  // namespace opwright::threads
