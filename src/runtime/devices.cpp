#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "backend/cpu/cpu_device.h"
#include "backend/default_device.h"
#include "backend/device.h"
#include "backend/gpu_backend.h"
#include "base/error.h"

namespace opwright {
namespace {

constexpr char kLibrary[] = "libopwright_cuda.so";

/// The CUDA backend, or why it is not there.
struct Loaded {
  const GpuBackend* backend = nullptr;
  std::string obstacle;
};

Loaded load_backend() {
  // Beside this library, wherever that lies.
  Dl_info self{};
  dladdr(reinterpret_cast<const void*>(&load_backend), &self);
  const auto path = std::filesystem::path(self.dli_fname).parent_path() / kLibrary;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {nullptr, str("this build of Opwright has no CUDA backend (", dlerror(), ")")};
  const auto entry = reinterpret_cast<GpuBackendEntry>(dlsym(library, kGpuBackendEntry));
  if (entry == nullptr) return {nullptr, str(path.string(), " is not of this version of Opwright")};
  return {entry(), ""};
}

const Loaded& gpu_backend() {
  static const Loaded loaded = load_backend();
  return loaded;
}

/// What OPWRIGHT_DEVICE says.
struct Choice {
  DeviceType type = DeviceType::kCPU;
  int ordinal = -1;  ///< -1: none
};

Choice chosen_device() {
  const std::string_view text = std::getenv("OPWRIGHT_DEVICE");
  if (text == "cpu") return {};
  Choice choice{DeviceType::kGPU};
  if (text == "cuda") return choice;
  const bool is_numbered = text.starts_with("cuda:");
  const char* const end = text.data() + text.size();
  const char* const number = is_numbered ? text.data() + 5 : end;
  const auto [parsed, error] = std::from_chars(number, end, choice.ordinal);
  require(is_numbered && error == std::errc() && parsed == end && choice.ordinal >= 0,
          "the environment variable OPWRIGHT_DEVICE is '", text,
          "'; it must be cpu, cuda or cuda:1 (with the number of the GPU)");
  return choice;
}

}  // namespace

std::string gpu_obstacle() {
  const Loaded& gpu = gpu_backend();
  return gpu.backend == nullptr ? gpu.obstacle : gpu.backend->obstacle();
}

const Device& get_device(DeviceType type, int ordinal) {
  switch (type) {
    case DeviceType::kCPU:
      return cpu_device();
    case DeviceType::kGPU: {
      const std::string obstacle = gpu_obstacle();
      if (!obstacle.empty())
        fail_with(ErrorCode::kUNSUPPORTED_STATE, "the GPU was asked for, but ", obstacle,
                  "; or use the CPU (DeviceType::kCPU, or OPWRIGHT_DEVICE=cpu)");
      if (ordinal < 0 && is_default_device_chosen()) {
        ordinal = chosen_device().ordinal;
        const int count = gpu_backend().backend->device_count();
        require(ordinal < count, "OPWRIGHT_DEVICE is cuda:", ordinal, ", and there ",
                count == 1 ? "is 1 GPU" : str("are ", count, " GPUs"), ", numbered from 0");
      }
      return gpu_backend().backend->device(ordinal);
    }
    default:
      fail("there is no backend for device type ", static_cast<int>(type), "; the CPU is ",
           static_cast<int>(DeviceType::kCPU), " and the GPU ", static_cast<int>(DeviceType::kGPU));
  }
}

bool is_default_device_chosen() {
  const char* wanted = std::getenv("OPWRIGHT_DEVICE");
  return wanted != nullptr && *wanted != '\0';
}

DeviceType default_device_type() {
  if (is_default_device_chosen()) return chosen_device().type;
  return gpu_obstacle().empty() ? DeviceType::kGPU : DeviceType::kCPU;
}

}  // namespace opwright
