#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "backend/cuda/driver.h"
#include "backend/device.h"

namespace opwright::cuda {

class CudaDevice;

/// Code loaded on a device: a CUmodule.
class Module {
 public:
  Module(const CudaDevice& device, CUmodule module) : device_(device), module_(module) {}
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  CUmodule get() const { return module_; }
  const CudaDevice& device() const { return device_; }

 private:
  const CudaDevice& device_;
  const CUmodule module_;
};

/// Code loaded on devices, each piece once for as long as somebody uses it. Thread safe.
class ModuleCache {
 public:
  /// Loads a cubin, fatbin or PTX. Throws Error naming the code and the device that cannot run it,
  /// with the log of the driver's compiler for PTX.
  std::shared_ptr<const Module> load(const CudaDevice& device, const CodeObject& code);

 private:
  using Key = std::pair<uint64_t, size_t>;  // hash and size of the code
  std::mutex mutex_;
  std::multimap<Key, std::pair<Blob, std::weak_ptr<const Module>>> modules_;
};

/// The function of that name in the module. Throws Error naming both where the module has no such
/// function.
std::shared_ptr<const DeviceFunction> find_function(std::shared_ptr<const Module> module,
                                                    const CodeObject& code,
                                                    const std::string& name);

/// Whether somebody still has the function from find_function(). Thread safe.
bool is_found(CUfunction function);

}  // namespace opwright::cuda
