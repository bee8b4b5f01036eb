#include <dlfcn.h>

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
  const char* wanted = std::getenv("OPWRIGHT_DEVICE");
  if (!is_default_device_chosen())
    return gpu_obstacle().empty() ? DeviceType::kGPU : DeviceType::kCPU;
  if (std::string_view(wanted) == "cpu") return DeviceType::kCPU;
  if (std::string_view(wanted) == "cuda") return DeviceType::kGPU;
  fail("the environment variable OPWRIGHT_DEVICE is '", wanted, "'; it must be cpu or cuda");
}

}  // namespace opwright
