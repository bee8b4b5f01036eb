#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

/// Before anything asks for the driver: two emulated GPUs, and a cache of kernels of this run's
/// own.
struct Environment {
  Environment() : cache(std::filesystem::temp_directory_path() / "opwright-XXXXXX") {
    cache = mkdtemp(cache.data());
    setenv("OPWRIGHT_CUDA_DRIVER", OPWRIGHT_EMULATION_DIR "/libcuda.so.1", 1);
    setenv("OPWRIGHT_NVRTC", OPWRIGHT_EMULATION_DIR "/libnvrtc.so.13", 1);
    setenv("OPWRIGHT_EMULATED_DEVICES", "2", 1);
    setenv("OPWRIGHT_CACHE_DIR", cache.c_str(), 1);
  }
  ~Environment() { std::filesystem::remove_all(cache); }
  std::string cache;
} environment;

}  // namespace
